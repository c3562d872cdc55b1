"""One HTTP request at the engine: its choices submitted, what comes back as pieces of text, and the bill."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, Self

from lucebox.engine.client import EngineClient
from lucebox.engine.messages import Failed, StepEvent, Submit, TokenLogprobs
from lucebox.engine.timings import Timings
from lucebox.errors import EngineError, LuceboxError
from lucebox.sampling.params import SamplingParams
from lucebox.sampling.random import fresh_seed
from lucebox.server.mailbox import Mailbox
from lucebox.text.output import TextOutput, TokenBytes

FinishReason = Literal["stop", "length"]
SEED_RANGE = 2**64


@dataclass(frozen=True, slots=True)
class Piece:
    """What became certain of one choice: text, log-probabilities of the tokens that begin in it, the end."""

    index: int
    text: str
    logprobs: list[TokenLogprobs]
    finish_reason: FinishReason | None = None

    def chunks(self) -> Iterator[Piece]:
        """What to stream: the end comes by itself, as clients stop reading where they see it."""
        if self.text or self.logprobs:
            yield replace(self, finish_reason=None)
        if self.finish_reason is not None:
            yield Piece(self.index, "", [], self.finish_reason)


@dataclass(slots=True)
class Bill:
    """Tokens and time of one HTTP request, over all its choices, and whether it came with a prediction."""

    n_prompt: int
    n_completion: int = 0
    timings: Timings = field(default_factory=Timings)
    has_prediction: bool = False


class ChoiceOutput:
    """Turns the events of one choice into pieces."""

    def __init__(self, index: int, vocabulary: TokenBytes, stops: Sequence[str]) -> None:
        self._index = index
        self._vocabulary = vocabulary
        self._text = TextOutput(vocabulary, stops)
        self._n_bytes = 0
        self._held: list[tuple[int, TokenLogprobs]] = []  # with where in the text's bytes the token begins

    def take(self, event: StepEvent) -> Piece:
        text = self._text.push(event.tokens)
        for entry in event.logprobs or ():
            self._held.append((self._n_bytes, entry))
            self._n_bytes += len(self._vocabulary.token_bytes(entry.token))
        finish = event.finish
        if finish is None:
            return Piece(self._index, text, self._release(self._text.n_shown_bytes))
        if finish.reason not in ("stop", "length"):
            raise EngineError(
                "the server is shutting down" if finish.reason == "cancelled" else "engine error"
            )
        text += self._text.finish(finish.keep_bytes)
        if finish.reason == "stop" and finish.keep_bytes is None:
            del self._held[-1:]  # the end-of-generation token is not part of the answer
        n_kept = self._n_bytes + 1 if finish.keep_bytes is None else finish.keep_bytes
        return Piece(self._index, text, self._release(n_kept), finish.reason)

    def _release(self, n_bytes: int) -> list[TokenLogprobs]:
        """The entries of tokens that begin before byte `n_bytes`."""
        released = [entry for start, entry in self._held if start < n_bytes]
        del self._held[: len(released)]
        return released


class Generation:
    """`n` choices for each prompt. A context: entering submits, leaving cancels what has not ended."""

    def __init__(
        self,
        engine: EngineClient,
        vocabulary: TokenBytes,
        id: str,
        prompts: Sequence[list[int]],
        params: SamplingParams,
        n: int = 1,
        prediction: list[int] | None = None,
    ) -> None:
        self.id = id
        n_prompt = sum(len(prompt) for prompt in prompts)
        self.bill = Bill(n_prompt, has_prediction=prediction is not None)
        self._prediction = prediction or []
        self._engine = engine
        self._prompts = prompts
        self._params = params
        self._n = n
        self._mailbox = Mailbox(asyncio.get_running_loop())
        self._outputs = [ChoiceOutput(i, vocabulary, params.stop) for i in range(self.n_choices)]
        self._running: set[int] = set()

    @property
    def n_choices(self) -> int:
        return len(self._prompts) * self._n

    @property
    def is_done(self) -> bool:
        """Whether every choice has ended."""
        return not self._running

    def __enter__(self) -> Self:
        try:
            for index, submit in enumerate(self._submits()):
                self._running.add(index)
                self._engine.submit(submit, partial(self._mailbox.put, index))
        except LuceboxError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        for index in self._running:
            self._engine.cancel(self._choice_id(index))
        self._running.clear()

    async def pieces(self, heartbeat_s: float | None = None) -> AsyncIterator[Piece | None]:
        """What is new, as it comes, until every choice ended; None whenever nothing came in `heartbeat_s`.

        Raises the engine's error if a choice fails.
        """
        while self._running:
            arrived = await self._mailbox.get(heartbeat_s)
            if arrived is None:
                yield None
                continue
            index, event = arrived
            if isinstance(event, Failed):
                self._running.discard(index)
                raise event.error()
            piece = self._outputs[index].take(event)
            self.bill.n_completion += len(event.tokens)
            if event.finish is not None:
                self._running.discard(index)
                self.bill.timings += event.finish.timings
            yield piece

    def abort(self, error: LuceboxError) -> None:
        """Ends the request with `error`. From the loop's thread."""
        for index in self._running:
            self._mailbox.put(index, Failed.of(self._choice_id(index), error))

    def _submits(self) -> Iterator[Submit]:
        """Choice k of a prompt draws with the request's seed + k, so that choices differ but repeat."""
        base = fresh_seed() if self._params.seed is None else self._params.seed
        for index in range(self.n_choices):
            prompt_index, k = divmod(index, self._n)
            yield Submit(
                id=self._choice_id(index),
                prompt=self._prompts[prompt_index],
                params=self._params,
                seed=(base + k) % SEED_RANGE,
                prediction=self._prediction,
            )

    def _choice_id(self, index: int) -> str:
        return f"{self.id}/{index}"
