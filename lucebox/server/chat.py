"""POST /v1/chat/completions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lucebox.engine.messages import TokenLogprobs
from lucebox.errors import ContextLengthError, RequestError
from lucebox.server.answer import Answer, Head, respond
from lucebox.server.decode import decode, read_body
from lucebox.server.errors import ApiError
from lucebox.server.generation import Bill, Generation, Piece
from lucebox.server.logprobs import TokenNames, chat_logprobs
from lucebox.server.messages import template_messages
from lucebox.server.responses import (
    AssistantReply,
    ChatChoice,
    ChatChunkChoice,
    ChatLogprobs,
    Completion,
    Delta,
    Usage,
)
from lucebox.server.schema import ChatRequest, chat_params, refuse_unsupported
from lucebox.server.service import Service, TextModel

ChatChunk = Completion[ChatChunkChoice]


async def chat_completions(request: Request) -> Response:
    body = decode(await read_body(request), ChatRequest)
    service: Service = request.app.state.service
    service.check_model(body.model)
    refuse_unsupported(body)
    messages = template_messages(body.messages)
    serving = await service.serving()
    params = chat_params(body, serving.text.n_vocab)
    prompt = await asyncio.to_thread(_prompt, messages, serving.text)
    prediction = await asyncio.to_thread(_prediction, body, serving.text, serving.info.n_ctx)
    if len(prompt) >= serving.info.n_ctx:
        raise ContextLengthError(serving.info.n_ctx, len(prompt))
    head = Head.new("chatcmpl", service)
    generation = Generation(
        serving.engine, serving.text.vocabulary, head.id, [prompt], params, body.n or 1, prediction
    )
    shape = ChatShape(head, serving.text.vocabulary if body.logprobs else None, usage=body.include_usage)
    return await respond(
        request, service, generation, shape, stream=bool(body.stream), usage=body.include_usage
    )


def _prompt(messages: list[dict[str, Any]], text: TextModel) -> list[int]:
    try:
        return text.encode_chat(messages)
    except RequestError as error:
        raise ApiError(str(error), param="messages", code=error.code) from None


def _prediction(body: ChatRequest, text: TextModel, n_ctx: int) -> list[int] | None:
    """As much of it as an answer may have; None where none was made, which the bill then says nothing of."""
    if body.prediction is None:
        return None
    try:
        return text.encode_plain(body.prediction.text)[:n_ctx]
    except RequestError as error:
        raise ApiError(str(error), param="prediction", code=error.code) from None


class ChatShape:
    """Answers as chat.completion objects. `vocabulary` is None unless log-probabilities are wanted."""

    def __init__(self, head: Head, vocabulary: TokenNames | None, *, usage: bool) -> None:
        self._head = head
        self._vocabulary = vocabulary
        self._no_usage = None if usage else msgspec.UNSET

    def opening(self, index: int) -> ChatChunk:
        return self._chunk([ChatChunkChoice(index, Delta(role="assistant", content=""))])

    def chunk(self, piece: Piece, bill: Bill | None) -> ChatChunk:
        delta = Delta(content=piece.text) if piece.text else Delta()
        logprobs = self._logprobs(piece.logprobs) if piece.logprobs else None
        return self._chunk([ChatChunkChoice(piece.index, delta, logprobs, piece.finish_reason)], bill)

    def usage_chunk(self, bill: Bill) -> ChatChunk:
        return self._chunk([], bill, Usage.of(bill))

    def whole(self, answers: Sequence[Answer], bill: Bill) -> Completion[ChatChoice]:
        choices = [
            ChatChoice(i, AssistantReply(a.text), a.finish_reason, self._logprobs(a.logprobs))
            for i, a in enumerate(answers)
        ]
        return self._head.completion("chat.completion", choices, Usage.of(bill), bill)

    def _logprobs(self, entries: Sequence[TokenLogprobs]) -> ChatLogprobs | None:
        return None if self._vocabulary is None else chat_logprobs(entries, self._vocabulary)

    def _chunk(
        self, choices: list[ChatChunkChoice], bill: Bill | None = None, usage: Usage | None = None
    ) -> ChatChunk:
        return self._head.completion("chat.completion.chunk", choices, usage or self._no_usage, bill)


routes = (Route("/v1/chat/completions", chat_completions, methods=["POST"]),)
