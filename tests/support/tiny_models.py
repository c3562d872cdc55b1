"""Writes tiny random GGUF models: real files, with a vocabulary and a chat template, made in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType
from numpy.typing import NDArray

from lucebox.ggml.library import load
from tests.support.tiny_vocabulary import CHATML, byte_level_vocabulary

Tensors = dict[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TinySpec:
    """What a tiny model looks like. Models of one `seed` and shape are equal up to `perturbation`."""

    arch: str = "llama"  # or "qwen2": NEOX rope and biases on q, k, v
    n_layer: int = 2
    n_embd: int = 64
    n_head: int = 4
    n_head_kv: int = 2
    head_dim: int | None = None  # n_embd / n_head unless given
    n_ff: int = 128  # of each expert, where there are some
    n_expert: int = 0
    n_expert_used: int = 2
    n_ctx: int = 512
    n_vocab: int | None = None  # the whole byte-level vocabulary; fewer for tests of exact laws
    tied: bool = False  # no output.weight: the head is the embedding
    rope_freqs: bool = False  # Llama 3's per-frequency divisors
    rope_freq_base: float = 10_000.0
    rms_eps: float = 1e-5
    dtype: str = "f32"  # of the matrices: f32, f16, bf16, q8_0, q4_0, ...; vectors are always f32
    sharpness: float = 4.0  # standard deviation of the logits
    seed: int = 0
    perturbation: float = (
        0.0  # relative noise on every matrix: a draft model that often agrees with its target
    )
    perturbation_seed: int = 1
    pre: str | None = None  # pre-tokenizer; by default the one usual for `arch`

    @property
    def rope_dim(self) -> int:
        return self.head_dim or self.n_embd // self.n_head


def write_tiny(
    path: str | Path,
    arch: str = "llama",
    *,
    metadata: Mapping[str, Any] | None = None,
    tensors: Mapping[str, NDArray[np.float32] | None] | None = None,
    sort_tensors: bool = False,
    **options: Any,
) -> Path:
    """Writes the model that TinySpec(arch, **options) describes and returns its path.

    `metadata` and `tensors` replace or add entries; None removes one (for tests of damaged models).
    `sort_tensors` stores them by name, as many converters do.
    """
    spec = TinySpec(arch=arch, **options)
    key_values = {**tiny_metadata(spec), **(metadata or {})}
    arrays = {**tiny_tensors(spec), **(tensors or {})}
    if sort_tensors:
        arrays = dict(sorted(arrays.items()))
    matrix_type = GGMLQuantizationType[spec.dtype.upper()]
    writer = gguf.GGUFWriter(path, arch)
    for key, value in key_values.items():
        if key != "general.architecture" and value is not None:
            add_value(writer, key, value)
    for name, array in arrays.items():
        if array is None:
            continue
        is_matrix = array.ndim > 1 and "ffn_gate_inp" not in name  # routers are never quantised
        kind = matrix_type if is_matrix else GGMLQuantizationType.F32
        if kind == GGMLQuantizationType.F32:
            writer.add_tensor(name, array.astype(np.float32))
        else:
            writer.add_tensor(name, quantised(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Path(path)


def tiny_metadata(spec: TinySpec) -> dict[str, Any]:
    vocabulary = byte_level_vocabulary(spec.n_vocab)
    values = {
        "general.architecture": spec.arch,
        "general.name": f"tiny {spec.arch} {spec.seed}",
        f"{spec.arch}.block_count": spec.n_layer,
        f"{spec.arch}.context_length": spec.n_ctx,
        f"{spec.arch}.embedding_length": spec.n_embd,
        f"{spec.arch}.feed_forward_length": spec.n_ff,
        f"{spec.arch}.attention.head_count": spec.n_head,
        f"{spec.arch}.attention.head_count_kv": spec.n_head_kv,
        f"{spec.arch}.attention.layer_norm_rms_epsilon": spec.rms_eps,
        f"{spec.arch}.rope.freq_base": spec.rope_freq_base,
        f"{spec.arch}.rope.dimension_count": spec.rope_dim,
        f"{spec.arch}.vocab_size": len(vocabulary.tokens),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": spec.pre or {"llama": "smollm"}.get(spec.arch, "qwen2"),
        "tokenizer.ggml.tokens": vocabulary.tokens,
        "tokenizer.ggml.token_type": vocabulary.types,
        "tokenizer.ggml.merges": vocabulary.merges,
        "tokenizer.ggml.eos_token_id": vocabulary.eos_id,
        "tokenizer.ggml.padding_token_id": vocabulary.padding_id,
        "tokenizer.ggml.bos_token_id": vocabulary.padding_id,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHATML,
    }
    if spec.head_dim is not None:
        values[f"{spec.arch}.attention.key_length"] = spec.head_dim
        values[f"{spec.arch}.attention.value_length"] = spec.head_dim
    if spec.n_expert:
        values[f"{spec.arch}.expert_count"] = spec.n_expert
        values[f"{spec.arch}.expert_used_count"] = spec.n_expert_used
    return values


def tiny_tensors(spec: TinySpec) -> Tensors:
    """The weights as NumPy has them: matrices [n_out, n_in], in GGUF's names and rope layout."""
    n_vocab = len(byte_level_vocabulary(spec.n_vocab).tokens)
    n_q, n_kv = spec.n_head * spec.rope_dim, spec.n_head_kv * spec.rope_dim
    rng = np.random.default_rng(spec.seed)
    noise = np.random.default_rng(spec.perturbation_seed)

    def matrix(n_out: int, n_in: int, scale: float = 1.0) -> NDArray[np.float32]:
        values = rng.standard_normal((n_out, n_in))
        if spec.perturbation:
            values += spec.perturbation * noise.standard_normal((n_out, n_in))
        return (values * scale / np.sqrt(n_in)).astype(np.float32)

    def matrices(n_out: int, n_in: int) -> NDArray[np.float32]:
        return np.stack([matrix(n_out, n_in) for _ in range(spec.n_expert)])

    def vector(n: int, around: float) -> NDArray[np.float32]:
        return (around + 0.1 * rng.standard_normal(n)).astype(np.float32)

    embedding_scale = spec.sharpness if spec.tied else np.sqrt(spec.n_embd)
    tensors: Tensors = {"token_embd.weight": matrix(n_vocab, spec.n_embd, embedding_scale)}
    for layer in range(spec.n_layer):
        block = f"blk.{layer}."
        tensors[block + "attn_norm.weight"] = vector(spec.n_embd, 1.0)
        for letter, n_out in (("q", n_q), ("k", n_kv), ("v", n_kv)):
            tensors[f"{block}attn_{letter}.weight"] = matrix(n_out, spec.n_embd)
            if spec.arch == "qwen2":
                tensors[f"{block}attn_{letter}.bias"] = vector(n_out, 0.0)
        tensors[block + "attn_output.weight"] = matrix(spec.n_embd, n_q)
        tensors[block + "ffn_norm.weight"] = vector(spec.n_embd, 1.0)
        kind, of = ("_exps", matrices) if spec.n_expert else ("", matrix)
        if spec.n_expert:
            tensors[block + "ffn_gate_inp.weight"] = matrix(spec.n_expert, spec.n_embd)
        tensors[f"{block}ffn_gate{kind}.weight"] = of(spec.n_ff, spec.n_embd)
        tensors[f"{block}ffn_up{kind}.weight"] = of(spec.n_ff, spec.n_embd)
        tensors[f"{block}ffn_down{kind}.weight"] = of(spec.n_embd, spec.n_ff)
    tensors["output_norm.weight"] = vector(spec.n_embd, 1.0)
    if not spec.tied:
        tensors["output.weight"] = matrix(n_vocab, spec.n_embd, spec.sharpness)
    if spec.rope_freqs:
        tensors["rope_freqs.weight"] = np.geomspace(1.0, 8.0, spec.rope_dim // 2).astype(np.float32)
    return tensors


def quantised(array: NDArray[np.float32], kind: GGMLQuantizationType) -> NDArray[np.uint8]:
    """uint8[..., n_out, row bytes], by ggml where the gguf package cannot."""
    try:
        return gguf.quantize(array, kind)
    except NotImplementedError:
        pass
    n_in = array.shape[-1]
    block_elements, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    packed = np.zeros((*array.shape[:-1], n_in // block_elements * block_bytes), np.uint8)
    source = np.ascontiguousarray(array, np.float32)
    n_rows = source.size // n_in
    load().ggml_quantize_chunk(kind, source.ctypes.data, packed.ctypes.data, 0, n_rows, n_in, None)
    return packed


def add_value(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, Sequence) and not isinstance(value, str):
        writer.add_array(key, value)
        return
    kinds = {
        bool: GGUFValueType.BOOL,
        int: GGUFValueType.UINT32,
        float: GGUFValueType.FLOAT32,
        str: GGUFValueType.STRING,
    }
    writer.add_key_value(key, value, kinds[type(value)])
