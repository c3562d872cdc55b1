"""Exact expectations on a recorded chain: how many of its tokens a strategy accepts on average."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lucebox.core import Distribution
from lucebox.errors import ConfigError
from lucebox.plugins import did_you_mean
from lucebox.research.kept_law import KeptLaw
from lucebox.research.records import RecordedRound

STRATEGIES = ("block", "token", "gumbel", "match")


class Bounds(NamedTuple):
    """What is known of a number; both ends are the number itself where nothing was left out of the trace."""

    low: float
    high: float


def expected_accepted(strategy: str, r: RecordedRound) -> Bounds:
    """E[τ] of a recorded chain: the sum of `standing` over its tokens. Its mean over drafts is the strategy's
    E[τ], without the noise of the strategy's own draws."""
    stands = standing(strategy, r)
    return Bounds(sum(s.low for s in stands), sum(s.high for s in stands))


def standing(strategy: str, r: RecordedRound) -> list[Bounds]:
    """For each token of a recorded chain, P(it and all before it stand, given that these were drafted).

    `token`: the product of min(1, p/q); `block`: a(i) = min(1, a(i-1) p/q) (Sun et al. 2403.10444), never
    less than the former; `match`: the product of p; `gumbel`: the product of P(the target's draw is x | the
    draft's was x) under shared noise, 1 / (q(x) sum over y of max(p(y)/p(x), q(y)/q(x))), for which a token
    drawn from q otherwise does as well. All but `gumbel` need no more of a law than the probability of the
    drafted token, so that truncation costs them nothing; `gumbel` gets bounds.

    Raises ConfigError for another strategy, a tree, and a round without the laws of its draft.
    """
    if strategy not in STRATEGIES:
        raise ConfigError(f"no formula for {strategy!r}", remedy=did_you_mean(strategy, list(STRATEGIES)))
    if not r.is_chain:
        raise ConfigError("the trace holds trees, and expectations are known for chains")
    if not r.has_q:
        raise ConfigError(
            "the trace holds no laws of the draft", remedy="record it with a strategy that needs them: block"
        )
    found: list[Bounds] = []
    low = high = 1.0
    for i, token in enumerate(r.tokens.tolist()):
        if strategy == "gumbel":
            row = coupled(r.p[i], r.q[i], token)
            low, high = low * row.low, high * row.high
        elif strategy == "match":
            low = high = low * r.p[i].prob(token)
        elif strategy == "token":
            low = high = low * min(1.0, _ratio(r, i))
        else:
            low = high = min(1.0, low * _ratio(r, i))
        found.append(Bounds(low, high))
    return found


def coupled(p: KeptLaw, q: KeptLaw | None, token: int) -> Bounds:
    """P(the target draws `token` | the draft did), both by the same noise (Daliri et al. 2408.07978).

    A token that was left out of both laws has at most the rest of each, and at least as much of the larger.
    """
    p_x = p.prob(token)
    if p_x == 0.0 or q is None:
        return Bounds(p_x, p_x)
    q_x = q.prob(token)
    p_known, q_known = _aligned(p.known, q.known)
    terms = float(np.maximum(p_known / p_x, q_known / q_x).sum())
    p_rest, q_rest = p.rest / p_x, q.rest / q_x
    return Bounds(1 / (q_x * (terms + p_rest + q_rest)), 1 / (q_x * (terms + max(p_rest, q_rest))))


def _aligned(p: Distribution, q: Distribution) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], ...]:
    """Both laws over the same tokens."""
    if p.ids is None or q.ids is None:
        return p.dense().astype(np.float64), q.dense().astype(np.float64)
    ids = np.union1d(p.ids, q.ids)
    laws = np.zeros((2, len(ids)))
    laws[0, np.searchsorted(ids, p.ids)] = p.probs
    laws[1, np.searchsorted(ids, q.ids)] = q.probs
    return laws[0], laws[1]


def _ratio(r: RecordedRound, i: int) -> float:
    """p/q of token i; q is 1 where it was proposed for certain."""
    token, law = int(r.tokens[i]), r.q[i]
    p, q = r.p[i].prob(token), 1.0 if law is None else law.prob(token)
    if q == 0.0:  # float32 lost what it was drawn with
        return 1.0 if p else 0.0
    return p / q
