"""POST /v1/completions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lucebox.errors import ContextLengthError
from lucebox.server.answer import Answer, Head, respond
from lucebox.server.decode import decode, read_body
from lucebox.server.errors import ApiError
from lucebox.server.generation import Bill, Generation, Piece
from lucebox.server.logprobs import TextLogprobsBuilder, TokenNames
from lucebox.server.responses import Completion, TextChoice, Usage
from lucebox.server.schema import MAX_CHOICES, CompletionRequest, completion_params, refuse_unsupported
from lucebox.server.service import Service, TextModel
from lucebox.text.output import TextOutput

TextCompletion = Completion[TextChoice]


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids, and the text they stand for where it is to be echoed."""

    tokens: list[int]
    text: str = ""


async def completions(request: Request) -> Response:
    body = decode(await read_body(request), CompletionRequest)
    service: Service = request.app.state.service
    service.check_model(body.model)
    refuse_unsupported(body)
    serving = await service.serving()
    params = completion_params(body, serving.text.n_vocab)
    prompts = await asyncio.to_thread(_prompts, body, serving.text, serving.info.n_ctx)
    n = body.n or 1
    head = Head.new("cmpl", service)
    vocabulary = serving.text.vocabulary
    generation = Generation(serving.engine, vocabulary, head.id, [p.tokens for p in prompts], params, n)
    echoes = [prompt.text for prompt in prompts for _ in range(n)]
    shape = CompletionShape(
        head, None if body.logprobs is None else vocabulary, echoes, usage=body.include_usage
    )
    return await respond(
        request, service, generation, shape, stream=bool(body.stream), usage=body.include_usage
    )


class CompletionShape:
    """Answers as text_completion objects. `vocabulary` is None unless log-probabilities are wanted."""

    def __init__(
        self, head: Head, vocabulary: TokenNames | None, echoes: Sequence[str], *, usage: bool
    ) -> None:
        self._head = head
        self._echoes = echoes
        self._no_usage = None if usage else msgspec.UNSET
        self._logprobs = None if vocabulary is None else [TextLogprobsBuilder(vocabulary) for _ in echoes]

    def opening(self, index: int) -> TextCompletion | None:
        echo = self._echoes[index]
        return self._completion([TextChoice(index, echo)], self._no_usage) if echo else None

    def chunk(self, piece: Piece, bill: Bill | None) -> TextCompletion:
        logprobs = None
        if self._logprobs is not None and piece.logprobs:
            logprobs = self._logprobs[piece.index].build(piece.logprobs)
        choice = TextChoice(piece.index, piece.text, logprobs, piece.finish_reason)
        return self._completion([choice], self._no_usage, bill)

    def usage_chunk(self, bill: Bill) -> TextCompletion:
        return self._completion([], Usage.of(bill), bill)

    def whole(self, answers: Sequence[Answer], bill: Bill) -> TextCompletion:
        choices = []
        for i, answer in enumerate(answers):
            logprobs = None if self._logprobs is None else self._logprobs[i].build(answer.logprobs)
            choices.append(TextChoice(i, self._echoes[i] + answer.text, logprobs, answer.finish_reason))
        return self._completion(choices, Usage.of(bill), bill)

    def _completion(
        self, choices: list[TextChoice], usage: Usage | msgspec.UnsetType | None, bill: Bill | None = None
    ) -> TextCompletion:
        return self._head.completion("text_completion", choices, usage, bill)


def _prompts(body: CompletionRequest, text: TextModel, n_ctx: int) -> list[Prompt]:
    """Every prompt of the request. Raises ApiError naming a wrong one, ContextLengthError if too long."""
    prompt = body.prompt
    named: list[tuple[str, object]]
    if isinstance(prompt, str) or (prompt and all(isinstance(item, int) for item in prompt)):
        named = [("prompt", prompt)]
    else:
        named = [(f"prompt[{i}]", item) for i, item in enumerate(prompt)]
    if not named:
        raise ApiError("'prompt' is an empty list.", param="prompt", code="empty_array")
    if len(named) * (body.n or 1) > MAX_CHOICES:
        raise ApiError(f"At most {MAX_CHOICES} choices in one request.", param="prompt", code="invalid_value")
    out = []
    for name, item in named:
        tokens = _tokens(name, item, text, n_ctx)
        out.append(Prompt(tokens, _echo(item, text) if body.echo else ""))
    return out


def _tokens(name: str, item: object, text: TextModel, n_ctx: int) -> list[int]:
    if isinstance(item, str):
        tokens = text.encode(item)
    elif isinstance(item, list):
        tokens = item
    else:
        raise ApiError(
            "'prompt' must be a string, a list of strings, a list of token ids or a list of such lists.",
            param=name,
            code="invalid_type",
        )
    if not tokens:
        raise ApiError(f"'{name}' is empty: there is nothing to continue.", param=name, code="invalid_value")
    if len(tokens) >= n_ctx:
        raise ContextLengthError(n_ctx, len(tokens), param="prompt")
    for i, token in enumerate(tokens):
        if not isinstance(token, int):
            raise ApiError(f"'{name}[{i}]' is no token id.", param=f"{name}[{i}]", code="invalid_type")
        if not 0 <= token < text.n_vocab:
            raise ApiError(
                f"'{name}[{i}]' is {token}, and the vocabulary has {text.n_vocab} tokens.",
                param=f"{name}[{i}]",
                code="invalid_value",
            )
    return tokens


def _echo(item: object, text: TextModel) -> str:
    if isinstance(item, str):
        return item
    assert isinstance(item, list)
    output = TextOutput(text.vocabulary)
    return output.push(item) + output.finish()


routes = (Route("/v1/completions", completions, methods=["POST"]),)
