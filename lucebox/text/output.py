"""From generated tokens to the text a user sees: TextOutput, used by the library and the server alike."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from typing import Protocol

from lucebox.text.stop import StopMatcher


class TokenBytes(Protocol):
    """The part of a vocabulary that is needed here."""

    def token_bytes(self, token: int, /) -> bytes:
        """The bytes a token stands for in shown text; none for a control token."""
        ...


class TextOutput:
    """Assembles the shown text of one request, piece by piece.

    Holds back what may still change: bytes that could begin a stop string, and an incomplete UTF-8 character.
    The pieces of `push` and `finish` in order are the whole text. Bytes that are no UTF-8 show as U+FFFD.
    """

    def __init__(self, vocabulary: TokenBytes, stops: Iterable[str] = ()) -> None:
        self._vocabulary = vocabulary
        self._stops = StopMatcher(stops)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = b""
        self._n_shown_bytes = 0

    @property
    def n_shown_bytes(self) -> int:
        """Bytes of the text handed out so far, those of a character that is not complete included."""
        return self._n_shown_bytes

    def push(self, token_ids: Sequence[int]) -> str:
        """Takes the next tokens, and returns the text that is certain by now (possibly empty)."""
        data = b"".join(map(self._vocabulary.token_bytes, token_ids))
        self._held += data
        if self._stops.match is None:
            self._stops.push(data)
        return self._show(self._stops.n_safe_bytes, final=False)

    def finish(self, keep_bytes: int | None = None) -> str:
        """Ends the text, and returns what was held back, cut to Finish's `keep_bytes` in all if given."""
        n_bytes = self._n_shown_bytes + len(self._held) if keep_bytes is None else keep_bytes
        return self._show(n_bytes, final=True)

    def _show(self, n_bytes: int, *, final: bool) -> str:
        """Hands out what the first `n_bytes` of the text still hold."""
        n_new = max(n_bytes - self._n_shown_bytes, 0)
        shown, self._held = self._held[:n_new], self._held[n_new:]
        self._n_shown_bytes += n_new
        return self._decoder.decode(shown, final)
