"""One path from a generation to a response, streamed or whole, for all endpoints that generate."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import uuid4

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lucebox.engine.messages import TokenLogprobs
from lucebox.errors import LuceboxError
from lucebox.server import sse
from lucebox.server.access import record_of
from lucebox.server.disconnect import until_disconnect
from lucebox.server.errors import (
    ApiError,
    ClientGoneError,
    api_error,
    envelope,
    error_response,
    internal_error,
    note_of,
)
from lucebox.server.generation import Bill, FinishReason, Generation, Piece
from lucebox.server.json_response import json_response
from lucebox.server.responses import ChoiceT, Completion, ObjectName, TimingsBody, Usage
from lucebox.server.service import Service
from lucebox.text.answer_parser import CallArguments, CallStart, Content, Reasoning

HEARTBEAT_S = 5.0


@dataclass(frozen=True, slots=True)
class Head:
    """What every object and chunk of one answer repeats."""

    id: str
    created: int
    model: str
    system_fingerprint: str

    @classmethod
    def new(cls, prefix: str, service: Service) -> Head:
        id = f"{prefix}-{uuid4().hex}"
        return cls(id, int(time.time()), service.name, service.fingerprint())

    def completion(
        self,
        object: ObjectName,
        choices: list[ChoiceT],
        usage: Usage | msgspec.UnsetType | None,
        bill: Bill | None = None,
    ) -> Completion[ChoiceT]:
        """An object of this answer, with timings if it is the one that has the bill."""
        return Completion(
            id=self.id,
            object=object,
            created=self.created,
            model=self.model,
            choices=choices,
            usage=usage,
            timings=msgspec.UNSET if bill is None else TimingsBody.of(bill.timings),
            system_fingerprint=self.system_fingerprint,
        )


@dataclass(slots=True)
class Call:
    """A call of a tool; `arguments` is JSON, cut off where the answer's length ended it."""

    id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class Answer:
    """A whole choice."""

    content: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: FinishReason = "stop"
    stop_string: str | None = None
    pieces: list[Piece] = field(default_factory=list)  # as they came, for answers whose order matters

    def add(self, piece: Piece) -> None:
        self.pieces.append(piece)
        for segment in piece.segments:
            match segment:
                case Content(text):
                    self.content += text
                case Reasoning(text):
                    self.reasoning += text
                case CallStart(_, id, name):
                    self.calls.append(Call(id, name))
                case CallArguments(index, text):
                    self.calls[index].arguments += text
        self.logprobs += piece.logprobs
        self.finish_reason = piece.finish_reason or self.finish_reason
        self.stop_string = piece.stop_string or self.stop_string


class Shape(Protocol):
    """How an endpoint words an answer. One object per request. Events are server-sent ones, as bytes."""

    def opening(self, index: int) -> Sequence[bytes]:
        """The events in front of a choice's first piece."""
        ...

    def chunk(self, piece: Piece, bill: Bill | None) -> Sequence[bytes]:
        """Of a piece that has either an end or something else; `bill` comes with the last one of all."""
        ...

    def closing(self, bill: Bill) -> Sequence[bytes]:
        """The events that end a stream that went well."""
        ...

    def error(self, error: ApiError) -> Sequence[bytes]:
        """The events that end a stream that failed when it had begun."""
        ...

    def whole(self, answers: Sequence[Answer], bill: Bill) -> msgspec.Struct: ...


class OpenAIErrors:
    """The part that all of OpenAI's older endpoints have in common."""

    def error(self, error: ApiError) -> Sequence[bytes]:
        return [sse.data(envelope(error))]


async def respond(
    request: Request, service: Service, generation: Generation, shape: Shape, *, stream: bool
) -> Response:
    """The response, whole or streamed."""
    record_of(request.scope).bill = generation.bill
    if stream:
        return StreamedAnswer(service, generation, shape)
    answers = await until_disconnect(request.receive, _collect(service, generation))
    return json_response(shape.whole(answers, generation.bill))


async def _collect(service: Service, generation: Generation) -> list[Answer]:
    answers = [Answer() for _ in range(generation.n_choices)]
    with service.generation(generation):
        async for piece in generation.pieces():
            if piece is not None:
                answers[piece.index].add(piece)
    return answers


class StreamedAnswer(Response):
    """Server-sent events. The status is sent with the first piece, so that an early failure still sets it."""

    media_type = "text/event-stream"

    def __init__(self, service: Service, generation: Generation, shape: Shape) -> None:
        self.status_code = 200
        self.background = None
        self.body = b""
        self._service = service
        self._generation = generation
        self._shape = shape
        self._started = False
        self.init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await until_disconnect(receive, self._run(send))
        except ClientGoneError:
            record_of(scope).note = "client left"
        except LuceboxError as error:
            shown = api_error(error)
            record_of(scope).note = note_of(shown)
            if not self._started:
                await error_response(shown)(scope, receive, send)
                return
            await self._send(send, self._shape.error(shown), more=False)
        except Exception:
            if self._started:  # else the application's handler answers
                await self._send(send, self._shape.error(internal_error(scope)), more=False)
            raise

    async def _run(self, send: Send) -> None:
        generation = self._generation
        with self._service.generation(generation):
            async for piece in generation.pieces(HEARTBEAT_S):
                if not self._started:
                    await self._start(send)
                if piece is None:
                    await self._send(send, [sse.HEARTBEAT])
                    continue
                for part in piece.chunks():
                    is_last = part.finish_reason is not None and generation.is_done
                    await self._send(send, self._shape.chunk(part, generation.bill if is_last else None))
        await self._send(send, self._shape.closing(generation.bill), more=False)

    async def _start(self, send: Send) -> None:
        self._started = True
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        for index in range(self._generation.n_choices):
            await self._send(send, self._shape.opening(index))

    @staticmethod
    async def _send(send: Send, events: Sequence[bytes], *, more: bool = True) -> None:
        if events or not more:
            await send({"type": "http.response.body", "body": b"".join(events), "more_body": more})
