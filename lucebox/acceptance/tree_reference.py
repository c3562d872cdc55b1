"""The kernel `tree` in NumPy: what it computes, written plainly. Oracle of tests, and fallback.

Laws are written as in lucebox/acceptance/reference.py.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lucebox.core import Float32Array, Int32Array

MAX_STEPS = 64


def residual(
    p_ids: Int32Array | None,
    p_probs: Float32Array,
    q_ids: Int32Array | None,
    q_probs: Float32Array | None,
    token: int,
    scale: float,
) -> tuple[Float32Array, float]:
    """(probs, mass): max(scale * p - q, 0) over p's tokens, normalised, and its sum; (p, 0.0) where nothing
    is left. `scale` is rounded to float32. `q_probs` None: one-hot at `token`."""
    scale = float(np.float32(scale))
    left = np.maximum(
        scale * p_probs.astype(np.float64) - _beside(p_ids, p_probs, q_ids, q_probs, token), 0.0
    )
    mass = float(left.sum())
    return ((left / mass).astype(np.float32), mass) if mass > 0 else (p_probs, 0.0)


def spectr_ratio(
    p_ids: Int32Array | None,
    p_probs: Float32Array,
    q_ids: Int32Array | None,
    q_probs: Float32Array,
    k: int,
) -> tuple[float, float]:
    """(rho, beta): the root of 1 - (1 - beta)^k = rho * beta in [1, k], its upper end, and beta there.

    beta(rho) is the sum of min(q, p / rho).
    """
    p, q = p_probs.astype(np.float64), _beside(p_ids, p_probs, q_ids, q_probs, 0)

    def beta(rho: float) -> float:
        return float(np.minimum(q, p / rho).sum())

    low, high = 1.0, float(k)
    for _ in range(MAX_STEPS):
        middle = 0.5 * (low + high)
        if accepted_by_one_of(beta(middle), k) > middle * beta(middle):
            low = middle
        else:
            high = middle
    return high, beta(high)


def spectr_residual(
    p_ids: Int32Array | None,
    p_probs: Float32Array,
    q_ids: Int32Array | None,
    q_probs: Float32Array,
    rho: float,
    share: float,
) -> Float32Array:
    """p - share * min(q, p / rho) over p's tokens, normalised; p where nothing is left."""
    p, q = p_probs.astype(np.float64), _beside(p_ids, p_probs, q_ids, q_probs, 0)
    left = np.maximum(p - share * np.minimum(q, p / rho), 0.0)
    mass = left.sum()
    return (left / mass).astype(np.float32) if mass > 0 else p_probs


def accepted_by_one_of(beta: float, k: int) -> float:
    """1 - (1 - beta)^k, precisely for a small beta."""
    return 1.0 if beta >= 1.0 else -math.expm1(k * math.log1p(-beta))


def _beside(
    p_ids: Int32Array | None,
    p_probs: Float32Array,
    q_ids: Int32Array | None,
    q_probs: Float32Array | None,
    token: int,
) -> NDArray[np.float64]:
    """q at p's tokens."""
    if q_probs is None:
        q_ids, q_probs = np.array([token], np.int32), np.ones(1, np.float32)
    if q_ids is None:
        q = q_probs if p_ids is None else q_probs[p_ids]
        return q.astype(np.float64)
    beside = np.zeros(len(p_probs))
    if p_ids is None:
        beside[q_ids] = q_probs
    else:
        _, in_p, in_q = np.intersect1d(p_ids, q_ids, assume_unique=True, return_indices=True)
        beside[in_p] = q_probs[in_q]
    return beside
