"""The events of a streamed response, field by field. Each has its place in the stream's order."""

from __future__ import annotations

import msgspec

from lucebox.server.responses import TokenLogprob
from lucebox.server.responses_api.body import OutputItem, OutputTextPart, ReasoningTextPart, ResponseBody


class LikelyToken(msgspec.Struct, frozen=True):
    token: str
    logprob: float


class EventLogprob(msgspec.Struct, frozen=True):
    """As in a part, without bytes."""

    token: str
    logprob: float
    top_logprobs: list[LikelyToken]

    @classmethod
    def of(cls, entry: TokenLogprob) -> EventLogprob:
        top = [LikelyToken(other.token, other.logprob) for other in entry.top_logprobs]
        return cls(entry.token, entry.logprob, top)


class Event(msgspec.Struct, tag_field="type", kw_only=True, frozen=True):
    sequence_number: int


class ResponseEvent(Event, kw_only=True, frozen=True):
    """The response as it stands."""

    response: ResponseBody


class Created(ResponseEvent, tag="response.created", frozen=True): ...


class InProgress(ResponseEvent, tag="response.in_progress", frozen=True): ...


class Completed(ResponseEvent, tag="response.completed", frozen=True): ...


class Incomplete(ResponseEvent, tag="response.incomplete", frozen=True): ...


class Failed(ResponseEvent, tag="response.failed", frozen=True): ...


class ErrorEvent(Event, tag="error", kw_only=True, frozen=True):
    code: str | None
    message: str
    param: str | None


class ItemAdded(Event, tag="response.output_item.added", kw_only=True, frozen=True):
    output_index: int
    item: OutputItem


class ItemDone(Event, tag="response.output_item.done", kw_only=True, frozen=True):
    output_index: int
    item: OutputItem


class ItemEvent(Event, kw_only=True, frozen=True):
    """Something about an item."""

    item_id: str
    output_index: int


class PartEvent(ItemEvent, kw_only=True, frozen=True):
    """Something about the one part that an item has."""

    content_index: int = 0


class PartAdded(PartEvent, tag="response.content_part.added", kw_only=True, frozen=True):
    part: OutputTextPart | ReasoningTextPart


class PartDone(PartEvent, tag="response.content_part.done", kw_only=True, frozen=True):
    part: OutputTextPart | ReasoningTextPart


class TextDelta(PartEvent, tag="response.output_text.delta", kw_only=True, frozen=True):
    delta: str
    logprobs: list[EventLogprob]


class TextDone(PartEvent, tag="response.output_text.done", kw_only=True, frozen=True):
    text: str
    logprobs: list[EventLogprob]


class ReasoningDelta(PartEvent, tag="response.reasoning_text.delta", kw_only=True, frozen=True):
    delta: str


class ReasoningDone(PartEvent, tag="response.reasoning_text.done", kw_only=True, frozen=True):
    text: str


class ArgumentsDelta(ItemEvent, tag="response.function_call_arguments.delta", kw_only=True, frozen=True):
    delta: str


class ArgumentsDone(ItemEvent, tag="response.function_call_arguments.done", kw_only=True, frozen=True):
    name: str
    arguments: str


AnyEvent = (
    Created
    | InProgress
    | Completed
    | Incomplete
    | Failed
    | ErrorEvent
    | ItemAdded
    | ItemDone
    | PartAdded
    | PartDone
    | TextDelta
    | TextDone
    | ReasoningDelta
    | ReasoningDone
    | ArgumentsDelta
    | ArgumentsDone
)
