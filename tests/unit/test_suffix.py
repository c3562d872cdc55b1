"""The suffix drafter: what it matches, how far it goes, and what it remembers of earlier requests."""

from __future__ import annotations

import random
import time

import pytest

from lucebox import drafters
from lucebox.drafters import suffix as module
from lucebox.drafters.suffix import N_PROMPT_KEPT, SuffixDrafter
from lucebox.errors import ConfigError
from tests.support.drafter_laws import draft_request
from tests.support.drafting import drafter_context

N_VOCAB = 50_000


def make(options: str = "") -> SuffixDrafter:
    drafter = drafters.create(f"suffix{options}", drafter_context(N_VOCAB))
    assert isinstance(drafter, SuffixDrafter)
    return drafter


def drafted(drafter: SuffixDrafter, text: list[int], n_max: int = 8, **options: int) -> list[int]:
    (draft,) = drafter.propose([draft_request(text, n_max, **options)])  # type: ignore[arg-type]
    assert draft.is_chain
    assert list(draft.q) == [None] * len(draft)
    return draft.tokens.tolist()


def some_text(n: int, seed: int = 1) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(N_VOCAB) for _ in range(n)]


def test_nothing_without_a_match() -> None:
    assert drafted(make(), some_text(200)) == []
    assert drafted(make(), [1, 2, 3, 1]) == []  # one token is no match yet
    assert drafted(make(":n_min=1"), [1, 2, 3, 1]) == [2, 3]


def test_a_long_match_gives_a_long_draft() -> None:
    text = some_text(300)
    editing = [*text, 7, *text[:40]]
    assert drafted(make(), editing, 60) == text[40:100]
    assert len(drafted(make(), [*text, 7, *text[:3]], 60)) < 15


def test_after_a_deviation_it_finds_its_place_again() -> None:
    text = some_text(100)
    drafter = make()
    answer = [*text, 7]
    for token in text[:30]:
        answer.append(token)
        drafted(drafter, answer)
    answer.append(8)  # something else in place of text[30]
    assert drafted(drafter, answer) == []
    answer += text[31:33]
    assert drafted(drafter, answer)[:2] == text[33:35]


def test_p_min_bounds_the_chance_of_the_whole_draft() -> None:
    text = some_text(300)
    editing = [*text, 7, *text[:8]]
    lengths = [len(drafted(make(f":p_min={p}"), editing, 100)) for p in (0.9, 0.5, 0.2, 0.05, 0.0)]
    assert lengths == sorted(set(lengths))
    assert lengths[-1] == 100


def test_earlier_requests_are_remembered_with_the_end_of_their_prompts() -> None:
    drafter = make()
    prompt, answer = some_text(200, 1), some_text(40, 2)
    drafter.remember([*prompt, *answer], len(prompt))
    assert drafted(drafter, prompt, 30) == answer[:30]  # the same question again
    assert drafted(drafter, [*some_text(50, 3), *answer[:20]], 30) == answer[20:]
    assert drafted(drafter, [*some_text(50, 3), *prompt[:20]], 30) == []  # prompts are not answers
    assert drafter.memory.n_tokens == N_PROMPT_KEPT + len(answer) + 1


def test_a_request_without_an_answer_teaches_nothing() -> None:
    drafter = make()
    drafter.remember(some_text(20), 20)
    assert drafter.memory.n_tokens == 0


def test_of_two_places_the_one_that_promises_more_is_taken() -> None:
    drafter = make()
    common = some_text(20)
    drafter.remember([1, *common, 5, 6, 7], 1)
    assert drafted(drafter, [*common[-3:], 9, 9, *common], 3) == [5, 6, 7]  # 20 tokens there, 3 here
    assert drafted(make(), [*common[-3:], 9, 9, *common], 1) == [9]


def test_memory_is_bounded_and_forgets_the_oldest() -> None:
    drafter = make(":memory_mib=1")
    answers = [some_text(200, seed) for seed in range(200)]
    peak = 0
    for answer in answers:
        drafter.remember([0, *answer], 1)
        peak = max(peak, drafter.memory.n_bytes)
    assert 2**19 < peak <= 2**20
    assert drafted(drafter, answers[-1][:20]) == answers[-1][20:28]
    assert drafted(drafter, answers[0][:20]) == []
    known = [answer for answer in answers if drafted(drafter, answer[:20])]
    assert known == answers[-len(known) :]
    assert len(known) >= 12


def test_an_answer_larger_than_the_memory_leaves_its_end() -> None:
    drafter = make(":memory_mib=1")
    answer = some_text(100_000)
    drafter.remember([0, *answer], 1)
    assert drafter.memory.n_bytes <= 2**20
    assert drafted(drafter, answer[-40:-20]) == answer[-20:-12]


def test_guessed_tokens_in_front_are_matched_but_not_learned() -> None:
    text = some_text(50)
    drafter = make()
    assert drafted(drafter, [*text, 7, *text[10:14]], 3, n_before=4) == text[14:17]
    assert drafted(drafter, [*text, 7, *text[10:14]], 3, n_before=2) == text[14:17]
    assert drafted(drafter, [*text, 7, 8, *text[20:24]], 3) == text[24:27]
    assert drafted(drafter, [*text, 7, 8, *text[20:24], 7, text[10]], 3) == []


def test_a_step_is_cheap_in_a_long_context() -> None:
    """A few microseconds are measured; the bound leaves room for a busy machine."""
    drafter = make()
    text = [*some_text(4000), *some_text(4000)]
    drafted(drafter, text)
    times_ms = []
    for token in some_text(50, 3):
        text.append(token)
        request = draft_request(text, 16)
        started_s = time.perf_counter()
        drafter.propose([request])
        times_ms.append(1000.0 * (time.perf_counter() - started_s))
    assert sorted(times_ms)[len(times_ms) // 2] < 1.0


@pytest.mark.parametrize(
    "options", [":n_min=0", ":p_min=-0.1", ":p_min=1.5", ":memory_mib=0", ":memory_mib=1000000"]
)
def test_options_out_of_range_are_refused(options: str) -> None:
    with pytest.raises(ConfigError, match=options[1:].partition("=")[0]):
        make(options)


def test_the_twin_serves_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    from lucebox.drafters import reference

    text = some_text(60)
    expected = drafted(make(), [*text, 7, *text[:10]])
    monkeypatch.setattr(module, "suffix", reference)
    drafter = make(":memory_mib=1")
    assert drafted(drafter, [*text, 7, *text[:10]]) == expected
    for seed in range(20):
        drafter.remember(some_text(400, seed), 1)
    assert drafter.memory.n_bytes <= 2**20
