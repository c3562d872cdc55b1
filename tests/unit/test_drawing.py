"""How drafted tokens come out of laws, and which rows a tree has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from lucebox.core import Distribution, DrawMode
from lucebox.drafters.base import DraftRequest
from lucebox.drafters.drawing import Child, GrowingDraft, draw, draw_siblings, likeliest, without
from lucebox.sampling.draw import sample
from lucebox.sampling.gumbel import gumbel_argmax
from lucebox.sampling.random import Purpose, RoundRandom
from tests.support.enumerate import Law, distribution, law, one_hot

LAW = law("0.1", "0.4", 0, "0.3", "0.2")
WIDE = law("0.05", "0.1", "0.2", "0.25", "0.4")
RANDOM = RoundRandom(5, 100)
SPARSE = pytest.mark.parametrize("sparse", [False, True])


def siblings(
    n: int, mode: DrawMode, *, of: Law = LAW, random: RoundRandom = RANDOM, sparse: bool = False
) -> list[Child]:
    wide = distribution(WIDE)
    return draw_siblings(distribution(of, sparse=sparse), n, mode, random, 3, 2, lambda: wide)


@SPARSE
def test_likeliest(sparse: bool) -> None:
    assert likeliest(distribution(LAW, sparse=sparse), 3) == [1, 3, 4]
    assert likeliest(distribution(LAW, sparse=sparse), 9) == [1, 3, 4, 0]
    assert likeliest(distribution(law(1, 2, 2, 1), sparse=sparse), 3) == [1, 2, 0]


@SPARSE
def test_without(sparse: bool) -> None:
    left = without(distribution(LAW, sparse=sparse), 1)
    assert left is not None
    np.testing.assert_allclose(left.dense(), [1 / 6, 0, 0, 0.5, 1 / 3], rtol=1e-6)
    assert without(distribution(one_hot(5, 2), sparse=sparse), 2) is None


@SPARSE
@pytest.mark.parametrize("mode", DrawMode)
def test_an_only_child_is_the_first_of_siblings(mode: DrawMode, sparse: bool) -> None:
    one = distribution(LAW, sparse=sparse)
    for seed in range(20):
        random = RoundRandom(seed, 9)
        child = draw(one, mode, random, 3, 2)
        assert siblings(1, mode, random=random, sparse=sparse) == [child]
        token, q = siblings(3, mode, random=random, sparse=sparse)[0]
        assert (token, q) == child


@SPARSE
def test_argmax_takes_the_likeliest_without_laws(sparse: bool) -> None:
    assert siblings(3, DrawMode.ARGMAX, sparse=sparse) == [(1, None), (3, None), (4, None)]


@SPARSE
def test_samples_are_independent_and_keyed_by_sibling(sparse: bool) -> None:
    one = distribution(LAW, sparse=sparse)
    children = draw_siblings(one, 4, DrawMode.SAMPLE, RANDOM, 3, 2, lambda: one)
    expected = [sample(one, RANDOM.uniform(3, Purpose.DRAFT, i)) for i in range(4)]
    assert children == [(token, one) for token in expected]
    pairs = Counter(
        tuple(token for token, _ in siblings(2, DrawMode.SAMPLE, random=RoundRandom(seed, 0)))
        for seed in range(4000)
    )
    for (a, b), n in pairs.items():
        expected_share = float(LAW[a] * LAW[b])
        assert abs(n / 4000 - expected_share) < 4 * (expected_share / 4000) ** 0.5


@SPARSE
def test_without_replacement_says_what_each_was_drawn_from(sparse: bool) -> None:
    left: Distribution | None = distribution(LAW, sparse=sparse)
    children = siblings(9, DrawMode.WITHOUT_REPLACEMENT, sparse=sparse)
    assert sorted(token for token, _ in children) == [0, 1, 3, 4]  # all that are possible
    for i, (token, q) in enumerate(children):
        assert left is not None
        assert q is not None
        np.testing.assert_array_equal(q.dense(), left.dense())
        assert token == sample(left, RANDOM.uniform(3, Purpose.DRAFT, i))
        left = without(left, token)
    assert left is None


@SPARSE
def test_shared_noise_takes_the_next_best_of_the_same_noise(sparse: bool) -> None:
    children = siblings(3, DrawMode.SHARED_NOISE, sparse=sparse)
    assert all(q is None for _, q in children)
    banned: set[int] = set()
    for token, _ in children:
        rest = law(*(0 if t in banned else w for t, w in enumerate(LAW)))
        assert token == gumbel_argmax(distribution(rest), RANDOM.seed, RANDOM.position + 2)
        banned.add(token)
    assert len(banned) == 3


@SPARSE
@pytest.mark.parametrize("mode", DrawMode)
def test_where_a_law_leaves_no_choice_others_are_guessed_without_chance(mode: DrawMode, sparse: bool) -> None:
    """Temperature 0: the law's own token first, then the likeliest of the softmax."""
    assert siblings(3, mode, of=one_hot(5, 0), sparse=sparse) == [(0, None), (4, None), (3, None)]


def grown(
    shape: tuple[int, ...],
    n_max: int,
    mode: DrawMode = DrawMode.ARGMAX,
    *,
    of: Callable[[list[int]], Law] = lambda path: LAW,
    keep: Callable[[Distribution, int], bool] = lambda law, depth: True,
    stop_tokens: frozenset[int] = frozenset(),
    n_before: int = 0,
) -> GrowingDraft:
    request = DraftRequest(
        sequence=0,
        prefix=[7] * (100 + n_before),
        n_max=n_max,
        draw_mode=mode,
        sampler=None,  # type: ignore[arg-type]
        random=RANDOM,
        keep_drafting=keep,
        stop_tokens=stop_tokens,
        shape=shape,
        n_before=n_before,
    )
    growing = GrowingDraft(request, n_max)
    while not growing.is_done:
        laws = [distribution(of(growing.path(row))) for row in growing.frontier]
        growing.grow(laws, [lambda law=law: law for law in laws])  # type: ignore[misc]
    return growing


def test_a_shape_is_filled_by_depth() -> None:
    tree = grown((3, 2), 9)
    assert tree.parents == [0, 0, 0, 1, 1, 2, 2, 3, 3]
    assert tree.tokens == [1, 3, 4, 1, 3, 1, 3, 1, 3]
    assert tree.path(7) == [3, 3]


def test_behind_its_end_a_shape_goes_on_as_chains() -> None:
    assert grown((2,), 7).parents == [0, 0, 1, 2, 3, 4, 5]
    assert grown((), 3).parents == [0, 1, 2]


@pytest.mark.parametrize("n_max", range(1, 14))
def test_all_tokens_count(n_max: int) -> None:
    tree = grown((2, 1, 2), n_max)
    assert tree.parents == grown((2, 1, 2), 14).parents[:n_max]
    assert tree.draft().parents.dtype == np.int32


def test_branches_that_end_leave_their_room_unused() -> None:
    """What a branch grows to must not tell of tokens in another one."""
    ended = grown((2,), 6, stop_tokens=frozenset({1}))
    assert ended.parents == [0, 0, 2]  # token 1 ends a branch, and the one behind token 3, too
    assert ended.tokens == [1, 3, 1]
    whole = grown((2,), 6, stop_tokens=frozenset({2}))
    assert whole.parents == [0, 0, 1, 2, 3, 4]


def test_laws_decide_where_branches_end() -> None:
    asked: list[int] = []

    def keep(q: Distribution, depth: int) -> bool:
        asked.append(depth)
        return bool(q.probs.max() < 0.5)

    sure = law("0.6", "0.4", 0, 0, 0)
    tree = grown((2, 2), 6, of=lambda path: sure if path == [1] else LAW, keep=keep)
    assert tree.parents == [0, 0, 2, 2]
    assert asked == [0, 1, 1]


def test_siblings_run_out_with_the_law() -> None:
    two = law("0.5", "0.5", 0, 0, 0)
    tree = grown((4, 1), 8, DrawMode.WITHOUT_REPLACEMENT, of=lambda path: two)
    assert tree.parents == [0, 0, 1, 2]


@pytest.mark.parametrize("n_before", [0, 3])
def test_draws_are_keyed_by_row_and_sibling(n_before: int) -> None:
    """On a chain the row is the depth; behind tokens of another drafter, both go on from there."""
    one = distribution(LAW)
    chain = grown((), 4, DrawMode.SAMPLE, n_before=n_before)
    assert chain.tokens == [sample(one, RANDOM.uniform(n_before + i, Purpose.DRAFT)) for i in range(4)]
    tree = grown((2, 2), 6, DrawMode.SAMPLE, n_before=n_before)
    keys = [(row, i) for row in (0, 1, 2) for i in (0, 1)]
    assert tree.tokens == [sample(one, RANDOM.uniform(n_before + r, Purpose.DRAFT, i)) for r, i in keys]
    noise = grown((), 2, DrawMode.SHARED_NOISE, n_before=n_before)
    places = [RANDOM.position + n_before + i for i in range(2)]
    assert noise.tokens == [gumbel_argmax(one, RANDOM.seed, place) for place in places]
