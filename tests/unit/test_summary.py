"""What people read of an answer's cost."""

from __future__ import annotations

from lucebox.cli.summary import summary
from lucebox.engine.timings import DraftedRound, Timings

COST = Timings(
    prompt_n=30, prompt_ms=100, predicted_n=11, predicted_ms=400, n_rounds=6, draft_ms=50, verify_ms=320
)


def lines(timings: Timings) -> dict[str, str]:
    return {line[:12].strip(): line[12:] for line in summary(timings).splitlines()}


def test_one_drafter() -> None:
    drafted = DraftedRound("model", 4, 4, 4).timings() + DraftedRound("model", 2, 2, 1).timings()
    assert lines(COST + drafted) == {
        "prompt": "30 tokens in 100 ms, 300.0 tokens/s",
        "answer": "11 tokens in 400 ms, 27.5 tokens/s",
        "guesses": "5 of 6 accepted (83%)",
        "rounds": "2 of 6 with guesses, 3.50 tokens each (mean acceptance length)",
        "lengths": "3.0 on average: 2 (1×), 4 (1×)",
        "by position": "100% 50% 50% 50% of these rounds",
        "drafter": "model",
        "time": "50 ms drafting (10%), 320 ms verifying",
    }


def test_what_was_known_of_the_prompt() -> None:
    assert lines(COST + Timings(cache_n=24))["prompt"].endswith("tokens/s, 24 more known from before")


def test_several_drafters() -> None:
    drafted = DraftedRound("suffix", 4, 4, 0).timings() + DraftedRound("model", 2, 2, 2).timings()
    shown = lines(COST + drafted)
    assert shown["drafters"] == "suffix 0 of 4 accepted (0%); model 2 of 2 accepted (100%)"
    assert "drafter" not in shown


def test_long_drafts_stay_on_a_line() -> None:
    shown = lines(COST + DraftedRound("suffix", 60, 60, 60).timings())["by position"]
    assert shown.split() == [*["100%"] * 16, "…", "of", "these", "rounds"]


def test_an_answer_without_guesses() -> None:
    plain = Timings(prompt_n=30, prompt_ms=100, predicted_n=11, predicted_ms=400, n_rounds=11, verify_ms=380)
    assert list(lines(plain)) == ["prompt", "answer", "guesses"]
    assert lines(plain)["guesses"] == "none"


def test_time_spent_on_guesses_that_never_came_shows() -> None:
    assert lines(COST)["guesses"] == "none"
    assert lines(COST)["time"] == "50 ms drafting (10%), 320 ms verifying"
