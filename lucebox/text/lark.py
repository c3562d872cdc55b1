"""Pieces of grammars in llguidance's Lark syntax (its docs/syntax.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from lucebox.text.tools import Tool

ANYTHING = "/(?s:.*)/"
# As json.dumps writes, as most templates do, and so as models learn it.
_JSON_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def regex(pattern: str) -> str:
    """`pattern` between slashes; those in it must be escaped."""
    return f"/{pattern}/"


def with_slashes_escaped(pattern: str) -> str:
    """`pattern` for `regex`, with the same meaning; those that are escaped already stay so."""
    return re.sub(r"\\.|/", lambda match: r"\/" if match[0] == "/" else match[0], pattern, flags=re.DOTALL)


def escaped(text: str) -> str:
    """A regular expression that matches `text`."""
    return re.escape(text).replace("/", r"\/").replace("\\\n", r"\n").replace("\n", r"\n")


def excluding(terminal: str, start: str) -> str:
    """`terminal` without the texts that begin, after whitespace, with a match of the pattern `start`."""
    return f"{terminal} & ~/\\s*({start})(?s:.*)/" if start else terminal


def json_value(schema: Mapping[str, Any], *, lenient: bool = True) -> str:
    """An expression for JSON that is valid by `schema`, written as json.dumps does.

    `lenient`: what llguidance does not know in a schema is left out; else it refuses the grammar.
    """
    return "%json " + json.dumps({**schema, "x-guidance": {**_JSON_STYLE, "lenient": lenient}})


def argument_schema(tool: Tool) -> dict[str, Any]:
    """The schema of a tool's arguments, fit to stand inside of another: its own references still hold."""
    schema = dict(tool.parameters)
    schema.setdefault("$id", f"lucebox:tool/{tool.name}")
    return schema


def call_schema(tools: Sequence[Tool], arguments_key: str = "arguments") -> dict[str, Any]:
    """The schema of one call as an object of `name` and arguments, in this order."""
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": tool.name}, arguments_key: argument_schema(tool)},
            "required": ["name", arguments_key],
            "additionalProperties": False,
        }
        for tool in tools
    ]
    return calls[0] if len(calls) == 1 else {"anyOf": calls}


def json_calls(tools: Sequence[Tool], arguments_key: str, *, beside_text: bool) -> str:
    """The rule `call`, for calls that stand by themselves.

    `beside_text`: where there may be text instead. How a call begins, to where its arguments start, is then
    one lexeme, as the lexer would take it for text otherwise; and beside other JSON it must be JSON, too.
    """
    if not beside_text:
        return f"call: {json_value(call_schema(tools, arguments_key), lenient=is_lenient(tools))}\n"
    rules = [f"call: {' | '.join(f'call{i}' for i in range(len(tools)))}\n"]
    for i, tool in enumerate(tools):
        head = literal(f'{{"name": {json.dumps(tool.name)}, "{arguments_key}": ')
        rules.append(f'call{i}: {head} arguments{i} "}}"\n')
        rules.append(f"arguments{i}: {json_value(argument_schema(tool), lenient=not tool.strict)}\n")
    return "".join(rules)


def is_lenient(tools: Sequence[Tool]) -> bool:
    return not any(tool.strict for tool in tools)


def one_of(names: Sequence[str]) -> str:
    """A pattern for any of `names`."""
    return "(" + "|".join(map(escaped, names)) + ")"
