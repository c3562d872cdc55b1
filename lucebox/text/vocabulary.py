"""What each token id stands for: its bytes, its kind, and which ids begin or end a text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from gguf import TokenType
from numpy.typing import NDArray

from lucebox.text.fields import TokenizerFields
from lucebox.text.pretokenizers import pretokenizer_of
from lucebox.text.spelling import byte_level_bytes, sentencepiece_bytes

BYTE_LEVEL_BPE = "gpt2"
SENTENCEPIECE = "llama"

# Markers that end an answer: a file names one of them as eos, chat models often emit another.
_END_MARKERS = (
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<|endofturn|>",
    "<｜end▁of▁sentence｜>",
    "<EOT>",
    "</s>",
    # What a code model writes when one file is done and the next would begin.
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
)
_HARMONY_ENDS = {"<|return|>", "<|call|>"}
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
_SPECIAL = (TokenType.CONTROL, TokenType.UNKNOWN)
_PADDING_NAME = re.compile(r"\[PAD\d+\]")


class Difference(NamedTuple):
    """An id that stands for other bytes in two vocabularies; None where a vocabulary has no such id."""

    token: int
    ours: bytes | None
    theirs: bytes | None


class Vocabulary:
    """Token ids and what they mean.

    `texts[id]` is a token as the file spells it, `types` is uint8[n_tokens] of `gguf.TokenType`. `bos_id` and
    `eos_id` are None in a file that names none. Any of `eog_ids` ends a generation. `add_bos` says whether
    the model expects `bos_id` before every prompt.
    """

    def __init__(self, fields: TokenizerFields) -> None:
        self.model = fields.string("model")
        if self.model not in (BYTE_LEVEL_BPE, SENTENCEPIECE):
            raise fields.unsupported(
                "model",
                f"the tokenizer {self.model!r:.60} is not implemented",
                remedy=f"use a model with one of these: {BYTE_LEVEL_BPE} (byte-level BPE), "
                f"{SENTENCEPIECE} (SentencePiece)",
            )
        self.texts = fields.strings("tokens")
        if not self.texts:
            raise fields.error("tokens", "is empty")
        self.types = _token_types(fields, self.n_tokens)
        self._pieces = self._spell(fields)
        self._hidden = frozenset(np.flatnonzero(np.isin(self.types, [*_SPECIAL, TokenType.UNUSED])).tolist())
        unused = np.flatnonzero(self.types == TokenType.UNUSED).tolist()
        named = (token for token, text in enumerate(self.texts) if _is_padding_name(text))
        self._padding = frozenset([*unused, *named])
        self.bos_id = fields.token_id("bos_token_id", self.n_tokens)
        self.eos_id = fields.token_id("eos_token_id", self.n_tokens)
        self.eog_ids = self._end_ids(fields)
        self.add_bos = self._adds_bos(fields)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], path: object = "metadata") -> Vocabulary:
        """Reads the `tokenizer.ggml.*` keys of a GGUF file; `path` is for messages.

        ModelFileError names the key that is missing or wrong, UnsupportedModelError a tokenizer that Lucebox
        does not have.
        """
        return cls(TokenizerFields(metadata, path))

    @property
    def n_tokens(self) -> int:
        return len(self.texts)

    def bytes_of(self, token: int) -> bytes:
        """The bytes a token stands for; of a control or unused token its name, such as `<|im_end|>`.

        None for an id past the table: models have more rows than that, and may draw from them.
        """
        assert token >= 0, token
        return self._pieces[token] if token < len(self._pieces) else b""

    def token_bytes(self, token: int) -> bytes:
        """The bytes a token adds to shown text: none for control, unknown and unused tokens."""
        return b"" if token in self._hidden else self.bytes_of(token)

    def is_special(self, token: int) -> bool:
        """Whether a token steers the model and is no text: a control token, or the unknown token."""
        return int(self.types[token]) in _SPECIAL

    def is_padding(self, token: int) -> bool:
        """Whether an id only fills the table to a round size: marked unused, or named like `[PAD151665]`."""
        return token in self._padding

    def text_of(self, token: int | None) -> str:
        """A token as a chat template has it, such as `<s>`; empty for None."""
        return "" if token is None else self.bytes_of(token).decode("utf-8", "replace")

    def digest(self) -> str:
        """SHA-256 (hex) of the bytes of every id, padding left out. Equal digests: no differences."""
        digest = hashlib.sha256()
        for token in range(self.n_tokens):
            meaning = self._meaning(token)
            if meaning is not None:
                digest.update(token.to_bytes(4, "little") + len(meaning).to_bytes(4, "little") + meaning)
        return digest.hexdigest()

    def differences(self, other: Vocabulary, limit: int = 5) -> list[Difference]:
        """The first ids, at most `limit`, that mean one thing here and another in `other`.

        Padding means nothing, so it contradicts nothing: tables padded to different sizes agree, and so do
        an older and a newer vocabulary of one family that took padding ids into use. An id past the end of
        the other table is a difference unless it is padding.
        """
        if self._pieces == other._pieces:
            return []
        return list(islice(self._differences(other), limit))

    def _differences(self, other: Vocabulary) -> Iterator[Difference]:
        n_common = min(self.n_tokens, other.n_tokens)
        for token in range(max(self.n_tokens, other.n_tokens)):
            ours = self._meaning(token) if token < self.n_tokens else None
            theirs = other._meaning(token) if token < other.n_tokens else None
            if ours != theirs and (token >= n_common or (ours is not None and theirs is not None)):
                yield Difference(token, ours, theirs)

    def _meaning(self, token: int) -> bytes | None:
        return None if token in self._padding else self._pieces[token]

    def _spell(self, fields: TokenizerFields) -> list[bytes]:
        if self.model == BYTE_LEVEL_BPE:
            return byte_level_bytes(self.texts, self.types)
        try:
            return sentencepiece_bytes(self.texts, self.types)
        except ValueError as error:
            raise fields.error("tokens", str(error)) from None

    def _end_ids(self, fields: TokenizerFields) -> frozenset[int]:
        named = {fields.token_id(key, self.n_tokens) for key in _END_KEYS}
        marked = np.flatnonzero((self.types != TokenType.NORMAL) & (self.types != TokenType.BYTE)).tolist()
        ends = {token for token in named if token is not None}
        ends |= {token for token in marked if self.texts[token] in _END_MARKERS}
        texts = {self.texts[token] for token in ends}
        if texts >= _HARMONY_ENDS:  # there <|end|> ends a message, after which the answer goes on
            ends -= {token for token in ends if self.texts[token] == "<|end|>"}
        return frozenset(ends)

    def _adds_bos(self, fields: TokenizerFields) -> bool:
        usual = self.model == SENTENCEPIECE or pretokenizer_of(fields).add_bos
        add_bos = fields.bool("add_bos_token", default=usual and self.bos_id is not None)
        if add_bos and self.bos_id is None:
            raise fields.error("bos_token_id", "the key is missing, though add_bos_token is set")
        return add_bos


def _is_padding_name(text: str) -> bool:
    return text.startswith("[PAD") and _PADDING_NAME.fullmatch(text) is not None


def _token_types(fields: TokenizerFields, n_tokens: int) -> NDArray[np.uint8]:
    types = fields.numbers("token_type", n_tokens)
    known = [int(kind) for kind in TokenType]
    unknown = types[~np.isin(types, known)]
    if len(unknown):
        raise fields.error("token_type", f"{unknown[0]} is not a token type")
    return types.astype(np.uint8)
