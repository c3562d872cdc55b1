"""The kernel `tree` against its NumPy twin."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucebox._kernels import tree
from lucebox.acceptance import tree_reference
from lucebox.core import Float32Array, Int32Array

BOTH = pytest.mark.parametrize("implementation", [tree, tree_reference], ids=["kernel", "twin"])
Law = tuple[Int32Array | None, Float32Array]
N_WHOLE = 151_936


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
def pairs(draw: st.DrawFn) -> tuple[Law, Law]:
    n_vocab = draw(st.sampled_from([1, 2, 5, 30, 2500]))
    return draw(laws(n_vocab)), draw(laws(n_vocab))


def dense(law: Law, n: int) -> Float32Array:
    ids, probs = law
    out = np.zeros(n, np.float32)
    out[np.arange(len(probs)) if ids is None else ids] = probs
    return out


@settings(max_examples=200, deadline=None)
@given(pairs(), st.sampled_from([1.0, 0.75, 0.1]) | st.floats(0.0, 1.0))
def test_residual_is_its_twin_s(pair: tuple[Law, Law], scale: float) -> None:
    p, q = pair
    probs, mass = tree.residual(*p, *q, 0, scale)
    expected_probs, expected_mass = tree_reference.residual(*p, *q, 0, scale)
    np.testing.assert_allclose(probs, expected_probs, rtol=1e-6)
    assert mass == pytest.approx(expected_mass, rel=1e-12)
    left = np.maximum(np.float32(scale) * dense(p, 2500).astype(np.float64) - dense(q, 2500), 0.0)
    assert mass == pytest.approx(left.sum(), abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(pairs(), st.integers(0, 29))
def test_residual_of_a_deterministic_candidate_is_its_twin_s(pair: tuple[Law, Law], token: int) -> None:
    p, _ = pair
    if p[0] is None:
        token %= len(p[1])
    probs, mass = tree.residual(*p, None, None, token, 1.0)
    expected_probs, expected_mass = tree_reference.residual(*p, None, None, token, 1.0)
    np.testing.assert_array_equal(probs, expected_probs)
    assert mass == expected_mass


@settings(max_examples=200, deadline=None)
@given(pairs(), st.integers(1, 6))
def test_spectr_is_its_twin_s(pair: tuple[Law, Law], k: int) -> None:
    p, q = pair
    rho, beta = tree.spectr_ratio(*p, *q, k)
    expected_rho, expected_beta = tree_reference.spectr_ratio(*p, *q, k)
    assert 1 <= rho <= k
    assert beta == pytest.approx(
        np.minimum(dense(q, 2500), dense(p, 2500).astype(np.float64) / rho).sum(), abs=1e-9
    )
    accepted = tree_reference.accepted_by_one_of(beta, k)
    assert accepted <= rho * beta + 1e-12  # the upper end of the bracket, where the rule is exact
    assert accepted == pytest.approx(tree_reference.accepted_by_one_of(expected_beta, k), abs=1e-9)
    share = accepted / beta if beta else 0.0
    np.testing.assert_allclose(
        tree.spectr_residual(*p, *q, rho, share),
        tree_reference.spectr_residual(*p, *q, rho, share),
        rtol=1e-5,
        atol=1e-7,
    )
    if 0 < accepted < 1:
        assert rho == pytest.approx(expected_rho, abs=1e-9)


@BOTH
def test_the_root_is_taken_from_above(implementation: ModuleType) -> None:
    """Just below it, the residual would go negative; the float nearest to it may lie there."""
    rng = np.random.default_rng(5)
    for _ in range(200):
        p, q = (rng.dirichlet(np.full(6, 0.5)).astype(np.float32) for _ in range(2))
        rho, beta = implementation.spectr_ratio(None, p, None, q, 3)
        share = tree_reference.accepted_by_one_of(beta, 3) / beta
        p_exact, q_exact = p.astype(np.float64), q.astype(np.float64)
        left = p_exact - share * np.minimum(q_exact, p_exact / rho)
        assert left.min() > -1e-15


@BOTH
def test_nothing_left_is_told(implementation: ModuleType) -> None:
    p = np.array([0.25, 0.0, 0.75], np.float32)
    ids = np.array([0, 2], np.int32)
    for laws in [(None, p, None, p), (ids, p[ids], None, p), (None, p, ids, p[ids])]:
        probs, mass = implementation.residual(*laws, 0, 1.0)
        assert mass == 0.0
        np.testing.assert_array_equal(probs, laws[1])
    probs, mass = implementation.residual(None, p, None, None, 0, 0.0)
    assert mass == 0.0
    np.testing.assert_array_equal(implementation.spectr_residual(None, p, None, p, 1.0, 1.0), p)


@BOTH
def test_laws_that_do_not_meet(implementation: ModuleType) -> None:
    p, q = np.array([1.0, 0.0], np.float32), np.array([0.0, 1.0], np.float32)
    assert implementation.spectr_ratio(None, p, None, q, 4)[1] == 0.0
    probs, mass = implementation.residual(None, p, None, q, 1, 1.0)
    assert (probs.tolist(), mass) == ([1.0, 0.0], 1.0)


@pytest.mark.parametrize("p_is_sparse", [False, True])
@pytest.mark.parametrize("q_is_sparse", [False, True])
def test_whole_vocabulary(p_is_sparse: bool, q_is_sparse: bool) -> None:
    rng = np.random.default_rng(3)
    pair: list[Law] = []
    for is_sparse in (p_is_sparse, q_is_sparse):
        probs = rng.dirichlet(np.full(N_WHOLE, 0.01)).astype(np.float32)
        ids = np.sort(rng.choice(N_WHOLE, 500, replace=False)).astype(np.int32)
        pair.append((ids, probs[ids] / probs[ids].sum()) if is_sparse else (None, probs))
    p, q = pair
    probs, mass = tree.residual(*p, *q, 0, 0.7)
    expected_probs, expected_mass = tree_reference.residual(*p, *q, 0, 0.7)
    np.testing.assert_allclose(probs, expected_probs, rtol=1e-5, atol=1e-12)
    assert mass == pytest.approx(expected_mass, rel=1e-9)
    assert probs.sum(dtype=np.float64) == pytest.approx(1.0, abs=1e-5)
    assert tree.spectr_ratio(*p, *q, 3) == pytest.approx(tree_reference.spectr_ratio(*p, *q, 3), rel=1e-9)


def test_mismatched_laws_are_refused() -> None:
    three, four = np.full(3, 1 / 3, np.float32), np.full(4, 0.25, np.float32)
    far = np.array([0, 1, 9], np.int32)
    nothing = np.empty(0, np.float32)
    for laws in [(None, three, None, four), (None, three, far, three), (far, three, None, three)]:
        with pytest.raises(ValueError, match="vocabularies"):
            tree.residual(*laws, 0, 1.0)
        with pytest.raises(ValueError, match="vocabularies"):
            tree.spectr_ratio(*laws, 2)
    with pytest.raises(ValueError, match="vocabularies"):
        tree.residual(None, three, None, None, 3, 1.0)
    with pytest.raises(ValueError, match="vocabularies"):
        tree.residual(None, nothing, None, nothing, 0, 1.0)
    with pytest.raises(ValueError, match="number"):
        tree.residual(far, four, None, four, 0, 1.0)


def test_threads_do_not_share_state() -> None:
    rng = np.random.default_rng(0)
    p, q = (rng.dirichlet(np.ones(5000)).astype(np.float32) for _ in range(2))
    expected = [tree.spectr_ratio(None, p, None, q, k) for k in range(1, 40)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda k: tree.spectr_ratio(None, p, None, q, k), range(1, 40))) == expected
