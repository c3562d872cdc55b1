"""Drafts from a prediction: followed while the answer follows it, left where it deviates, and found again."""

from __future__ import annotations

import pytest

from lucebox import drafters
from lucebox.core import Draft, Verdict
from lucebox.drafters.base import Drafter, Observation
from lucebox.errors import ConfigError
from tests.support.drafter_laws import draft_request
from tests.support.drafting import drafter_context

PROMPT = [100, 101, 102]
PREDICTION = list(range(40))


def make(options: str = "") -> Drafter:
    return drafters.create(f"prediction{options}", drafter_context(200))


def decode(
    drafter: Drafter, answer: list[int], prediction: list[int] = PREDICTION, n_max: int = 8
) -> list[tuple[list[int], int]]:
    """What is drafted, and accepted of it, until the answer stands, as a target would that gives `answer`."""
    rounds = []
    n = 0
    while n < len(answer):
        request = draft_request([*PROMPT, *answer[:n]], n_max, prediction=prediction)
        (draft,) = drafter.propose([request])
        tokens = draft.tokens.tolist()
        n_accepted = 0
        while (
            n_accepted < len(tokens) and tokens[n_accepted : n_accepted + 1] == answer[n + n_accepted :][:1]
        ):
            n_accepted += 1
        rounds.append((tokens, n_accepted))
        n += n_accepted + 1
    return rounds


def test_a_perfect_prediction_is_followed_to_its_end() -> None:
    rounds = decode(make(), PREDICTION)
    assert [n for _, n in rounds] == [8, 8, 8, 8, 4]
    assert rounds[0][0] == PREDICTION[:8]
    assert rounds[-1][0] == PREDICTION[36:]


@pytest.mark.parametrize(
    ("answer", "n_rounds"),
    [
        ([*range(10), 150, *range(11, 40)], 7),  # one token replaced
        ([*range(10), 150, 151, 152, *range(10, 40)], 9),  # some inserted
        ([*range(10), *range(14, 40)], 5),  # some left out
        ([*range(10), *range(25, 40)], 6),  # many left out: three tokens must agree
    ],
)
def test_it_goes_on_behind_an_edit(answer: list[int], n_rounds: int) -> None:
    rounds = decode(make(), answer)
    assert len(rounds) == n_rounds
    assert sum(n for _, n in rounds) + n_rounds >= len(answer)


def test_nothing_is_drafted_where_the_answer_is_somewhere_else() -> None:
    rounds = decode(make(), [0, 1, *range(150, 190)])
    assert sum(len(tokens) for tokens, _ in rounds) == 8
    assert [tokens for tokens, _ in rounds[1:]] == [[]] * (len(rounds) - 1)


def test_nothing_without_a_prediction_or_behind_its_end() -> None:
    assert decode(make(), [1, 2], prediction=[]) == [([], 0)] * 2
    assert decode(make(), [1, 2, 3, 4], prediction=[1]) == [([1], 1), ([], 0), ([], 0)]


def test_a_far_place_takes_more_than_one_token() -> None:
    prediction = [*range(30), 50, 51, 52, 53, 54, 55]
    answer = [0, 1, 50, 51, 52, 53, 54, 55]
    assert [tokens for tokens, _ in decode(make(), answer, prediction, 3)] == [
        [0, 1, 2],
        [],
        [],
        [53, 54, 55],
    ]
    assert [tokens for tokens, _ in decode(make(":n_match=1"), answer, prediction, 3)] == [
        [0, 1, 2],
        [51, 52, 53],
        [55],
    ]


def test_repeated_lines_are_told_apart_by_what_stands_before_them() -> None:
    line = [60, 61, 62]
    prediction = [1, *line, 2, *line, 3, *line, 4, 5]
    answer = [1, *line, 9, 2, *line, 3, *line, 4, 5]
    rounds = decode(make(), answer, prediction, 4)
    assert all(n == len(tokens) for tokens, n in rounds[2:])


def test_the_first_round_seen_tells_where_the_answer_begins() -> None:
    drafter = make()
    text = [*PROMPT, 0, 1, 2]
    for n_prefix in range(3, 5):  # plain rounds, of which the controller wanted no draft
        verdict = Verdict((), text[n_prefix], 0)
        drafter.observe(Observation(0, text[: n_prefix + 1], n_prefix, Draft.empty(), verdict, []))
    (draft,) = drafter.propose([draft_request(text, 2, prediction=PREDICTION)])
    assert draft.tokens.tolist() == [3, 4]


def test_guessed_tokens_in_front_are_followed_for_this_round_only() -> None:
    drafter = make()
    (draft,) = drafter.propose([draft_request([*PROMPT, 0, 1, 2], 2, prediction=PREDICTION, n_before=3)])
    assert draft.tokens.tolist() == [3, 4]
    (draft,) = drafter.propose([draft_request([*PROMPT, 0], 2, prediction=PREDICTION)])
    assert draft.tokens.tolist() == [1, 2]


def test_n_match_has_bounds() -> None:
    for options in (":n_match=0", ":n_match=33"):
        with pytest.raises(ConfigError, match="n_match"):
            make(options)
