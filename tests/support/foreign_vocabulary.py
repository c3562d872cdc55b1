"""A second vocabulary for tiny models: the same letters under other ids, other merges and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gguf import TokenType

END = "<|endoftext|>"


def foreign_metadata(tokens: Sequence[str], merges: Sequence[str], *, end: str = END) -> dict[str, Any]:
    """Metadata that replace those of write_tiny; `tokens` are in GPT-2's byte letters, `end` one of them."""
    kinds = [TokenType.CONTROL if token.startswith("<|") else TokenType.NORMAL for token in tokens]
    return {
        "tokenizer.ggml.tokens": list(tokens),
        "tokenizer.ggml.token_type": [int(kind) for kind in kinds],
        "tokenizer.ggml.merges": list(merges),
        "tokenizer.ggml.eos_token_id": tokens.index(end),
        "tokenizer.ggml.bos_token_id": tokens.index(end),
        "tokenizer.ggml.padding_token_id": tokens.index(end),
    }
