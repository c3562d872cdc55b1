"""What an answer consists of, found in its text as it comes: content, reasoning, calls of tools."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Content:
    """A piece of what the user is to read. Never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of what the model thought before. Never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """Call number `index` of the answer begins: of the tool `name`, to be referred to as `id`."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the arguments of call `index`; all pieces together are the text of a JSON object."""

    index: int
    text: str


Segment = Content | Reasoning | CallStart | CallArguments


class AnswerParser(Protocol):
    """Takes one answer's text in pieces. What it says does not depend on how the text is cut.

    Text is held back only while it may still turn out to be a marker, and none is ever lost: what looks like
    a call and is none comes as content.
    """

    @property
    def in_reasoning(self) -> bool:
        """Whether what comes next would be reasoning, as far as the text tells."""
        ...

    def push(self, text: str, /) -> list[Segment]: ...

    def finish(self) -> list[Segment]:
        """What was held back. The text has ended, perhaps in the middle."""
        ...


class PlainParser:
    """All text is content."""

    in_reasoning = False

    def push(self, text: str, /) -> list[Segment]:
        return [Content(text)] if text else []

    def finish(self) -> list[Segment]:
        return []


def joined(segments: Iterable[Segment]) -> list[Segment]:
    """`segments` with neighbours of one kind made one."""
    out: list[Segment] = []
    for segment in segments:
        last = out[-1] if out else None
        if isinstance(segment, CallStart) or isinstance(last, CallStart) or last is None:
            out.append(segment)
        elif type(last) is type(segment) and _call_of(last) == _call_of(segment):
            out[-1] = replace(last, text=last.text + segment.text)
        else:
            out.append(segment)
    return out


def _call_of(segment: Content | Reasoning | CallArguments) -> int | None:
    return segment.index if isinstance(segment, CallArguments) else None
