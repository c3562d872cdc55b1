"""Log-probabilities in the two shapes of OpenAI's API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lucebox.engine.messages import TokenLogprobs
from lucebox.server.responses import ChatLogprobs, TextLogprobs, TokenLogprob, TopLogprob
from lucebox.text.output import TextOutput, TokenBytes

# JSON has no infinity; OpenAI's stand-in for a token that cannot come.
LEAST_LOGPROB = -9999.0


class TokenNames(TokenBytes, Protocol):
    """The part of a vocabulary that is needed here."""

    def bytes_of(self, token: int, /) -> bytes:
        """The bytes a token stands for; of a control token its name."""
        ...


def chat_logprobs(entries: Sequence[TokenLogprobs], vocabulary: TokenNames) -> ChatLogprobs:
    return ChatLogprobs([_token_logprob(entry, vocabulary) for entry in entries])


class TextLogprobsBuilder:
    """Log-probabilities of one choice, piece by piece; knows where in the text each token begins."""

    def __init__(self, vocabulary: TokenNames) -> None:
        self._vocabulary = vocabulary
        self._text = TextOutput(vocabulary)
        self._n_chars = 0

    def build(self, entries: Sequence[TokenLogprobs]) -> TextLogprobs:
        """Of the next tokens of the choice."""
        return TextLogprobs(
            tokens=[self._name(entry.token) for entry in entries],
            token_logprobs=[_finite(entry.logprob) for entry in entries],
            top_logprobs=[self._top(entry) for entry in entries],
            text_offset=[self._offset(entry.token) for entry in entries],
        )

    def build_prompt(self, first: int, entries: Sequence[TokenLogprobs]) -> TextLogprobs:
        """Of an echoed prompt, which comes before all else: its token `first`, and those behind it."""
        name, offset = self._name(first), self._offset(first)
        rest = self.build(entries)
        return TextLogprobs(
            tokens=[name, *rest.tokens],
            token_logprobs=[None, *rest.token_logprobs],
            top_logprobs=[None, *rest.top_logprobs],
            text_offset=[offset, *rest.text_offset],
        )

    def _top(self, entry: TokenLogprobs) -> dict[str, float] | None:
        """The likeliest tokens, and the one at hand if it is none of them."""
        top = {self._name(id): _finite(logprob) for id, logprob in entry.top}
        return top | {self._name(entry.token): _finite(entry.logprob)} if top else top

    def _offset(self, token: int) -> int:
        offset = self._n_chars
        self._n_chars += len(self._text.push([token]))
        return offset

    def _name(self, token: int) -> str:
        """As OpenAI does: a token that is no character by itself is named by its bytes."""
        spelling = self._vocabulary.bytes_of(token)
        try:
            return spelling.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelling)


def _token_logprob(entry: TokenLogprobs, vocabulary: TokenNames) -> TokenLogprob:
    def one(token: int, logprob: float) -> tuple[str, float, list[int]]:
        spelling = vocabulary.bytes_of(token)
        return spelling.decode("utf-8", "replace"), _finite(logprob), list(spelling)

    top = [TopLogprob(*one(token, logprob)) for token, logprob in entry.top]
    return TokenLogprob(*one(entry.token, entry.logprob), top)


def _finite(logprob: float) -> float:
    return max(logprob, LEAST_LOGPROB)
