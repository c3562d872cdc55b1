"""The items of a response as they grow, and the events that tell of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any
from uuid import uuid4

from lucebox.server.generation import Piece
from lucebox.server.responses import TokenLogprob
from lucebox.server.responses_api.body import (
    FunctionCallItem,
    ItemStatus,
    MessageItem,
    OutputItem,
    OutputTextPart,
    ReasoningItem,
    ReasoningTextPart,
)
from lucebox.server.responses_api.events import (
    ArgumentsDelta,
    ArgumentsDone,
    Event,
    EventLogprob,
    ItemAdded,
    ItemDone,
    PartAdded,
    PartDone,
    ReasoningDelta,
    ReasoningDone,
    TextDelta,
    TextDone,
)
from lucebox.text.answer_parser import CallArguments, CallStart, Content, Reasoning


class Output:
    """Reasoning, messages and calls in the order in which the model comes to them; one grows at a time.

    Events hold items as they are: each is to be encoded before the next one is asked for.
    """

    def __init__(self, numbers: count[int]) -> None:
        self.items: list[OutputItem] = []
        self._numbers = numbers
        self._is_open = False

    def push(self, piece: Piece, logprobs: Sequence[TokenLogprob]) -> Iterator[Event]:
        """`logprobs` are those of the piece; the ones of reasoning and of calls have no place here."""
        left = list(logprobs)
        for segment in piece.segments:
            match segment:
                case Content(text):
                    yield from self._message(text, left)
                    left = []
                case Reasoning(text):
                    yield from self._reasoning(text)
                case CallStart(_, id, name):
                    yield from self._begin(FunctionCallItem(id=_new_id("fc"), call_id=id, name=name))
                case CallArguments(_, text):
                    yield from self._arguments(text)

    def finish(self, status: ItemStatus) -> Iterator[Event]:
        """The item that still grows ends with `status`. An answer that says nothing has an empty message."""
        if not self.items:
            yield from self._begin(MessageItem(id=_new_id("msg"), content=[]))
        if self._is_open:
            yield from self._end(status)

    def _message(self, text: str, logprobs: list[TokenLogprob]) -> Iterator[Event]:
        if not isinstance(self._growing(), MessageItem):
            yield from self._begin(MessageItem(id=_new_id("msg"), content=[]))
        item = self._growing()
        assert isinstance(item, MessageItem)
        item.content[0].text += text
        item.content[0].logprobs += logprobs
        yield TextDelta(delta=text, logprobs=_shown(logprobs), **self._next())

    def _reasoning(self, text: str) -> Iterator[Event]:
        if not isinstance(self._growing(), ReasoningItem):
            yield from self._begin(ReasoningItem(id=_new_id("rs"), content=[]))
        item = self._growing()
        assert isinstance(item, ReasoningItem)
        item.content[0].text += text
        yield ReasoningDelta(delta=text, **self._next())

    def _arguments(self, text: str) -> Iterator[Event]:
        item = self._growing()
        assert isinstance(item, FunctionCallItem), "arguments come right after the call that they are of"
        item.arguments += text
        yield ArgumentsDelta(delta=text, **self._next())

    def _growing(self) -> OutputItem | None:
        return self.items[-1] if self._is_open else None

    def _begin(self, item: OutputItem) -> Iterator[Event]:
        if self._is_open:
            yield from self._end("completed")
        self._is_open = True
        self.items.append(item)
        yield ItemAdded(item=item, output_index=len(self.items) - 1, sequence_number=next(self._numbers))
        match item:
            case MessageItem():
                item.content.append(OutputTextPart(annotations=[], logprobs=[]))
                yield PartAdded(part=item.content[0], **self._next())
            case ReasoningItem():
                item.content.append(ReasoningTextPart())
                yield PartAdded(part=item.content[0], **self._next())

    def _end(self, status: ItemStatus) -> Iterator[Event]:
        item = self.items[-1]
        match item:
            case MessageItem(content=[part]):
                yield TextDone(text=part.text, logprobs=_shown(part.logprobs), **self._next())
                yield PartDone(part=part, **self._next())
            case ReasoningItem(content=[part]):
                yield ReasoningDone(text=part.text, **self._next())
                yield PartDone(part=part, **self._next())
            case FunctionCallItem():
                yield ArgumentsDone(name=item.name, arguments=item.arguments, **self._next())
        item.status = status
        self._is_open = False
        yield ItemDone(item=item, output_index=len(self.items) - 1, sequence_number=next(self._numbers))

    def _next(self) -> dict[str, Any]:
        """What an event about the last item says of its place."""
        return {
            "item_id": self.items[-1].id,
            "output_index": len(self.items) - 1,
            "sequence_number": next(self._numbers),
        }


def _shown(logprobs: Sequence[TokenLogprob]) -> list[EventLogprob]:
    return [EventLogprob.of(entry) for entry in logprobs]


def _new_id(prefix: str) -> str:
    return f"{prefix}_{uuid4().hex}"
