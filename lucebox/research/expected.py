"""Exact expectations on a recorded chain: how many of its tokens a strategy accepts on average."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from lucebox.core import Distribution
from lucebox.errors import ConfigError
from lucebox.plugins import did_you_mean
from lucebox.research.kept_law import KeptLaw
from lucebox.research.records import RecordedRound


class Bounds(NamedTuple):
    """What is known of a number; both ends are the number itself where nothing was left out of the trace."""

    low: float
    high: float


def expected_accepted(strategy: str, r: RecordedRound) -> Bounds:
    """E[τ] of a recorded chain: the sum over i of P(the first i tokens stand, given that they were drafted).

    The mean of this number over drafts is E[τ] of the strategy, without the noise of its own draws. `token`:
    the product of min(1, p/q); `block`: a(i) = min(1, a(i-1) p/q) (Sun et al. 2403.10444), never less than
    the former; `match`: the product of p; `gumbel`: the product of P(the target's draw is x | the draft's was
    x) under shared noise, 1 / (q(x) sum over y of max(p(y)/p(x), q(y)/q(x))), for which a token drawn from q
    otherwise does as well. All but `gumbel` need no more of a law than the probability of the drafted token,
    so that truncation costs them nothing; `gumbel` gets bounds.

    Raises ConfigError for another strategy, a tree, and a round without the laws of its draft.
    """
    rule = RULES.get(strategy)
    if rule is None:
        raise ConfigError(f"no formula for {strategy!r}", remedy=did_you_mean(strategy, sorted(RULES)))
    if not r.is_chain:
        raise ConfigError("the trace holds trees, and expectations are known for chains")
    if not r.has_q:
        raise ConfigError(
            "the trace holds no laws of the draft", remedy="record it with a strategy that needs them: block"
        )
    return rule(r)


def _token(r: RecordedRound) -> Bounds:
    stands, total = 1.0, 0.0
    for i in range(len(r)):
        stands *= min(1.0, _ratio(r, i))
        total += stands
    return Bounds(total, total)


def _block(r: RecordedRound) -> Bounds:
    a, total = 1.0, 0.0
    for i in range(len(r)):
        a = min(1.0, a * _ratio(r, i))
        total += a
    return Bounds(total, total)


def _match(r: RecordedRound) -> Bounds:
    stands, total = 1.0, 0.0
    for i, token in enumerate(r.tokens.tolist()):
        stands *= r.p[i].prob(token)
        total += stands
    return Bounds(total, total)


def _gumbel(r: RecordedRound) -> Bounds:
    low, high, lows, highs = 1.0, 1.0, 0.0, 0.0
    for i, token in enumerate(r.tokens.tolist()):
        row = coupled(r.p[i], r.q[i], token)
        low, high = low * row.low, high * row.high
        lows, highs = lows + low, highs + high
    return Bounds(lows, highs)


RULES: Mapping[str, Callable[[RecordedRound], Bounds]] = MappingProxyType(
    {"block": _block, "token": _token, "gumbel": _gumbel, "match": _match}
)


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
    return p / q if q > 0.0 else float("inf") * p if p else 0.0
