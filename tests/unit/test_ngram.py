"""Prompt lookup: what followed the last tokens when they last occurred."""

from __future__ import annotations

import pytest

from lucebox import drafters
from lucebox.drafters.base import Drafter
from lucebox.errors import ConfigError
from tests.support.drafter_laws import draft_request
from tests.support.drafting import drafter_context


def make(options: str = "") -> Drafter:
    return drafters.create(f"ngram{options}", drafter_context(64))


def drafted(text: list[int], n_max: int = 4, options: str = "") -> list[int]:
    (draft,) = make(options).propose([draft_request(text, n_max)])
    assert draft.is_chain
    assert list(draft.q) == [None] * len(draft)
    return draft.tokens.tolist()


def test_what_followed_the_last_time() -> None:
    assert drafted([1, 2, 7, 8, 1, 2, 9, 3, 1, 2]) == [9, 3, 1, 2]


def test_longer_matches_come_first() -> None:
    text = [5, 1, 2, 7, 0, 1, 2, 9, 0, 5, 1, 2]
    assert drafted(text, 1) == [7]
    assert drafted(text, 1, ":n=2") == [9]


@pytest.mark.parametrize("text", [[1], [1, 2, 3], [1, 2, 3, 9, 3]])
def test_nothing_without_a_match(text: list[int]) -> None:
    assert drafted(text) == []


def test_single_tokens_match_where_asked_for() -> None:
    assert drafted([1, 2, 3, 9, 3], options=":n=1,n_min=1") == [9, 3, 9, 3]


def test_a_loop_is_guessed_as_far_as_it_may_go() -> None:
    assert drafted([1, 2, 1, 2, 1, 2], 7) == [1, 2, 1, 2, 1, 2, 1]


def test_guessed_tokens_in_front_are_matched_but_not_remembered() -> None:
    drafter = make()
    text = [1, 2, 3, 4, 5, 9]
    (draft,) = drafter.propose([draft_request([*text, 2, 3], 2, n_before=2)])
    assert draft.tokens.tolist() == [4, 5]
    (draft,) = drafter.propose([draft_request([*text, 8, 2, 3], 2)])  # they were rejected
    assert draft.tokens.tolist() == [4, 5]
    (draft,) = drafter.propose([draft_request([*text, 8, 2, 3, 9, 2], 2)])
    assert draft.tokens.tolist() == []


def test_another_text_of_the_same_number_is_noticed() -> None:
    drafter = make()
    drafter.propose([draft_request([1, 2, 3, 1, 2])])
    (draft,) = drafter.propose([draft_request([4, 5, 6, 1, 2])])
    assert draft.tokens.tolist() == []


@pytest.mark.parametrize("options", [":n=1", ":n_min=0", ":n=2,n_min=3", ":n=17", ":n=1000000000"])
def test_lengths_that_make_no_sense_are_refused(options: str) -> None:
    with pytest.raises(ConfigError, match="n_min"):
        make(options)
