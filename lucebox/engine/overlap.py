"""Guesses on while the target verifies: the draft model goes on from the outcomes it takes for likeliest.

Continue-on-accept as in PEARL (Liu et al. 2024, arXiv 2408.11850), and drafts for likely rejections as in SSD
(Kumar, Dao & May 2026, 2603.03251): the draft that fits what happened is there when the target is done.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from lucebox.config import Overlap as Mode
from lucebox.draft_length.costs import CostTable
from lucebox.drafters.base import Ahead, Drafter
from lucebox.engine.draft_thread import DraftThread
from lucebox.engine.hypotheses import NO_SEQUENCE, Beliefs, Hypothesis, Outcomes
from lucebox.engine.overlap_policy import LEAST_CHANCE, OverlapPolicy, StepCost
from lucebox.engine.round import Round
from lucebox.engine.sequence import EngineSequence
from lucebox.engine.timeline import DRAFT, Span, WorkHandler, ignore
from lucebox.errors import ConfigError, DraftLostError, OutOfCellsError
from lucebox.runtime.layout import Layout

logger = logging.getLogger(__name__)

MAX_FAILURES = 3  # in a row, after which nobody runs ahead any more


def overlap_possible(target: Layout, draft: Layout) -> bool:
    """Whether the two compute on different silicon: no device and no worker has parts of both. The CPU may
    help out a device of the target."""
    return not _occupied(target) & _occupied(draft)


def check_overlap(mode: Mode, target: Layout, draft: Layout | None) -> bool:
    """Whether models that will lie so can compute at the same time, and may. Raises ConfigError where they
    shall and cannot."""
    if mode == "off":
        return False
    if draft is not None and overlap_possible(target, draft):
        return True
    if mode == "on":
        why = (
            "there is no draft model" if draft is None else f"the draft model is on {draft}, as the target is"
        )
        raise ConfigError(
            f"nothing can be guessed while the target verifies: {why}",
            remedy="give the draft model a device of its own with --draft-device, or leave --overlap at auto",
        )
    return False


def _occupied(layout: Layout) -> set[str]:
    """Names of the devices that compute layers of a model, and addresses of their workers."""
    used = [layout.devices[i] for i in {*layout.layers, *layout.experts}]
    return {name for device in used for name in (device.name, device.worker) if name is not None}


@dataclass(slots=True)
class RunAhead:
    """Drafts for hypotheses, the likeliest first and a token at a time, until it is stopped or has no more.

    `ms_of_rows[n]` is what a forward of the draft model takes that serves n hypotheses, as far as known, and
    `until_s` when the target should be done: a forward that would be waited for must be worth that.
    """

    outcomes: Sequence[Outcomes]
    spares: list[int]
    ms_of_rows: Sequence[float]
    until_s: float
    on_work: WorkHandler
    is_stopped: bool = False

    def __call__(self) -> None:
        try:
            while not self.is_stopped and (chosen := self._choose()):
                started_s = time.perf_counter()
                self._advance(chosen)
                self.on_work(Span(DRAFT, started_s, time.perf_counter(), is_ahead=True))
        except OutOfCellsError as error:  # the sequences' own contexts take all; what was guessed is sound
            logger.debug("guessing ahead: %s", error)
            for o in self.outcomes:
                o.drop_unused_laws()

    def _choose(self) -> list[tuple[Outcomes, Hypothesis]]:
        """Those that the next forward serves: as many as make it worth most per millisecond."""
        likely = [
            (o, h) for o in self.outcomes for h in o.hypotheses if h.is_open and h.chance >= LEAST_CHANCE
        ]
        chosen: list[tuple[Outcomes, Hypothesis]] = []
        total = 0.0
        for o, h in sorted(likely, key=lambda pair: -pair[1].chance):
            n = len(chosen)
            if n + 1 >= len(self.ms_of_rows):
                break
            if n and (total + h.chance) * self.ms_of_rows[n] <= total * self.ms_of_rows[n + 1]:
                break
            if self._has_cells(o, h):
                chosen.append((o, h))
                total += h.chance
        spares = sum(h.chance for _, h in chosen if h.token is not None)  # asking for one spares no forward
        return chosen if self._is_worth_waiting(len(chosen), spares) else []

    def _is_worth_waiting(self, n: int, chance: float) -> bool:
        if not self.ms_of_rows[n]:
            return True
        forward_ms, left_ms = self.ms_of_rows[n], 1000.0 * (self.until_s - time.perf_counter())
        return chance * forward_ms > forward_ms - max(0.0, left_ms)

    def _has_cells(self, o: Outcomes, h: Hypothesis) -> bool:
        """Whether `h` has a sequence of the draft model's cache, or gets one now."""
        if h.sequence != NO_SEQUENCE:
            return True
        is_whole = h is o.hypotheses[-1] and h.n_accepted == o.n_drafted
        if not is_whole and not self.spares:
            return False
        o.begin(h, o.slot if is_whole else self.spares[-1])
        if not is_whole and not h.is_over:
            self.spares.pop()
        return not h.is_over

    def _advance(self, chosen: Sequence[tuple[Outcomes, Hypothesis]]) -> None:
        by_drafter: dict[Drafter, list[tuple[Outcomes, Hypothesis]]] = {}
        for o, h in chosen:
            by_drafter.setdefault(o.drafter, []).append((o, h))
        for drafter, pairs in by_drafter.items():
            requests = [o.request(h) for o, h in pairs]
            for (o, h), request, draft in zip(pairs, requests, drafter.propose(requests), strict=True):
                o.take(h, request, draft)


@dataclass(slots=True)
class _Step:
    """A forward of the target under way, or just done."""

    n_rows: int
    n_kv: int
    started_s: float
    job: RunAhead | None = None
    verify_ms: float = 0.0
    waited_ms: float = 0.0
    n_hidden: int = 0


@dataclass(slots=True, eq=False)
class Overlap:
    """Lets the draft model run ahead in `thread`, in `spares` of its cache besides the sequences' own cells.

    Used by the engine's thread: `begin` and `end` around the target's forward, `wait` before anything else
    touches a drafter that may run ahead, `settle` before the next drafts, whose beginnings `take` gives. What
    fails here costs guesses only.
    """

    thread: DraftThread
    costs: CostTable
    spares: Sequence[int]
    mode: Mode = "auto"
    on_work: WorkHandler = ignore
    beliefs: Beliefs = field(default_factory=Beliefs)
    is_wanted: bool = False  # in this step
    _policy: OverlapPolicy = field(init=False)
    _step: _Step | None = None
    _found: dict[int, tuple[EngineSequence, Drafter, Ahead]] = field(default_factory=dict)
    _n_failures: int = 0

    def __post_init__(self) -> None:
        self._policy = OverlapPolicy(self.mode, self.costs)

    @property
    def teaches_verify(self) -> bool:
        """Whether the forward just done is one that others are to be measured by."""
        return self._step is None or self._step.job is None or not self._policy.measures

    def begin(self, rounds: Sequence[Round], drafters: Sequence[Drafter | None]) -> None:
        """The target begins to compute `rounds`; `drafters` are those that can run ahead of each, or None."""
        self._book()
        both = zip(rounds, drafters, strict=True)
        pairs = [(r, d) for r, d in both if d is not None and len(r.draft) and r.draft.is_chain]
        if not pairs:
            return
        n_kv = max(len(r.sequence.tokens) for r in rounds)
        step = self._step = _Step(sum(r.n_rows for r in rounds), n_kv, time.perf_counter())
        if not self.is_wanted:
            return
        outcomes = [o for r, drafter in pairs if (o := self._outcomes(r, drafter)) is not None]
        if not outcomes:
            return
        n_most = len(self.spares) + len(outcomes)
        expected_ms = self.costs.verify_ms(step.n_rows, n_kv) * self._policy.slowdown
        step.job = RunAhead(
            outcomes,
            list(self.spares),
            [self.costs.draft.ms(n, n_kv) for n in range(n_most + 1)],
            step.started_s + expected_ms / 1000.0 if expected_ms else float("inf"),
            self.on_work,
        )
        for o in outcomes:
            o.sequence.clock.n_overlapped += 1
        self.thread.begin(step.job)

    def end(self) -> None:
        """The target is done: no further forward of the draft model begins."""
        if self._step is not None:
            self._step.verify_ms = 1000.0 * (time.perf_counter() - self._step.started_s)
            if self._step.job is not None:
                self._step.job.is_stopped = True

    def wait(self) -> None:
        """Returns when nobody runs ahead any more."""
        step = self._step
        if step is None or step.job is None:
            return
        started_s = time.perf_counter()
        try:
            if self.thread.wait():
                self._n_failures = 0
        except DraftLostError as error:  # whose owner has said so
            logger.debug("guessing ahead: %s", error)
            self._forget(step.job)
        except Exception:
            self._n_failures += 1
            logger.exception("guessing ahead failed; what was guessed is dropped")
            self._forget(step.job)
        step.waited_ms += 1000.0 * (time.perf_counter() - started_s)

    def settle(self) -> None:
        """Keeps what was drafted for the outcome that each round really had."""
        self.wait()
        self._found.clear()
        self.is_wanted = self._n_failures < MAX_FAILURES and self._policy.wants()
        step = self._step
        if step is None or step.job is None:
            return
        for o in step.job.outcomes:
            if o.sequence.slot == o.slot:
                self._keep(o)
        self._forget(step.job)

    def take(self, sequence: EngineSequence, drafters: Sequence[Drafter]) -> Ahead | None:
        """What one of `drafters` has for the next draft of `sequence`."""
        owner, drafter, ahead = self._found.get(sequence.slot, (None, None, None))
        return ahead if owner is sequence and drafter in drafters else None

    def note_used(self, sequence: EngineSequence, ahead: Ahead | None, n_forwards: int) -> int:
        """A draft of `n_forwards` forwards began with `ahead`. Returns how many of them that spared."""
        n_hidden = 0 if ahead is None else ahead.n_used
        self.costs.observe_hidden(n_hidden, n_forwards)
        if n_hidden and self._step is not None:
            self._step.n_hidden += n_hidden
            sequence.clock.n_foreseen += 1
            sequence.clock.hidden_ms += n_hidden * self.costs.draft.ms(1, len(sequence.tokens))
        return n_hidden

    def release(self, slot: int) -> None:
        """The sequence in `slot` ends: nothing is kept for it."""
        self.wait()
        self._found.pop(slot, None)
        job = None if self._step is None else self._step.job
        if job is not None:
            self._drop([o for o in job.outcomes if o.slot == slot])
            job.outcomes = [o for o in job.outcomes if o.slot != slot]

    def close(self) -> None:
        """Ends the thread. Idempotent."""
        self.end()
        self.wait()
        self.thread.close()

    def abandon(self) -> None:
        """Nobody runs ahead any more, and nothing that was guessed is kept, whatever state all this is in."""
        self.is_wanted, self._n_failures = False, MAX_FAILURES
        self._found.clear()
        step, self._step = self._step, None
        if step is not None and step.job is not None:
            step.job.is_stopped = True
        try:
            self.thread.wait()
        except Exception:
            logger.exception("guessing ahead failed; what was guessed is dropped")
        try:
            if step is not None and step.job is not None:
                self._forget(step.job)
        except Exception:
            logger.exception("the draft model's cells that were for guesses are lost")

    def _outcomes(self, r: Round, drafter: Drafter) -> Outcomes | None:
        """What `r` may come to, if there is anything to draft for; one that cannot be told costs its guesses
        only."""
        try:
            outcomes = Outcomes(r, drafter, self.beliefs)
        except Exception:
            logger.exception("nothing is guessed behind a draft of request %s", r.sequence.id)
            return None
        return outcomes if outcomes.hypotheses else None

    def _forget(self, job: RunAhead) -> None:
        self._drop(job.outcomes)
        job.outcomes = ()

    def _keep(self, o: Outcomes) -> None:
        """Moves the draft for what came true, if there is any, to its sequence."""
        try:
            h = o.settle(self.beliefs)
            if h is None or not h.ahead.laws:
                return
            if h.sequence != o.slot:
                o.drafter.fork(h.sequence, o.slot)
        except Exception:
            logger.exception("a draft made ahead cannot be taken over")
            return
        h.ahead.n_used = 0
        self._found[o.slot] = (o.sequence, o.drafter, h.ahead)

    def _drop(self, outcomes: Sequence[Outcomes]) -> None:
        """Frees the cells of hypotheses."""
        for o in outcomes:
            for h in o.hypotheses:
                if h.sequence not in (NO_SEQUENCE, o.slot):
                    try:
                        o.drafter.release(h.sequence)
                    except Exception:
                        logger.exception("%s cannot forget a hypothesis", type(o.drafter).__name__)
                    h.sequence, h.is_over = NO_SEQUENCE, True

    def _book(self) -> None:
        """The step before is over, and what it spared the one that begins is known."""
        step, self._step = self._step, None
        if step is None:
            return
        saved_ms = step.n_hidden * self.costs.draft.ms(1, step.n_kv)
        self._policy.book(
            StepCost(step.n_rows, step.n_kv, step.verify_ms, step.job is not None, saved_ms, step.waited_ms)
        )
