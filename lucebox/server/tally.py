"""What a server has done since it started, as sums that never fall: Tally. For the loop's thread alone."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from lucebox.engine.messages import StepEvent
from lucebox.engine.timings import DraftedRound

# Upper bounds in seconds, from a tiny model's token to a long answer on a slow device.
LATENCY_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
DURATION_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)


class Histogram:
    """How many observations were at most each of `bounds`, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.total = 0.0
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, value: float, n: int = 1) -> None:
        """`n` observations of the same value."""
        self._counts[bisect_left(self.bounds, value)] += n
        self.total += n * value

    @property
    def cumulative(self) -> list[int]:
        """Per bound, and for infinity."""
        return list(accumulate(self._counts))


@dataclass(slots=True)
class Drafts:
    """What one drafter has guessed: rounds, tokens, those that were kept, and these by their depth."""

    n_rounds: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    accepted_per_position: Counter[int] = field(default_factory=Counter)

    def add(self, drafted: DraftedRound) -> None:
        self.n_rounds += 1
        self.n_drafted += drafted.n_drafted
        self.n_accepted += drafted.n_accepted
        self.accepted_per_position.update(range(drafted.n_accepted))


class Tally:
    """Sums over all requests. Counters are by what their names say: `requests` by route, method and status,
    `choices` by how they ended, `tokens` by where they came from, `drafts` by drafter."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.choices: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self.drafts: dict[str, Drafts] = {}
        self.n_prompt = 0
        self.n_cached = 0
        self.n_texts = 0  # embedded
        self.queue_s = Histogram(DURATION_S)
        self.first_token_s = Histogram(DURATION_S)
        self.inter_token_s = Histogram(LATENCY_S)
        self.choice_s = Histogram(DURATION_S)

    def meter(self) -> Meter:
        """For one generation that begins now."""
        return Meter(self)

    def note_texts(self, n_texts: int, n_tokens: int) -> None:
        """Texts of `n_tokens` in all were embedded."""
        self.n_texts += n_texts
        self.n_prompt += n_tokens


class Meter:
    """Notes what comes of one generation, as it comes."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._start_s = time.monotonic()
        self._first_s: dict[int, float] = {}  # when choices had their first token
        self._last_s: dict[int, float] = {}  # and the last one
        self._n_prompt: dict[int, int] = {}  # tokens of prompts that are counted, by choice

    def note(self, index: int, event: StepEvent, n_prompt: int) -> None:
        """`event` came for choice `index`, of a prompt of `n_prompt` tokens."""
        tally, now_s = self._tally, time.monotonic()
        n_tokens = len(event.tokens)
        if index not in self._n_prompt and (n_tokens or event.finish is not None):
            self._n_prompt[index] = n_prompt
            tally.n_prompt += n_prompt
        if n_tokens:
            last_s = self._last_s.get(index)
            if last_s is None:
                tally.first_token_s.observe(now_s - self._start_s)
                self._first_s[index] = now_s
            else:
                tally.inter_token_s.observe((now_s - last_s) / n_tokens, n_tokens)
            self._last_s[index] = now_s
        for origin in event.origins:
            tally.tokens[origin.value] += 1
        for drafted in event.drafted:
            tally.drafts.setdefault(drafted.drafter, Drafts()).add(drafted)

    def end(self, index: int, reason: str, event: StepEvent | None = None) -> None:
        """Choice `index` ended for `reason`, with `event` if its engine has said so."""
        now_s = time.monotonic()
        self._tally.choices[reason] += 1
        self._tally.choice_s.observe(now_s - self._start_s)
        if event is not None and event.finish is not None:
            timings = event.finish.timings
            # An engine that took over from one that died may have known it again.
            self._tally.n_cached += min(timings.cache_n, self._n_prompt.get(index, 0))
            waited_s = self._first_s.get(index, now_s) - self._start_s - timings.prompt_ms / 1000.0
            self._tally.queue_s.observe(max(0.0, waited_s))
