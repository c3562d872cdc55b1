"""Prompt lookup: what followed the last few tokens when they last occurred."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lucebox.core import Draft
from lucebox.drafters.base import Drafter, DrafterContext, DraftRequest
from lucebox.errors import ConfigError

MAX_N = 16  # each length takes memory and time for every token of a text


@dataclass(slots=True)
class _Text:
    """Committed tokens but the last, and behind how many of them each n-gram last ended."""

    tokens: list[int] = field(default_factory=list)
    ends: dict[tuple[int, ...], int] = field(default_factory=dict)


class NgramDrafter(Drafter):
    """Looks for where the sequence's last `n` tokens occurred before, or fewer of them, down to `n_min`, and
    proposes what followed them the last time; nothing where they never did.

    Prompt lookup (Saxena 2023), LLMA (Yang et al. 2023, arXiv 2304.04487). What reaches the end of the text
    goes on in its own copy, so a loop is guessed as far as the draft may go.
    """

    def __init__(self, context: DrafterContext, *, n: int = 4, n_min: int = 2) -> None:
        super().__init__(context)
        if not 1 <= n_min <= n <= MAX_N:
            raise ConfigError(
                f"drafter ngram: n_min ({n_min}) must be from 1 to n ({n}), which is at most {MAX_N}"
            )
        self._lengths = range(n, n_min - 1, -1)
        self._texts: dict[int, _Text] = {}

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [request.deterministic(self._continuation(request)) for request in requests]

    def fork(self, source: int, target: int) -> None:
        self.release(target)  # its index is made anew of its prefix

    def release(self, sequence: int) -> None:
        self._texts.pop(sequence, None)

    def _continuation(self, request: DraftRequest) -> list[int]:
        """Up to n_max tokens."""
        ends = self._ends(request)
        text = list(request.prefix)
        n_tokens = len(text)
        for length in self._lengths:
            end = ends.get(tuple(text[-length:])) if length <= n_tokens else None
            if end is not None:
                return _copied(text, end, request.n_max)
        return []

    def _ends(self, request: DraftRequest) -> dict[tuple[int, ...], int]:
        """The n-grams of the sequence's committed tokens, but for those at their end."""
        committed = list(request.prefix[: len(request.prefix) - request.n_before])
        text = self._texts.setdefault(request.sequence, _Text())
        if committed[: len(text.tokens)] != text.tokens:
            text = self._texts[request.sequence] = _Text()
        for end in range(len(text.tokens) + 1, len(committed)):
            for length in self._lengths:
                if length <= end:
                    text.ends[tuple(committed[end - length : end])] = end
        text.tokens = committed[:-1]
        return text.ends


def _copied(text: list[int], start: int, n: int) -> list[int]:
    """`n` tokens of `text` from `start` on; behind its end follow those that were copied."""
    out = text[start : start + n]
    for i in range(n - len(out)):
        out.append(out[i])
    return out


Plugin = NgramDrafter
