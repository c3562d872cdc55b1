"""What may be risked: time, in milliseconds, that guessing may lose against plain decoding."""

from __future__ import annotations

from dataclasses import dataclass

START_TOKENS = 10.0  # plain tokens' worth of time that may be lost before anything was decoded
CAP_TOKENS = 24.0  # no more is saved up: what one text won is not for the next one to lose
CAPITAL_TOKENS = 4.0  # plain tokens' worth of investments that may fail before that ends them
CAPITAL_SHARE = 0.5  # of epsilon, for investments


@dataclass(slots=True)
class Ledger:
    """Keeps elapsed <= (1 + epsilon) * (prompts + tokens * plain) + a constant, over the engine's lifetime.

    What guessing saves may be spent, up to a cap. A balance below zero ends all guessing until the share
    `epsilon` of the time that goes by has paid for it. Catching up on a prompt is an investment, paid back
    over an answer; capital below zero, from those that failed, ends further ones in the same way.
    """

    epsilon: float
    balance_ms: float = 0.0
    capital_ms: float = 0.0
    _is_open: bool = False

    def open(self, plain_ms: float) -> None:
        """Knows from now on what a plain token takes."""
        if not self._is_open and plain_ms > 0.0:
            self._is_open = True
            self.balance_ms += START_TOKENS * plain_ms
            self.capital_ms += CAPITAL_TOKENS * plain_ms

    def pass_time(self, ms: float, plain_ms: float) -> None:
        """`ms` that a user waits anyway."""
        self._add(self.epsilon * ms, plain_ms)
        most_ms = max(self.capital_ms, CAPITAL_TOKENS * plain_ms)
        self.capital_ms = min(most_ms, self.capital_ms + CAPITAL_SHARE * self.epsilon * ms)

    def write_off(self, ms: float) -> None:
        """An investment that did not pay, or not all of it."""
        self.capital_ms -= ms

    def book(self, lost_ms: float, plain_ms: float) -> None:
        """A round that took so much longer than its tokens do plainly; a gain is negative."""
        self._add(-lost_ms, plain_ms)

    def _add(self, ms: float, plain_ms: float) -> None:
        cap_ms = CAP_TOKENS * plain_ms
        self.balance_ms = max(-cap_ms, min(max(cap_ms, self.balance_ms), self.balance_ms + ms))


@dataclass(slots=True)
class Patience:
    """When a drafter that did not pay is tried again: after twice as many tokens as the last time."""

    n_rest_first: int = 32
    n_rest_most: int = 1024
    is_trying: bool = False
    _n_rest: int = 32
    _until: int = 0

    def allows(self, n_tokens: int) -> bool:
        """Whether it may be tried when `n_tokens` were decoded in all."""
        return self.is_trying or n_tokens >= self._until

    def begin(self) -> None:
        self.is_trying = True

    def fail(self, n_tokens: int) -> None:
        """A trial ended with nothing gained."""
        if self.is_trying:
            self.is_trying = False
            self._until = n_tokens + self._n_rest
            self._n_rest = min(self.n_rest_most, 2 * self._n_rest)

    def succeed(self) -> None:
        self.is_trying = False
        self._n_rest = self.n_rest_first
        self._until = 0
