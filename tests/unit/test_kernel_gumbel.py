"""The kernel `gumbel` against its NumPy twin."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from lucebox._kernels import gumbel
from lucebox.core import Float32Array
from lucebox.sampling import reference

BOTH = pytest.mark.parametrize("implementation", [gumbel, reference], ids=["kernel", "twin"])
WORDS = st.integers(0, 2**32 - 1)


@settings(deadline=None, max_examples=200)
@given(
    hnp.arrays(np.float32, st.integers(1, 400), elements=st.sampled_from([0.0, 0.0, 1e-30, 0.25, 0.5, 1.0])),
    st.integers(0, 2**64 - 1),
    WORDS,
    WORDS,
)
def test_kernel_is_its_twin(probs: Float32Array, seed: int, position: int, purpose: int) -> None:
    if not probs.any():
        probs[-1] = 1.0
    drawn = gumbel.gumbel_argmax(None, probs, seed, position, purpose)
    assert drawn == reference.gumbel_argmax(None, probs, seed, position, purpose)
    assert probs[drawn] > 0
    ids = np.flatnonzero(probs).astype(np.int32)
    for implementation in (gumbel, reference):  # the noise belongs to the token, not to its place in the law
        assert implementation.gumbel_argmax(ids, probs[ids], seed, position, purpose) == drawn


@BOTH
def test_draws_follow_the_law(implementation: ModuleType) -> None:
    probs = np.array([0.5, 0.0, 0.2, 0.25, 0.05], np.float32)
    n = 3000
    by_position = [implementation.gumbel_argmax(None, probs, 7, i, 1) for i in range(n)]
    by_seed = [implementation.gumbel_argmax(None, probs, i, 7, 1) for i in range(n)]
    for drawn in (by_position, by_seed):
        counts = np.bincount(drawn, minlength=5)
        assert counts[1] == 0
        held = probs > 0
        assert stats.chisquare(counts[held], n * probs[held].astype(float) / probs.sum()).pvalue > 1e-3
        pairs = np.bincount(np.array(drawn[:-1]) * 5 + drawn[1:], minlength=25).reshape(5, 5)
        assert stats.chi2_contingency(pairs[np.ix_(held, held)]).pvalue > 1e-3  # neighbours are independent


@BOTH
def test_noise_differs_by_each_part_of_the_key(implementation: ModuleType) -> None:
    probs = np.full(1000, 1e-3, np.float32)
    keys = [(1, 2, 3), (2, 2, 3), (1, 3, 3), (1, 2, 4), (1 + 2**32, 2, 3)]
    assert len({implementation.gumbel_argmax(None, probs, *key) for key in keys}) == len(keys)


@BOTH
def test_scale_does_not_matter(implementation: ModuleType) -> None:
    probs = np.random.default_rng(0).dirichlet(np.ones(50)).astype(np.float32)
    for seed in range(50):
        drawn = {
            implementation.gumbel_argmax(None, probs * np.float32(2.0**k), seed, 0, 0) for k in (-9, 0, 9)
        }
        assert len(drawn) == 1


def test_whole_vocabulary() -> None:
    random = np.random.default_rng(5)
    probs = random.dirichlet(np.full(151_937, 0.05)).astype(np.float32)
    ids = np.flatnonzero(probs > 1e-5).astype(np.int32)
    for seed in range(10):
        assert gumbel.gumbel_argmax(None, probs, seed, 3, 6) == reference.gumbel_argmax(
            None, probs, seed, 3, 6
        )
        found = gumbel.gumbel_argmax(ids, probs[ids], seed, 3, 6)
        assert found == reference.gumbel_argmax(ids, probs[ids], seed, 3, 6)


@BOTH
def test_a_law_without_a_positive_probability_is_refused(implementation: ModuleType) -> None:
    with pytest.raises(ValueError, match="positive"):
        implementation.gumbel_argmax(None, np.zeros(3, np.float32), 0, 0, 0)
    with pytest.raises(ValueError, match="positive"):
        implementation.gumbel_argmax(np.empty(0, np.int32), np.empty(0, np.float32), 0, 0, 0)


def test_words_that_do_not_fit_are_refused() -> None:
    one = np.ones(1, np.float32)
    for key in [(2**64, 0, 0), (-1, 0, 0), (0, 2**32, 0), (0, -1, 0), (0, 0, 2**32)]:
        with pytest.raises(OverflowError):
            gumbel.gumbel_argmax(None, one, *key)


def test_threads_do_not_share_state() -> None:
    probs = np.random.default_rng(0).dirichlet(np.ones(5000)).astype(np.float32)
    expected = [gumbel.gumbel_argmax(None, probs, seed, 1, 2) for seed in range(200)]
    with ThreadPoolExecutor(4) as pool:
        assert (
            list(pool.map(lambda seed: gumbel.gumbel_argmax(None, probs, seed, 1, 2), range(200))) == expected
        )
