"""For models whose chat template knows no tools: a system message tells of them, and calls are JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from lucebox.text.lark import json_calls
from lucebox.text.tool_formats.base import CallFormat, CallRules, Message
from lucebox.text.tool_formats.llama3 import bare_call
from lucebox.text.tool_formats.parsing import CallParser, Steps, loads
from lucebox.text.tools import Tool


class Plugin(CallFormat):
    knows_tools: ClassVar[bool] = False
    arguments_key: ClassVar[str] = "arguments"

    @classmethod
    def detect(cls, template: str) -> bool:
        return False  # what is left when nothing else fits

    def parser(self, tools: Sequence[Tool], *, eager: bool) -> BareParser:
        return BareParser([tool.name for tool in tools], eager=eager)

    def call_rules(self, tools: Sequence[Tool], tokens: Mapping[str, int], *, beside_text: bool) -> CallRules:
        return CallRules(
            call="call",
            rules=json_calls(tools, self.arguments_key, beside_text=beside_text),
            bare=bare_call([tool.name for tool in tools]),
        )

    def prepare(self, messages: list[Message], tools: Sequence[Tool], choice: str) -> list[Message]:
        plain: list[Message] = []
        was_result = False
        for message in messages:
            is_result = message["role"] == "tool"
            turn = self._plain(message)
            if plain and plain[-1]["role"] == turn["role"] == "user" and (is_result or was_result):
                turn = {**turn, "content": f"{plain.pop()['content']}\n\n{turn['content']}"}
            plain.append(turn)
            was_result = is_result
        if not tools or choice == "none":
            return plain
        told = self._describe(tools, choice)
        if plain and plain[0]["role"] == "system":
            return [{**plain[0], "content": f"{plain[0]['content']}\n\n{told}"}, *plain[1:]]
        return [{"role": "system", "content": told}, *plain]

    def _describe(self, tools: Sequence[Tool], choice: str) -> str:
        example = (
            f'{{"name": "the function\'s name", "{self.arguments_key}": {{"a parameter": "its value"}}}}'
        )
        if choice == "auto":
            when = "If one of them helps to answer, call it: then your whole answer is"
        elif choice == "required":
            when = "You must call at least one of them: your whole answer is"
        else:
            when = f'You must call "{choice}": your whole answer is'
        listed = "\n".join(json.dumps(tool.for_template()["function"], ensure_ascii=False) for tool in tools)
        return (
            f"You can call these functions:\n{listed}\n\n{when} a JSON object such as\n{example}\n"
            "and nothing else, one such object per line for several calls. You will then be told the results."
        )

    def _plain(self, message: Message) -> Message:
        """A message without what the template does not know: calls and results as text."""
        if message["role"] == "tool":
            return {"role": "user", "content": f"Result of the function call:\n{message['content']}"}
        if not (calls := message.get("tool_calls")):
            return message
        lines = [message["content"]] if message.get("content") else []
        lines += [self._call_text(call["function"]) for call in calls]
        return {"role": message["role"], "content": "\n".join(lines)}

    def _call_text(self, function: Mapping[str, Any]) -> str:
        arguments = function["arguments"]
        if isinstance(arguments, str) and (decoded := loads(arguments)) is not None:
            arguments = decoded
        return json.dumps({"name": function["name"], self.arguments_key: arguments}, ensure_ascii=False)


class BareParser(CallParser):
    """Reads calls that an answer begins with, one after the other, perhaps in a Markdown fence."""

    def _parse(self) -> Steps:
        yield from self._bare_calls()
        self._say(self._take(len(self._text)))
        while (yield from self._more()):
            self._say(self._take(len(self._text)))
