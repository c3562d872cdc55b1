"""One path from a generation to a response, streamed or whole, for chat and for completions."""

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
from lucebox.server.errors import ClientGoneError, api_error, envelope, error_response, internal_error
from lucebox.server.generation import Bill, FinishReason, Generation, Piece
from lucebox.server.responses import ChoiceT, Completion, ObjectName, TimingsBody, Usage
from lucebox.server.service import Service

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
class Answer:
    """A whole choice."""

    text: str = ""
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: FinishReason = "stop"

    def add(self, piece: Piece) -> None:
        self.text += piece.text
        self.logprobs += piece.logprobs
        self.finish_reason = piece.finish_reason or self.finish_reason


class Shape(Protocol):
    """How an endpoint words an answer. One object per request."""

    def opening(self, index: int) -> msgspec.Struct | None:
        """The first chunk of a choice, before its text."""
        ...

    def chunk(self, piece: Piece, bill: Bill | None) -> msgspec.Struct:
        """`bill` in the last chunk, unless a chunk of its own follows."""
        ...

    def usage_chunk(self, bill: Bill) -> msgspec.Struct:
        """The chunk without choices that ends a stream whose client asked for usage."""
        ...

    def whole(self, answers: Sequence[Answer], bill: Bill) -> msgspec.Struct: ...


async def respond(
    request: Request, service: Service, generation: Generation, shape: Shape, *, stream: bool, usage: bool
) -> Response:
    """The response, whole or streamed. `usage`: a streamed one ends with a chunk that has it."""
    record_of(request.scope).bill = generation.bill
    if stream:
        return StreamedAnswer(service, generation, shape, usage=usage)
    answers = await until_disconnect(request.receive, _collect(service, generation))
    body = msgspec.json.encode(shape.whole(answers, generation.bill))
    return Response(body, media_type="application/json")


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

    def __init__(self, service: Service, generation: Generation, shape: Shape, *, usage: bool) -> None:
        self.status_code = 200
        self.background = None
        self.body = b""
        self._service = service
        self._generation = generation
        self._shape = shape
        self._usage = usage
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
            record_of(scope).note = str(error)
            if not self._started:
                await error_response(shown)(scope, receive, send)
                return
            await self._send(send, sse.data(envelope(shown)), more=False)
        except Exception:
            if self._started:  # else the application's handler answers
                await self._send(send, sse.data(envelope(internal_error(scope))), more=False)
            raise

    async def _run(self, send: Send) -> None:
        generation = self._generation
        with self._service.generation(generation):
            async for piece in generation.pieces(HEARTBEAT_S):
                if not self._started:
                    await self._start(send)
                if piece is None:
                    await self._send(send, sse.HEARTBEAT)
                    continue
                for part in piece.chunks():
                    is_last = part.finish_reason is not None and generation.is_done
                    bill = generation.bill if is_last and not self._usage else None
                    await self._send(send, sse.data(self._shape.chunk(part, bill)))
        if self._usage:
            await self._send(send, sse.data(self._shape.usage_chunk(generation.bill)))
        await self._send(send, sse.DONE, more=False)

    async def _start(self, send: Send) -> None:
        self._started = True
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        for index in range(self._generation.n_choices):
            if (chunk := self._shape.opening(index)) is not None:
                await self._send(send, sse.data(chunk))

    @staticmethod
    async def _send(send: Send, body: bytes, *, more: bool = True) -> None:
        await send({"type": "http.response.body", "body": body, "more_body": more})
