"""The kernel `verify` in NumPy: what it computes, written plainly. Oracle of tests, and fallback.

A law is (ids, probs) as in `Distribution`: dense with ids None, else sparse by ascending ids. A draft's law
with `q_probs` None is one-hot at the drafted token.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lucebox.core import Float32Array, Int32Array
from lucebox.sampling.reference import sample


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


def residual_sample(
    p_ids: Int32Array | None,
    p_probs: Float32Array,
    q_ids: Int32Array | None,
    q_probs: Float32Array | None,
    token: int,
    u: float,
) -> int:
    """A token drawn by `u` from max(p - q, 0), renormalised; from p where nothing of it is left."""
    if q_probs is None:
        q_ids, q_probs = np.array([token], np.int32), np.ones(1, np.float32)
    left: NDArray[np.float64] = p_probs.astype(np.float64)
    if p_ids is None and q_ids is None:
        left = left - q_probs
    elif p_ids is None:
        left[q_ids] -= q_probs
    elif q_ids is None:
        left -= q_probs[p_ids]
    else:
        _, in_p, in_q = np.intersect1d(p_ids, q_ids, assume_unique=True, return_indices=True)
        left[in_p] -= q_probs[in_q]
    left = np.maximum(left, 0.0)
    return sample(p_ids, left if left.any() else p_probs, u)
