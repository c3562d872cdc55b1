"""Filling in the middle: the tokens by which a model is shown what stands before and behind a gap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from gguf import TokenType

from lucebox.text.fields import TokenizerFields
from lucebox.text.vocabulary import Vocabulary

# In the order prefix, suffix, middle. Keys of a file, newest first, then the names that models gave them.
_KEYS = (
    ("fim_pre_token_id", "fim_suf_token_id", "fim_mid_token_id"),
    ("prefix_token_id", "suffix_token_id", "middle_token_id"),
)
_NAMES = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen, CodeGemma
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),  # Code Llama
)


@dataclass(frozen=True, slots=True)
class InfillTokens:
    """The three markers of a model, as token ids."""

    prefix: int
    suffix: int
    middle: int

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], vocabulary: Vocabulary, path: object) -> Self | None:
        """Those that a GGUF file names, or whose names are known; None for a model that has none.

        Raises ModelFileError for an id outside the vocabulary.
        """
        fields = TokenizerFields(metadata, path)
        for keys in _KEYS:
            ids = [fields.token_id(key, vocabulary.n_tokens) for key in keys]
            if None not in ids:
                return cls(*(id for id in ids if id is not None))
        for names in _NAMES:
            found = [_marker(vocabulary, name) for name in names]
            if None not in found:
                return cls(*(id for id in found if id is not None))
        return None

    def prompt(self, before: Sequence[int], behind: Sequence[int]) -> list[int]:
        """What a model continues with the text between: prefix, suffix, and its turn."""
        return [self.prefix, *before, self.suffix, *behind, self.middle]


def _marker(vocabulary: Vocabulary, name: str) -> int | None:
    """The token of that name, unless it is text like any other."""
    try:
        token = vocabulary.texts.index(name)
    except ValueError:
        return None
    return None if vocabulary.types[token] == TokenType.NORMAL else token
