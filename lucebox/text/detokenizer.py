"""Token ids to text as they come, without ever showing half a character."""

from __future__ import annotations

import codecs
from typing import Protocol


class TokenBytes(Protocol):
    """The part of a vocabulary that is needed here."""

    def bytes_of(self, token: int, /) -> bytes:
        """The bytes a token stands for; of a control token its name."""
        ...

    def token_bytes(self, token: int, /) -> bytes:
        """The same, but none for a control token."""
        ...


class Detokenizer:
    """Decodes one text, token by token.

    A character whose bytes are not all there is held back. U+FFFD stands for bytes that are no UTF-8,
    whatever may follow. The pieces of all `push` and `finish` together are what decoding all bytes gives.
    """

    def __init__(self, vocabulary: TokenBytes, *, skip_special: bool = True) -> None:
        self._bytes_of = vocabulary.token_bytes if skip_special else vocabulary.bytes_of
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that `token` completes, possibly empty."""
        return self._decoder.decode(self._bytes_of(token))

    def finish(self) -> str:
        """What was held back, as U+FFFD; the next push begins a new text."""
        return self._decoder.decode(b"", final=True)
