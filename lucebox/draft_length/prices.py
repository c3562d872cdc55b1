"""What a round of one sequence would cost, and which length of draft is the cheapest per token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lucebox.draft_length.base import Costs, SequenceState
from lucebox.draft_length.survival import shifted

N_DEPTHS = 15  # tokens of the longest draft that is computed token by token
N_LOOKUP = 31  # of one that is looked up, and costs nothing
N_IMPROVEMENTS = 3  # of what a token is worth, until the best length stays the same


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
    """Rounds of at most `n` drafted tokens: what they take and emit, the other sequences' tokens included.

    `advantage_ms` is what such a round is ahead of a plain one, if a token is worth `token_ms`.
    """

    n: int
    ms: float
    n_tokens: float
    token_ms: float
    advantage_ms: float


def best_arm(
    prices: Prices,
    accepted: Sequence[float],
    drafted: Sequence[float],
    accepted_odds: float,
    drafted_odds: float,
    forward_ms: float,
    next_catch_up_ms: float,
    n_room: int,
    token_ms: float,
) -> Arm:
    """The draft length that is furthest ahead of plain decoding; 0 where none is.

    `accepted[i]` and `drafted[i]` are the probabilities that depth i+1 stands, and is drafted at all, given
    depth i. A draft that stands whole leaves its last token for the drafter to compute. A token is worth what
    it costs at the best speed known: `token_ms`, or what the arm itself promises.
    """
    verify, n_tokens = prices.verify, float(prices.n_sequences)
    rounds = [(verify[0], n_tokens)]
    stands = reaches = 1.0
    draft_ms, verify_ms = 0.0, verify[0]
    for n in range(1, min(n_room, len(verify) - 1, len(accepted)) + 1):
        draft_ms += reaches * forward_ms
        reaches *= shifted(drafted[n - 1], drafted_odds)
        stands *= shifted(accepted[n - 1], accepted_odds)
        verify_ms += reaches * (verify[n] - verify[n - 1])
        n_tokens += stands
        rounds.append((draft_ms + verify_ms + stands * next_catch_up_ms, n_tokens))
    best = 0
    for _ in range(N_IMPROVEMENTS):
        best, best_ms = 0, -math.inf
        for n, (ms, tokens) in enumerate(rounds):
            if tokens * token_ms - ms > best_ms:
                best, best_ms = n, tokens * token_ms - ms
        if best_ms <= 0.0:
            break
        token_ms = rounds[best][0] / rounds[best][1]
    ms, tokens = rounds[best]
    plain_ms = prices.n_sequences * token_ms - verify[0]
    return Arm(best, ms, tokens, token_ms, tokens * token_ms - ms - plain_ms)
