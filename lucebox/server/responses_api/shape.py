"""How POST /v1/responses words an answer."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from lucebox.server import sse
from lucebox.server.answer import Answer
from lucebox.server.errors import ApiError
from lucebox.server.generation import Bill, FinishReason, Piece
from lucebox.server.logprobs import TokenNames, chat_logprobs
from lucebox.server.responses import TimingsBody
from lucebox.server.responses_api.body import IncompleteDetails, ResponseBody, ResponseError, ResponseUsage
from lucebox.server.responses_api.events import (
    Completed,
    Created,
    ErrorEvent,
    Event,
    Failed,
    Incomplete,
    InProgress,
)
from lucebox.server.responses_api.output import Output


class ResponsesShape:
    """`body` is the response before anything was said.

    `vocabulary` is None unless log-probabilities are wanted.
    """

    def __init__(self, body: ResponseBody, vocabulary: TokenNames | None) -> None:
        self._body = body
        self._vocabulary = vocabulary
        self._numbers = count()
        self._output = Output(self._numbers)
        self._body.output = self._output.items

    def opening(self, index: int) -> list[bytes]:
        return [_encoded(Created(**self._state())), _encoded(InProgress(**self._state()))]

    def chunk(self, piece: Piece, bill: Bill | None) -> list[bytes]:
        return [_encoded(event) for event in self._take(piece)]

    def closing(self, bill: Bill) -> list[bytes]:
        self._settle(bill)
        kind = Completed if self._body.status == "completed" else Incomplete
        return [_encoded(kind(**self._state()))]

    def error(self, error: ApiError) -> list[bytes]:
        self._body.status = "failed"
        self._body.error = ResponseError("server_error", error.message)
        event = ErrorEvent(
            code=error.code, message=error.message, param=error.param, sequence_number=next(self._numbers)
        )
        return [_encoded(event), _encoded(Failed(**self._state()))]

    def whole(self, answers: Sequence[Answer], bill: Bill) -> ResponseBody:
        (answer,) = answers
        for piece in answer.pieces:
            for _ in self._take(piece):
                pass
        self._settle(bill)
        return self._body

    def _take(self, piece: Piece) -> Iterator[Event]:
        logprobs = [] if self._vocabulary is None else chat_logprobs(piece.logprobs, self._vocabulary).content
        yield from self._output.push(piece, logprobs)
        if piece.finish_reason is not None:
            self._end(piece.finish_reason)
            yield from self._output.finish("completed" if self._body.status == "completed" else "incomplete")

    def _end(self, reason: FinishReason) -> None:
        self._body.status = "incomplete" if reason == "length" else "completed"
        if reason == "length":
            self._body.incomplete_details = IncompleteDetails("max_output_tokens")

    def _settle(self, bill: Bill) -> None:
        if self._body.status == "completed":
            self._body.completed_at = int(time.time())
        self._body.usage = ResponseUsage.of(bill)
        self._body.timings = TimingsBody.of(bill.timings)

    def _state(self) -> dict[str, Any]:
        return {"response": self._body, "sequence_number": next(self._numbers)}


def _encoded(event: Event) -> bytes:
    return sse.event(str(event.__struct_config__.tag), event)
