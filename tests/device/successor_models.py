"""Models of any size whose text is known: each token has one successor, and all weights are computed with.

For machines that real files cannot be brought to. Attention and feed-forward layers multiply as those of a
real model do and then add nothing, so that the head sees the embedding of the last token, and knows its row
for the successor. A draft model has the same successors for a share of the tokens: its acceptance rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

from tests.support.tiny_models import TinySpec, add_value, quantised, tiny_metadata

_BLOCK = np.dtype([("scale", "<f2"), ("values", "i1", 32)])  # of Q8_0
_LOGIT = 20.0  # of the successor, where all others are near 0
_N_TILE_ROWS = 64  # of random weights, repeated to fill a matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Shape of a qwen2 model; `dtype` is of its matrices, embeddings and head are Q8_0."""

    n_layer: int
    n_embd: int
    n_head: int
    n_head_kv: int
    n_ff: int
    n_vocab: int
    dtype: str


# As Qwen2.5-Coder-1.5B and 0.5B.
TARGET = Size(n_layer=28, n_embd=1536, n_head=12, n_head_kv=2, n_ff=8960, n_vocab=151936, dtype="q4_k")
DRAFT = Size(n_layer=24, n_embd=896, n_head=14, n_head_kv=2, n_ff=4864, n_vocab=151936, dtype="q4_0")
SMALL = Size(n_layer=4, n_embd=256, n_head=4, n_head_kv=2, n_ff=512, n_vocab=512, dtype="q4_k")


def successors(n_vocab: int, *, agreement: float = 1.0) -> NDArray[np.int64]:
    """int64[n_vocab]: what follows each token, in one cycle; a share of them is different below 1."""
    rng = np.random.default_rng(1)
    order = rng.permutation(n_vocab)
    following = np.empty(n_vocab, np.int64)
    following[order] = np.roll(order, -1)
    others = np.flatnonzero(rng.random(n_vocab) >= agreement)
    following[others] = following[np.roll(others, 1)]
    return following


def text_from(token: int, n_tokens: int, n_vocab: int) -> list[int]:
    """What a target says behind `token`."""
    following = successors(n_vocab)
    tokens = []
    for _ in range(n_tokens):
        token = int(following[token])
        tokens.append(token)
    return tokens


def write_successor_model(path: Path, size: Size, *, agreement: float = 1.0) -> Path:
    """Writes the model, `agreement` being the share of tokens whose successor is the target's."""
    spec = TinySpec(
        arch="qwen2",
        n_layer=size.n_layer,
        n_embd=size.n_embd,
        n_head=size.n_head,
        n_head_kv=size.n_head_kv,
        n_ff=size.n_ff,
        n_ctx=4096,
    )
    writer = gguf.GGUFWriter(path, spec.arch)
    for key, value in tiny_metadata(spec).items():
        # Most rows of the embedding belong to no token of the vocabulary, as where a model pads it.
        if key not in ("general.architecture", "qwen2.vocab_size"):
            add_value(writer, key, value)
    q8 = GGMLQuantizationType.Q8_0
    embedding, head = _tables(size, agreement)
    writer.add_tensor("token_embd.weight", embedding, raw_dtype=q8)
    writer.add_tensor("output.weight", head, raw_dtype=q8)
    writer.add_tensor("output_norm.weight", np.ones(size.n_embd, np.float32))
    for layer in range(size.n_layer):
        _add_layer(writer, f"blk.{layer}.", size)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tables(size: Size, agreement: float) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Embedding and head, uint8[n_vocab, row bytes]: the head's row of a successor is its token's."""
    rng = np.random.default_rng(2)
    blocks = np.empty((size.n_vocab, size.n_embd // 32), _BLOCK)
    blocks["values"] = rng.integers(-127, 128, (*blocks.shape, 32), np.int8)
    rms = np.sqrt((127**2 + 127) / 3)
    blocks["scale"] = 1.0 / rms
    head = np.empty_like(blocks)
    head[successors(size.n_vocab, agreement=agreement)] = blocks
    head["scale"] = _LOGIT / (rms * size.n_embd)
    n_bytes = blocks.shape[1] * _BLOCK.itemsize
    return blocks.view(np.uint8).reshape(-1, n_bytes), head.view(np.uint8).reshape(-1, n_bytes)


def _add_layer(writer: gguf.GGUFWriter, block: str, size: Size) -> None:
    kind = GGMLQuantizationType[size.dtype.upper()]
    n_kv = size.n_embd // size.n_head * size.n_head_kv
    writer.add_tensor(f"{block}attn_norm.weight", np.ones(size.n_embd, np.float32))
    for letter, n_out in (("q", size.n_embd), ("k", n_kv), ("v", n_kv)):
        writer.add_tensor(f"{block}attn_{letter}.weight", _matrix(n_out, size.n_embd, kind), raw_dtype=kind)
        writer.add_tensor(f"{block}attn_{letter}.bias", np.zeros(n_out, np.float32))
    nothing = np.zeros_like(_matrix(size.n_embd, size.n_embd, kind))
    writer.add_tensor(f"{block}attn_output.weight", nothing, raw_dtype=kind)
    writer.add_tensor(f"{block}ffn_norm.weight", np.ones(size.n_embd, np.float32))
    for name in ("gate", "up"):
        writer.add_tensor(f"{block}ffn_{name}.weight", _matrix(size.n_ff, size.n_embd, kind), raw_dtype=kind)
    nothing = np.zeros_like(_matrix(size.n_embd, size.n_ff, kind))
    writer.add_tensor(f"{block}ffn_down.weight", nothing, raw_dtype=kind)


def _matrix(n_out: int, n_in: int, kind: GGMLQuantizationType) -> NDArray[np.uint8]:
    """uint8[n_out, row bytes] of random weights."""
    rng = np.random.default_rng(3)
    n_rows = min(n_out, _N_TILE_ROWS)
    tile = quantised(rng.standard_normal((n_rows, n_in), np.float32) / np.float32(np.sqrt(n_in)), kind)
    return np.resize(tile, (n_out, tile.shape[1]))
