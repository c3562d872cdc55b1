"""Vocabularies as GGUF metadata, small enough to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gguf import TokenType

from tests.support.tiny_vocabulary import byte_level_vocabulary

SPACE_MARK = "▁"


def byte_level_metadata(
    pre: str = "qwen2", user_defined: Sequence[str] = (), **changed: Any
) -> dict[str, Any]:
    """A byte-level BPE vocabulary with ChatML's tokens; `changed`: keys of tokenizer.ggml (None: none)."""
    tiny = byte_level_vocabulary()
    tokens = [*tiny.tokens, *user_defined]
    values = {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": [*tiny.types, *(int(TokenType.USER_DEFINED) for _ in user_defined)],
        "merges": tiny.merges,
        "bos_token_id": tiny.padding_id,
        "eos_token_id": tiny.eos_id,
        "add_bos_token": False,
    }
    return _keys(values, changed)


def sentencepiece_metadata(
    pieces: Mapping[str, float], user_defined: Sequence[str] = (), **changed: Any
) -> dict[str, Any]:
    """A SentencePiece vocabulary: specials, all bytes, `pieces` with their scores, then added tokens."""
    added = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL, *[TokenType.BYTE] * 256]
    kinds += [TokenType.NORMAL] * len(pieces) + [TokenType.USER_DEFINED] * len(user_defined)
    values = {
        "model": "llama",
        "tokens": [*added, *pieces, *user_defined],
        "token_type": [int(kind) for kind in kinds],
        "scores": [0.0] * len(added) + list(pieces.values()) + [0.0] * len(user_defined),
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return _keys(values, changed)


def _keys(values: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"tokenizer.ggml.{key}": value for key, value in {**values, **changed}.items() if value is not None
    }
