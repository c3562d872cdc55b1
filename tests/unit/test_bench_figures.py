"""Ratios and medians, from samples whose times are known."""

from __future__ import annotations

import pytest

from lucebox.bench.arms import PLAIN, Arm, parse
from lucebox.bench.figures import Figures, comparable_ms, figures, first_difference
from lucebox.bench.spec import Sample
from lucebox.engine.timings import Timings
from tests.support.bench_engine import PROMPT_MS, drafted

FAST, SLOW, AUTO = parse("fixed:n=3"), parse("fixed:n=1"), parse("auto")
ARMS = (PLAIN, FAST, SLOW, AUTO)


def sample(
    arm: Arm,
    round_: int,
    decode_ms: float,
    *,
    case: str = "a",
    n_tokens: int = 11,
    tokens: tuple[int, ...] | None = None,
    guessed: Timings = Timings(),  # noqa: B008 (frozen)
    problem: str | None = None,
) -> Sample:
    timings = guessed + Timings(
        prompt_n=5, prompt_ms=PROMPT_MS, predicted_n=n_tokens, predicted_ms=decode_ms, draft_ms=20.0
    )
    tokens = tuple(range(n_tokens)) if tokens is None else tokens
    return Sample("w", case, arm.name, round_, PROMPT_MS + decode_ms, timings, tokens, problem)


def of(samples: list[Sample], *, is_greedy: bool = True) -> dict[str, Figures]:
    return {line.arm: line for line in figures(samples, ARMS, is_greedy=is_greedy)}


def test_ratios_are_medians_over_rounds_of_pairs() -> None:
    # The machine slows down from round to round: only pairs tell.
    samples = []
    for round_, slowness in ((0, 9.0), (1, 1.0), (2, 2.0), (3, 5.0)):
        for arm, ms in ((PLAIN, 900.0), (FAST, 400.0), (SLOW, 1400.0), (AUTO, 525.0)):
            samples.append(sample(arm, round_, slowness * (ms + PROMPT_MS) - PROMPT_MS))
    found = of(samples)
    assert found["plain"].speedup == pytest.approx(1.0)
    assert found[FAST.name].speedup == pytest.approx(2.0)
    assert found[SLOW.name].speedup == pytest.approx(1000 / 1500)
    assert found["auto"].speedup == pytest.approx(1.6)
    assert {line.best_fixed for line in found.values()} == {FAST.name}
    assert found["auto"].ratio_to_best_fixed == pytest.approx(500 / 625)
    assert found["auto"].regret == pytest.approx(0.2)
    assert found["auto"].wall_ms == pytest.approx(2 * 625.0)


def test_the_first_round_is_told_apart() -> None:
    samples = [sample(PLAIN, r, 900.0) for r in range(3)]
    samples += [sample(AUTO, 0, 3900.0), sample(AUTO, 1, 400.0), sample(AUTO, 2, 400.0)]
    line = of(samples)["auto"]
    assert line.first_speedup == pytest.approx(0.25)
    assert line.speedup == pytest.approx(2.0)
    assert line.n_samples == 2


def test_cases_of_a_round_are_summed_up() -> None:
    samples = [sample(PLAIN, 1, 900.0), sample(PLAIN, 1, 2900.0, case="b")]
    samples += [sample(FAST, 1, 1900.0), sample(FAST, 1, 900.0, case="b")]
    assert of(samples)[FAST.name].speedup == pytest.approx(4000 / 3000)


def test_plain_decoding_is_the_best_where_nothing_is_faster() -> None:
    samples = [sample(PLAIN, 1, 900.0), sample(SLOW, 1, 1900.0), sample(AUTO, 1, 1150.0)]
    found = of(samples)
    assert found["auto"].best_fixed == "plain"
    assert found["auto"].regret == pytest.approx(0.2)


def test_answers_of_other_length_are_scaled_behind_the_first_token() -> None:
    plain = sample(PLAIN, 1, 1000.0, n_tokens=11)
    longer = sample(FAST, 1, 1000.0, n_tokens=21)
    assert comparable_ms(plain, plain) == pytest.approx(plain.wall_ms)
    assert comparable_ms(longer, plain) == pytest.approx(PROMPT_MS + 500.0)
    assert comparable_ms(sample(FAST, 1, 0.0, n_tokens=1), plain) == PROMPT_MS


def test_statistics_of_guessing() -> None:
    samples = [sample(PLAIN, 1, 900.0), sample(PLAIN, 2, 900.0)]
    samples.append(sample(FAST, 1, 900.0, guessed=drafted(4, 3, (4, 2, 1))))
    samples.append(sample(FAST, 2, 900.0, guessed=drafted(6, 3, (3, 2, 0))))
    line = of(samples)[FAST.name]
    assert line.acceptance_rate == pytest.approx(12 / 30)
    assert line.mean_acceptance_length == pytest.approx(1 + 12 / 10)
    assert line.per_position_acceptance == pytest.approx([0.7, 0.4, 0.1])
    assert line.draft_share == pytest.approx(40 / 2000)


def test_texts_are_compared_with_plain_decodings() -> None:
    samples = [sample(PLAIN, r, 900.0) for r in (1, 2, 3)]
    others = (tuple(range(11)), (0, 1, 2, 9), (0, 1, 2, 3, 4))
    samples += [sample(FAST, r, 900.0, tokens=tokens) for r, tokens in zip((1, 2, 3), others, strict=True)]
    line = of(samples)[FAST.name]
    assert (line.n_same_text, line.first_difference) == (1, 3)
    assert first_difference(samples[-1], samples[2]) == 5
    sampled = of(samples, is_greedy=False)[FAST.name]
    assert (sampled.n_same_text, sampled.first_difference) == (None, None)


def test_checks_are_collected() -> None:
    samples = [sample(PLAIN, r, 900.0, problem=problem) for r, problem in ((1, ""), (2, "2 lines wrong"))]
    assert of(samples)["plain"].problems == ["2 lines wrong"]
    assert of([sample(PLAIN, 1, 900.0)])["plain"].problems is None


def test_what_was_cut_short_counts_as_far_as_it_got() -> None:
    assert of([]) == {}
    assert of([sample(PLAIN, 0, 900.0), sample(FAST, 0, 900.0)]) == {}
    samples = [sample(PLAIN, 1, 900.0), sample(FAST, 1, 400.0), sample(PLAIN, 1, 900.0, case="b")]
    samples += [sample(AUTO, 1, 900.0, case="b")]  # the best fixed arm has not come to case b
    found = of(samples)
    assert list(found) == ["plain", FAST.name, "auto"]
    assert found["auto"].first_speedup is None
    assert found["auto"].ratio_to_best_fixed == pytest.approx(0.5)
