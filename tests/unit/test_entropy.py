"""The kernel `entropy` against its NumPy twin."""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lucebox._kernels import entropy
from lucebox.core import Float32Array
from lucebox.sampling import reference
from lucebox.sampling.kernels import entropy as in_use

BOTH = pytest.mark.parametrize("implementation", [entropy, reference], ids=["kernel", "twin"])
LOGITS = hnp.arrays(np.float32, st.integers(1, 3000), elements=st.floats(-80, 80, width=32))


def law(logits: Float32Array) -> Float32Array:
    weights = np.exp(logits.astype(np.float64) - logits.max())
    return (weights / weights.sum()).astype(np.float32)


def test_the_compiled_kernel_is_in_use() -> None:
    assert in_use is entropy


@settings(max_examples=150, deadline=None)
@given(LOGITS)
def test_kernel_is_its_twin(logits: Float32Array) -> None:
    probs = law(logits)
    assert entropy.entropy(probs) == pytest.approx(reference.entropy(probs), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("spread", [0.0, 0.5, 3.0, 10.0])
def test_whole_vocabularies(spread: float) -> None:
    probs = law(np.random.default_rng(3).normal(0, spread, 151_936).astype(np.float32))
    assert entropy.entropy(probs) == pytest.approx(reference.entropy(probs), rel=1e-5)


@BOTH
@pytest.mark.parametrize(
    ("probs", "nats"),
    [
        ([1.0], 0.0),
        ([0.0, 1.0, 0.0], 0.0),
        ([0.5, 0.5], math.log(2)),
        ([0.25] * 4, math.log(4)),
        ([1e-40, 1.0], 0.0),  # a denormal counts for nothing
        ([], 0.0),
    ],
)
def test_known_entropies(implementation: ModuleType, probs: list[float], nats: float) -> None:
    assert implementation.entropy(np.array(probs, np.float32)) == pytest.approx(nats, abs=1e-6)


@BOTH
def test_zeros_in_a_dense_law_change_nothing(implementation: ModuleType) -> None:
    sparse = np.array([0.5, 0.3, 0.2], np.float32)
    dense = np.zeros(5000, np.float32)
    dense[[7, 900, 4999]] = sparse
    assert implementation.entropy(dense) == pytest.approx(implementation.entropy(sparse), rel=1e-5)
