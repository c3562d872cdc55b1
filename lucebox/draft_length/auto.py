"""Guesses only while guessing is measured to be faster than plain decoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lucebox.core import Distribution, RoundResult
from lucebox.draft_length.base import Costs, DraftLengthController, Plan, SequenceState
from lucebox.draft_length.threshold import Threshold

N_PLAIN_FIRST = 4  # plain rounds before the first trial: what guessing must beat
N_TRIAL = 4  # rounds of a trial; the first pays for the draft model's catching up, and is not judged
N_REST = 32  # plain rounds after a lost trial; doubled with each further loss
N_REST_MAX = 1024  # so that a change of what is written is noticed within a long answer
WEIGHT = 0.1  # of the newest round in a running mean


@dataclass(slots=True)
class Cost:
    """Running means of a round's milliseconds and tokens."""

    ms: float = 0.0
    n_tokens: float = 0.0
    n_rounds: int = 0

    def add(self, ms: float, n_tokens: int) -> None:
        self.n_rounds += 1
        weight = max(WEIGHT, 1.0 / self.n_rounds)
        self.ms += weight * (ms - self.ms)
        self.n_tokens += weight * (n_tokens - self.n_tokens)

    @property
    def ms_per_token(self) -> float:
        return self.ms / self.n_tokens


class Auto(DraftLengthController):
    """Drafts as `threshold` does, in trials, and goes on after one only while its rounds cost less per token
    than plain rounds do.

    A lost trial is followed by plain decoding for 32 rounds, after the next loss 64, and so on up to 1024: on
    a machine where guessing never pays, its share of all rounds falls towards nothing. Shared by the requests
    of an engine, so what one has learned serves the next.
    """

    def __init__(self, *, n: int = 7, p_min: float = 0.8) -> None:
        self._drafting = Threshold(n=n, p_min=p_min)
        self._plain = Cost()
        self._trial = Cost()
        self._n_trial_rounds = 0
        self._n_resting = N_PLAIN_FIRST
        self._n_rest_next = N_REST

    def plan(self, batch: Sequence[SequenceState], costs: Costs) -> Mapping[int, Plan]:
        if self._n_resting:
            return {state.sequence: Plan("", 0) for state in batch}
        return self._drafting.plan(batch, costs)

    def keep_drafting(self, sequence: int, q_row: Distribution, depth: int) -> bool:
        return self._drafting.keep_drafting(sequence, q_row, depth)

    def update(self, result: RoundResult) -> None:
        if result.drafter:
            self._try(result)
        elif self._n_resting and result.n_rows == 1:  # more rows are the end of a prompt
            self._plain.add(result.verify_ms, 1)
            self._n_resting -= 1

    def _try(self, result: RoundResult) -> None:
        self._n_trial_rounds += 1
        if self._n_trial_rounds > 1:
            self._trial.add(result.draft_ms + result.verify_ms, result.n_accepted + 1)
        if self._n_trial_rounds >= N_TRIAL:
            self._judge()

    def _judge(self) -> None:
        if self._trial.ms_per_token < self._plain.ms_per_token:
            self._n_rest_next = N_REST
            return
        self._n_resting, self._n_rest_next = self._n_rest_next, min(N_REST_MAX, 2 * self._n_rest_next)
        self._trial, self._n_trial_rounds = Cost(), 0


Plugin = Auto
