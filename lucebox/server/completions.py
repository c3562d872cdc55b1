"""POST /v1/completions."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lucebox.server import sse
from lucebox.server.answer import Answer, Head, OpenAIErrors, respond
from lucebox.server.completion_prompts import Prompt, prompts_of
from lucebox.server.decode import read
from lucebox.server.generation import Bill, Generation, Piece
from lucebox.server.logprobs import TextLogprobsBuilder, TokenNames
from lucebox.server.operation import Contract, Operation
from lucebox.server.response_format import check_grammar
from lucebox.server.responses import Completion, TextChoice, TextLogprobs, Usage
from lucebox.server.schema import CompletionRequest, completion_params, refuse_unsupported
from lucebox.server.service import Service

TextCompletion = Completion[TextChoice]


async def completions(request: Request) -> Response:
    body = await read(request, CompletionRequest)
    service: Service = request.app.state.service
    service.check_model(body.model)
    refuse_unsupported(body)
    serving = await service.serving()
    params = completion_params(body, serving.text.n_vocab)
    field = "response_format" if body.grammar is None else "grammar"
    await asyncio.to_thread(check_grammar, params.grammar, serving.text, field)
    prompts = await asyncio.to_thread(prompts_of, body, serving.text, serving.info.n_ctx)
    n = body.n or 1
    n_each = max(n, body.best_of or 1)
    head = Head.new("cmpl", service)
    vocabulary = serving.text.vocabulary
    tokens = [prompt.tokens for prompt in prompts]
    generation = Generation(serving.engine, vocabulary, head.id, tokens, params, n_each, grammar_param=field)
    shape = CompletionShape(
        head,
        [prompt for prompt in prompts for _ in range(n_each)],
        None if body.logprobs is None else vocabulary,
        n=n,
        n_each=n_each,
        usage=body.include_usage,
    )
    return await respond(request, service, generation, shape, stream=bool(body.stream))


class CompletionShape(OpenAIErrors):
    """Answers as text_completion objects, of `prompts`, one for each choice of the generation.

    `vocabulary` is None unless log-probabilities are wanted. Of `n_each` choices for each prompt, the best
    `n` are given. `usage`: a stream ends with a chunk that has it, and nothing else.
    """

    def __init__(
        self,
        head: Head,
        prompts: Sequence[Prompt],
        vocabulary: TokenNames | None,
        *,
        n: int,
        n_each: int,
        usage: bool,
    ) -> None:
        self._head = head
        self._prompts = prompts
        self._n = n
        self._n_each = n_each
        self._usage = usage
        self._vocabulary = vocabulary
        self._logprobs = None if vocabulary is None else [TextLogprobsBuilder(vocabulary) for _ in prompts]

    def opening(self, index: int) -> list[bytes]:
        echo = self._prompts[index].text
        if not echo or self._logprobs is not None:  # log-probabilities go with it, when they are known
            return []
        return [self._event([TextChoice(index, echo)])]

    def chunk(self, piece: Piece, bill: Bill | None) -> list[bytes]:
        events, index = [], piece.index
        if piece.prompt_logprobs is not None and self._logprobs is not None:
            prompt = self._prompts[index]
            scores = self._logprobs[index].build_prompt(prompt.tokens[0], piece.prompt_logprobs)
            events.append(self._event([TextChoice(index, prompt.text, scores)]))
        logprobs = None
        if self._logprobs is not None and piece.logprobs:
            logprobs = self._logprobs[index].build(piece.logprobs)
        if piece.text or logprobs or piece.finish_reason:
            choice = TextChoice(index, piece.text, logprobs, piece.finish_reason)
            events.append(self._event([choice], None if self._usage else bill))
        return events

    def closing(self, bill: Bill) -> list[bytes]:
        return [self._event([], bill, Usage.of(bill)), sse.DONE] if self._usage else [sse.DONE]

    def whole(self, answers: Sequence[Answer], bill: Bill) -> TextCompletion:
        choices: list[TextChoice] = []
        for first in range(0, len(answers), self._n_each):
            group = answers[first : first + self._n_each]
            for answer in group if self._n == self._n_each else _best(group, self._n):
                text = self._prompts[first].text + answer.content
                logprobs = self._whole_logprobs(first, answer)
                choices.append(TextChoice(len(choices), text, logprobs, answer.finish_reason))
        return self._head.completion("text_completion", choices, Usage.of(bill), bill)

    def _whole_logprobs(self, first: int, answer: Answer) -> TextLogprobs | None:
        """Of an answer to the prompt of choice `first`."""
        if self._vocabulary is None:
            return None
        builder = TextLogprobsBuilder(self._vocabulary)
        scores = answer.pieces[0].prompt_logprobs if answer.pieces else None
        if scores is None:
            return builder.build(answer.logprobs)
        prompt = builder.build_prompt(self._prompts[first].tokens[0], scores)
        return prompt.followed_by(builder.build(answer.logprobs))

    def _event(
        self, choices: list[TextChoice], bill: Bill | None = None, usage: Usage | None = None
    ) -> bytes:
        shown = usage if self._usage else msgspec.UNSET
        return sse.data(self._head.completion("text_completion", choices, shown, bill))


def _best(answers: Sequence[Answer], n: int) -> list[Answer]:
    """The `n` whose tokens are likeliest on average, the likeliest first."""
    return sorted(answers, key=_mean_logprob, reverse=True)[:n]


def _mean_logprob(answer: Answer) -> float:
    entries = answer.logprobs
    return sum(entry.logprob for entry in entries) / len(entries) if entries else -math.inf


routes = (
    Operation(
        "POST",
        "/v1/completions",
        completions,
        "a text continued",
        Contract(
            body=CompletionRequest,
            example={"prompt": "Once upon a time", "max_tokens": 16},
            answer=TextCompletion,
            events=TextCompletion,
            last_event="[DONE]",
        ),
    ),
)
