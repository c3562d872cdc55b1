"""The kernel `entropy` in NumPy: what it computes, written plainly. Oracle of tests, and fallback."""

from __future__ import annotations

import numpy as np

from lucebox.core import Float32Array


def entropy(probs: Float32Array) -> float:
    """The Shannon entropy, in nats, of a law with these probabilities, dense or sparse."""
    p = probs[probs >= np.finfo(np.float32).tiny].astype(np.float64)
    return max(0.0, float(-(p * np.log(p)).sum()))
