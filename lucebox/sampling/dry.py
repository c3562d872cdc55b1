"""DRY, "don't repeat yourself": what would go on with a repetition becomes less likely, the longer it is.

As llama.cpp's sampler of that name, after text-generation-webui's by p-e-w.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from lucebox.core import Float32Array, Int32Array
from lucebox.sampling.kernels import filters
from lucebox.sampling.params import SamplingParams

INITIAL_CAPACITY = 1024
MAX_PENALTY = 1e30  # no exponent makes a law without a finite logit


class Repetitions:
    """The text so far, and the tokens that would repeat more of it.

    Where `dry_sequence_breakers` end in the text, whatever tokens they are spread over, nothing is repeated
    across, and the token there is never made less likely.
    """

    def __init__(
        self, params: SamplingParams, token_bytes: Callable[[int], bytes], tokens: Sequence[int]
    ) -> None:
        self._params = params
        self._token_bytes = token_bytes
        self._breakers = [s.encode("utf-8", "replace") for s in params.dry_sequence_breakers]
        self._n_tail_bytes = max((len(s) for s in self._breakers), default=1) - 1
        self._tail = b""  # as much of the end of the text as a breaker may begin in
        self._n = 0
        self._tokens = np.zeros(max(INITIAL_CAPACITY, len(tokens)), np.int32)
        self._breaks = np.zeros(len(self._tokens), np.bool_)
        self.append(tokens)

    def copy(self) -> Repetitions:
        """One that goes its own way from here on."""
        other = Repetitions(self._params, self._token_bytes, ())
        other._tail, other._n = self._tail, self._n
        other._tokens, other._breaks = self._tokens.copy(), self._breaks.copy()
        return other

    def append(self, tokens: Sequence[int]) -> None:
        n = self._n + len(tokens)
        if n > len(self._tokens):
            n_more = max(n - len(self._tokens), len(self._tokens))
            self._tokens = np.concatenate([self._tokens, np.zeros(n_more, np.int32)])
            self._breaks = np.concatenate([self._breaks, np.zeros(n_more, np.bool_)])
        self._tokens[self._n : n] = tokens
        self._breaks[self._n : n] = self._ends_of_breakers([self._token_bytes(int(t)) for t in tokens])
        self._n = n

    @contextmanager
    def extended(self, extra: Sequence[int]) -> Iterator[None]:
        """Within the block, `extra` stands behind the text."""
        n, tail = self._n, self._tail
        try:
            self.append(extra)
            yield
        finally:
            self._n, self._tail = n, tail

    def penalties(self) -> tuple[Int32Array, Float32Array]:
        """Distinct token ids, and what is to be taken off their logits.

        A token that followed an earlier occurrence of the last n tokens loses
        multiplier * base^(n - allowed_length), for the largest such n, if n is allowed_length or more.
        """
        p = self._params
        start = 0 if p.dry_penalty_last_n < 0 else max(0, self._n - p.dry_penalty_last_n)
        tokens, breaks = self._tokens[start : self._n], self._breaks[start : self._n]
        broken = np.flatnonzero(breaks)
        longest = len(tokens) - (int(broken[-1]) + 1 if len(broken) else 0)
        if longest < p.dry_allowed_length:
            return np.empty(0, np.int32), np.empty(0, np.float32)
        lengths = filters.repetitions(tokens, longest)
        at = np.flatnonzero((lengths >= p.dry_allowed_length) & ~breaks)
        ids, which = np.unique(tokens[at], return_inverse=True)
        most = np.zeros(len(ids), np.int32)
        np.maximum.at(most, which, lengths[at])
        with np.errstate(over="ignore"):
            powers = np.float64(p.dry_base) ** (most - p.dry_allowed_length)
            return ids, np.minimum(p.dry_multiplier * powers, MAX_PENALTY).astype(np.float32)

    def _ends_of_breakers(self, spellings: Sequence[bytes]) -> NDArray[np.bool_]:
        """bool[n]: in which of the tokens that come next a breaker ends."""
        n_old = len(self._tail)
        text = self._tail + b"".join(spellings)
        ends = n_old + np.cumsum([len(spelling) for spelling in spellings], dtype=np.int64)
        breaks = np.zeros(len(spellings), np.bool_)
        for breaker in self._breakers:
            at = text.find(breaker, max(0, n_old - len(breaker) + 1))
            while at >= 0:
                breaks[np.searchsorted(ends, at + len(breaker))] = True
                at = text.find(breaker, at + 1)
        self._tail = text[max(0, len(text) - self._n_tail_bytes) :]
        return breaks
