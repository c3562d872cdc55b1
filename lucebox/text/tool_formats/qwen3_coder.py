"""Qwen3-Coder: calls as XML, a parameter at a time.

<tool_call><function=f><parameter=a>its value</parameter></function></tool_call>, each on a line of its own.
Strings stand as they are, other values as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from typing import Any, ClassVar

from lucebox.text.lark import escaped, is_lenient, json_value, literal
from lucebox.text.tool_formats.base import CallFormat, CallRules
from lucebox.text.tool_formats.hermes import CLOSE, OPEN
from lucebox.text.tool_formats.parsing import CallParser, Steps, loads
from lucebox.text.tools import Tool

END = "</function>"
_PARAMETER = re.compile(r"\s*<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>\s*", re.DOTALL)


class Plugin(CallFormat):
    markers: ClassVar[tuple[str, ...]] = (OPEN, CLOSE)

    @classmethod
    def detect(cls, template: str) -> bool:
        return "<function=" in template and "<parameter=" in template

    def parser(self, tools: Sequence[Tool], *, eager: bool) -> XmlParser:
        return XmlParser(tools, eager=eager)

    def call_rules(self, tools: Sequence[Tool], tokens: Mapping[str, int], *, beside_text: bool) -> CallRules:
        is_token = OPEN in tokens
        opener = f"<[{tokens[OPEN]}]>" if is_token else OPEN
        close = f"<[{tokens[CLOSE]}]>" if CLOSE in tokens else literal(CLOSE)
        rules = [f"call: {' | '.join(f'call{i}' for i in range(len(tools)))}\n"]
        for i, tool in enumerate(tools):
            rules += _tool_rules(i, tool)
        return CallRules(
            call=f'"\\n" call "\\n" {close}',
            between=f'"\\n" {opener if is_token else literal(OPEN)}',
            opener=opener,
            is_token=is_token,
            rules="".join(rules),
        )


def _tool_rules(i: int, tool: Tool) -> list[str]:
    """The rules of one tool: its parameters in the schema's order."""
    schema = tool.parameters
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    required = required if isinstance(required, list) else []
    rules, parts = [], []
    for k, (name, property) in enumerate(properties.items()):
        rule = f"parameter{i}_{k}"
        parts.append(rule if name in required else f"{rule}?")
        head = literal(f"<parameter={name}>\n")
        if isinstance(property, Mapping) and is_text(property):
            values = property.get("enum")
            if isinstance(values, list) and values:
                choices = " | ".join(literal(f"{value}\n</parameter>\n") for value in values)
                rules.append(f"{rule}: {head} ({choices})\n")
            else:
                rules.append(f'{rule}: {head} text{i}_{k} "\\n"\n')
                rules.append(f"text{i}_{k}[lazy]: /(?s:.*){escaped('</parameter>')}/\n")
        else:
            value = {**property} if isinstance(property, Mapping) else {}
            for key in ("$defs", "definitions"):
                if key in schema:
                    value.setdefault(key, schema[key])
            expression = json_value(value, lenient=is_lenient([tool]))
            rules.append(f'{rule}: {head} value{i}_{k} "\\n</parameter>\\n"\n')
            rules.append(f"value{i}_{k}: {expression}\n")
    rules.append(f'call{i}: {literal(f"<function={tool.name}>" + chr(10))} {" ".join(parts)} "{END}"\n')
    return rules


def is_text(schema: Mapping[str, Any]) -> bool:
    """Whether a parameter of this schema stands as it is."""
    if isinstance(values := schema.get("enum"), list):
        return all(isinstance(value, str) for value in values)
    return schema.get("type") == "string"


class XmlParser(CallParser):
    """Calls are handed out whole."""

    def __init__(self, tools: Sequence[Tool], *, eager: bool) -> None:
        super().__init__([tool.name for tool in tools], eager=eager)
        self._schemas = {tool.name: tool.parameters for tool in tools}

    def _parse(self) -> Steps:
        while (yield from self._say_until([OPEN])) is not None:
            opener = self._take(len(OPEN))
            if (yield from self._function()):
                yield from self._skip(CLOSE)
            else:
                self._say(opener)

    def _function(self) -> Generator[None, None, bool]:
        """Takes a call; False, and nothing taken, where there is none."""
        heads = [f"<function={name}>" for name in self._names]
        begun = yield from self._match([heads])
        if begun is None or (end := (yield from self._find(END, begun[0]))) < 0:
            return False
        name = self._names[heads.index(begun[1][0])]
        arguments = self._arguments(self._text[begun[0] : end], self._schemas[name])
        if arguments is None:
            return False
        self._take(end + len(END))
        self._call(name, arguments)
        return True

    def _arguments(self, text: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        arguments: dict[str, Any] = {}
        at = 0
        while match := _PARAMETER.match(text, at):
            name, value = match[1].strip(), match[2]
            property = properties.get(name, {})
            decoded = None if isinstance(property, Mapping) and is_text(property) else loads(value)
            is_null = value.strip() == "null" and decoded is None
            arguments[name] = value if decoded is None and not is_null else decoded
            at = match.end()
        return arguments if not text[at:].strip() else None
