"""Llama 3.1 and later: an answer that is `{"name": "f", "parameters": {…}}`, or such behind <|python_tag|>.

https://www.llama.com/docs/model-cards-and-prompt-formats/llama3_1/#json-based-tool-calling
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import ClassVar

from lucebox.text.lark import json_calls, one_of
from lucebox.text.tool_formats.base import CallFormat, CallRules
from lucebox.text.tool_formats.parsing import CallParser, Steps
from lucebox.text.tools import Tool

PYTHON_TAG = "<|python_tag|>"


class Plugin(CallFormat):
    markers: ClassVar[tuple[str, ...]] = (PYTHON_TAG,)

    @classmethod
    def detect(cls, template: str) -> bool:
        return "<|start_header_id|>" in template and '"parameters"' in template

    def parser(self, tools: Sequence[Tool], *, eager: bool) -> LlamaParser:
        return LlamaParser([tool.name for tool in tools], eager=eager)

    def call_rules(self, tools: Sequence[Tool], tokens: Mapping[str, int], *, beside_text: bool) -> CallRules:
        return CallRules(
            call="call",
            between='"; "',
            rules=json_calls(tools, "parameters", beside_text=beside_text),
            bare=bare_call([tool.name for tool in tools]),
        )


class LlamaParser(CallParser):
    def _parse(self) -> Steps:
        yield from self._calls(name_first=True)
        while (yield from self._say_until([PYTHON_TAG])) is not None:
            tag = self._take(len(PYTHON_TAG))
            if not (yield from self._calls()):
                self._say(tag)

    def _calls(self, *, name_first: bool = False) -> Generator[None, None, bool]:
        """Calls in a row; whether there was any."""
        n_before = self._n_calls
        while (yield from self._json_call(name_first=name_first)):
            yield from self._skip(";")
        return self._n_calls > n_before


def bare_call(names: Sequence[str]) -> str:
    """A pattern for how a call that stands by itself begins."""
    return rf'\{{\s*"name"\s*:\s*"{one_of(names)}"'
