"""Which tokens a request has seen, and how often it generated them: what penalties go by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from lucebox.core import Int32Array

INITIAL_CAPACITY = 1024


class TokenHistory:
    """Distinct tokens in order of first sight, and how often each was generated (0: prompt only)."""

    def __init__(self, prompt: Sequence[int], generated: Sequence[int] = ()) -> None:
        self._index: dict[int, int] = {token: i for i, token in enumerate(dict.fromkeys(prompt))}
        n = len(self._index)
        self._ids = np.zeros(max(INITIAL_CAPACITY, n), np.int32)
        self._ids[:n] = list(self._index)
        self._counts = np.zeros_like(self._ids)
        self.append(generated)

    def copy(self) -> TokenHistory:
        """One that goes its own way from here on."""
        history = TokenHistory(())
        history._index = self._index.copy()
        history._ids, history._counts = self._ids.copy(), self._counts.copy()
        return history

    @property
    def ids(self) -> Int32Array:
        """int32[n], a view."""
        return self._ids[: len(self._index)]

    @property
    def counts(self) -> Int32Array:
        """int32[n] parallel to `ids`, a view."""
        return self._counts[: len(self._index)]

    def append(self, generated: Sequence[int]) -> None:
        """Counts tokens that were generated."""
        for token in generated:
            i = self._index.setdefault(int(token), len(self._index))
            if i == len(self._ids):
                self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
                self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
            self._ids[i] = token
            self._counts[i] += 1

    @contextmanager
    def extended(self, extra: Sequence[int]) -> Iterator[None]:
        """Within the block, `extra` counts as generated."""
        n = len(self._index)
        self.append(extra)
        try:
            yield
        finally:
            for token in extra:
                self._counts[self._index[int(token)]] -= 1
            for token in self._ids[n : len(self._index)].tolist():
                del self._index[token]
