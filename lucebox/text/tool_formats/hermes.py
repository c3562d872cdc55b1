"""Hermes, Qwen 2.5, Qwen 3 and many others: `<tool_call>{"name": "f", "arguments": {…}}</tool_call>`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from lucebox.text.lark import call_schema, is_lenient, json_value, literal
from lucebox.text.tool_formats.base import CallFormat, CallRules
from lucebox.text.tool_formats.parsing import CallParser, Steps
from lucebox.text.tools import Tool

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class Plugin(CallFormat):
    markers: ClassVar[tuple[str, ...]] = (OPEN, CLOSE)

    @classmethod
    def detect(cls, template: str) -> bool:
        return OPEN in template and "<function=" not in template

    def parser(self, tools: Sequence[Tool], *, eager: bool) -> HermesParser:
        return HermesParser([tool.name for tool in tools], eager=eager)

    def call_rules(self, tools: Sequence[Tool], tokens: Mapping[str, int], *, beside_text: bool) -> CallRules:
        is_token = OPEN in tokens
        opener = f"<[{tokens[OPEN]}]>" if is_token else OPEN
        close = f"<[{tokens[CLOSE]}]>" if CLOSE in tokens else literal(CLOSE)
        return CallRules(
            call=f'"\\n" call "\\n" {close}',
            between=f'"\\n" {opener if is_token else literal(OPEN)}',
            opener=opener,
            is_token=is_token,
            rules=f"call: {json_value(call_schema(tools), lenient=is_lenient(tools))}\n",
        )


class HermesParser(CallParser):
    """Reads calls without the tags, too, if the answer begins with them: coder models leave them out."""

    def _parse(self) -> Steps:
        yield from self._bare_calls(eager=False)
        while (yield from self._say_until([OPEN])) is not None:
            opener = self._take(len(OPEN))
            if (yield from self._json_call()):
                yield from self._skip(CLOSE)
            else:
                self._say(opener)
