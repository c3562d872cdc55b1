"""A machine whose costs and texts are made up, on which draft-length controllers decode. Seeded."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from lucebox.core import Distribution, RoundResult
from lucebox.draft_length.base import DraftLengthController, Plan, SequenceState
from lucebox.draft_length.costs import CostTable

STEPS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
MODEL, SUFFIX = "model", "suffix"
LOOKUP_MS = 0.03
WRONG = -1

Points = Mapping[int, float]


@dataclass(frozen=True, eq=False)
class Machine:
    """Milliseconds of a forward by rows, for target and draft model, and the target's per token of context
    and row. `noise` is the spread of each, and in `burst` (start, end; seconds) all take three times as
    long."""

    target: Points
    draft: Points
    kv_ms: float = 0.0
    noise: float = 0.03
    burst: tuple[float, float] = (0.0, 0.0)

    def target_ms(self, n_rows: int, n_kv: int) -> float:
        return _at(self.target, n_rows) + self.kv_ms * n_kv * (0.5 + 0.5 * n_rows)

    def draft_ms(self, n_rows: int) -> float:
        return _at(self.draft, n_rows)

    def table(self, seed: int) -> CostTable:
        """What a calibration finds, each figure a few percent off."""
        rng = np.random.default_rng(seed)
        table = CostTable(STEPS, MODEL.__eq__)
        off = lambda ms: ms * float(np.exp(0.03 * rng.standard_normal()))  # noqa: E731
        rows = (1, 2, 3, 4, 5, 8, 12, 16, 64)
        table.verify.set(
            [(n, 64, off(self.target_ms(n, 64))) for n in rows]
            + [(n, 4096, off(self.target_ms(n, 4096))) for n in (1, 8)]
        )
        table.draft.set([(n, 64, off(self.draft_ms(n))) for n in (1, 2, 16, 64)])
        return table


def _at(points: Points, n_rows: int) -> float:
    n = STEPS[bisect_left(STEPS, n_rows)] if n_rows <= STEPS[-1] else n_rows
    return float(np.interp(n, list(points), list(points.values()))) * max(1.0, n / max(points))


CPU_1B = Machine(
    {1: 28, 2: 48, 3: 64, 4: 72, 5: 109, 8: 138, 16: 218, 64: 700, 256: 2700},
    {1: 12, 2: 16, 4: 26, 8: 44, 64: 230, 256: 880},
    kv_ms=0.006,
)
CPU_1B_SLOW_DRAFT = Machine(CPU_1B.target, {1: 20, 2: 30, 4: 45, 8: 70, 64: 300, 256: 1100}, kv_ms=0.006)
CPU_Q4 = Machine(
    {1: 38, 2: 65, 3: 87, 4: 97, 5: 148, 8: 188, 16: 296, 64: 900, 256: 3400},
    {1: 10, 2: 14, 4: 23, 8: 40, 64: 200, 256: 800},
    kv_ms=0.006,
)
CPU_F16 = Machine(
    {1: 113, 2: 150, 3: 158, 4: 166, 5: 162, 8: 246, 16: 368, 64: 1100, 256: 4000},
    CPU_1B.draft,
    kv_ms=0.006,
)
GPU = Machine(
    {1: 9.0, 2: 9.1, 4: 9.2, 8: 9.5, 16: 10, 64: 16, 256: 30, 512: 55},
    {1: 1.6, 2: 1.6, 16: 1.8, 64: 2.5, 256: 5},
    kv_ms=1e-5,
)


@dataclass(frozen=True)
class Text:
    """A way of writing. A draft model's guess is right with probability `alpha`: with `informative` laws it
    is sure of the right ones and unsure of most wrong ones. A lookup has something to say at `matching` of
    all places, and starts spans of copied tokens of `span` on average, within which it is right."""

    alpha: float
    informative: bool = True
    matching: float = 0.05
    matches: float = 0.3
    span: float = 0.0


@dataclass
class Answer:
    """What stands at each position, whoever decodes it: made once, and the same for all."""

    right: np.ndarray
    confidence: np.ndarray
    proposal: list[tuple[int, int]]  # tokens looked up there, and how many of them are right

    @classmethod
    def of(cls, texts: Sequence[tuple[int, Text]], rng: np.random.Generator) -> Answer:
        right, confidence, proposal = [], [], []
        for n, text in texts:
            r, c, p = _written(n, text, rng)
            right.append(r)
            confidence.append(c)
            proposal += p
        pad = 64
        return cls(
            np.concatenate([*right, np.zeros(pad, bool)]),
            np.concatenate([*confidence, np.full(pad, 0.3)]),
            [*proposal, *[(0, 0)] * pad],
        )


def _written(
    n: int, text: Text, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, list[tuple[int, int]]]:
    if text.informative:
        n_hard = min(1.0, (1.0 - text.alpha) / 0.6)
        hard = rng.random(n) < n_hard
        p = np.where(hard, 0.4, 1.0 - (1.0 - text.alpha) * 0.05)
        confidence = np.clip(np.where(hard, 0.45, 0.985) + 0.012 * rng.standard_normal(n), 0.05, 0.999)
    else:
        p = np.full(n, text.alpha)
        confidence = rng.uniform(0.6, 0.99, n)
    right = rng.random(n) < p
    proposal: list[tuple[int, int]] = []
    while len(proposal) < n:
        if text.span and rng.random() < 0.5:
            span = 1 + int(rng.geometric(1.0 / text.span))
            proposal += [(24, min(24, span - i)) for i in range(span)]
        elif rng.random() < text.matching:
            length = int(rng.integers(1, 5))
            proposal.append((length, length if rng.random() < text.matches else int(rng.integers(0, length))))
        else:
            proposal.append((0, 0))
    return right, confidence, proposal[:n]


@dataclass(frozen=True)
class Request:
    n_prompt: int
    texts: tuple[tuple[int, Text], ...]

    @property
    def n_answer(self) -> int:
        return sum(n for n, _ in self.texts)


@dataclass
class Decoder:
    """Decodes requests one after another as `controller` decides. `elapsed_ms` is what users waited."""

    machine: Machine
    controller: DraftLengthController
    drafters: tuple[str, ...]
    seed: int = 0
    elapsed_ms: float = 0.0
    waited_ms: list[float] = field(default_factory=list)
    n_by_drafter: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng([self.seed, 1])
        self.costs = self.machine.table(self.seed)

    def serve(self, requests: Sequence[Request]) -> float:
        """Milliseconds that the requests took. Their texts depend on the seed and their places alone."""
        started_ms = self.elapsed_ms
        for i, request in enumerate(requests):
            before_ms = self.elapsed_ms
            self._answer(request, Answer.of(request.texts, np.random.default_rng([self.seed, 2, i])))
            self.waited_ms.append(self.elapsed_ms - before_ms)
        return self.elapsed_ms - started_ms

    def _spend(self, ms: float) -> float:
        """What takes `ms` usually."""
        begin, end = self.machine.burst
        factor = 3.0 if begin <= self.elapsed_ms / 1000.0 < end else 1.0
        ms *= factor * float(np.exp(self.machine.noise * self._rng.standard_normal()))
        self.elapsed_ms += ms
        return ms

    def _answer(self, request: Request, answer: Answer) -> None:
        prompt_ms = sum(
            self._spend(self.machine.target_ms(min(256, request.n_prompt - i), i))
            for i in range(0, request.n_prompt, 256)
        )
        self._n_drafted = 0  # tokens that the draft model has computed
        done = 1  # the prompt's last forward draws the first token
        while done < request.n_answer:
            done += self._round(request, answer, done, prompt_ms)
        self.controller.release(0)

    def _round(self, request: Request, answer: Answer, done: int, prompt_ms: float) -> int:
        n_tokens, n_left = request.n_prompt + done, request.n_answer - done
        state = SequenceState(
            0,
            n_tokens,
            n_left - 1,
            self.drafters,
            {MODEL: n_tokens - 1 - self._n_drafted} if MODEL in self.drafters else {},
            "Greedy",
            done,
            prompt_ms,
        )
        plan: Plan | None = self.controller.plan([state], self.costs)[0] if n_left > 1 else None
        drafter, n, accepted, n_judged, caught_up = "", 0, 0, 0, 0
        draft_ms = 0.0
        while plan is not None and n == 0 and plan.n_max > 0:
            drafter = plan.drafter
            if drafter == MODEL:
                caught_up = n_tokens - 1 - self._n_drafted
                n, n_judged, ms = self._compute(answer, done, plan.n_max, caught_up, n_tokens)
                accepted = _n_right(answer.right[done : done + n].tolist())
                self._n_drafted = n_tokens + min(accepted, max(0, n_judged - 1))
            else:
                n, accepted, ms = self._look_up(answer, done, plan.n_max)
            draft_ms += ms
            plan = plan.otherwise
        self.n_by_drafter[drafter] = self.n_by_drafter.get(drafter, 0) + 1
        verify_ms = self._spend(self.machine.target_ms(1 + n, n_tokens))
        result = RoundResult(
            sequence=0,
            drafter=drafter,
            n_drafted=n,
            n_accepted=accepted,
            draft_ms=draft_ms,
            verify_ms=verify_ms,
            n_rows=1 + n,
            n_kv=n_tokens,
            depth=n,
            n_caught_up=caught_up,
            n_batch_rows=1 + n,
            n_judged=n_judged,
            tokens=list(range(done, done + accepted + 1)),
        )
        self.costs.update(result)
        self.controller.update(result)
        return accepted + 1

    def _compute(
        self, answer: Answer, done: int, n_max: int, n_behind: int, n_kv: int
    ) -> tuple[int, int, float]:
        """(tokens, laws shown, ms) of a draft model's draft."""
        n, n_judged, ms = 0, 0, 0.0
        n_rows = n_behind + 1
        while n_rows > 512:
            ms += self._spend(self.machine.draft_ms(512))
            n_rows -= 512
        while n < n_max:
            ms += self._spend(self.machine.draft_ms(n_rows))
            n_rows = 1
            n_judged += 1
            if not self.controller.keep_drafting(0, _law(float(answer.confidence[done + n])), n):
                break
            n += 1
            if self.controller.is_long_enough(0, n):
                break
        return n, n_judged, ms

    def _look_up(self, answer: Answer, done: int, n_max: int) -> tuple[int, int, float]:
        ms = self._spend(LOOKUP_MS)
        length, n_right = answer.proposal[done]
        tokens = [done + i if i < n_right else WRONG for i in range(min(length, n_max))]
        self.costs.observe_proposal(SUFFIX, len(tokens), ms)
        n = self.controller.trim(0, SUFFIX, tokens)
        return n, min(n, n_right), ms


def _law(q: float) -> Distribution:
    return Distribution(9, np.array([q, 1.0 - q], np.float32), np.array([1, 5], np.int32))


def _n_right(right: Sequence[bool]) -> int:
    return next((i for i, ok in enumerate(right) if not ok), len(right))
