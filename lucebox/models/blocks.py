"""The blocks that decoder-only transformers share, as tensor tables and graph nodes."""

from __future__ import annotations

import math
from typing import Literal

from lucebox.gguf.fusion import Fusion
from lucebox.gguf.specs import TensorSpec, Use
from lucebox.models import experts
from lucebox.models.forward import Forward, RopeMode, Section, Tensor
from lucebox.models.hparams import Hparams

FFN_GATE_UP = "ffn_gate_up"
ATTN_QUERY_VALUE = "attn_qv"


def decoder_tensors(
    hparams: Hparams,
    *,
    qkv_bias: Literal["none", "optional", "required"],
    other_biases: bool = False,
    qk_norm: bool = False,
) -> list[TensorSpec]:
    """Tensors of a pre-norm decoder with grouped-query attention and a gated feed-forward network, or experts
    in its place."""
    h = hparams
    specs = [
        TensorSpec("token_embd.weight", (h.n_embd, h.n_vocab), Use.TABLE),
        TensorSpec("output_norm.weight", (h.n_embd,), Use.VECTOR),
        TensorSpec("output.weight", (h.n_embd, h.n_vocab), Use.MATRIX, tied_to="token_embd.weight"),
    ]
    for layer in range(h.n_layers):
        block = f"blk.{layer}."
        for name in ("attn_norm", "ffn_norm"):
            specs.append(TensorSpec(f"{block}{name}.weight", (h.n_embd,), Use.VECTOR))
        if qk_norm:
            for name in ("attn_q_norm", "attn_k_norm"):
                specs.append(TensorSpec(f"{block}{name}.weight", (h.head_dim_k,), Use.VECTOR))
        if h.experts is not None:
            specs += experts.tensors(h.experts, block, h.n_embd)
        for name, n_in, n_out in _matrices(h):
            specs.append(TensorSpec(f"{block}{name}.weight", (n_in, n_out), Use.MATRIX))
            is_qkv = name in ("attn_q", "attn_k", "attn_v")
            if (is_qkv and qkv_bias != "none") or (not is_qkv and other_biases):
                optional = not is_qkv or qkv_bias == "optional"
                specs.append(TensorSpec(f"{block}{name}.bias", (n_out,), Use.VECTOR, optional=optional))
    return specs


def _matrices(hparams: Hparams) -> list[tuple[str, int, int]]:
    """Name, inputs and outputs of each matrix of a layer that every row is multiplied with."""
    h = hparams
    matrices = [
        ("attn_q", h.n_embd, h.n_embd_q),
        ("attn_k", h.n_embd, h.n_embd_k),
        ("attn_v", h.n_embd, h.n_embd_v),
        ("attn_output", h.n_heads * h.head_dim_v, h.n_embd),
    ]
    if h.experts is None:
        matrices += [
            ("ffn_gate", h.n_embd, h.n_ff),
            ("ffn_up", h.n_embd, h.n_ff),
            ("ffn_down", h.n_ff, h.n_embd),
        ]
    return matrices


def decoder_fusions(hparams: Hparams) -> list[Fusion]:
    """Matrices of `decoder_tensors` that multiply the same input, in the order in which files hold them."""
    fusions = []
    for layer in range(hparams.n_layers):
        block = f"blk.{layer}."
        query_value = (f"{block}attn_q.weight", f"{block}attn_v.weight")
        for kind in ("", experts.SHARED):
            gate_up = (f"{block}ffn_gate{kind}.weight", f"{block}ffn_up{kind}.weight")
            fusions.append(Fusion(f"{block}{FFN_GATE_UP}{kind}.weight", gate_up))
        fusions.append(Fusion(f"{block}{ATTN_QUERY_VALUE}.weight", query_value))
    return fusions


def build_decoder(forward: Forward, hparams: Hparams, rope_mode: RopeMode) -> None:
    """The whole network: embedding, layers, and the head for the rows that want something."""
    x = forward.embed("token_embd.weight")
    for layer in range(hparams.n_layers):
        is_last = layer == hparams.n_layers - 1
        block = f"blk.{layer}."
        forward.begin(Section.LAYER, layer)
        normed = forward.rms_norm(x, block + "attn_norm.weight", hparams.norm_eps)
        query = attention_inputs(
            forward, hparams, layer, normed, rope_mode, needs_query=_is_used(forward, is_last)
        )
        if query is None:
            return  # nothing is wanted of any row: the last keys and values are all that was missing
        attended = attention(forward, hparams, layer, query)
        if is_last:
            attended, x = forward.select_outputs(attended), forward.select_outputs(x)
        x = forward.add(forward.linear(attended, block + "attn_output"), x)
        normed = forward.rms_norm(x, block + "ffn_norm.weight", hparams.norm_eps)
        x = forward.add(feed_forward(forward, hparams, block, normed), x)
    forward.begin(Section.OUTPUT)
    hidden = forward.rms_norm(x, "output_norm.weight", hparams.norm_eps)
    forward.finish(hidden, "output")


def attention_inputs(
    forward: Forward, hparams: Hparams, layer: int, x: Tensor, rope_mode: RopeMode, *, needs_query: bool
) -> Tensor | None:
    """Stores keys and values of `layer`; returns the rotated queries [head_dim, n_heads, n_rows]."""
    h, block = hparams, f"blk.{layer}."
    query = None
    if forward.has(f"{block}{ATTN_QUERY_VALUE}.weight"):
        both, width = forward.linear(x, block + ATTN_QUERY_VALUE), h.n_embd_q + h.n_embd_v
        query = forward.heads_within(both, width, 0, h.head_dim_k, h.n_heads) if needs_query else None
        value = forward.heads_within(both, width, h.n_embd_q, h.head_dim_v, h.n_heads_kv)
    else:
        if needs_query:
            query = forward.heads(forward.linear(x, block + "attn_q"), h.head_dim_k, h.n_heads)
        value = forward.heads(forward.linear(x, block + "attn_v"), h.head_dim_v, h.n_heads_kv)
    key = forward.heads(forward.linear(x, block + "attn_k"), h.head_dim_k, h.n_heads_kv)
    if forward.has(f"{block}attn_k_norm.weight"):
        key = forward.rms_norm(key, f"{block}attn_k_norm.weight", h.norm_eps)
    key = forward.rope(key, h.rope, rope_mode)
    if query is not None:
        if forward.has(f"{block}attn_q_norm.weight"):
            query = forward.rms_norm(query, f"{block}attn_q_norm.weight", h.norm_eps)
        query = forward.rope(query, h.rope, rope_mode)
        forward.expand(query)
    forward.store(layer, key, value)
    return query


def attention(forward: Forward, hparams: Hparams, layer: int, query: Tensor) -> Tensor:
    """Grouped-query attention of [head_dim, n_heads, n_rows] over the cells; [n_heads * head_dim_v,
    n_rows]."""
    return forward.attend(layer, query, scale=1.0 / math.sqrt(hparams.head_dim_k))


def feed_forward(forward: Forward, hparams: Hparams, block: str, x: Tensor) -> Tensor:
    """One network for all rows, or the experts that each picks, with the shared one's answer on top."""
    if hparams.experts is None:
        return gated_ffn(forward, block, x)
    routed = experts.mixture(forward, hparams.experts, block, x)
    if not hparams.experts.n_ff_shared:
        return routed
    shared = gated_ffn(forward, block, x, experts.SHARED)
    gate = forward.sigmoid(forward.product_by_row(x, block + experts.SHARED_GATE))
    return forward.add(routed, forward.multiply(shared, gate))


def gated_ffn(forward: Forward, block: str, x: Tensor, kind: str = "") -> Tensor:
    """down(silu(gate(x)) * up(x)), SwiGLU (arXiv:2002.05202)."""
    if forward.has(f"{block}{FFN_GATE_UP}{kind}.weight"):
        inner = forward.swiglu_halves(forward.linear(x, f"{block}{FFN_GATE_UP}{kind}"))
    else:
        up = forward.linear(x, f"{block}ffn_up{kind}")
        inner = forward.swiglu(forward.linear(x, f"{block}ffn_gate{kind}"), up)
    return forward.linear(inner, f"{block}ffn_down{kind}")


def _is_used(forward: Forward, is_last: bool) -> bool:
    return not is_last or forward.n_outputs > 0
