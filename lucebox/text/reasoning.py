"""What a model thinks before it answers, told from the answer by the marks that its template teaches it."""

from __future__ import annotations

from typing import NamedTuple

from lucebox.text.answer_parser import AnswerParser, Reasoning, Segment, joined
from lucebox.text.tool_formats.parsing import n_ambiguous


class Marks(NamedTuple):
    """What reasoning stands between."""

    open: str
    close: str


MARKS = (
    Marks("<think>", "</think>"),
    Marks("[THINK]", "[/THINK]"),
    Marks("<seed:think>", "</seed:think>"),
    Marks("<|START_THINKING|>", "<|END_THINKING|>"),
)


def detect(template: str | None) -> Marks | None:
    """The marks that a chat template (its source) has; None for a model that does not reason so."""
    if template is None:
        return None
    return next((marks for marks in MARKS if marks.open in template or marks.close in template), None)


def is_open(marks: Marks, prompt_end: str) -> bool:
    """Whether the prompt, of which `prompt_end` is the end, leaves the answer to begin in mid-thought."""
    return prompt_end.rstrip().endswith(marks.open)


class ReasoningParser:
    """An AnswerParser: reasoning first, if there is any, and the rest as `answer` parses it.

    It ends with its mark, or with the answer. The white space around it is dropped.
    """

    def __init__(self, marks: Marks, answer: AnswerParser, *, opened: bool) -> None:
        self._marks = marks
        self._answer = answer
        self._state = "thinking" if opened else "start"
        self._text = ""  # held back, in all states but the last
        self._space = ""  # reasoning if more of it follows
        self._has_thought = False

    @property
    def in_reasoning(self) -> bool:
        return self._state == "thinking" or (self._state == "answer" and self._answer.in_reasoning)

    def push(self, text: str, /) -> list[Segment]:
        self._text += text
        segments: list[Segment] = []
        if self._state == "start":
            segments += self._begin()
        if self._state == "thinking":
            segments += self._think()
        if self._state == "behind":
            self._text = self._text.lstrip()
            self._state = "answer" if self._text else "behind"
        if self._state == "answer":
            segments += self._answer.push(self._take(len(self._text)))
        return joined(segments)

    def finish(self) -> list[Segment]:
        segments: list[Segment] = []
        if self._state == "thinking":
            segments += self._reasoning(self._take(len(self._text)))
        elif self._state == "start":
            segments += self._answer.push(self._take(len(self._text)))
        return joined(segments + self._answer.finish())

    def _begin(self) -> list[Segment]:
        """Is this reasoning?"""
        text = self._text.lstrip()
        if text.startswith(self._marks.open):
            self._text = text[len(self._marks.open) :]
            self._state = "thinking"
        elif not self._marks.open.startswith(text):
            self._state = "answer"
        return []

    def _think(self) -> list[Segment]:
        end = self._text.find(self._marks.close)
        if end < 0:
            return self._reasoning(self._take(len(self._text) - n_ambiguous(self._text, self._marks[1:])))
        segments = self._reasoning(self._take(end))
        self._take(len(self._marks.close))
        self._state = "behind"
        return segments

    def _reasoning(self, text: str) -> list[Segment]:
        text = self._space + text
        if not self._has_thought:
            text = text.lstrip()
        shown = text.rstrip()
        self._space = text[len(shown) :]
        self._has_thought = self._has_thought or bool(shown)
        return [Reasoning(shown)] if shown else []

    def _take(self, n: int) -> str:
        taken, self._text = self._text[:n], self._text[n:]
        return taken
