"""What a round of one sequence would cost, and which length of draft is the cheapest per token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lucebox.draft_length.base import Costs, SequenceState
from lucebox.draft_length.survival import shifted

N_DEPTHS = 15  # tokens of the longest draft that is computed token by token
N_LOOKUP = 31  # of one that is looked up, and costs nothing


@dataclass(frozen=True, slots=True)
class Prices:
    """Milliseconds as one sequence of a batch meets them.

    `verify[k]` is a forward in which it has k draft rows and the `n_sequences` - 1 others have none;
    `plain` what a token of the batch takes then.
    """

    n_kv: int
    n_sequences: int
    verify: list[float]
    plain: float

    @classmethod
    def of(cls, costs: Costs, state: SequenceState, n_sequences: int, n_max: int) -> Prices:
        n_rows, n_kv = n_sequences + state.n_other_rows, state.n_tokens
        verify_ms = costs.verify_ms
        verify = [verify_ms(n_rows + k, n_kv) for k in range(n_max + 1)]
        return cls(n_kv, n_sequences, verify, verify[0] / n_sequences)


@dataclass(frozen=True, slots=True)
class Arm:
    """Drafts of at most `n` tokens: what a token takes then, and the tokens of a round."""

    n: int
    ms_per_token: float
    n_tokens: float


def best_arm(
    prices: Prices,
    accepted: Sequence[float],
    drafted: Sequence[float],
    accepted_odds: float,
    drafted_odds: float,
    forward_ms: float,
    next_catch_up_ms: float,
    n_room: int,
) -> Arm:
    """The length that makes tokens cheapest; 0 where plain decoding does.

    `accepted[i]` and `drafted[i]` are the probabilities that depth i+1 stands, and is drafted at all, given
    depth i. A draft that stands whole leaves its last token for the drafter to compute.
    """
    verify, n_base = prices.verify, float(prices.n_sequences)
    best = Arm(0, prices.plain, 1.0)
    best_ms = prices.plain
    stands = reaches = 1.0
    n_tokens, draft_ms, verify_ms = n_base, 0.0, verify[0]
    for n in range(1, min(n_room, len(verify) - 1, len(accepted)) + 1):
        draft_ms += reaches * forward_ms
        reaches *= shifted(drafted[n - 1], drafted_odds)
        stands *= shifted(accepted[n - 1], accepted_odds)
        verify_ms += reaches * (verify[n] - verify[n - 1])
        n_tokens += stands
        ms = (draft_ms + verify_ms + stands * next_catch_up_ms) / n_tokens
        if ms < best_ms:
            best_ms = ms
            best = Arm(n, ms, n_tokens - n_base + 1.0)
    return best
