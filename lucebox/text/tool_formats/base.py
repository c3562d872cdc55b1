"""What a format of tool calls is: how to know it, read it, and make a model keep to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lucebox.text.lark import ANYTHING, escaped, excluding, literal, regex
from lucebox.text.tool_formats.parsing import CallParser
from lucebox.text.tools import Tool

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CallRules:
    """Calls in llguidance's Lark syntax: expressions, and the `rules` that they name.

    All of the answer's calls are `opener first (between call)* closer`; `first` is `call` unless given. Of a
    text opener, `opener` is the text itself, of a control token `<[id]>`. It is empty for calls that begin
    like text: text is then what does not begin with a match of the regular expression `bare`.
    """

    call: str
    rules: str
    opener: str = ""
    is_token: bool = False
    first: str = ""
    between: str = '"\\n"'
    closer: str = ""
    bare: str = ""

    @property
    def opening(self) -> str:
        return self.opener if self.is_token or not self.opener else literal(self.opener)

    def calls(self, *, parallel: bool) -> str:
        """The calls behind the opener."""
        more = f"({self.between} {self.call})*" if parallel else ""
        return f"{self.first or self.call} {more} {self.closer}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """An answer with calls, several where they may be `parallel`, or without.

    One without is of the rule `answer`, which the caller defines (JSON or not), or any text that does not
    begin with a match of the regular expression `avoid`. `tokens` has the ids of those of a format's
    `markers` that grammars cannot spell as text.
    """

    parallel: bool
    tokens: Mapping[str, int]
    answer: str | None = None
    is_json: bool = False
    avoid: str = ""


class ToolFormat(ABC):
    """How a family of models writes calls of tools. One file each; stateless."""

    markers: ClassVar[tuple[str, ...]] = ()
    """Control tokens that the parser must see, which text does not show."""
    knows_tools: ClassVar[bool] = True
    """Whether the chat template describes the tools; else `prepare` does."""
    has_reasoning: ClassVar[bool] = False
    """Whether the parser tells reasoning from content, too, and `grammar` allows it."""

    @classmethod
    @abstractmethod
    def detect(cls, template: str) -> bool:
        """Whether a model with this chat template (its source) writes calls so."""

    @abstractmethod
    def parser(self, tools: Sequence[Tool], *, eager: bool) -> CallParser:
        """Reads one answer; `eager` as CallParser says."""

    def prepare(self, messages: list[Message], tools: Sequence[Tool], choice: str) -> list[Message]:
        """`messages` as the chat template takes them. `choice` is none, auto, required, or a tool's name."""
        return messages

    @abstractmethod
    def grammar(self, tools: Sequence[Tool], choice: str, wanted: Wanted) -> str:
        """Rules of which `body` is the answer, as it is `wanted`. `choice` as for `prepare`, but not none."""


class CallFormat(ToolFormat):
    """A format whose answers are calls, or text and then calls: all that it has to say is what a call is."""

    @abstractmethod
    def call_rules(self, tools: Sequence[Tool], tokens: Mapping[str, int], *, beside_text: bool) -> CallRules:
        """`tokens` as Wanted has them. `beside_text`: the answer may be text instead, which a lexer must be
        able to tell from a call."""

    def grammar(self, tools: Sequence[Tool], choice: str, wanted: Wanted) -> str:
        tools, answer, avoid = chosen(tools, choice), wanted.answer, wanted.avoid
        rules = self.call_rules(tools, wanted.tokens, beside_text=choice == "auto" and not wanted.is_json)
        calls = rules.calls(parallel=wanted.parallel)
        if choice != "auto":
            return f"body: {rules.opening} {calls}\n{rules.rules}"
        if answer is not None:
            return f"body: {answer} | {rules.opening} {calls}\n{rules.rules}"
        if rules.is_token:
            text = f"FREE_TEXT: {self._without_markers(excluding(ANYTHING, avoid), wanted.tokens)}\n"
            return f"body: FREE_TEXT? ({rules.opener} {calls})?\n{text}{rules.rules}"
        if rules.opener:
            lead = f"LEAD: {excluding(regex('(?s:.*)' + escaped(rules.opener)), avoid)}\nlead[lazy]: LEAD\n"
            text = f"FREE_TEXT: {excluding(ANYTHING, avoid)}\n"
            return f"body: FREE_TEXT | lead {calls}\n{lead}{text}{rules.rules}"
        text = f"FREE_TEXT: {excluding(ANYTHING, '|'.join(filter(None, (rules.bare, avoid))))}\n"
        return f"body: FREE_TEXT | {calls}\n{text}{rules.rules}"

    def _without_markers(self, terminal: str, tokens: Mapping[str, int]) -> str:
        """`terminal` without the names of `markers`: spelt out, they would pass for the tokens."""
        names = [escaped(name) for name in self.markers if name in tokens]
        return f"{terminal} & ~/(?s:.*)({'|'.join(names)})(?s:.*)/" if names else terminal


def chosen(tools: Sequence[Tool], choice: str) -> Sequence[Tool]:
    """Those that may be called: all, unless `choice` is the name of one."""
    return tools if choice in ("auto", "required") else [tool for tool in tools if tool.name == choice]
