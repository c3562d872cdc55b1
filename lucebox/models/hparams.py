"""Hyperparameters of a decoder-only transformer, read from GGUF metadata and checked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lucebox.errors import UnsupportedModelError
from lucebox.gguf.reader import GgufFile

_MAX_LAYERS = 1024
_MAX_WIDTH = 1 << 20
_MAX_CONTEXT = 1 << 24
_MAX_EXPERTS = 1024
_SOFTMAX = 1  # of expert_gating_func, where 0 says nothing
_OTHER_MODEL = "use a model of an architecture that `lucebox inspect` lists as supported"


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position embedding, in the terms of ggml_rope_ext (YaRN: arXiv:2309.00071)."""

    n_dims: int
    freq_base: float
    freq_scale: float = 1.0
    n_ctx_orig: int = 0
    ext_factor: float = 0.0
    attn_factor: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0


@dataclass(frozen=True, slots=True)
class Experts:
    """Feed-forward networks of `n_ff` units side by side, of which a router picks `n_used` for each row.

    The weights of their answers are softmax probabilities, which sum to 1 over those picked where
    `is_normalised`. Every row also passes the shared expert, where there is one: `n_ff_shared` is 0 else.
    """

    n_experts: int
    n_used: int
    n_ff: int
    n_ff_shared: int
    is_normalised: bool


@dataclass(frozen=True, slots=True)
class Hparams:
    """Shapes and constants of one model. `sliding_window` is 0 when every token may be attended to; `experts`
    is None where one feed-forward network serves all."""

    architecture: str
    n_vocab: int
    n_ctx_train: int
    n_layers: int
    n_embd: int
    n_ff: int
    n_heads: int
    n_heads_kv: int
    head_dim_k: int
    head_dim_v: int
    norm_eps: float
    rope: Rope
    sliding_window: int = 0
    experts: Experts | None = None

    @property
    def n_embd_q(self) -> int:
        return self.n_heads * self.head_dim_k

    @property
    def n_embd_k(self) -> int:
        return self.n_heads_kv * self.head_dim_k

    @property
    def n_embd_v(self) -> int:
        return self.n_heads_kv * self.head_dim_v


def read_hparams(file: GgufFile, experts: Experts | None = None) -> Hparams:
    """Raises ModelFileError for values that contradict one another, UnsupportedModelError for sound ones that
    Lucebox does not implement: experts are, where the architecture has read them (`read_experts`)."""
    arch = file.architecture
    _refuse_variants(file, arch, has_experts=experts is not None)
    n_embd = file.uint(f"{arch}.embedding_length", minimum=1, maximum=_MAX_WIDTH)
    n_heads = _uniform(file, f"{arch}.attention.head_count", maximum=n_embd)
    n_heads_kv = _uniform(file, f"{arch}.attention.head_count_kv", maximum=n_heads, default=n_heads)
    if n_heads % n_heads_kv:
        problem = f"{n_heads_kv} does not divide the {n_heads} heads"
        raise UnsupportedModelError(
            file.path, f"{arch}.attention.head_count_kv", problem, remedy=_OTHER_MODEL
        )
    head_dim = n_embd // n_heads
    head_dim_k = file.uint(f"{arch}.attention.key_length", minimum=1, maximum=4096, default=head_dim)
    n_ctx_train = file.uint(f"{arch}.context_length", minimum=1, maximum=_MAX_CONTEXT)
    return Hparams(
        architecture=arch,
        n_vocab=_vocabulary_size(file, arch),
        n_ctx_train=n_ctx_train,
        n_layers=file.uint(f"{arch}.block_count", minimum=1, maximum=_MAX_LAYERS),
        n_embd=n_embd,
        n_ff=_uniform(file, f"{arch}.feed_forward_length", maximum=_MAX_WIDTH),
        n_heads=n_heads,
        n_heads_kv=n_heads_kv,
        head_dim_k=head_dim_k,
        head_dim_v=file.uint(f"{arch}.attention.value_length", minimum=1, maximum=4096, default=head_dim),
        norm_eps=file.float(f"{arch}.attention.layer_norm_rms_epsilon", minimum=0.0, maximum=1.0),
        rope=_read_rope(file, arch, head_dim_k, n_ctx_train),
        sliding_window=file.uint(f"{arch}.attention.sliding_window", maximum=_MAX_CONTEXT, default=0),
        experts=experts,
    )


def read_experts(file: GgufFile, *, is_normalised: bool, is_required: bool = False) -> Experts | None:
    """None for a model without any, unless they are required. Whether weights are normalised is said by the
    architecture, and by a few files. Raises ModelFileError and UnsupportedModelError."""
    arch = file.architecture
    default = None if is_required else 0
    n_experts = file.uint(
        f"{arch}.expert_count", minimum=int(is_required), maximum=_MAX_EXPERTS, default=default
    )
    if not n_experts:
        return None
    _refuse_routing(file, arch)
    n_ff = _uniform(file, f"{arch}.feed_forward_length", maximum=_MAX_WIDTH)
    shared = f"{arch}.expert_shared_feed_forward_length"
    return Experts(
        n_experts=n_experts,
        n_used=file.uint(f"{arch}.expert_used_count", minimum=1, maximum=n_experts),
        n_ff=file.uint(f"{arch}.expert_feed_forward_length", minimum=1, maximum=_MAX_WIDTH, default=n_ff),
        n_ff_shared=file.uint(shared, maximum=_MAX_WIDTH, default=0),
        is_normalised=file.bool(f"{arch}.expert_weights_norm", default=is_normalised),
    )


def _read_rope(file: GgufFile, arch: str, head_dim: int, n_ctx_train: int) -> Rope:
    key = f"{arch}.rope.dimension_count"
    n_dims = file.uint(key, minimum=2, maximum=head_dim, default=head_dim)
    if n_dims % 2:
        raise UnsupportedModelError(file.path, key, f"{n_dims} is odd", remedy=_OTHER_MODEL)
    base = file.float(f"{arch}.rope.freq_base", minimum=1.0, default=10_000.0)
    scaling = f"{arch}.rope.scaling"
    factor = file.float(f"{scaling}.factor", minimum=0.0, default=0.0)
    if not factor:  # as files from before rope.scaling.factor have it
        factor = file.float(f"{arch}.rope.scale_linear", minimum=0.0, default=0.0)
    kind = file.string(f"{scaling}.type", default="linear")
    if kind == "none":
        factor = 0.0
    elif kind not in ("linear", "yarn"):
        problem = f"scaling {kind!r} is not implemented (linear and yarn are)"
        raise UnsupportedModelError(file.path, f"{scaling}.type", problem, remedy=_OTHER_MODEL)
    is_yarn = kind == "yarn" and factor > 0
    n_ctx_orig = file.uint(
        f"{scaling}.original_context_length", minimum=1, maximum=_MAX_CONTEXT, default=n_ctx_train
    )
    ext_factor = file.float(f"{scaling}.yarn_ext_factor", default=1.0)
    return Rope(
        n_dims=n_dims,
        freq_base=base,
        freq_scale=1.0 / factor if factor else 1.0,
        n_ctx_orig=n_ctx_orig,
        ext_factor=ext_factor if is_yarn else 0.0,
        attn_factor=file.float(f"{scaling}.attn_factor", default=1.0),
        beta_fast=file.float(f"{scaling}.yarn_beta_fast", default=32.0),
        beta_slow=file.float(f"{scaling}.yarn_beta_slow", default=1.0),
    )


def _refuse_variants(file: GgufFile, arch: str, *, has_experts: bool) -> None:
    """Models that carry a supported architecture's name but compute something else."""
    refused = {
        **({} if has_experts else {"expert_count": "mixture of experts"}),
        "logit_scale": "scaled logits",
        "residual_scale": "scaled residuals",
        "embedding_scale": "scaled embeddings",
        "attention.scale": "a scale of attention of its own",
        "attention.clamp_kqv": "clamped queries, keys and values",
        "attn_logit_softcapping": "soft-capped attention",
        "final_logit_softcapping": "soft-capped logits",
    }
    for name, feature in refused.items():
        key = f"{arch}.{name}"
        if key in file.metadata and file.float(key) not in (0.0, 1.0 if "scale" in name else 0.0):
            raise UnsupportedModelError(file.path, key, f"{feature} is not implemented", remedy=_OTHER_MODEL)
    causal = f"{arch}.attention.causal"
    if causal in file.metadata and not file.bool(causal):
        raise UnsupportedModelError(file.path, causal, "the model is not a causal one", remedy=_OTHER_MODEL)


def _refuse_routing(file: GgufFile, arch: str) -> None:
    """Experts that are picked, weighed, stored or spread over the layers in another way."""
    most = {
        "expert_gating_func": (_SOFTMAX, "another gate than softmax"),
        "expert_group_count": (1, "experts in groups"),
        "leading_dense_block_count": (0, "layers without experts"),
        "interleave_moe_layer_step": (1, "layers without experts"),
        "moe_every_n_layers": (1, "layers without experts"),
    }
    for name, (maximum, feature) in most.items():
        key = f"{arch}.{name}"
        if file.uint(key, default=0) > maximum:
            raise UnsupportedModelError(file.path, key, f"{feature} is not implemented", remedy=_OTHER_MODEL)
    scale = f"{arch}.expert_weights_scale"
    if file.float(scale, default=1.0) not in (0.0, 1.0):
        raise UnsupportedModelError(
            file.path, scale, "scaled experts is not implemented", remedy=_OTHER_MODEL
        )
    for name in ("blk.0.ffn_gate.0.weight", "blk.0.ffn_gate_up_exps.weight"):
        if name in file.tensors:
            problem = "is an old or unusual form of experts; those of a layer are blk.0.ffn_gate_exps.weight"
            remedy = "convert the model again with current tools and their usual options"
            raise UnsupportedModelError(file.path, f"tensor {name}", problem, remedy=remedy)


def _vocabulary_size(file: GgufFile, arch: str) -> int:
    """Rows of the embedding: padded vocabularies have more of them than the tokenizer has tokens."""
    info = file.tensor("token_embd.weight")
    if len(info.shape) != 2:
        problem = f"has {len(info.shape)} dimensions where 2 are needed"
        raise UnsupportedModelError(file.path, "tensor token_embd.weight", problem, remedy=_OTHER_MODEL)
    n_vocab = info.shape[1]
    return file.uint(f"{arch}.vocab_size", minimum=n_vocab, maximum=n_vocab, default=n_vocab)


def _uniform(file: GgufFile, key: str, *, maximum: int, default: int | None = None) -> int:
    """A number that files may give per layer; only uniform ones are implemented."""
    value = file.metadata.get(key)
    if isinstance(value, np.ndarray) and len(value) and value.dtype.kind in "iu":
        if (value != value[0]).any():
            problem = f"differs between layers ({sorted(set(value.tolist()))}), which is not implemented"
            raise UnsupportedModelError(file.path, key, problem, remedy=_OTHER_MODEL)
        first = int(value[0])
        if not 1 <= first <= maximum:
            problem = f"{first} is not within 1 to {maximum}"
            raise UnsupportedModelError(file.path, key, problem, remedy=_OTHER_MODEL)
        return first
    return file.uint(key, minimum=1, maximum=maximum, default=default)
