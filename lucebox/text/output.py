"""From generated tokens to the text a user sees: TextOutput, used by the library and the server alike."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from typing import Protocol


class TokenBytes(Protocol):
    """The part of a vocabulary that is needed here."""

    def token_bytes(self, token: int) -> bytes:
        """The bytes a token stands for in shown text; none for a control token."""
        ...


class TextOutput:
    """Assembles the shown text of one request, piece by piece.

    Holds back what may still change: bytes that could begin a stop string, and an incomplete UTF-8 character.
    The pieces of `push` and `finish` in order are the whole text. Bytes that are no UTF-8 show as U+FFFD.
    """

    def __init__(self, vocabulary: TokenBytes, stops: Iterable[str] = ()) -> None:
        self._vocabulary = vocabulary
        self._stops = [stop.encode("utf-8", "surrogatepass") for stop in stops]
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = b""
        self._n_shown_bytes = 0

    @property
    def n_shown_bytes(self) -> int:
        """How many of the text's bytes have been returned, or wait for the rest of their character."""
        return self._n_shown_bytes

    def push(self, token_ids: Sequence[int]) -> str:
        """Takes the next tokens, and returns the text that is certain by now (possibly empty)."""
        self._held += b"".join(self._vocabulary.token_bytes(token) for token in token_ids)
        return self._show(len(self._held) - self._n_uncertain(), final=False)

    def finish(self, keep_bytes: int | None = None) -> str:
        """Ends the text, and returns what was held back, cut to Finish's `keep_bytes` in all if given."""
        n = len(self._held) if keep_bytes is None else keep_bytes - self._n_shown_bytes
        return self._show(max(n, 0), final=True)

    def _show(self, n_bytes: int, *, final: bool) -> str:
        shown, self._held = self._held[:n_bytes], self._held[n_bytes:]
        self._n_shown_bytes += len(shown)
        return self._decoder.decode(shown, final)

    def _n_uncertain(self) -> int:
        """How many of the last held bytes are, or may become, a stop string and what follows it."""
        return max((len(self._held) - _first_match(self._held, stop) for stop in self._stops), default=0)


def _first_match(held: bytes, stop: bytes) -> int:
    """Where `stop` begins in `held`, wholly or with its first bytes at the end; len(held) if nowhere."""
    start = held.find(stop)
    if start >= 0:
        return start
    for start in range(max(0, len(held) - len(stop) + 1), len(held)):
        if stop.startswith(held[start:]):
            return start
    return len(held)
