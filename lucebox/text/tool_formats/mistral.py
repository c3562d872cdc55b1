"""Mistral: `[TOOL_CALLS]` and an array of calls; since its tokenizer's version 11, `name[ARGS]{…}` each."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import ClassVar

from lucebox.text.lark import argument_schema, call_schema, is_lenient, json_value, literal
from lucebox.text.tool_formats.base import CallFormat, CallRules
from lucebox.text.tool_formats.parsing import CallParser, Steps, call_in, loads
from lucebox.text.tools import Tool

OPEN, ARGS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"


class Plugin(CallFormat):
    markers: ClassVar[tuple[str, ...]] = (OPEN, ARGS, CALL_ID)

    @classmethod
    def detect(cls, template: str) -> bool:
        return OPEN in template

    def parser(self, tools: Sequence[Tool], *, eager: bool) -> MistralParser:
        return MistralParser([tool.name for tool in tools], eager=eager)

    def call_rules(self, tools: Sequence[Tool], tokens: Mapping[str, int], *, beside_text: bool) -> CallRules:
        is_token = OPEN in tokens
        opener = f"<[{tokens[OPEN]}]>" if is_token else OPEN
        lenient = is_lenient(tools)
        if ARGS not in tokens:  # an array of calls
            call = f"call: {json_value(call_schema(tools), lenient=lenient)}\n"
            return CallRules(
                call="call",
                between='", "',
                opener=opener,
                first='"[" call',
                closer='"]"',
                is_token=is_token,
                rules=call,
            )
        rules = [f"call: {' | '.join(f'call{i}' for i in range(len(tools)))}\n"]
        for i, tool in enumerate(tools):
            arguments = json_value(argument_schema(tool), lenient=lenient)
            rules.append(f"call{i}: {literal(tool.name)} <[{tokens[ARGS]}]> arguments{i}\n")
            rules.append(f"arguments{i}: {arguments}\n")
        between = opener if is_token else literal(opener)
        return CallRules(call="call", between=between, opener=opener, is_token=is_token, rules="".join(rules))


class MistralParser(CallParser):
    def _parse(self) -> Steps:
        while (yield from self._say_until([OPEN])) is not None:
            opener = self._take(len(OPEN))
            if not ((yield from self._array()) or (yield from self._named())):
                self._say(opener)

    def _array(self) -> Generator[None, None, bool]:
        """Takes an array of calls; False, and nothing taken, where there is none."""
        opened = yield from self._match([["["], ["{"]])
        if opened is None:
            return False
        if not self._eager:
            return (yield from self._held_array())
        taken = self._take(opened[0] - 1)
        if not (yield from self._json_call()):
            self._text = taken + self._text
            return False
        while (comma := (yield from self._match([[",", "]"]]))) is not None:
            self._take(comma[0])
            if comma[1] == ["]"] or not (yield from self._json_call()):
                break
        return True

    def _held_array(self) -> Generator[None, None, bool]:
        opened = yield from self._match([["["]])
        if opened is None or (end := (yield from self._value_end(opened[0] - 1))) < 0:
            return False
        values = loads(self._text[:end])
        calls = [call_in(value, self._names) for value in values or ()]
        if not calls or None in calls:
            return False
        self._take(end)
        for call in calls:
            if call is not None:
                self._call(*call)
        return True

    def _named(self) -> Generator[None, None, bool]:
        """Takes `name[ARGS]{…}`, `name[CALL_ID]id[ARGS]{…}` or `name{…}`."""
        named = yield from self._match([self._names, [ARGS, CALL_ID, "{"]])
        if named is None:
            return False
        at, (name, marker) = named
        if marker == CALL_ID:
            at = yield from self._find(ARGS, at)
            if at < 0:
                return False
            marker, at = ARGS, at + len(ARGS)
        if marker == ARGS:
            opened = yield from self._match([["{"]], at)
            if opened is None:
                return False
            at = opened[0]
        return (yield from self._arguments(name, at - 1))

    def _arguments(self, name: str, at: int) -> Generator[None, None, bool]:
        """Takes the object at `at` as the arguments of `name`."""
        if self._eager:
            self._take(at)
            yield from self._stream_arguments(self._start_call(name))
            return True
        end = yield from self._value_end(at)
        arguments = loads(self._text[at:end]) if end >= 0 else None
        if not isinstance(arguments, dict):
            return False
        self._take(end)
        self._call(name, arguments)
        return True
