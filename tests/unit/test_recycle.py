"""Token recycling: what it learns of the target's logits, and the chains and trees it makes of that."""

from __future__ import annotations

import numpy as np
import pytest

from lucebox import drafters
from lucebox.core import Draft, Verdict
from lucebox.drafters.base import Drafter, Observation
from lucebox.errors import ConfigError
from tests.support.drafter_laws import draft_request
from tests.support.drafting import drafter_context

N_VOCAB = 10


def make(options: str = "k=3,p_min=0.0") -> Drafter:
    return drafters.create(f"recycle:{options}", drafter_context(N_VOCAB))


def logits(*likeliest: int) -> np.ndarray:
    """The first is e times as likely as the second, and so on."""
    row = np.full(N_VOCAB, -20.0, np.float32)
    for rank, token in enumerate(likeliest):
        row[token] = -rank
    return row


def learn(drafter: Drafter, **successors: tuple[int, ...]) -> None:
    """A plain round behind each token, given as t1=(2, 3)."""
    for name, likeliest in successors.items():
        tokens = [0, int(name[1:]), likeliest[0]]
        verdict = Verdict((), likeliest[0], 0)
        drafter.observe(Observation(0, tokens, 2, Draft.empty(), verdict, [logits(*likeliest)]))


def tree(draft: Draft) -> list[tuple[int, int]]:
    assert list(draft.q) == [None] * len(draft)
    return list(zip(draft.parents.tolist(), draft.tokens.tolist(), strict=True))


def test_a_chain_of_the_likeliest() -> None:
    drafter = make()
    assert len(drafter.propose([draft_request([1])])[0]) == 0
    learn(drafter, t1=(2, 3), t2=(4, 1), t4=(1, 5))
    (draft,) = drafter.propose([draft_request([9, 1], 5)])
    assert draft.is_chain
    assert draft.tokens.tolist() == [2, 4, 1, 2, 4]
    (draft,) = drafter.propose([draft_request([9, 3], 5)])
    assert len(draft) == 0


def test_a_tree_of_the_shape_that_was_asked_for() -> None:
    drafter = make()
    learn(drafter, t1=(2, 3, 6), t2=(4, 1), t3=(5, 7), t4=(8, 9), t5=(1, 2))
    (draft,) = drafter.propose([draft_request([1], 20, shape=(2, 2))])
    assert tree(draft)[:6] == [(0, 2), (0, 3), (1, 4), (1, 1), (2, 5), (2, 7)]
    assert sorted(tree(draft)[6:9]) == [(3, 8), (4, 2), (5, 1)]  # one each behind the shape; 7 is unknown
    (draft,) = drafter.propose([draft_request([1], 4, shape=(2, 2))])
    assert tree(draft) == [(0, 2), (0, 3), (1, 4), (1, 1)]


def test_rejected_rows_teach_too_and_the_latest_look_counts() -> None:
    drafter = make()
    learn(drafter, t1=(7,))
    draft = Draft.chain([2, 3], [None, None])
    rows = [logits(2), logits(4), logits(5)]
    drafter.observe(Observation(0, [1, 2, 4], 1, draft, Verdict((0,), 4, 1), rows))
    (draft,) = drafter.propose([draft_request([1], 2)])
    assert draft.tokens.tolist() == [2, 4]
    (draft,) = drafter.propose([draft_request([3], 1)])
    assert draft.tokens.tolist() == [5]


def test_what_was_accepted_is_learned_first() -> None:
    drafter = make()
    n = 40
    tokens = [i % 9 for i in range(n)]
    draft = Draft(
        np.array([*tokens, 9], np.int32), np.array([*[0] * n, n], np.int32), [None] * (n + 1)
    )  # only the last two lie on the path
    rows = [logits(1)] * n + [logits(3), logits(6)]
    drafter.observe(Observation(0, [9, tokens[-1], 9, 6], 1, draft, Verdict((n - 1, n), 6, n + 1), rows))
    (draft,) = drafter.propose([draft_request([9], 1)])
    assert draft.tokens.tolist() == [6]


def test_unlikely_paths_end() -> None:
    drafter = make("k=3,p_min=0.3")
    learn(drafter, t1=(2, 3), t2=(4, 1), t4=(1, 5))
    chance = 1 / (1 + np.exp(-1) + np.exp(-20))  # of the first
    n = int(np.log(0.3) / np.log(chance))
    (draft,) = drafter.propose([draft_request([1], 9)])
    assert len(draft) == n
    (draft,) = drafter.propose([draft_request([1], 9, shape=(2,))])
    assert all(token != 3 for _, token in tree(draft))  # 0.27


def test_stop_tokens_end_their_branch_only() -> None:
    drafter = make()
    learn(drafter, t1=(2, 3), t2=(4,), t3=(5,), t5=(6,))
    (draft,) = drafter.propose([draft_request([1], 9, shape=(2,), stop_tokens=frozenset({2}))])
    assert tree(draft) == [(0, 2), (0, 3), (2, 5), (3, 6)]


def test_options_out_of_range_are_refused() -> None:
    for options in ("k=0", "k=65", "p_min=2.0"):
        with pytest.raises(ConfigError, match=options.partition("=")[0]):
            make(options)
    assert make("k=64")  # more than there are tokens
