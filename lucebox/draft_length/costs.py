"""What verifying and drafting cost here, in milliseconds: measured at load, and kept up to date."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from lucebox.core import RoundResult
from lucebox.draft_length.forward_costs import ForwardCosts, Pace
from lucebox.draft_length.proposal_costs import ProposalCosts

MAX_DRAFTERS = 64
HIDDEN_WEIGHT = 0.05  # of the newest draft in the share that is made while the target computes


class CostTable:
    """Implements lucebox.draft_length.base.Costs.

    `verify` are the target's forwards, `draft` those of the draft model, and `needs_model` tells drafters
    that guess by it, forward by forward. Any other is taken to cost what its proposals took so far. `steps`
    are the row counts that forwards are computed in. Models on the `same_device` get slow together.
    The `hidden_share` of a draft model's time makes nobody wait: it passes while the target computes.
    """

    def __init__(
        self,
        steps: Sequence[int] = (),
        needs_model: Callable[[str], bool] = lambda drafter: False,
        *,
        same_device: bool = True,
    ) -> None:
        self._paces = (Pace(), Pace())
        if same_device:
            self._paces = (self._paces[0], self._paces[0])
        self.verify = ForwardCosts(steps, self._paces[0])
        self.draft = ForwardCosts(steps, self._paces[1])
        self._needs_model = lru_cache(MAX_DRAFTERS)(needs_model)
        self._n_batch = steps[-1] if steps else 512
        self._proposals: dict[str, ProposalCosts] = {}
        self.hidden_share = 0.0

    def verify_ms(self, n_rows: int, n_kv: int) -> float:
        """A forward of `n_rows` rows; 0 before anything was measured."""
        return self.verify.ms(n_rows, n_kv)

    def draft_ms(self, drafter: str, n_tokens: int, n_kv: int) -> float:
        """What a chain of `n_tokens` guesses makes others wait; 0 before anything was measured."""
        extra = self._proposals.get(drafter)
        if not self._needs_model(drafter):
            return extra.ms(n_tokens) if extra else 0.0
        return (1.0 - self.hidden_share) * n_tokens * self.draft.ms(1, n_kv)

    def catch_up_ms(self, drafter: str, n_tokens: int, n_kv: int) -> float:
        """What `n_tokens` that were not computed yet add: they are fed beside the last one, in chunks."""
        if not self._needs_model(drafter) or n_tokens <= 0:
            return 0.0
        whole, rest = divmod(n_tokens, self._n_batch)
        rest_ms = self.draft.ms(rest + 1, n_kv) - self.draft.ms(1, n_kv)
        return max(0.0, whole * self.draft.ms(self._n_batch, n_kv // 2) + rest_ms)

    def update(self, result: RoundResult, *, verify: bool = True) -> None:
        """Learns from a round; not from its forward unless `verify`."""
        if verify:
            self.verify.observe(result.n_batch_rows, result.n_kv, result.verify_ms)
        if not result.drafter or result.n_draft_sequences > 1:
            return
        if not self._needs_model(result.drafter):
            return
        caught_up_ms = self.catch_up_ms(result.drafter, result.n_caught_up, result.n_kv)
        n_forwards = result.n_judged - result.n_hidden
        if n_forwards > 0 and result.n_caught_up < n_forwards:
            per_forward = (result.draft_ms - caught_up_ms) / n_forwards
            self.draft.observe(1, result.n_kv, per_forward)
        elif n_forwards > 0:
            others_ms = (n_forwards - 1) * self.draft.ms(1, result.n_kv)
            if result.n_caught_up < self._n_batch:
                self.draft.observe(result.n_caught_up + 1, result.n_kv, result.draft_ms - others_ms)

    def observe_proposal(self, drafter: str, n_tokens: int, ms: float) -> None:
        """Learns from a proposal for one sequence, empty or not."""
        if not self._needs_model(drafter):
            self._proposals.setdefault(drafter, ProposalCosts()).observe(n_tokens, ms)

    def observe_hidden(self, n_hidden: int, n_forwards: int) -> None:
        """Learns from a draft of `n_forwards` forwards, the first `n_hidden` of which made nobody wait."""
        if n_forwards:
            self.hidden_share += HIDDEN_WEIGHT * (n_hidden / n_forwards - self.hidden_share)

    def to_dict(self) -> dict[str, Any]:
        """What was measured of the two models, as JSON can hold it."""
        return {"verify": self.verify.to_dict(), "draft": self.draft.to_dict()}

    def restore(self, values: Mapping[str, Any]) -> None:
        """Takes over what `to_dict` wrote. Raises ValueError, KeyError, TypeError or AttributeError, with
        nothing changed, for what it never wrote."""
        steps = self.verify.steps
        verify = ForwardCosts.from_dict(values["verify"], steps, self._paces[0])
        draft = ForwardCosts.from_dict(values["draft"], steps, self._paces[1])
        if verify.is_empty:
            raise ValueError("nothing was measured")
        self.verify, self.draft = verify, draft
