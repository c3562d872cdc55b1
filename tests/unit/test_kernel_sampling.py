"""The kernel `sampling` against its NumPy twin."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lucebox._kernels import sampling
from lucebox.core import Float32Array
from lucebox.errors import LogitsError
from lucebox.sampling import reference

BOTH = pytest.mark.parametrize("implementation", [sampling, reference], ids=["kernel", "twin"])
# Whole numbers make ties and laws whose boundaries fall on tokens; signed zeros and bans are among them.
TIED = st.integers(-4, 4).map(float) | st.sampled_from([-0.0, -np.inf])
ANY = st.floats(-60, 60, width=32)
TEMPERATURES = st.sampled_from([1e-30, 0.01, 0.5, 0.8, 1.0, 2.0, 100.0])
MIN_PS = st.sampled_from([0.0, 1e-6, 0.05, 0.5, 1.0])
TOP_KS = st.sampled_from([0, 1, 2, 3, 40, 100, 1000])
TOP_PS = st.sampled_from([1e-9, 0.1, 0.25, 0.5, 0.75, 0.95, 0.999999, 1.0])
SIZES = st.integers(1, 12) | st.integers(13, 400)


@st.composite
def rows(draw: st.DrawFn) -> Float32Array:
    elements = draw(st.sampled_from([TIED, ANY]))
    row = draw(hnp.arrays(np.float32, draw(SIZES), elements=elements))
    if np.isneginf(row).all():
        row[0] = 0.0
    return row


def big_row(seed: int, n: int = 151_936, spread: float = 3.0) -> Float32Array:
    return np.random.default_rng(seed).normal(0, spread, n).astype(np.float32)


def assert_same_law(logits: Float32Array, temperature: float, min_p: float, top_k: int, top_p: float) -> None:
    """Equal supports, but for a token on the border of top_p, where the last bit decides."""
    before = logits.copy()
    ids, probs = sampling.filtered(logits, temperature, min_p, top_k, top_p)
    expected_ids, expected = reference.filtered(logits, temperature, min_p, top_k, top_p)
    assert np.array_equal(logits, before)
    assert ids.dtype == np.int32
    assert probs.dtype == np.float32
    assert (np.diff(ids) > 0).all()
    if top_p < 1.0 and not np.array_equal(ids, expected_ids):
        odd = np.setxor1d(ids, expected_ids)
        whole_ids, whole = reference.filtered(logits, temperature, min_p, top_k, 1.0)
        kept = whole[np.isin(whole_ids, np.intersect1d(ids, expected_ids))].astype(np.float64).sum()
        assert len(odd) * whole.max() < 1e-5 or abs(kept - top_p) < 1e-6
        return
    assert np.array_equal(ids, expected_ids)
    np.testing.assert_allclose(probs, expected, rtol=1e-5, atol=1e-37)


@settings(max_examples=150, deadline=None)
@given(rows(), TEMPERATURES, MIN_PS, TOP_KS, TOP_PS)
def test_filtered_is_its_twin(
    logits: Float32Array, temperature: float, min_p: float, top_k: int, top_p: float
) -> None:
    assert_same_law(logits, temperature, min_p, top_k, top_p)


@pytest.mark.parametrize("spread", [0.0, 0.5, 3.0, 8.0])
@pytest.mark.parametrize(
    ("temperature", "min_p", "top_k", "top_p"),
    [
        (0.8, 0.0, 40, 0.95),
        (1.0, 0.0, 0, 0.95),
        (1.5, 0.0, 0, 0.999),
        (1.0, 0.05, 0, 1.0),
        (0.7, 0.02, 100, 0.9),
        (1.0, 0.0, 5000, 1.0),
        (1.0, 0.0, 151_936, 1.0),
    ],
)
def test_filtered_is_its_twin_on_a_whole_vocabulary(
    spread: float, temperature: float, min_p: float, top_k: int, top_p: float
) -> None:
    assert_same_law(big_row(1, spread=spread), temperature, min_p, top_k, top_p)


@settings(max_examples=75, deadline=None)
@given(rows(), TEMPERATURES)
def test_dense_kernels_are_their_twins(logits: Float32Array, temperature: float) -> None:
    assert sampling.argmax(logits) == reference.argmax(logits)
    np.testing.assert_allclose(
        sampling.softmax(logits, temperature), reference.softmax(logits, temperature), rtol=2e-5, atol=1e-36
    )
    assert sampling.log_sum_exp(logits) == pytest.approx(reference.log_sum_exp(logits), abs=1e-5)
    assert np.array_equal(sampling.top(logits, 5), reference.top(logits, 5))


def test_dense_kernels_are_their_twins_on_a_whole_vocabulary() -> None:
    row = big_row(2)
    expected = reference.softmax(row, 0.9)
    np.testing.assert_allclose(sampling.softmax(row, 0.9), expected, rtol=1e-5)
    assert sampling.softmax(row, 0.9).sum(dtype=np.float64) == pytest.approx(1.0, abs=1e-6)
    assert sampling.log_sum_exp(row) == pytest.approx(reference.log_sum_exp(row), abs=1e-6)
    assert np.array_equal(sampling.top(row, 20), reference.top(row, 20))


@pytest.mark.parametrize("n", [1, 15, 63, 64, 65, 1023, 1000])
def test_equal_logits_have_equal_probabilities_wherever_they_stand(n: int) -> None:
    probs = sampling.softmax(np.full(n, 1.25, np.float32), 0.7)
    assert (probs == probs[0]).all()
    assert probs[0] == pytest.approx(1 / n)


@BOTH
def test_ties(implementation: ModuleType) -> None:
    row = np.array([0, 2, 1, 2, 1, 2, -0.0, 0.0], np.float32)
    assert implementation.argmax(row) == 1
    assert implementation.filtered(row, 1.0, 0.0, 2, 1.0)[0].tolist() == [1, 3]
    assert implementation.filtered(row, 1.0, 0.0, 4, 1.0)[0].tolist() == [1, 2, 3, 5]
    assert implementation.filtered(row, 1.0, 0.0, 6, 1.0)[0].tolist() == [0, 1, 2, 3, 4, 5]
    assert implementation.filtered(row, 1.0, 0.0, 7, 1.0)[0].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert implementation.filtered(row, 1.0, 1.0, 0, 1.0)[0].tolist() == [1, 3, 5]
    assert implementation.top(row, 7).tolist() == [1, 3, 5, 2, 4, 0, 6]


@BOTH
@pytest.mark.parametrize(
    ("top_p", "n_left"), [(1e-12, 1), (0.25, 1), (0.26, 2), (0.5, 2), (0.51, 3), (1.0, 4)]
)
def test_top_p_keeps_the_token_that_crosses(implementation: ModuleType, top_p: float, n_left: int) -> None:
    ids, probs = implementation.filtered(np.zeros(4, np.float32), 1.0, 0.0, 0, top_p)
    assert ids.tolist() == list(range(n_left))
    assert probs.tolist() == [np.float32(1 / n_left)] * n_left


@BOTH
def test_top_p_is_a_share_of_what_top_k_leaves(implementation: ModuleType) -> None:
    row = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))
    assert implementation.filtered(row, 1.0, 0.0, 0, 0.55)[0].tolist() == [0, 1]
    assert implementation.filtered(row, 1.0, 0.0, 2, 0.55)[0].tolist() == [0]


@BOTH
def test_min_p_follows_the_temperature(implementation: ModuleType) -> None:
    row = np.log(np.array([0.6, 0.3, 0.1], np.float32))
    assert implementation.filtered(row, 1.0, 0.4, 0, 1.0)[0].tolist() == [0, 1]
    assert implementation.filtered(row, 0.5, 0.4, 0, 1.0)[0].tolist() == [0]


@BOTH
@pytest.mark.parametrize("n", [3, 64, 130])
@pytest.mark.parametrize(
    ("value", "rest", "message"),
    [
        (np.nan, 0.0, "NaN"),
        (-np.nan, -np.inf, "NaN"),
        (np.inf, 0.0, r"\+infinity"),
        (-np.inf, -np.inf, "no token"),
    ],
)
def test_rows_without_a_law(
    implementation: ModuleType, n: int, value: float, rest: float, message: str
) -> None:
    row = np.full(n, rest, np.float32)
    row[-1] = value
    calls = [
        lambda: implementation.argmax(row),
        lambda: implementation.softmax(row, 1.0),
        lambda: implementation.log_sum_exp(row),
        lambda: implementation.filtered(row, 1.0, 0.0, 2, 1.0),
        lambda: implementation.filtered(row, 1.0, 0.0, 0, 0.9),
    ]
    for call in calls:
        with pytest.raises(LogitsError, match=message):
            call()


def test_a_negative_nan_is_found() -> None:
    row = np.zeros(100, np.float32)
    row.view(np.uint32)[70] = 0xFFC00001
    with pytest.raises(LogitsError, match="NaN"):
        sampling.argmax(row)


IDS = st.lists(st.integers(0, 11), unique=True, max_size=12)


@given(
    hnp.arrays(np.float32, 12, elements=ANY | st.just(-np.inf)),
    IDS,
    IDS,
    st.sampled_from([0.5, 1.0, 1.3]),
    st.sampled_from([-2.0, 0.0, 0.7]),
    st.sampled_from([-1.0, 0.0, 2.0]),
    st.randoms(use_true_random=False),
)
def test_adjusted_is_its_twin(
    logits: Float32Array,
    biased: list[int],
    seen: list[int],
    repetition: float,
    frequency: float,
    presence: float,
    random: np.random.Generator,
) -> None:
    values = np.array([random.choice([-100.0, -3.5, 0.25, 100.0]) for _ in biased], np.float32)
    counts = np.array([random.randrange(4) for _ in seen], np.int32)
    arguments = (np.array(biased, np.int32), values, np.array(seen, np.int32), counts)
    before = logits.copy()
    out = sampling.adjusted(logits, *arguments, repetition, frequency, presence)
    assert np.array_equal(logits, before)
    assert np.array_equal(out, reference.adjusted(logits, *arguments, repetition, frequency, presence))


def test_adjusted_checks_ids() -> None:
    none, values = np.empty(0, np.int32), np.empty(0, np.float32)
    one = np.array([3], np.int32)
    with pytest.raises(IndexError):
        sampling.adjusted(np.zeros(3, np.float32), one, np.zeros(1, np.float32), none, none, 1.0, 0.0, 0.0)
    with pytest.raises(IndexError):
        sampling.adjusted(np.zeros(3, np.float32), none, values, -one, one, 1.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="number"):
        sampling.adjusted(np.zeros(3, np.float32), one, values, none, none, 1.0, 0.0, 0.0)


@settings(deadline=None)
@given(
    hnp.arrays(np.float32, st.integers(1, 3000), elements=st.sampled_from([0.0, 0.25, 0.5, 1.0])),
    st.sampled_from([0.0, 0.125, 0.5, 0.9, 1 - 2**-53]),
)
def test_sample_is_its_twin(probs: Float32Array, u: float) -> None:
    if not probs.any():
        probs[0] = 1.0
    token = sampling.sample(None, probs, u)
    assert token == reference.sample(None, probs, u)
    assert probs[token] > 0
    ids = np.arange(len(probs), dtype=np.int32) * 3
    assert sampling.sample(ids, probs, u) == reference.sample(ids, probs, u) == 3 * token


@BOTH
def test_sample_never_returns_an_impossible_token(implementation: ModuleType) -> None:
    probs = np.array([0.0, 0.1, 0.0, 0.7, 0.0], np.float32)
    last = np.nextafter(1.0, 0.0)
    assert implementation.sample(None, probs, 0.0) == 1
    assert implementation.sample(None, probs, last) == 3
    with pytest.raises(ValueError, match="positive"):
        implementation.sample(None, np.zeros(5, np.float32), 0.5)


def test_threads_do_not_share_state() -> None:
    rows = [big_row(seed, 20_000) for seed in range(4)]
    expected = [sampling.filtered(row, 0.8, 0.0, 40, 0.95) for row in rows]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            found = pool.map(lambda row: sampling.filtered(row, 0.8, 0.0, 40, 0.95), rows)
            for (ids, probs), (expected_ids, expected_probs) in zip(found, expected, strict=True):
                assert np.array_equal(ids, expected_ids)
                assert np.array_equal(probs, expected_probs)
