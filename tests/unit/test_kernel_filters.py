"""The kernel `filters` against its NumPy twin."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lucebox._kernels import filters
from lucebox.core import Float32Array, Int32Array
from lucebox.sampling import reference

BOTH = pytest.mark.parametrize("implementation", [filters, reference], ids=["kernel", "twin"])
SHARES = st.sampled_from([1e-9, 0.1, 0.25, 0.5, 0.75, 0.95, 0.999, 1.0])
THRESHOLDS = st.sampled_from([0.0, 0.01, 0.1, 0.25, 0.5, 1.0, 2.0])
# Few distinct weights make ties, and shares and thresholds that fall on a token.
WEIGHTS = st.sampled_from([0.0, 1.0, 2.0, 4.0]) | st.floats(0, 1, width=32)


@st.composite
def laws(draw: st.DrawFn) -> tuple[Int32Array, Float32Array]:
    weights = draw(hnp.arrays(np.float32, st.integers(1, 12) | st.integers(13, 300), elements=WEIGHTS))
    weights[draw(st.integers(0, len(weights) - 1))] = 1.0
    ids = np.cumsum(draw(hnp.arrays(np.int32, len(weights), elements=st.integers(1, 5))), dtype=np.int32)
    return ids, (weights / weights.sum(dtype=np.float64)).astype(np.float32)


def is_on_a_border(
    law: tuple[Int32Array, Float32Array], ids: Int32Array, typical_p: float, top_p: float
) -> bool:
    """Whether the last bit of a sum or of a logarithm may have decided for `ids`: a share that is a little
    off gives them, or tokens that are as typical as each other changed places."""
    for a in (1 - 1e-6, 1, 1 + 1e-6):
        for b in (1 - 1e-6, 1, 1 + 1e-6):
            near = reference.narrowed(*law, min(1.0, a * typical_p), min(1.0, b * top_p), 2.0)[0]
            odd = np.isin(law[0], np.setxor1d(ids, near))
            p = law[1][odd & (law[1] > 0)].astype(np.float64)
            entropy = -sum(x * np.log(x) for x in law[1][law[1] > 0].astype(np.float64))
            distances = np.abs(-np.log(p) - entropy)
            if not len(p) or (typical_p < 1 and np.ptp(distances) < 1e-5):
                return True
    return False


@settings(max_examples=300, deadline=None)
@given(laws(), SHARES, SHARES)
def test_narrowed_is_its_twin(law: tuple[Int32Array, Float32Array], typical_p: float, top_p: float) -> None:
    ids, probs = filters.narrowed(*law, typical_p, top_p, 2.0)
    expected_ids, expected = reference.narrowed(*law, typical_p, top_p, 2.0)
    assert ids.dtype == np.int32
    assert probs.dtype == np.float32
    assert (np.diff(ids) > 0).all()
    if not np.array_equal(ids, expected_ids):
        assert is_on_a_border(law, ids, typical_p, top_p)
        return
    np.testing.assert_allclose(probs, expected, rtol=1e-5, atol=1e-37)


@settings(max_examples=200, deadline=None)
@given(laws(), THRESHOLDS)
def test_xtc_is_its_twin(law: tuple[Int32Array, Float32Array], threshold: float) -> None:
    ids, probs = filters.narrowed(*law, 1.0, 1.0, threshold)
    expected_ids, expected = reference.narrowed(*law, 1.0, 1.0, threshold)
    at = np.abs(law[1].astype(np.float64) / law[1].sum(dtype=np.float64) - threshold) < 1e-12
    if not at.any():
        assert np.array_equal(ids, expected_ids)
        np.testing.assert_allclose(probs, expected, rtol=1e-6)


def narrowed(
    implementation: ModuleType, weights: list[float], typical_p: float, top_p: float, threshold: float
) -> list[int]:
    probs = np.array(weights, np.float32) / np.float32(sum(weights))
    ids, left = implementation.narrowed(
        np.arange(len(probs), dtype=np.int32), probs, typical_p, top_p, threshold
    )
    assert left.sum(dtype=np.float64) == pytest.approx(1.0)
    kept = probs[ids]
    np.testing.assert_allclose(left, kept / kept.sum(), rtol=1e-5)
    return [int(i) for i in ids]


@BOTH
def test_typical_p_prefers_tokens_of_average_surprise(implementation: ModuleType) -> None:
    """Entropy of this law: 1.35 nats; -log p: 0.51, 2.12, 2.30, 2.30, 2.53. The third quarter is nearest."""
    weights = [0.6, 0.12, 0.1, 0.1, 0.08]
    entropy = -sum(p * np.log(p) for p in weights)
    order = sorted(range(5), key=lambda i: (round(abs(-np.log(weights[i]) - entropy), 6), i))
    for n in range(1, 6):
        share = sum(weights[i] for i in order[:n]) - 0.01
        assert narrowed(implementation, weights, share, 1.0, 2.0) == sorted(order[:n])


@BOTH
def test_typical_p_may_leave_out_the_likeliest(implementation: ModuleType) -> None:
    weights = [0.35, *[0.65 / 400] * 400]
    assert 0 not in narrowed(implementation, weights, 0.5, 1.0, 2.0)


@BOTH
def test_a_flat_law_has_nothing_atypical(implementation: ModuleType) -> None:
    assert narrowed(implementation, [1.0] * 8, 0.5, 1.0, 2.0) == [0, 1, 2, 3]


@BOTH
@pytest.mark.parametrize(
    ("threshold", "kept"),
    [
        (0.5, [0, 1, 2, 3]),  # one token is above: it stays
        (0.2, [1, 2, 3]),
        (0.1, [2, 3]),
        (0.0, [3]),
        (2.0, [0, 1, 2, 3]),
    ],
)
def test_xtc_keeps_the_least_likely_of_the_top_choices(
    implementation: ModuleType, threshold: float, kept: list[int]
) -> None:
    assert narrowed(implementation, [0.5, 0.25, 0.15, 0.1 - 1e-6], 1.0, 1.0, threshold) == kept


@BOTH
def test_xtc_keeps_the_last_of_ties_and_never_nothing(implementation: ModuleType) -> None:
    assert narrowed(implementation, [3, 3, 3, 1], 1.0, 1.0, 0.3) == [2, 3]
    assert narrowed(implementation, [1, 1, 0, 1], 1.0, 1.0, 0.0) == [3]


@BOTH
def test_the_filters_come_in_their_order(implementation: ModuleType) -> None:
    """top_p takes its share of what typical_p left, XTC its threshold of what top_p left."""
    weights = [0.4, 0.2, 0.2, 0.1, 0.1]
    assert narrowed(implementation, weights, 1.0, 0.5, 2.0) == [0, 1]
    assert narrowed(implementation, weights, 1.0, 0.5, 0.45) == [0, 1]  # 2/3 and 1/3
    assert narrowed(implementation, weights, 1.0, 0.5, 0.33) == [1]


@BOTH
def test_a_law_without_probability_is_refused(implementation: ModuleType) -> None:
    with pytest.raises(ValueError, match="positive"):
        implementation.narrowed(np.arange(2, dtype=np.int32), np.zeros(2, np.float32), 0.5, 1.0, 2.0)


def test_a_whole_vocabulary() -> None:
    rng = np.random.default_rng(3)
    probs = np.exp(rng.normal(0, 3, 151_936))
    law = np.arange(len(probs), dtype=np.int32), (probs / probs.sum()).astype(np.float32)
    for typical_p, top_p, threshold in [(0.9, 1.0, 2.0), (0.5, 0.8, 2.0), (0.95, 0.9, 0.001)]:
        ids, left = filters.narrowed(*law, typical_p, top_p, threshold)
        expected_ids, expected = reference.narrowed(*law, typical_p, top_p, threshold)
        assert len(np.setxor1d(ids, expected_ids)) <= 4  # of thousands
        assert left.sum(dtype=np.float64) == pytest.approx(expected.sum(dtype=np.float64), abs=1e-5)


@settings(max_examples=200, deadline=None)
@given(
    hnp.arrays(np.int32, st.integers(0, 60), elements=st.integers(0, 2)),
    st.sampled_from([0, 1, 3, 1000]),
)
def test_repetitions_are_their_twin(tokens: Int32Array, longest: int) -> None:
    found = filters.repetitions(tokens, longest)
    assert found.dtype == np.int32
    assert np.array_equal(found, reference.repetitions(tokens, longest))


def test_repetitions_of_one_token_take_linear_time() -> None:
    """A quadratic search would take minutes."""
    n = 400_000
    lengths = filters.repetitions(np.zeros(n, np.int32), n)
    assert np.array_equal(lengths, np.arange(n, dtype=np.int32))
