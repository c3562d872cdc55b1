"""What verifying and drafting cost here, in milliseconds: measured, by rows and by context."""

from __future__ import annotations

from dataclasses import dataclass

from lucebox.core import RoundResult

WEIGHT = 0.1  # of the newest round in a running mean


@dataclass(slots=True)
class Mean:
    """A running mean that forgets."""

    value: float = 0.0
    n: int = 0

    def add(self, value: float) -> None:
        self.n += 1
        self.value += max(WEIGHT, 1.0 / self.n) * (value - self.value)


class CostTable:
    """Implements lucebox.draft_length.base.Costs from the rounds of an engine."""

    def __init__(self) -> None:
        self._verify: dict[int, Mean] = {}
        self._draft: dict[str, Mean] = {}

    def verify_ms(self, n_rows: int, n_kv: int) -> float:
        """A forward of `n_rows` rows; 0 before anything was measured."""
        if not self._verify:
            return 0.0
        nearest = min(self._verify, key=lambda rows: abs(rows - n_rows))
        return self._verify[nearest].value * max(1.0, n_rows / nearest)

    def draft_ms(self, drafter: str, n_tokens: int, n_kv: int) -> float:
        """A chain of `n_tokens` guesses; 0 before anything was measured."""
        return self._draft[drafter].value * n_tokens if drafter in self._draft else 0.0

    def catch_up_ms(self, drafter: str, n_tokens: int, n_kv: int) -> float:
        """As if a token caught up cost what a guess does: never less than it really costs."""
        return self.draft_ms(drafter, n_tokens, n_kv)

    def update(self, result: RoundResult) -> None:
        """Learns from a round."""
        self._verify.setdefault(result.n_batch_rows, Mean()).add(result.verify_ms)
        if result.n_drafted:
            per_token = result.draft_ms / (result.n_drafted + result.n_caught_up)
            self._draft.setdefault(result.drafter, Mean()).add(per_token)
