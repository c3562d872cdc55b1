"""Judges recorded rounds again: any strategy and any draft-length controller, with production code."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lucebox import acceptance, draft_length
from lucebox.acceptance.base import AcceptanceStrategy
from lucebox.core import Distribution, Draft, DrawMode, RoundResult, Verdict
from lucebox.draft_length.base import Costs, DraftLengthController, Plan, SequenceState
from lucebox.errors import ConfigError
from lucebox.research.records import RecordedRound
from lucebox.research.traces import Trace
from lucebox.sampling.gumbel import gumbel_argmax
from lucebox.sampling.random import RoundRandom

RECORDED = "recorded"
MAX_NOISE_TRIES = 200_000
N_RIVALS = 32  # likeliest tokens that a drafted one must beat before the whole law is looked at
_ANY_ROOM = 2**16


@dataclass(slots=True)
class Replay:
    """What became of the rounds of a trace, judged again.

    `n_accepted_at[i]` counts the rounds of which token i stood. `n_censored` rounds would have been drafted
    further than they were recorded: their drafts end where the recording does, so that figures of a
    controller that likes long drafts are too low. `n_unjudged` rounds are left out, since no shared noise
    was found that drafts their tokens: unlikely ones, so that the others look a little better than all would.
    `ms` is what the rounds cost by the cost table, 0 without one.
    """

    n_rounds: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    n_censored: int = 0
    n_unjudged: int = 0
    ms: float = 0.0
    n_accepted_at: list[int] = field(default_factory=list)

    @property
    def acceptance_rate(self) -> float:
        """Accepted over drafted tokens; 0 without drafts."""
        return self.n_accepted / self.n_drafted if self.n_drafted else 0.0

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens per round: those accepted, and the one behind them; 0 without rounds."""
        return 1.0 + self.n_accepted / self.n_rounds if self.n_rounds else 0.0

    @property
    def ms_per_token(self) -> float:
        """By the cost table; 0 without one."""
        return self.ms / (self.n_rounds + self.n_accepted) if self.n_rounds else 0.0

    def add(self, n_drafted: int, n_accepted: int, ms: float) -> None:
        self.n_rounds += 1
        self.n_drafted += n_drafted
        self.n_accepted += n_accepted
        self.ms += ms
        self.n_accepted_at += [0] * (n_drafted - len(self.n_accepted_at))
        for i in range(n_accepted):
            self.n_accepted_at[i] += 1


def replay(
    trace: Trace,
    strategy: str | AcceptanceStrategy,
    controller: str | DraftLengthController = RECORDED,
    *,
    seed: int = 0,
    n_times: int = 1,
    costs: Costs | None = None,
) -> Replay:
    """Every drafted round of `trace`, `n_times` over, each with random numbers of its own.

    Strategy and controller are made from their specs, or given as they are. Rounds stay where they were
    recorded: what is accepted now does not move the next one. `controller` is
    asked for the length of each, sees what the draft's laws show it as far as it goes, and learns from the
    outcome; `recorded` takes the drafts as they are. Laws that were truncated keep the probabilities of kept
    tokens, and all the rest lies on one more. At temperature 0 a trace holds the one-hot limits alone.

    Raises ConfigError for names that are unknown, and for a strategy that the trace lacks something for.
    """
    name = strategy if isinstance(strategy, str) else type(strategy).__name__
    judge = _Judge(acceptance.create(strategy) if isinstance(strategy, str) else strategy, name)
    planner = None
    if controller != RECORDED:
        made = draft_length.create(controller) if isinstance(controller, str) else controller
        planner = _Planner(made, name, costs)
    random = np.random.default_rng(seed)
    result = Replay()
    sequences = {request.id: i for i, request in enumerate(trace.requests)}
    judge.check(trace)
    if planner is not None and not all(r.is_chain for r in trace.drafted):
        raise ConfigError("the trace holds trees", remedy="replay it without a controller, or record chains")
    for _ in range(n_times):
        for r in trace.drafted:
            n = len(r) if planner is None else planner.length(r, sequences[r.request], result)
            verdict = judge.verdict(r, n, random)
            if verdict is None:
                result.n_unjudged += 1
                continue
            ms = _round_ms(r, n, costs)
            result.add(n, len(verdict.path), ms)
            if planner is not None:
                planner.learn(r, sequences[r.request], n, verdict)
    return result


def _round_ms(r: RecordedRound, n: int, costs: Costs | None) -> float:
    if costs is None:
        return 0.0
    return costs.draft_ms(r.drafter, n, r.n_prefix) + costs.verify_ms(n + 1, r.n_prefix)


class _Judge:
    """A strategy, and how to put a recorded draft before it."""

    def __init__(self, strategy: AcceptanceStrategy, name: str) -> None:
        self._strategy = strategy
        self._name = name

    def check(self, trace: Trace) -> None:
        """Raises ConfigError if the trace has not what the strategy needs."""
        it = self._strategy
        shares_noise = it.draw_mode is DrawMode.SHARED_NOISE
        if it.temperature_0_only and not trace.header.params.greedy:
            raise ConfigError(f"{self._name} judges at temperature 0 only, and the trace has another")
        if (it.needs_q or shares_noise) and not all(r.has_q for r in trace.drafted):
            raise ConfigError(
                f"{self._name} needs the laws of the draft, which the trace does not hold",
                remedy="record it with a strategy that needs them, too: block",
            )
        if (shares_noise or not it.supports_trees) and not all(r.is_chain for r in trace.drafted):
            raise ConfigError(f"the trace holds trees, and {self._name} is replayed on chains")

    def verdict(self, r: RecordedRound, n: int, random: np.random.Generator) -> Verdict | None:
        """What becomes of the first `n` tokens; None where no noise was found to draft them by."""
        p = [law.lumped() for law in r.p[: n + 1]]
        draft = r.draft(n)
        if self._strategy.draw_mode is not DrawMode.SHARED_NOISE:
            return self._strategy.verify(draft, p, _round_random(random, r.n_prefix))
        for i, (token, q) in enumerate(zip(draft.tokens.tolist(), draft.q, strict=True)):
            # Noise is independent between positions, so that tokens can be judged one by one.
            noise = _noise_that_drafts(token, q, r.n_prefix + i, random)
            if noise is None:
                return None
            verdict = self._strategy.verify(Draft.chain([token], [q]), p[i : i + 2], noise)
            if not verdict.path or i == n - 1:
                return Verdict(tuple(range(i + len(verdict.path))), verdict.token, i + verdict.row)
        return self._strategy.verify(draft, p, _round_random(random, r.n_prefix))


def _round_random(random: np.random.Generator, position: int) -> RoundRandom:
    return RoundRandom(int(random.integers(2**63)), position)


def _noise_that_drafts(
    token: int, q: Distribution | None, position: int, random: np.random.Generator
) -> RoundRandom | None:
    """Shared noise by which `token` is what q draws at `position`: found by trying."""
    if q is None:
        return _round_random(random, position)
    rivals = _among_rivals(q, token)
    for _ in range(MAX_NOISE_TRIES):
        noise = _round_random(random, position)
        if gumbel_argmax(rivals, noise.seed, position) == token == gumbel_argmax(q, noise.seed, position):
            return noise
    return None


def _among_rivals(q: Distribution, token: int) -> Distribution:
    """q on `token` and the likeliest others."""
    places = (
        np.argpartition(-q.probs, N_RIVALS)[:N_RIVALS] if len(q.probs) > N_RIVALS else np.arange(len(q.probs))
    )
    ids = np.union1d(places if q.ids is None else q.ids[places], [token]).astype(np.int32)
    return Distribution(q.n_vocab, np.array([q.prob(i) for i in ids.tolist()], np.float32), ids)


class _Planner:
    """A controller, and what it may see of a recorded chain."""

    def __init__(self, controller: DraftLengthController, strategy: str, costs: Costs | None) -> None:
        if costs is None:
            raise ConfigError("a draft-length controller decides on costs", remedy="give a cost table")
        self._controller = controller
        self._strategy = strategy
        self._costs = costs
        self._was_asked = False

    def length(self, r: RecordedRound, sequence: int, result: Replay) -> int:
        """How many tokens of the recorded chain are drafted; counts what the recording cuts off."""
        plan = self._plan(r, sequence)
        self._was_asked = plan is not None
        if plan is None:
            return 0
        n, wants_more = self._walk(r, sequence, plan.n_max)
        result.n_censored += wants_more
        return n

    def learn(self, r: RecordedRound, sequence: int, n: int, verdict: Verdict) -> None:
        n_accepted = len(verdict.path)
        self._controller.update(
            RoundResult(
                sequence=sequence,
                drafter=r.drafter if self._was_asked else "",
                n_drafted=n,
                n_accepted=n_accepted,
                draft_ms=self._costs.draft_ms(r.drafter, n, r.n_prefix),
                verify_ms=self._costs.verify_ms(n + 1, r.n_prefix),
                n_rows=n + 1,
                n_kv=r.n_prefix,
                depth=n,
                n_batch_rows=n + 1,
                n_judged=sum(law is not None for law in r.q[:n]),
                tokens=[*r.tokens[:n_accepted].tolist(), verdict.token],
            )
        )

    def _plan(self, r: RecordedRound, sequence: int) -> Plan | None:
        """The plan that asks the recorded drafter, if there is one."""
        state = SequenceState(
            sequence=sequence,
            n_tokens=r.n_prefix,
            n_room=_ANY_ROOM,
            drafters=(r.drafter,),
            n_behind={r.drafter: 0},
            acceptance=self._strategy,
        )
        plan: Plan | None = self._controller.plan([state], self._costs)[sequence]
        while plan is not None and (plan.drafter != r.drafter or plan.n_max == 0):
            plan = plan.otherwise
        return plan

    def _walk(self, r: RecordedRound, sequence: int, n_max: int) -> tuple[int, bool]:
        """The tokens that are drafted, and whether there would have been more."""
        if all(law is None for law in r.q):
            n = min(n_max, len(r))
            kept = self._controller.trim(sequence, r.drafter, r.tokens[:n].tolist())
            return kept, kept == len(r) < n_max
        for n, law in enumerate(r.q[:n_max]):
            if law is not None and not self._controller.keep_drafting(sequence, law.lumped(), n):
                return n, False
            if self._controller.is_long_enough(sequence, n + 1):
                return n + 1, False
        return min(n_max, len(r)), n_max > len(r)
