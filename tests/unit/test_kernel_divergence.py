"""The kernel `divergence` against its NumPy twin, and both against what is known."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucebox._kernels import divergence
from lucebox.acceptance import reference
from lucebox.core import Float32Array, Int32Array
from lucebox.research import exact_chain
from tests.support.enumerate import distribution
from tests.support.toy import P3, P4, Q3, Q4

BOTH = pytest.mark.parametrize("implementation", [divergence, reference], ids=["kernel", "twin"])
KINDS = ("kl", "js", "tv")
Law = tuple[Int32Array | None, Float32Array]
DraftLaw = tuple[Int32Array | None, Float32Array | None]


def law(weights: Float32Array, is_sparse: bool) -> Law:
    probs = (weights / weights.sum()).astype(np.float32)
    if not is_sparse:
        return None, probs
    ids = np.flatnonzero(probs).astype(np.int32)
    return ids, probs[ids]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Law, DraftLaw, int]:
    n_vocab = draw(st.sampled_from([1, 2, 5, 30, 600]))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    laws: list[Law] = []
    for _ in range(2):
        weights = random.dirichlet(np.full(n_vocab, draw(st.sampled_from([0.05, 1.0])))).astype(np.float32)
        kept = random.random(n_vocab) < draw(st.sampled_from([0.3, 1.0]))
        weights = np.where(kept, weights, 0) if (weights * kept).sum() > 1e-3 else weights
        laws.append(law(weights, draw(st.booleans())))
    q: DraftLaw = (None, None) if draw(st.booleans()) else laws[1]
    return laws[0], q, draw(st.integers(0, n_vocab - 1))


@settings(max_examples=100, deadline=None)
@given(cases(), st.sampled_from([0.0, 1e-4, 0.01, 0.1, 1.0]))
def test_kernel_is_its_twin(case: tuple[Law, DraftLaw, int], bound: float) -> None:
    p, q, token = case
    for kind in KINDS:
        found = divergence.divergence(*p, *q, token, kind)
        assert found == pytest.approx(reference.divergence(*p, *q, token, kind), rel=1e-9, abs=1e-12)
        assert found >= 0
    # Where the bound hardly matters l is ill-conditioned, what it leads to is not.
    assert mentored_divergence(divergence, p, q, token, bound) == pytest.approx(
        mentored_divergence(reference, p, q, token, bound), rel=1e-4, abs=1e-5
    )


def mentored_divergence(implementation: ModuleType, p: Law, q: DraftLaw, token: int, bound: float) -> float:
    """KL(p || pi) of the law that `implementation` finds."""
    return float(reference.relative(*mentored_law(implementation, p, q, token, bound)).sum())


def mentored_law(
    implementation: ModuleType, p: Law, q: DraftLaw, token: int, bound: float
) -> tuple[np.ndarray, np.ndarray]:
    """p and the pi that `implementation` finds, over the tokens that p or q holds."""
    low, b = implementation.mentor(*p, *q, token, bound)
    x, y = reference.aligned(*p, *q, token)
    x, y = x / x.sum(), y / y.sum()
    return x, np.maximum(np.minimum(y, x / low), x / b)


@settings(max_examples=60, deadline=None)
@given(cases(), st.sampled_from([0.0, 1e-4, 0.01, 0.1, 1.0]))
def test_mentored_laws_are_laws_within_their_bound(case: tuple[Law, DraftLaw, int], bound: float) -> None:
    p, q, token = case
    for implementation in (divergence, reference):
        low, b = implementation.mentor(*p, *q, token, bound)
        x, pi = mentored_law(implementation, p, q, token, bound)
        assert 0 < low <= 1 <= b
        assert pi.sum() == pytest.approx(1.0, abs=1e-5)
        assert reference.relative(x, pi).sum() <= bound + 1e-6
        assert not pi[x == 0].any()


@settings(max_examples=50, deadline=None)
@given(cases())
def test_sparse_laws_are_measured_as_dense_ones(case: tuple[Law, DraftLaw, int]) -> None:
    p, q, token = case

    def dense(ids: Int32Array | None, probs: Float32Array | None) -> tuple[None, Float32Array]:
        out = np.zeros(600, np.float32)
        if probs is None:
            out[token] = 1.0
        else:
            out[np.arange(len(probs)) if ids is None else ids] = probs
        return None, out

    for kind in KINDS:
        found = divergence.divergence(*p, *q, token, kind)
        assert found == divergence.divergence(*dense(*p), *dense(*q), token, kind)
    assert divergence.mentor(*p, *q, token, 0.1) == divergence.mentor(*dense(*p), *dense(*q), token, 0.1)


@BOTH
def test_known_values(implementation: ModuleType) -> None:
    for p, q in [(P3, Q3), (P4, Q4), (Q4, P4), (P3, P3)]:
        a, b = distribution(p), distribution(q, sparse=True)
        expected = {
            "kl": exact_chain.kullback_leibler(p, q),
            "js": exact_chain.jensen_shannon(p, q),
            "tv": float(exact_chain.total_variation(p, q)),
        }
        for kind, value in expected.items():
            found = implementation.divergence(None, a.probs, b.ids, b.probs, 0, kind)
            assert found == pytest.approx(value, abs=1e-6)
    assert (
        implementation.divergence(None, distribution(Q4).probs, None, distribution(P4).probs, 0, "kl")
        == math.inf
    )
    one = np.ones(1, np.float32)
    apart = [np.array([i], np.int32) for i in (3, 8)]
    assert implementation.divergence(apart[0], one, apart[1], one, 0, "js") == pytest.approx(math.log(2))
    assert implementation.divergence(apart[0], one, None, None, 3, "js") == 0
    assert implementation.divergence(apart[0], one, None, None, 8, "tv") == 1


@BOTH
@pytest.mark.parametrize(("bound", "low", "b"), [(0.00621126, 0.9, 1.125), (0.03226926, 0.8, 4 / 3)])
def test_mentor_on_p3(implementation: ModuleType, bound: float, low: float, b: float) -> None:
    found = implementation.mentor(None, distribution(P3).probs, None, distribution(Q3).probs, 0, bound)
    assert found == pytest.approx((low, b), rel=1e-5)


@BOTH
def test_the_ends_of_mentoring(implementation: ModuleType) -> None:
    p, q = distribution(P3).probs, distribution(Q3).probs
    assert implementation.mentor(None, p, None, q, 0, 0.0) == pytest.approx((1.0, 1.0), abs=1e-3)
    low, _ = implementation.mentor(None, p, None, q, 0, 10.0)
    assert low < 1e-29  # KL(p || q) is smaller: everything is accepted
    low, b = implementation.mentor(None, p, None, None, 1, 1.0)
    assert p[1] / low + (1 - p[1]) / b == pytest.approx(1.0, abs=1e-6)  # q is one-hot
    one = np.ones(1, np.float32)
    ids = [np.array([i], np.int32) for i in (3, 8)]
    low, b = implementation.mentor(ids[0], one, ids[1], one, 0, 0.5)
    assert low < 1e-29
    assert b == pytest.approx(1.0)  # nothing of q lies on p: nothing can be given


def test_whole_vocabulary() -> None:
    random = np.random.default_rng(3)
    p, q = (random.dirichlet(np.full(151_936, 0.05)).astype(np.float32) for _ in range(2))
    for kind in KINDS:
        expected = reference.divergence(None, p, None, q, 0, kind)
        assert divergence.divergence(None, p, None, q, 0, kind) == pytest.approx(expected, rel=1e-9)
    low, b = divergence.mentor(None, p, None, q, 0, 0.1)
    pi = np.maximum(np.minimum(q, p / low), p / b).astype(np.float64)
    assert pi.sum() == pytest.approx(1.0, abs=1e-4)
    assert reference.relative(p.astype(np.float64), pi).sum() == pytest.approx(0.1, abs=1e-4)


def test_unknown_kinds_are_refused() -> None:
    one = np.ones(1, np.float32)
    with pytest.raises(KeyError):
        divergence.divergence(None, one, None, one, 0, "hellinger")


def test_threads_do_not_share_state() -> None:
    random = np.random.default_rng(0)
    p, q = (random.dirichlet(np.ones(3000)).astype(np.float32) for _ in range(2))
    bounds = np.linspace(0.001, 0.5, 60).tolist()
    expected = [divergence.mentor(None, p, None, q, 0, bound) for bound in bounds]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda bound: divergence.mentor(None, p, None, q, 0, bound), bounds)) == expected
