"""Calls in Python, `[f(a=1), g(b="x")]`: Llama 3.2 and 4, LFM2 and others that are told to."""

from __future__ import annotations

import ast
from collections.abc import Generator, Mapping, Sequence
from typing import Any, ClassVar

from lucebox.text.lark import literal, one_of
from lucebox.text.tool_formats.base import CallFormat, CallRules
from lucebox.text.tool_formats.parsing import CallParser, Steps, skip_space
from lucebox.text.tool_formats.python_values import PythonValues, terminals
from lucebox.text.tools import Tool

MARKS = (("<|python_start|>", "<|python_end|>"), ("<|tool_call_start|>", "<|tool_call_end|>"))
OPENERS = tuple(opener for opener, _ in MARKS)


class Plugin(CallFormat):
    markers: ClassVar[tuple[str, ...]] = tuple(mark for pair in MARKS for mark in pair)

    @classmethod
    def detect(cls, template: str) -> bool:
        return "func_name1(" in template or any(opener in template for opener in OPENERS)

    def parser(self, tools: Sequence[Tool], *, eager: bool) -> PythonicParser:
        return PythonicParser([tool.name for tool in tools], eager=eager)

    def call_rules(self, tools: Sequence[Tool], tokens: Mapping[str, int], *, beside_text: bool) -> CallRules:
        alternatives = [f"call{i}" for i in range(len(tools))]
        rules = [f"call: {' | '.join(alternatives)}\n", terminals()]
        rules.append(f"first: {' | '.join(f'first{i}' for i in range(len(tools)))}\n")
        for i, tool in enumerate(tools):
            values = PythonValues(f"v{i}")
            arguments = values.arguments(tool.parameters)
            rules.append(values.rules())
            rules.append(f'call{i}: {literal(tool.name + "(")} {arguments} ")"\n')
            # One lexeme, so that a lexer can tell it from text.
            rules.append(f'first{i}: {literal("[" + tool.name + "(")} {arguments} ")"\n')
        opener, closer = next((pair for pair in MARKS if pair[0] in tokens), ("", ""))
        return CallRules(
            first="first",
            call="call",
            between='", "',
            opener=f"<[{tokens[opener]}]>" if opener else "",
            is_token=bool(opener),
            closer=f'"]" <[{tokens[closer]}]>' if closer in tokens else '"]"',
            rules="".join(rules),
            bare=rf"\[{one_of([tool.name for tool in tools])}\(",
        )


class PythonicParser(CallParser):
    """Calls are handed out whole: those of a list together, unless a grammar binds it."""

    def _parse(self) -> Steps:
        yield from self._list()
        while (opener := (yield from self._say_until(OPENERS))) is not None:
            mark = self._take(len(opener))
            if (yield from self._list()):
                yield from self._skip(dict(MARKS)[opener])
            else:
                self._say(mark)

    def _list(self) -> Generator[None, None, bool]:
        """Takes a list of calls; False, and nothing taken, where there is none."""
        opened = yield from self._match([["["]])
        if opened is None:
            return False
        at = opened[0]
        calls: list[tuple[str, dict[str, Any]]] = []
        while True:
            begun = yield from self._match([self._names, ["("]], at)
            if begun is None or (end := (yield from self._parenthesis_end(begun[0] - 1))) < 0:
                return False
            arguments = keyword_arguments(self._text[begun[0] - 1 : end])
            if arguments is None:
                return False
            calls.append((begun[1][0], arguments))
            comma = yield from self._match([[",", "]"]], end)
            if comma is None:
                return False
            at = comma[0]
            if comma[1] == ["]"]:
                break
        self._take(at)
        for name, given in calls:
            self._call(name, given)
        return True

    def _parenthesis_end(self, start: int) -> Generator[None, None, int]:
        """Where the parenthesis that opens at `start` closes; -1 when the text ends before."""
        at, depth, quote, is_escaped = start, 0, "", False
        while True:
            while at < len(self._text):
                character = self._text[at]
                at += 1
                if is_escaped:
                    is_escaped = False
                elif quote:
                    is_escaped = character == "\\"
                    quote = "" if character == quote else quote
                elif character in "\"'":
                    quote = character
                elif character in "([{":
                    depth += 1
                elif character in ")]}":
                    depth -= 1
                    if not depth:
                        return at
            if not (yield from self._more()):
                return -1


def keyword_arguments(text: str) -> dict[str, Any] | None:
    """The arguments in `(a=1, b="x")`, where all are keywords and literals that JSON has; else None."""
    text = text[skip_space(text, 0) :]
    try:
        call = ast.parse("f" + text, mode="eval").body
        if not isinstance(call, ast.Call) or call.args or any(word.arg is None for word in call.keywords):
            return None
        values = {word.arg or "": ast.literal_eval(word.value) for word in call.keywords}
        return values if _is_json(values) else None
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(_is_json, value))
    if isinstance(value, float):
        return value == value and abs(value) != float("inf")
    return value is None or isinstance(value, str | int)
