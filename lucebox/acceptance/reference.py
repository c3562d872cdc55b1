"""The kernels `verify` and `divergence` in NumPy: what they compute, written plainly. Oracle of tests, and
fallback.

A law is (ids, probs) as in `Distribution`: dense with ids None, else sparse by ascending ids. A draft's law
with `q_probs` None is one-hot at the drafted token.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lucebox.core import Float32Array, Int32Array
from lucebox.sampling.reference import sample

LEAST_LOG_LENIENCY = -69.0
GREATEST_LOG_B = 690.0
N_HALVINGS = 48


def probability(ids: Int32Array | None, probs: Float32Array, token: int) -> float:
    """The probability of `token`, zero outside the support."""
    if ids is None:
        return float(probs[token])
    i = int(np.searchsorted(ids, token))
    return float(probs[i]) if i < len(ids) and ids[i] == token else 0.0


def accepts(
    p_ids: Int32Array | None,
    p_probs: Float32Array,
    q_ids: Int32Array | None,
    q_probs: Float32Array | None,
    token: int,
    u: float,
) -> bool:
    """Whether `token`, drawn from q, stands: u * q < p, strictly, in float64. P = min(1, p/q)."""
    q = 1.0 if q_probs is None else probability(q_ids, q_probs, token)
    return u * q < probability(p_ids, p_probs, token)


def log_ratio(
    p_ids: Int32Array | None,
    p_probs: Float32Array,
    q_ids: Int32Array | None,
    q_probs: Float32Array | None,
    token: int,
) -> float:
    """log p(token) - log q(token), natural; minus infinity where p is zero, whatever q is."""
    p = probability(p_ids, p_probs, token)
    q = 1.0 if q_probs is None else probability(q_ids, q_probs, token)
    if p <= 0:
        return -math.inf
    return math.log(p) - math.log(q) if q > 0 else math.inf


def excess(
    p_ids: Int32Array | None,
    p_probs: Float32Array,
    q_ids: Int32Array | None,
    q_probs: Float32Array | None,
    token: int,
    scale: float,
) -> NDArray[np.float64]:
    """max(scale * p - q, 0), float64 and parallel to `p_probs`. `scale` is taken as a float32."""
    if q_probs is None:
        q_ids, q_probs = np.array([token], np.int32), np.ones(1, np.float32)
    left: NDArray[np.float64] = np.float64(np.float32(scale)) * p_probs.astype(np.float64)
    if p_ids is None and q_ids is None:
        left = left - q_probs
    elif p_ids is None:
        left[q_ids] -= q_probs
    elif q_ids is None:
        left -= q_probs[p_ids]
    else:
        _, in_p, in_q = np.intersect1d(p_ids, q_ids, assume_unique=True, return_indices=True)
        left[in_p] -= q_probs[in_q]
    return np.maximum(left, 0.0)


def excess_mass(
    p_ids: Int32Array | None,
    p_probs: Float32Array,
    q_ids: Int32Array | None,
    q_probs: Float32Array | None,
    token: int,
    scale: float,
) -> float:
    """The sum of max(scale * p - q, 0)."""
    return float(excess(p_ids, p_probs, q_ids, q_probs, token, scale).sum())


def residual_sample(
    p_ids: Int32Array | None,
    p_probs: Float32Array,
    q_ids: Int32Array | None,
    q_probs: Float32Array | None,
    token: int,
    u: float,
    scale: float = 1.0,
) -> int:
    """A token drawn by `u` from max(scale * p - q, 0), renormalised; from p where nothing of it is left."""
    left = excess(p_ids, p_probs, q_ids, q_probs, token, scale)
    return sample(p_ids, left if left.any() else p_probs, u)


def aligned(
    p_ids: Int32Array | None,
    p_probs: Float32Array,
    q_ids: Int32Array | None,
    q_probs: Float32Array | None,
    token: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """p and q, float64, over the tokens that either holds, by ascending id."""
    if q_probs is None:
        q_ids, q_probs = np.array([token], np.int32), np.ones(1, np.float32)
    p_support = np.flatnonzero(p_probs)
    q_support = np.flatnonzero(q_probs)
    in_p = p_support if p_ids is None else p_ids[p_support]
    in_q = q_support if q_ids is None else q_ids[q_support]
    union = np.union1d(in_p, in_q)
    p, q = np.zeros(len(union)), np.zeros(len(union))
    p[np.searchsorted(union, in_p)] = p_probs[p_support]
    q[np.searchsorted(union, in_q)] = q_probs[q_support]
    return p, q


def relative(p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    """p * log(p / q), token by token: zero where p is, infinite where only q is."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(p > 0, p * np.log(p / q), 0.0)


def divergence(
    p_ids: Int32Array | None,
    p_probs: Float32Array,
    q_ids: Int32Array | None,
    q_probs: Float32Array | None,
    token: int,
    kind: str,
) -> float:
    """KL(p || q), infinite where q lacks what p has; Jensen-Shannon; total variation. `kind`: kl, js, tv."""
    p, q = aligned(p_ids, p_probs, q_ids, q_probs, token)
    middle = (p + q) / 2
    found = {
        "kl": lambda: relative(p, q).sum(),
        "js": lambda: (relative(p, middle) + relative(q, middle)).sum() / 2,
        "tv": lambda: np.abs(p - q).sum() / 2,
    }[kind]()
    return max(float(found), 0.0)


def mentor(
    p_ids: Int32Array | None,
    p_probs: Float32Array,
    q_ids: Int32Array | None,
    q_probs: Float32Array | None,
    token: int,
    bound: float,
) -> tuple[float, float]:
    """(l, b) of the law pi that accepts most of q under KL(p || pi) <= `bound`: p/l where q is above that,
    p/b where q is below that, else q. No leniency l below 1e-30 is tried."""
    p, q = aligned(p_ids, p_probs, q_ids, q_probs, token)
    p, q = p / p.sum(), q / q.sum()

    def b_of(leniency: float) -> float:
        """Whatever is taken where q is capped is given where it is raised: solved by bisection for log b."""
        freed = np.maximum(q - p / leniency, 0.0).sum()
        low, high = 0.0, GREATEST_LOG_B
        for _ in range(N_HALVINGS):
            middle = (low + high) / 2
            low, high = (
                (middle, high) if (p / math.exp(middle) - q).clip(0.0).sum() > freed else (low, middle)
            )
        return math.exp(high) if high < GREATEST_LOG_B else math.inf

    def divergence_of(leniency: float) -> float:
        pi = np.maximum(np.minimum(q, p / leniency), p / b_of(leniency))
        return float(relative(p, pi).sum())

    low, high = LEAST_LOG_LENIENCY, 0.0
    if divergence_of(math.exp(low)) <= bound:
        return math.exp(low), b_of(math.exp(low))
    for _ in range(N_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if divergence_of(math.exp(middle)) <= bound else (middle, high)
    return (math.exp(high), b_of(math.exp(high))) if high < 0 else (1.0, 1.0)
