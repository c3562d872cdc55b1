"""What one request has cost so far: marks of time, and what its rounds added up to."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from lucebox.engine.timings import DraftedRound, Timings


@dataclass(slots=True)
class Clock:
    """Marks are seconds of the monotonic clock, 0 before they are reached; the rest are sums over rounds."""

    arrived_s: float = field(default_factory=time.monotonic)
    started_s: float = 0.0
    prompt_done_s: float = 0.0
    draft_s: float = 0.0
    verify_ms: float = 0.0
    n_rounds: int = 0
    n_forced: int = 0
    n_overlapped: int = 0
    n_foreseen: int = 0
    hidden_ms: float = 0.0
    drafted: Timings = field(default_factory=Timings)

    def note(self, drafted: DraftedRound | None, verify_ms: float) -> None:
        """One round more; `drafted` is None for a plain one. The prompt's last forward verifies nothing."""
        self.n_rounds += 1
        if self.prompt_done_s:
            self.verify_ms += verify_ms
        if drafted is not None:
            self.drafted += drafted.timings()

    @property
    def prompt_ms(self) -> float:
        """What the prompt took; 0 before it is done."""
        return 1000.0 * (self.prompt_done_s - self.started_s) if self.prompt_done_s else 0.0

    def timings(self, now_s: float, *, n_prompt: int, n_predicted: int, n_cached: int = 0) -> Timings:
        """All of it, for a request of `n_prompt` tokens, `n_cached` of them known before, that has emitted
        `n_predicted`."""
        started_s = self.started_s or now_s
        prompt_done_s = self.prompt_done_s or now_s
        return self.drafted + Timings(
            cache_n=n_cached,
            prompt_n=n_prompt - n_cached,
            prompt_ms=1000.0 * (prompt_done_s - started_s),
            predicted_n=n_predicted,
            predicted_ms=1000.0 * (now_s - prompt_done_s),
            n_forced=self.n_forced,
            n_rounds=self.n_rounds,
            draft_ms=1000.0 * self.draft_s,
            verify_ms=self.verify_ms,
            n_overlapped=self.n_overlapped,
            n_foreseen=self.n_foreseen,
            hidden_ms=self.hidden_ms,
        )
