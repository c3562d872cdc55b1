"""What an answer cost and what guessing brought, for people to read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lucebox.engine.timings import Timings

MAX_LENGTHS = 8
MAX_POSITIONS = 16  # looked-up guesses may be many times as long


def summary(timings: Timings) -> str:
    """A few lines, of a name and figures each."""
    return "\n".join(f"{name:<11} {figures}" for name, figures in _lines(timings))


def _lines(timings: Timings) -> Iterator[tuple[str, str]]:
    known = f", {timings.cache_n} more known from before" if timings.cache_n else ""
    yield "prompt", _speed(timings.prompt_n, timings.prompt_ms, timings.prompt_per_second) + known
    yield "answer", _speed(timings.predicted_n, timings.predicted_ms, timings.predicted_per_second)
    drafting = f"{timings.draft_ms:.0f} ms drafting ({timings.draft_share:.0%})"
    time = f"{drafting}, {timings.verify_ms:.0f} ms verifying"
    if timings.draft_n:
        yield from _guessing(timings)
        yield "time", time
    else:
        yield "guesses", "none"
        if timings.draft_ms:  # somebody looked for some
            yield "time", time


def _guessing(timings: Timings) -> Iterator[tuple[str, str]]:
    yield "guesses", _accepted(timings.draft_n_accepted, timings.draft_n)
    yield (
        "rounds",
        f"{timings.n_drafted_rounds} of {timings.n_rounds} with guesses, "
        f"{timings.mean_acceptance_length:.2f} tokens each (mean acceptance length)",
    )
    yield "lengths", _lengths(timings.drafted_per_position)
    shares = [f"{share:.0%}" for share in timings.per_position_acceptance]
    more = ["…"] if len(shares) > MAX_POSITIONS else []
    yield "by position", " ".join([*shares[:MAX_POSITIONS], *more, "of these rounds"])
    if len(timings.drafters) > 1:
        parts = (
            f"{name} {_accepted(totals.n_accepted, totals.n_drafted)}"
            for name, totals in timings.drafters.items()
        )
        yield "drafters", "; ".join(parts)
    else:
        yield "drafter", next(iter(timings.drafters))


def _lengths(drafted_per_position: Sequence[int]) -> str:
    """How long drafts were, from how many were at least so long."""
    at_least = [*drafted_per_position, 0]
    exactly = [(i + 1, n - at_least[i + 1]) for i, n in enumerate(drafted_per_position)]
    shown = [f"{length} ({n}×)" for length, n in exactly if n]
    more = [f"… {exactly[-1][0]}"] if len(shown) > MAX_LENGTHS else []
    mean = sum(drafted_per_position) / drafted_per_position[0]
    return f"{mean:.1f} on average: " + ", ".join(shown[:MAX_LENGTHS] + more)


def _speed(n_tokens: int, ms: float, per_second: float) -> str:
    return f"{n_tokens} tokens in {ms:.0f} ms, {per_second:.1f} tokens/s"


def _accepted(n_accepted: int, n_drafted: int) -> str:
    return f"{n_accepted} of {n_drafted} accepted ({n_accepted / n_drafted:.0%})"
