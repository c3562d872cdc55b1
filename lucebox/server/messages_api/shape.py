"""How POST /v1/messages words an answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lucebox.server import sse
from lucebox.server.answer import Answer
from lucebox.server.anthropic_errors import envelope
from lucebox.server.errors import ApiError
from lucebox.server.generation import Bill, Piece
from lucebox.server.messages_api.body import MessageBody, MessageUsage, StopReason
from lucebox.server.messages_api.content import MessageContent
from lucebox.server.messages_api.events import (
    Event,
    MessageDelta,
    MessageStart,
    MessageStop,
    Ping,
    Stop,
)
from lucebox.server.responses import TimingsBody


class MessagesShape:
    """`bill` is the request's own, still growing; `max_tokens` what the request allows."""

    def __init__(
        self, id: str, model: str, bill: Bill, max_tokens: int | None, *, shows_thinking: bool
    ) -> None:
        self._content = MessageContent(shows_thinking=shows_thinking)
        self._max_tokens = max_tokens
        self._bill = bill
        self._message = MessageBody(
            id=id, model=model, content=self._content.blocks, usage=MessageUsage.of(bill)
        )

    def opening(self, index: int) -> list[bytes]:
        return [_encoded(MessageStart(message=self._message)), _encoded(Ping())]

    def chunk(self, piece: Piece, bill: Bill | None) -> list[bytes]:
        return [_encoded(event) for event in self._take(piece)]

    def closing(self, bill: Bill) -> list[bytes]:
        stop = Stop(self._message.stop_reason, self._message.stop_sequence)
        delta = MessageDelta(delta=stop, usage=MessageUsage.of(bill), timings=TimingsBody.of(bill.timings))
        return [_encoded(delta), _encoded(MessageStop())]

    def error(self, error: ApiError) -> list[bytes]:
        return [sse.event("error", envelope(error.status, error.message))]

    def whole(self, answers: Sequence[Answer], bill: Bill) -> MessageBody:
        (answer,) = answers
        for piece in answer.pieces:
            for _ in self._take(piece):
                pass
        self._message.usage = MessageUsage.of(bill)
        self._message.timings = TimingsBody.of(bill.timings)
        return self._message

    def _take(self, piece: Piece) -> Iterator[Event]:
        yield from self._content.push(piece.segments)
        if piece.finish_reason is not None:
            yield from self._content.finish()
            self._message.stop_reason = self._stop_reason(piece)
            self._message.stop_sequence = piece.stop_string

    def _stop_reason(self, piece: Piece) -> StopReason:
        if piece.finish_reason == "tool_calls":
            return "tool_use"
        if piece.finish_reason == "stop":
            return "end_turn" if piece.stop_string is None else "stop_sequence"
        if self._max_tokens is None or self._bill.n_completion < self._max_tokens:
            return "model_context_window_exceeded"
        return "max_tokens"


def _encoded(event: Event) -> bytes:
    return sse.event(str(event.__struct_config__.tag), event)
