"""How one model answers: its format of tool calls and its marks of reasoning, as parser and as grammar."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lucebox.errors import RequestError
from lucebox.grammar import Grammar
from lucebox.text import reasoning, tool_formats
from lucebox.text.answer_parser import AnswerParser, PlainParser
from lucebox.text.lark import ANYTHING, escaped, json_value, literal, regex, with_slashes_escaped
from lucebox.text.reasoning import Marks, ReasoningParser
from lucebox.text.tool_formats import ToolFormat, Wanted
from lucebox.text.tools import Tool

AUTO, NONE, REQUIRED = "auto", "none", "required"


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """`marks` is None where reasoning is not to be told from content. `tokens` are the ids of what grammars
    cannot spell as text: control tokens and others in angle brackets."""

    tools: ToolFormat
    marks: Marks | None
    tokens: Mapping[str, int]

    @classmethod
    def of(
        cls, template: str | None, tokens: Mapping[str, int], *, tool_format: str, reasoning_format: str
    ) -> AnswerFormat:
        """What fits a chat template (its source), or what is named instead. Raises ConfigError."""
        tools = tool_formats.detect(template) if tool_format == AUTO else tool_formats.get(tool_format)
        marks = None if reasoning_format == NONE else reasoning.detect(template)
        return cls(tools, marks, tokens)

    @property
    def reasons(self) -> bool:
        """Whether answers may have reasoning."""
        return self.marks is not None or self.tools.has_reasoning

    def markers_of(self, *, has_tools: bool) -> frozenset[str]:
        """Control tokens that the parser must see, of an answer that may call tools."""
        parses_calls = has_tools or self.tools.has_reasoning
        return frozenset(self.tools.markers if parses_calls else ()).union(self.marks or ())

    def is_open(self, prompt_end: str) -> bool:
        """Whether an answer to the prompt that ends so begins in mid-thought."""
        return self.marks is not None and reasoning.is_open(self.marks, prompt_end)

    def parser(
        self, tools: Sequence[Tool], *, opened: bool, eager: bool, parallel: bool = True
    ) -> AnswerParser:
        """Of an answer that may call `tools`, if `parallel`, several times. `eager`: `grammar` binds it."""
        parser: AnswerParser = PlainParser()
        if tools or self.tools.has_reasoning:
            parser = calls = self.tools.parser(tools, eager=eager)
            if not parallel:
                calls.limit(1)
        return parser if self.marks is None else ReasoningParser(self.marks, parser, opened=opened)

    def grammar(
        self,
        tools: Sequence[Tool],
        choice: str,
        *,
        parallel: bool,
        opened: bool,
        answer: Grammar | None,
    ) -> Grammar | None:
        """What binds an answer: calls of `tools` are valid, and without a call it is one of `answer`.

        `choice` is none, auto, required, or the name of the tool that must be called. None: any text will do.
        Raises RequestError for an answer's grammar that cannot stand beside tools or reasoning.
        """
        if choice == NONE or not tools:
            if answer is None or not self.reasons:
                return answer
            tools, choice = (), AUTO
        rules = "" if answer is None else _answer_rule(answer)
        avoid = ""
        if self.marks is not None and self.marks.open not in self.tokens:
            avoid = escaped(self.marks.open)
        if choice not in (AUTO, REQUIRED):
            parallel = False  # as OpenAI does: one call of the tool that is named
        if tools or self.tools.has_reasoning:
            wanted = Wanted(
                parallel=parallel,
                tokens=self.tokens,
                answer=None if answer is None else "answer",
                is_json=answer is not None and answer.kind == "json_schema",
                avoid=avoid,
            )
            rules += self.tools.grammar(tools, choice, wanted)
        else:
            rules += "body: answer\n"
        return Grammar("lark", f"{self._start(opened=opened)}{rules}")

    def _start(self, *, opened: bool) -> str:
        """The rule `start`: what may be thought before `body`."""
        if self.marks is None:
            return "start: body\n"
        opener, close = (self._mark(mark) for mark in self.marks)
        rules = "SPACE: /[ \\n]{1,4}/\n"
        if self.marks.close in self.tokens:
            rules += f"thought: THOUGHT {close}\nTHOUGHT: {ANYTHING}\n"
        else:
            rules += f"thought[lazy]: /(?s:.*){escaped(self.marks.close)}/\n"
        if opened:
            return f"start: thought SPACE? body\n{rules}"
        return f"start: body | SPACE? {opener} thought SPACE? body\n{rules}"

    def _mark(self, mark: str) -> str:
        return f"<[{self.tokens[mark]}]>" if mark in self.tokens else literal(mark)


def _answer_rule(answer: Grammar) -> str:
    """The rule `answer`, for what a request says of the answer's form."""
    match answer.kind:
        case "json_schema":
            schema = json.loads(answer.text)
            options = schema.get("x-guidance", {}) if isinstance(schema, dict) else {}
            if not isinstance(schema, dict):
                schema = {"allOf": [schema]}
            return f"answer: {json_value(schema, lenient=bool(options.get('lenient')))}\n"
        case "regex":
            return f"answer: {regex(with_slashes_escaped(answer.text))}\n"
        case _:
            raise RequestError(
                "A grammar of this kind cannot be combined with tools, nor with a model that reasons",
                param="grammar",
                remedy="use response_format, or a regular expression",
            )
