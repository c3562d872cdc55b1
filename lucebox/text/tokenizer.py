"""Text to token ids and back, with the vocabulary of a model file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from gguf import TokenType

from lucebox.errors import RequestError
from lucebox.text.added_tokens import AddedTokens
from lucebox.text.byte_level import ByteLevelBpe
from lucebox.text.fields import TokenizerFields
from lucebox.text.sentencepiece import SentencePiece
from lucebox.text.vocabulary import SENTENCEPIECE, Vocabulary

# Far past any context. The regex engine gives up, and panics, where one match backtracks 10 million times.
MAX_TEXT_CHARS = 1 << 22


class Tokenizer:
    """Encodes and decodes with one `vocabulary`. Threads may share it."""

    def __init__(self, fields: TokenizerFields, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._model: ByteLevelBpe | SentencePiece
        if vocabulary.model == SENTENCEPIECE:
            self._model = SentencePiece(fields, vocabulary.texts, vocabulary.types)
        else:
            self._model = ByteLevelBpe(fields, vocabulary.texts)
        self._user_defined = AddedTokens(_ids_of(vocabulary, TokenType.USER_DEFINED))
        specials = _ids_of(vocabulary, TokenType.CONTROL, TokenType.UNKNOWN)
        self.control_tokens = AddedTokens(specials)
        self._added = AddedTokens({**_ids_of(vocabulary, TokenType.USER_DEFINED), **specials})

    @classmethod
    def from_metadata(
        cls, metadata: Mapping[str, Any], path: object = "metadata", *, vocabulary: Vocabulary | None = None
    ) -> Tokenizer:
        """Reads the `tokenizer.ggml.*` keys of a GGUF file; `path` is for messages.

        `vocabulary` is that of the same metadata, when it is at hand. Raises as `Vocabulary.from_metadata`.
        """
        fields = TokenizerFields(metadata, path)
        return cls(fields, vocabulary or Vocabulary(fields))

    def encode(
        self,
        text: str,
        *,
        parse_special: bool,
        add_bos: bool | None = None,
        stand_ins: Mapping[int, str] | None = None,
    ) -> list[int]:
        """The token ids of `text`.

        `parse_special`: names of control tokens, such as `<|im_end|>`, become these tokens; else they are
        text like any other. `add_bos`: begin with the beginning-of-text token; None: what the file asks for.
        `stand_ins` (see `Literal`): what to put for some characters once control tokens have been found.
        A lone surrogate counts as U+FFFD. RequestError for more than MAX_TEXT_CHARS.
        """
        if len(text) > MAX_TEXT_CHARS:
            raise RequestError(
                f"A text of {len(text):,} characters is too long to tokenise",
                param="prompt",
                code="context_length_exceeded",
                remedy=f"send at most {MAX_TEXT_CHARS:,} characters",
            )
        ids: list[int] = []
        for piece in self._pieces(_scalars(text), parse_special, stand_ins or {}):
            ids += [piece] if isinstance(piece, int) else self._model.encode(piece)
        if not (self.vocabulary.add_bos if add_bos is None else add_bos):
            return ids
        assert self.vocabulary.bos_id is not None
        return [self.vocabulary.bos_id, *ids]

    def encode_piece(self, text: str) -> list[int]:
        """The token ids of text from anywhere inside of a longer one, in which no added tokens are looked
        for: what the model's own merges make of it."""
        return self._model.encode(_scalars(text)) if text else []

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of `ids`; bytes that are no UTF-8 show as U+FFFD. Special tokens show as names, or not."""
        bytes_of = self.vocabulary.token_bytes if skip_special else self.vocabulary.bytes_of
        return b"".join(map(bytes_of, ids)).decode("utf-8", "replace")

    def _pieces(self, text: str, parse_special: bool, stand_ins: Mapping[int, str]) -> Iterator[str | int]:
        for piece in (self._added if parse_special else self._user_defined).split(text):
            if stand_ins and isinstance(piece, str):
                yield from self._user_defined.split(piece.translate(stand_ins))
            else:
                yield piece


def _ids_of(vocabulary: Vocabulary, *kinds: TokenType) -> dict[str, int]:
    tokens = np.flatnonzero(np.isin(vocabulary.types, kinds)).tolist()
    return {vocabulary.texts[token]: token for token in tokens}


def _scalars(text: str) -> str:
    """`text` with surrogate pairs joined, and U+FFFD for the lone ones: what UTF-8 can carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
