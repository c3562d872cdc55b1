"""The state of one request inside the engine, and what one more token does to it. No tensors, no cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lucebox.acceptance.base import AcceptanceStrategy
from lucebox.core import Draft, Origin, Verdict
from lucebox.draft_length.base import DraftLengthController
from lucebox.engine.clock import Clock
from lucebox.engine.embedding import Pooler
from lucebox.engine.messages import Finish, FinishReason, StepEvent, Submit, TokenLogprobs
from lucebox.engine.prompt_scores import PromptScores
from lucebox.engine.timings import DraftedRound, Timings
from lucebox.sampling.random import RoundRandom
from lucebox.sampling.sampler import Sampler
from lucebox.text.stop import StopMatch, StopMatcher

NO_SLOT = -1


@dataclass(frozen=True, slots=True)
class Emission:
    """What one round adds to a sequence, in order, cut behind the token that ended it.

    `rows[i]` is the row of the round whose law token i was judged by or drawn from. Tokens that the grammar
    forced stand behind all others, and have none. `finish` says how the sequence ended, if it did, and
    `drafted` what became of the round's draft, if it had one.
    """

    tokens: list[int]
    origins: list[Origin]
    rows: list[int]
    finish: FinishReason | None = None
    stop: StopMatch | None = None
    drafted: DraftedRound | None = None


@dataclass(slots=True, eq=False)
class EngineSequence:
    """One request under way.

    Tokens that a grammar leaves no choice about are appended with the token before them, and all of these are
    fed in the next forward.
    `tokens` are prompt and generated tokens. The target's cache holds the first `n_cached` of them, at most
    all but the last, which is row 0 of the next forward: its logits are not known yet. `n_reused` of them
    were there before.
    """

    submit: Submit
    sampler: Sampler
    acceptance: AcceptanceStrategy
    controller: DraftLengthController | None  # None: speculation is off for this request
    stops: StopMatcher
    end_tokens: frozenset[int]
    token_bytes: Callable[[int], bytes]
    n_ctx: int
    drafters: tuple[str, ...] = ()  # who may guess, preferred first
    scores: PromptScores | None = None  # the prompt's log-probabilities are asked for
    pooler: Pooler | None = None  # the prompt is to be embedded, and nothing generated
    tokens: list[int] = field(default_factory=list)
    slot: int = NO_SLOT
    n_cached: int = 0
    n_reused: int = 0
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.tokens = [*self.submit.prompt, *self.submit.generated]
        for token in self.submit.generated:
            self.stops.push(self.token_bytes(token))

    @property
    def id(self) -> str:
        return self.submit.id

    @property
    def group(self) -> str:
        """What it shares with the other answers to one client's request; its own where there are none."""
        return self.submit.group or self.submit.id

    @property
    def n_generated(self) -> int:
        """Generated tokens, those of an earlier engine included."""
        return len(self.tokens) - len(self.submit.prompt)

    @property
    def n_missing(self) -> int:
        """Tokens to feed until the next one can be drawn; 1 and the forced ones while decoding."""
        return len(self.tokens) - self.n_cached

    @property
    def may_reuse(self) -> bool:
        """Whether what is known of its prompt spares computing it."""
        return self.pooler is None and self.scores is None

    @property
    def is_decoding(self) -> bool:
        """Whether its prompt is done."""
        return bool(self.clock.prompt_done_s)

    @property
    def n_left(self) -> int:
        """Tokens that may still be generated: context and max_tokens."""
        n_context = self.n_ctx - len(self.tokens)
        limit = self.submit.params.max_tokens
        return n_context if limit is None else min(n_context, limit - self.n_generated)

    @property
    def draft_stop_tokens(self) -> frozenset[int]:
        """Tokens behind which nothing can be kept."""
        ignores_end = self.submit.params.ignore_eos and self.sampler.constraint is None
        return frozenset() if ignores_end else self.end_tokens

    def start(self, slot: int) -> None:
        """The sequence runs from now on, as sequence `slot` of the caches."""
        self.slot = slot
        self.clock.started_s = time.monotonic()

    def random(self) -> RoundRandom:
        """The random numbers of the round that starts here."""
        return RoundRandom(self.submit.seed, len(self.tokens))

    def emit(self, draft: Draft, verdict: Verdict, drafter: str = "", verify_ms: float = 0.0) -> Emission:
        """Appends what `verdict` says of a draft by `drafter`, up to the token that ends the sequence.

        The target's forward took `verify_ms`.
        """
        drafted = [int(draft.tokens[i]) for i in verdict.path]
        candidates = [*drafted, verdict.token]
        rows = [*(int(draft.parents[i]) for i in verdict.path), verdict.row]
        forced = self._forced(candidates)
        origins = [*(Origin.ACCEPTED for _ in drafted), _last_origin(draft, verdict)]
        n_drawn = len(candidates)
        candidates += forced
        origins += [Origin.FORCED] * len(forced)
        finish: FinishReason | None = None
        stop: StopMatch | None = None
        n = 0
        while n < len(candidates) and finish is None:
            finish, stop = self._append(candidates[n])
            n += 1
        self.sampler.commit(candidates[:n])
        self.clock.n_forced += max(0, n - n_drawn)
        outcome = None
        if len(draft):
            outcome = DraftedRound(drafter, len(draft), draft.depth, min(n, len(drafted)))
        self.clock.note(outcome, verify_ms)
        return Emission(candidates[:n], origins[:n], rows[:n], finish, stop, outcome)

    def event(self, emission: Emission, logprobs: list[TokenLogprobs] | None) -> StepEvent:
        """What the client is told of a round."""
        now_s = time.monotonic()
        if not self.clock.prompt_done_s:
            self.clock.prompt_done_s = now_s
        finish = None
        if emission.finish is not None:
            finish = self._finish(emission.finish, now_s, emission.stop)
        return StepEvent(
            id=self.id,
            tokens=emission.tokens,
            origins=emission.origins,
            drafted=[] if emission.drafted is None else [emission.drafted],
            round=self.clock.n_rounds,
            logprobs=logprobs,
            prompt_logprobs=None if self.scores is None else self.scores.take(),
            time_ms=now_s * 1000.0,
            finish=finish,
        )

    def cancelled(self) -> StepEvent:
        """The last event of a request that its client gave up."""
        now_s = time.monotonic()
        finish = self._finish("cancelled", now_s)
        return StepEvent(id=self.id, tokens=[], origins=[], n_rounds=0, time_ms=now_s * 1000.0, finish=finish)

    def _finish(self, reason: FinishReason, now_s: float, stop: StopMatch | None = None) -> Finish:
        return Finish(
            reason=reason,
            stop_string=stop.string if stop else None,
            keep_bytes=stop.start if stop else None,
            timings=self._timings(now_s),
        )

    def _forced(self, drawn: Sequence[int]) -> list[int]:
        """What the grammar leaves no choice about behind `drawn`. Log-probabilities take a row of logits."""
        constraint = self.sampler.constraint
        if constraint is None or self.submit.params.logprobs is not None:
            return []
        return constraint.forced(drawn)

    def _append(self, token: int) -> tuple[FinishReason | None, StopMatch | None]:
        self.tokens.append(token)
        if token in self.draft_stop_tokens:
            return "stop", None
        stop = self.stops.push(self.token_bytes(token))
        if stop is not None:
            return "stop", stop
        return ("length" if self.n_left <= 0 else None), None

    def _timings(self, now_s: float) -> Timings:
        n_predicted = self.n_generated - len(self.submit.generated)
        n_prompt = len(self.submit.prompt)
        n_reused = min(self.n_reused, n_prompt)
        return self.clock.timings(now_s, n_prompt=n_prompt, n_predicted=n_predicted, n_cached=n_reused)


def _last_origin(draft: Draft, verdict: Verdict) -> Origin:
    """Plain without a draft, bonus behind a leaf of it, else the correction of what was rejected."""
    if not len(draft):
        return Origin.PLAIN
    is_leaf = verdict.row not in draft.parents.tolist()
    return Origin.BONUS if is_leaf else Origin.CORRECTED


def rows_behind(draft: Draft, row: int) -> Sequence[int]:
    """The drafted tokens on the path to `row`, in order: what stands between the prefix and its logits."""
    return [int(draft.tokens[i]) for i in draft.ancestors(row)]
