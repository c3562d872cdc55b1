"""From generated tokens to the text a user sees: TextOutput, used by the library and the server alike."""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
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
    The pieces of `push` and `finish` in order are the whole text. Bytes that are no UTF-8 show as U+FFFD;
    the first bytes of a character whose rest never comes, as where a limit cuts it, do not show.
    `markers` are control tokens, which have no bytes, and how to spell them where they stand, for a parser of
    the text; stop strings and byte counts do not see them.
    """

    def __init__(
        self, vocabulary: TokenBytes, stops: Iterable[str] = (), markers: Mapping[int, str] | None = None
    ) -> None:
        self._vocabulary = vocabulary
        self._markers = markers or {}
        self._met: deque[tuple[int, str]] = deque()  # markers not shown yet, and the bytes in front of each
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
        data = bytearray()
        n_before = self._n_shown_bytes + len(self._held)
        for token in token_ids:
            if token in self._markers:
                self._met.append((n_before + len(data), self._markers[token]))
            data += self._vocabulary.token_bytes(token)
        self._held += data
        if self._stops.match is None:
            self._stops.push(data)
        return self._show(self._stops.n_safe_bytes)

    def finish(self, keep_bytes: int | None = None) -> str:
        """Ends the text, and returns what was held back, cut to Finish's `keep_bytes` in all if given."""
        n_bytes = self._n_shown_bytes + len(self._held) if keep_bytes is None else keep_bytes
        return self._show(n_bytes)

    def _show(self, n_bytes: int) -> str:
        """Hands out what the first `n_bytes` of the text still hold, with the markers among them."""
        text = ""
        while self._met and self._met[0][0] <= n_bytes:
            at, marker = self._met.popleft()
            text += self._decode(at, ends_character=True) + marker
        return text + self._decode(n_bytes)

    def _decode(self, n_bytes: int, *, ends_character: bool = False) -> str:
        n_new = max(n_bytes - self._n_shown_bytes, 0)
        shown, self._held = self._held[:n_new], self._held[n_new:]
        self._n_shown_bytes += n_new
        return self._decoder.decode(shown, ends_character)
