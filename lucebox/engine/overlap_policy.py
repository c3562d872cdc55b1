"""Whether to guess on while the target verifies: as it was told to, or by what that is measured to bring."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from lucebox.config import Overlap as Mode
from lucebox.draft_length.costs import CostTable
from lucebox.draft_length.ledger import Ledger, Patience

N_SPARE = 3  # rejections that are drafted for at a time, for each sequence that may run
LEAST_CHANCE = 0.02  # of an outcome that is drafted for
EPSILON = 0.015  # of all time that trials may cost
N_TRIAL = 12  # rounds until a trial is judged
ALONE_EVERY = 32  # rounds, one of which verifies undisturbed, to compare with
NET_WEIGHT = 0.08  # of the newest round in what rounds gain
PACE_WEIGHT = 0.08  # and in how their forwards compare with the cost table
CLIP = math.log(2.0)  # a forward counts for twice or half as slow at most: the machine is shared


@dataclass(frozen=True, slots=True)
class StepCost:
    """A step with a draft: what it took to verify, and, where the next one was begun beside it, what that
    spared the next step and what it made it wait. Milliseconds."""

    n_rows: int
    n_kv: int
    verify_ms: float
    is_ahead: bool = False
    saved_ms: float = 0.0
    waited_ms: float = 0.0


@dataclass(slots=True)
class OverlapPolicy:
    """`auto` compares forwards beside a draft with those that had the machine for themselves, both in units
    of `costs`, which learns from the latter alone.

    What a round gains is what was hidden, less the wait for the draft model's forward under way, less how
    much longer the target took. A ledger of a share of all time bounds what trials and errors lose.
    """

    mode: Mode
    costs: CostTable
    _ledger: Ledger = field(default_factory=lambda: Ledger(EPSILON))
    _patience: Patience = field(default_factory=Patience)
    _alone: float = 0.0  # log of measured over expected time, of forwards that were alone
    _beside: float = 0.0  # and of those beside a draft
    _net_ms: float = 0.0  # of a round beside a draft, over rounds
    _n_beside: int = 0  # in a row, while that is on trial
    _n_steps: int = 0

    @property
    def slowdown(self) -> float:
        """How much longer a forward takes beside a draft, as a factor; 1 before that was seen."""
        return math.exp(max(0.0, self._beside - self._alone))

    @property
    def measures(self) -> bool:
        """Whether costs are to be learned from forwards that were alone only."""
        return self.mode == "auto"

    def wants(self) -> bool:
        """Whether to draft beside the next forward."""
        if self.mode != "auto":
            return self.mode == "on"
        plain_ms = self.costs.verify_ms(1, 0)
        if plain_ms <= 0.0 or self.costs.draft.is_empty or self._n_steps % ALONE_EVERY == 0:
            return False
        self._ledger.open(plain_ms)
        if self._ledger.balance_ms < 0.0 or not self._patience.allows(self._n_steps):
            return False
        self._patience.begin()
        return True

    def book(self, step: StepCost) -> None:
        """Learns from a step that had a draft."""
        self._n_steps += 1
        expected_ms = self.costs.verify_ms(step.n_rows, step.n_kv)
        if self.mode != "auto" or expected_ms <= 0.0 or step.verify_ms <= 0.0:
            return
        plain_ms = self.costs.verify_ms(1, step.n_kv)
        pace = max(-CLIP, min(CLIP, math.log(step.verify_ms / expected_ms)))
        self._ledger.pass_time(step.verify_ms, plain_ms)
        if not step.is_ahead:
            self._alone += PACE_WEIGHT * (pace - self._alone)
            return
        weight = max(PACE_WEIGHT, 1.0 / (self._n_beside + 1))
        self._beside += weight * (pace - self._beside)
        longer_ms = expected_ms * (math.exp(pace) - math.exp(self._alone))
        net_ms = step.saved_ms - step.waited_ms - longer_ms
        self._ledger.book(-net_ms, plain_ms)
        self._net_ms += max(NET_WEIGHT, 1.0 / (self._n_beside + 1)) * (net_ms - self._net_ms)
        self._n_beside += 1
        if self._n_beside % N_TRIAL == 0:
            self._judge()

    def _judge(self) -> None:
        """A trial ends; one that paid goes on as the usual way."""
        if self._net_ms > 0.0:
            self._patience.succeed()
            return
        self._patience.fail(self._n_steps)
        self._n_beside = 0
