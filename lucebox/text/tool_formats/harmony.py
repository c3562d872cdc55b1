"""gpt-oss: messages on channels, as OpenAI's harmony format has them.

`<|channel|>analysis<|message|>…<|end|>` is reasoning, `commentary to=functions.f` a call, `final` the answer.
https://cookbook.openai.com/articles/openai-harmony
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import ClassVar

from lucebox.text.lark import argument_schema, excluding, is_lenient, json_value, literal
from lucebox.text.tool_formats.base import Message, ToolFormat, Wanted, chosen
from lucebox.text.tool_formats.parsing import CallParser, Steps, loads, n_ambiguous
from lucebox.text.tools import Tool

START, CHANNEL, MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
END, CALL, RETURN, CONSTRAIN = "<|end|>", "<|call|>", "<|return|>", "<|constrain|>"
_ENDS = (END, CALL, RETURN, START, CHANNEL)
_RECIPIENT = re.compile(r"to=functions\.([\w.-]+)")
_REASONING_CHANNELS = ("analysis", "commentary")


class Plugin(ToolFormat):
    markers: ClassVar[tuple[str, ...]] = (START, CHANNEL, MESSAGE, END, CALL, RETURN, CONSTRAIN)
    has_reasoning: ClassVar[bool] = True

    @classmethod
    def detect(cls, template: str) -> bool:
        return CHANNEL in template and MESSAGE in template

    def parser(self, tools: Sequence[Tool], *, eager: bool) -> HarmonyParser:
        return HarmonyParser([tool.name for tool in tools], eager=eager)

    def prepare(self, messages: list[Message], tools: Sequence[Tool], choice: str) -> list[Message]:
        """Reasoning under the name that the template looks for; it refuses it beside content."""
        out = []
        for message in messages:
            thinking = message.get("reasoning_content")
            if thinking and message.get("tool_calls") and not message.get("content"):
                message = {**message, "thinking": thinking}
            out.append(message)
        return out

    def grammar(self, tools: Sequence[Tool], choice: str, wanted: Wanted) -> str:
        """Reasoning as ever, then one call or the final answer: a call ends the turn."""
        tools = chosen(tools, choice)

        def token(name: str) -> str:
            return f"<[{wanted.tokens[name]}]>" if name in wanted.tokens else literal(name)

        message, end, constrain = token(MESSAGE), token(END), token(CONSTRAIN)
        next_message = f'{end} {token(START)} "assistant"'
        rules = [
            f"ANALYSIS: {excluding('/(?s:.*)/', '')}\n",
            f'analysis: {token(CHANNEL)} "analysis" {message} ANALYSIS {next_message}\n',
        ]
        finals = []
        if tools:
            finals.append("call")
            rules.append(f"call: {' | '.join(f'call{i}' for i in range(len(tools)))}\n")
        for i, tool in enumerate(tools):
            head = (
                f'{literal(f" to=functions.{tool.name}")} {token(CHANNEL)} "commentary " {constrain} "json"'
            )
            other = f'{token(CHANNEL)} {literal(f"commentary to=functions.{tool.name} ")} {constrain} "json"'
            arguments = json_value(argument_schema(tool), lenient=is_lenient(tools))
            rules.append(f"call{i}: ({head} | {other}) {message} arguments{i}\n")
            rules.append(f"arguments{i}: {arguments}\n")
        if choice == "auto" or not tools:
            finals.append("final")
            rules.append(f'final: {token(CHANNEL)} "final" {message} {wanted.answer or "ANALYSIS"}\n')
        return f"body: analysis* ({' | '.join(finals)})\n{''.join(rules)}"


class HarmonyParser(CallParser):
    """The prompt ends with `<|start|>assistant`, so the answer begins with the rest of a header."""

    @property
    def in_reasoning(self) -> bool:  # type: ignore[override]
        return self._is_reasoning

    def __init__(self, names: Sequence[str], *, eager: bool) -> None:
        super().__init__(names, eager=eager)
        self._is_reasoning = True  # a header is no content

    def _parse(self) -> Steps:
        while True:
            header = yield from self._header()
            if header is None:
                return
            named = _RECIPIENT.search(header)
            if named is not None and named[1] in self._names:
                self._is_reasoning = False
                yield from self._arguments(named[1])
            else:
                words = header.replace(CHANNEL, " ").split()
                self._is_reasoning = named is None and any(word in _REASONING_CHANNELS for word in words)
                yield from self._body()
            self._is_reasoning = True

    def _header(self) -> Generator[None, None, str | None]:
        """Takes a header; None at the end, and where the text is none that has one: it is content."""
        while True:
            for end in (END, CALL, RETURN):
                yield from self._skip(end)
            if not self._text and not (yield from self._more()):
                return None
            if self._text:
                break
        match = yield from self._match([[START, CHANNEL, " to=", "to="]])
        if match is None:
            self._is_reasoning = False
            yield from self._body()
            return "" if self._text else None
        at = yield from self._find(MESSAGE)
        if at < 0:
            return None
        header = self._take(at)
        self._take(len(MESSAGE))
        return header

    def _body(self) -> Steps:
        """Says a message, to its end."""
        say = self._think if self._is_reasoning else self._say
        while True:
            ends = [at for marker in _ENDS if (at := self._text.find(marker)) >= 0]
            if ends:
                say(self._take(min(ends)))
                return
            say(self._take(len(self._text) - n_ambiguous(self._text, _ENDS)))
            if not (yield from self._more()):
                say(self._take(len(self._text)))
                return

    def _arguments(self, name: str) -> Steps:
        opened = yield from self._match([["{"]])
        if opened is None:
            yield from self._body()
            return
        if self._eager:
            self._take(opened[0] - 1)
            yield from self._stream_arguments(self._start_call(name))
            return
        end = yield from self._value_end(opened[0] - 1)
        arguments = loads(self._text[:end]) if end >= 0 else None
        if isinstance(arguments, dict):
            self._take(end)
            self._call(name, arguments)
        else:
            self._is_reasoning = False
            yield from self._body()
