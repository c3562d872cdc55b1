"""One HTTP request at the engine: its choices submitted, what comes back as pieces of text, and the bill."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Literal, Self

from lucebox.core import Origin
from lucebox.engine.client import EngineClient
from lucebox.engine.messages import Failed, Finish, StepEvent, Submit, TokenLogprobs
from lucebox.engine.timings import RoundTrace, Timings
from lucebox.errors import EngineError, LuceboxError, RequestError
from lucebox.sampling.params import SamplingParams
from lucebox.sampling.random import fresh_seed
from lucebox.server.mailbox import Mailbox
from lucebox.server.tally import Meter
from lucebox.text.answer_parser import AnswerParser, CallStart, Content, PlainParser, Segment, joined
from lucebox.text.output import TextOutput, TokenBytes

FinishReason = Literal["stop", "length", "tool_calls"]
SEED_RANGE = 2**64


@dataclass(frozen=True, slots=True)
class TokenSource:
    """A generated token and where it came from; `drafter` is who proposed it, if it was accepted."""

    token: int
    origin: Origin
    drafter: str | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """What became certain of one choice: its segments, log-probabilities of the tokens that begin in them,
    the tokens that came and the rounds they came in, the end and the stop string that brought it."""

    index: int
    segments: list[Segment]
    logprobs: list[TokenLogprobs]
    tokens: list[TokenSource] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_string: str | None = None
    traces: list[RoundTrace] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] | None = None  # of the choice's first piece, if asked for

    @property
    def text(self) -> str:
        """The content alone."""
        return "".join(segment.text for segment in self.segments if isinstance(segment, Content))

    def chunks(self) -> Iterator[Piece]:
        """What to stream: the end comes by itself, as clients stop reading where they see it."""
        if self.segments or self.logprobs or self.tokens or self.prompt_logprobs is not None:
            yield replace(self, finish_reason=None)
        if self.finish_reason is not None:
            yield Piece(self.index, [], [], [], self.finish_reason, self.stop_string)


@dataclass(slots=True)
class Bill:
    """Tokens and time of one HTTP request, over all its choices, and whether it came with a prediction.

    `n_cached` of the prompt's tokens were known from other requests; what one choice computed, `timings` say
    the others knew. `n_reasoning` of the completion's tokens are reasoning; None where the model does none.
    """

    n_prompt: int
    n_cached: int = 0
    n_completion: int = 0
    n_reasoning: int | None = None
    timings: Timings = field(default_factory=Timings)
    has_prediction: bool = False


class ChoiceOutput:
    """Turns the events of one choice into pieces."""

    def __init__(
        self,
        index: int,
        vocabulary: TokenBytes,
        stops: Sequence[str],
        parser: AnswerParser,
        markers: Mapping[int, str],
    ) -> None:
        self._index = index
        self._vocabulary = vocabulary
        self._text = TextOutput(vocabulary, stops, markers)
        self._parser = parser
        self._has_calls = False
        self._n_bytes = 0
        self._held: list[tuple[int, TokenLogprobs]] = []  # with where in the text's bytes the token begins
        self.n_reasoning = 0

    def take(self, event: StepEvent) -> Piece:
        segments: list[Segment] = []
        for token in event.tokens:
            self.n_reasoning += self._parser.in_reasoning
            segments += self._parser.push(self._text.push([token]))
        for entry in event.logprobs or ():
            self._held.append((self._n_bytes, entry))
            self._n_bytes += len(self._vocabulary.token_bytes(entry.token))
        finish = event.finish
        if finish is None:
            return self._piece(event, segments, self._text.n_shown_bytes)
        if finish.reason not in ("stop", "length"):
            raise EngineError(
                "the server is shutting down" if finish.reason == "cancelled" else "engine error"
            )
        segments += self._parser.push(self._text.finish(finish.keep_bytes))
        segments += self._parser.finish()
        if finish.reason == "stop" and finish.keep_bytes is None:
            del self._held[-1:]  # the end-of-generation token is not part of the answer
        n_kept = self._n_bytes + 1 if finish.keep_bytes is None else finish.keep_bytes
        return self._last(self._piece(event, segments, n_kept), finish)

    def _piece(self, event: StepEvent, segments: Sequence[Segment], n_bytes: int) -> Piece:
        """With the log-probabilities of the tokens that begin before byte `n_bytes`."""
        self._has_calls = self._has_calls or any(isinstance(segment, CallStart) for segment in segments)
        sources = token_sources(event)
        return Piece(
            self._index,
            joined(segments),
            self._release(n_bytes),
            sources,
            traces=event.traces,
            prompt_logprobs=event.prompt_logprobs,
        )

    def _last(self, piece: Piece, finish: Finish) -> Piece:
        reason: FinishReason = "length" if finish.reason == "length" else "stop"
        if reason == "stop" and self._has_calls:
            reason = "tool_calls"
        stop = None if finish.stop_string is None else finish.stop_string.decode()
        return replace(piece, finish_reason=reason, stop_string=stop)

    def _release(self, n_bytes: int) -> list[TokenLogprobs]:
        """The entries of tokens that begin before byte `n_bytes`."""
        released = [entry for start, entry in self._held if start < n_bytes]
        del self._held[: len(released)]
        return released


class Generation:
    """`n` choices for each prompt. A context: entering submits, leaving cancels what has not ended.

    `grammar_param` is what the request calls what its grammar comes from.
    """

    def __init__(
        self,
        engine: EngineClient,
        vocabulary: TokenBytes,
        id: str,
        prompts: Sequence[list[int]],
        params: SamplingParams,
        n: int = 1,
        prediction: list[int] | None = None,
        *,
        make_parser: Callable[[], AnswerParser] = PlainParser,
        markers: Mapping[int, str] = MappingProxyType({}),
        traced: bool = False,
        grammar_param: str = "grammar",
    ) -> None:
        self.id = id
        self._grammar_param = grammar_param
        self._traced = traced
        n_prompt = sum(len(prompt) for prompt in prompts)
        self.bill = Bill(n_prompt, has_prediction=prediction is not None)
        self._prediction = prediction or []
        self._engine = engine
        self._prompts = prompts
        self._params = params
        self._n = n
        self._mailbox = Mailbox(asyncio.get_running_loop())
        self._outputs = [
            ChoiceOutput(i, vocabulary, params.stop, make_parser(), markers) for i in range(self.n_choices)
        ]
        self._running: set[int] = set()
        self._n_cached: dict[int, int] = {}  # by prompt
        self.meter: Meter | None = None

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
            self._give_up("refused")
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._give_up("cancelled")

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
                self._end(index, "error")
                raise self._named(event.error())
            assert isinstance(event, StepEvent)
            if self.meter is not None:
                self.meter.note(index, event, len(self._prompts[index // self._n]))
            piece = self._outputs[index].take(event)
            self.bill.n_completion += len(event.tokens)
            if self.bill.n_reasoning is not None:
                self.bill.n_reasoning = sum(output.n_reasoning for output in self._outputs)
            if event.finish is not None:
                self._end(index, piece.finish_reason or "stop", event)
                self._add_to_bill(index // self._n, event.finish.timings)
            yield piece

    def _named(self, error: LuceboxError) -> LuceboxError:
        """With the request's own field where the engine, which knows but grammars, names that."""
        if isinstance(error, RequestError) and error.param == "grammar":
            error.param = self._grammar_param
        return error

    def abort(self, error: LuceboxError) -> None:
        """Ends the request with `error`. From the loop's thread."""
        for index in self._running:
            self._mailbox.put(index, Failed.of(self._choice_id(index), error))

    def _add_to_bill(self, prompt_index: int, timings: Timings) -> None:
        n_cached = min(timings.cache_n, self._n_cached.get(prompt_index, len(self._prompts[prompt_index])))
        self._n_cached[prompt_index] = n_cached
        self.bill.n_cached = sum(self._n_cached.values())
        self.bill.timings += timings

    def _give_up(self, reason: str) -> None:
        for index in tuple(self._running):
            self._engine.cancel(self._choice_id(index))
            self._end(index, reason)

    def _end(self, index: int, reason: str, event: StepEvent | None = None) -> None:
        self._running.discard(index)
        if self.meter is not None:
            self.meter.end(index, reason, event)

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
                traced=self._traced,
                group=self.id,
            )

    def _choice_id(self, index: int) -> str:
        return f"{self.id}/{index}"


def token_sources(event: StepEvent) -> list[TokenSource]:
    """The tokens of `event`, each accepted one with its drafter."""
    drafters = deque(drafted.drafter for drafted in event.drafted for _ in range(drafted.n_accepted))
    out = []
    for token, origin in zip(event.tokens, event.origins, strict=True):
        drafter = drafters.popleft() if origin is Origin.ACCEPTED and drafters else None
        out.append(TokenSource(token, origin, drafter))
    return out
