"""The kernel `verify` against its NumPy twin."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucebox._kernels import verify
from lucebox.acceptance import reference
from lucebox.core import Float32Array, Int32Array

BOTH = pytest.mark.parametrize("implementation", [verify, reference], ids=["kernel", "twin"])
LAST = float(np.nextafter(1.0, 0.0))
SCALES = st.sampled_from([0.0, 1e-40, 0.125, 0.5, 1.0]) | st.floats(0.0, 1.0, width=32)
US = st.sampled_from([0.0, 0.25, 0.5, LAST]) | st.floats(0.0, LAST)
Law = tuple[Int32Array | None, Float32Array]


@st.composite
def laws(draw: st.DrawFn, n_vocab: int) -> Law:
    """Dense or sparse, in sixteenths, so that sums and differences are exact in either implementation."""
    parts = draw(st.lists(st.integers(0, n_vocab - 1), min_size=16, max_size=16))
    probs = np.bincount(parts, minlength=n_vocab).astype(np.float32) / np.float32(16)
    if draw(st.booleans()):
        return None, probs
    ids = np.flatnonzero(probs).astype(np.int32)
    return ids, probs[ids]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Law, tuple[Int32Array | None, Float32Array | None], int]:
    n_vocab = draw(st.sampled_from([1, 2, 5, 30, 2500]))
    p = draw(laws(n_vocab))
    q = draw(st.just((None, None)) | laws(n_vocab))
    return p, q, draw(st.integers(0, n_vocab - 1))


@settings(max_examples=200, deadline=None)
@given(cases(), US)
def test_kernel_is_its_twin(
    case: tuple[Law, tuple[Int32Array | None, Float32Array | None], int], u: float
) -> None:
    p, q, token = case
    assert verify.probability(*p, token) == reference.probability(*p, token)
    assert verify.accepts(*p, *q, token, u) == reference.accepts(*p, *q, token, u)
    drawn = verify.residual_sample(*p, *q, token, u)
    assert drawn == reference.residual_sample(*p, *q, token, u)
    assert reference.probability(*p, drawn) > 0


@settings(max_examples=200, deadline=None)
@given(cases(), US, SCALES)
def test_scaled_excess_is_its_twin(
    case: tuple[Law, tuple[Int32Array | None, Float32Array | None], int], u: float, scale: float
) -> None:
    p, q, token = case
    ratio = verify.log_ratio(*p, *q, token)
    assert ratio == pytest.approx(reference.log_ratio(*p, *q, token), abs=1e-15)
    mass = verify.excess_mass(*p, *q, token, scale)
    assert mass == pytest.approx(reference.excess_mass(*p, *q, token, scale), rel=1e-12, abs=0.0)
    drawn = verify.residual_sample(*p, *q, token, u, scale)
    assert reference.probability(*p, drawn) > 0
    left = reference.excess(*p, *q, token, scale)
    if left.any():
        place = drawn if p[0] is None else int(np.searchsorted(p[0], drawn))
        below, total = left[:place].sum(), left.sum()
        assert left[place] > 0
        assert below - 1e-12 * total <= u * total <= below + left[place] + 1e-12 * total


@settings(max_examples=50, deadline=None)
@given(cases(), US)
def test_sparse_laws_are_judged_as_dense_ones(
    case: tuple[Law, tuple[Int32Array | None, Float32Array | None], int], u: float
) -> None:
    p, q, token = case
    n_vocab = 2500

    def dense(ids: Int32Array | None, probs: Float32Array | None) -> tuple[None, Float32Array]:
        out = np.zeros(n_vocab, np.float32)
        if probs is None:
            out[token] = 1.0
        else:
            out[np.arange(len(probs)) if ids is None else ids] = probs
        return None, out

    assert verify.accepts(*p, *q, token, u) == verify.accepts(*dense(*p), *dense(*q), token, u)
    assert verify.log_ratio(*p, *q, token) == verify.log_ratio(*dense(*p), *dense(*q), token)
    for scale in (0.25, 1.0):
        drawn = verify.residual_sample(*p, *q, token, u, scale)
        assert drawn == verify.residual_sample(*dense(*p), *dense(*q), token, u, scale)
        mass = verify.excess_mass(*dense(*p), *dense(*q), token, scale)
        assert verify.excess_mass(*p, *q, token, scale) == mass


@BOTH
def test_acceptance_is_strict(implementation: ModuleType) -> None:
    p = np.array([0.0, 0.5, 0.5], np.float32)
    q = np.array([0.5, 0.5, 0.0], np.float32)
    assert not implementation.accepts(None, p, None, q, 0, 0.0)  # p is zero, and u too
    assert implementation.accepts(None, p, None, q, 1, LAST)  # p == q: always
    assert not implementation.accepts(None, p, None, None, 1, 0.5)  # u == p
    assert implementation.accepts(None, p, None, None, 1, float(np.nextafter(0.5, 0.0)))


@BOTH
def test_log_ratios(implementation: ModuleType) -> None:
    p = np.array([0.0, 0.5, 0.5], np.float32)
    q = np.array([0.0, 0.25, 0.0], np.float32)
    found = [implementation.log_ratio(None, p, None, q, token) for token in range(3)]
    assert found == [-math.inf, pytest.approx(math.log(2)), math.inf]  # of p = q = 0, p decides
    assert implementation.log_ratio(None, p, None, None, 1) == pytest.approx(-math.log(2))


@BOTH
def test_block_s_residual_of_the_toy(implementation: ModuleType) -> None:
    """a = 1/2, p = (1/3, 2/3), q = (2/3, 1/3): nothing is left; with p and q changed, 1/6 is."""
    a, b = np.array([1, 2], np.float32) / np.float32(3), np.array([2, 1], np.float32) / np.float32(3)
    assert implementation.excess_mass(None, a, None, b, 0, 0.5) == pytest.approx(0.0, abs=1e-7)
    ids = np.array([0, 1], np.int32)
    assert implementation.excess_mass(ids, np.float32([1, 0]), None, b, 0, 1.0) == pytest.approx(1 / 3)
    assert implementation.residual_sample(None, a, None, b, 0, 0.5, 1.0) == 1


@BOTH
def test_nothing_left_falls_back_to_p(implementation: ModuleType) -> None:
    p = np.array([0.25, 0.0, 0.75], np.float32)
    ids = np.array([0, 2], np.int32)
    for laws in [
        (None, p, None, p),
        (ids, p[ids], None, p),
        (None, p, ids, p[ids]),
        (ids, p[ids], ids, p[ids]),
    ]:
        assert implementation.residual_sample(*laws, 0, 0.2) == 0
        assert implementation.residual_sample(*laws, 0, 0.3) == 2
        assert implementation.residual_sample(*laws, 0, LAST) == 2
    one = np.ones(1, np.float32)
    token = np.array([7], np.int32)
    assert implementation.residual_sample(token, one, None, None, 7, 0.5) == 7


@BOTH
def test_a_deterministic_proposal_is_one_hot(implementation: ModuleType) -> None:
    p = np.array([0.25, 0.5, 0.25], np.float32)
    drawn = {implementation.residual_sample(None, p, None, None, 1, u) for u in (0.0, 0.3, 0.7, LAST)}
    assert drawn == {0, 2}


@pytest.mark.parametrize("p_is_sparse", [False, True])
@pytest.mark.parametrize("q_is_sparse", [False, True])
def test_whole_vocabulary(p_is_sparse: bool, q_is_sparse: bool) -> None:
    rng = np.random.default_rng(3)
    laws = []
    for is_sparse in (p_is_sparse, q_is_sparse):
        probs = rng.dirichlet(np.full(151_936, 0.01)).astype(np.float32)
        ids = np.sort(rng.choice(151_936, 500, replace=False)).astype(np.int32)
        laws.append((ids, probs[ids] / probs[ids].sum()) if is_sparse else (None, probs))
    p, q = laws
    for u in rng.random(50):
        assert verify.residual_sample(*p, *q, 0, u) == reference.residual_sample(*p, *q, 0, u)
    for scale in (0.3, 1.0):
        mass = reference.excess_mass(*p, *q, 0, scale)
        assert verify.excess_mass(*p, *q, 0, scale) == pytest.approx(mass, rel=1e-12)


def test_mismatched_laws_are_refused() -> None:
    three, four = np.full(3, 1 / 3, np.float32), np.full(4, 0.25, np.float32)
    far = np.array([0, 1, 9], np.int32)
    for laws in [(None, three, None, four), (None, three, far, three), (far, three, None, three)]:
        with pytest.raises(ValueError, match="vocabularies"):
            verify.residual_sample(*laws, 0, 0.5)
    with pytest.raises(ValueError, match="number"):
        verify.accepts(far, four, None, None, 0, 0.5)
    with pytest.raises(ValueError, match="positive"):
        verify.residual_sample(None, np.zeros(3, np.float32), None, None, 0, 0.5)


def test_threads_do_not_share_state() -> None:
    rng = np.random.default_rng(0)
    p, q = (rng.dirichlet(np.ones(5000)).astype(np.float32) for _ in range(2))
    us = rng.random(200).tolist()
    expected = [verify.residual_sample(None, p, None, q, 0, u) for u in us]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda u: verify.residual_sample(None, p, None, q, 0, u), us)) == expected
