"""`greedy`: the argmax of each row, on chains and trees."""

from __future__ import annotations

from itertools import product

import numpy as np

from lucebox import acceptance
from lucebox.core import Distribution, Draft, DrawMode, Verdict
from lucebox.sampling.random import RoundRandom
from tests.support.laws import WatchedRows

GREEDY = acceptance.create("greedy")
RANDOM = RoundRandom(0, 0)


def dense(*probs: float) -> Distribution:
    return Distribution(len(probs), np.array(probs, np.float32))


def test_flags() -> None:
    assert (GREEDY.needs_q, GREEDY.supports_trees, GREEDY.draw_mode) == (False, True, DrawMode.ARGMAX)
    assert GREEDY.lossless
    assert GREEDY.temperature_0_only


def test_any_chain_says_what_plain_decoding_says() -> None:
    """The target's text is 1, 2, 0: whatever is drafted, the emitted tokens are a beginning of it."""
    rows = [dense(0.1, 0.6, 0.3), dense(0.2, 0.3, 0.5), dense(0.5, 0.4, 0.1)]
    for tokens in product(range(3), repeat=2):
        verdict = GREEDY.verify(Draft.chain(tokens, [None] * 2), rows, RANDOM)
        text = [*(tokens[i] for i in verdict.path), verdict.token]
        assert text == [1, 2, 0][: len(text)]
        assert verdict.row == len(verdict.path)
        n_agreed = next((i for i in range(2) if tokens[i] != (1, 2)[i]), 2)
        assert len(verdict.path) == n_agreed


def test_ties_go_to_the_lowest_id_on_both_forms_of_a_law() -> None:
    tied = dense(0.2, 0.4, 0.4)
    sparse = Distribution(3, np.array([0.5, 0.5], np.float32), np.array([1, 2], np.int32))
    for row in (tied, sparse):
        assert GREEDY.verify(Draft.empty(), [row], RANDOM).token == 1
        assert GREEDY.verify(Draft.chain([2], [None]), [row] * 2, RANDOM) == Verdict((), 1, 0)
        assert GREEDY.verify(Draft.chain([1], [None]), [row] * 2, RANDOM) == Verdict((0,), 1, 1)


def test_trees_are_walked_along_the_argmax() -> None:
    tree = Draft(np.array([1, 2, 1, 0], np.int32), np.array([0, 0, 2, 3], np.int32), [None] * 4)
    rows = WatchedRows([Distribution.one_hot(3, t) for t in (2, 0, 1, 2, 0)])
    assert GREEDY.verify(tree, rows, RANDOM) == Verdict((1, 2), 2, 3)
    assert rows.asked == {0, 2, 3}


def test_siblings_of_one_token_take_the_first() -> None:
    tree = Draft(np.array([2, 2], np.int32), np.array([0, 0], np.int32), [None] * 2)
    assert GREEDY.verify(tree, [Distribution.one_hot(3, 2)] * 3, RANDOM) == Verdict((0,), 2, 1)
