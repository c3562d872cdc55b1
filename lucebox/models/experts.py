"""Mixtures of experts (arXiv:2101.03961, arXiv:2401.04088), as tensor tables and graph nodes."""

from __future__ import annotations

from lucebox.gguf.specs import TensorSpec, Use
from lucebox.models.forward import Forward, Tensor
from lucebox.models.hparams import Experts

SHARED = "_shexp"  # behind the names of the shared expert's matrices
SHARED_GATE = "ffn_gate_inp_shexp"
_ROUTER = "ffn_gate_inp"


def tensors(experts: Experts, block: str, n_embd: int) -> list[TensorSpec]:
    """The router of a layer, its experts in three tensors, and the shared expert with its gate."""
    n, n_ff = experts.n_experts, experts.n_ff
    specs = [
        TensorSpec(f"{block}{_ROUTER}.weight", (n_embd, n), Use.ROUTER),
        TensorSpec(f"{block}ffn_gate_exps.weight", (n_embd, n_ff, n), Use.EXPERTS),
        TensorSpec(f"{block}ffn_up_exps.weight", (n_embd, n_ff, n), Use.EXPERTS),
        TensorSpec(f"{block}ffn_down_exps.weight", (n_ff, n_embd, n), Use.EXPERTS),
    ]
    if n_shared := experts.n_ff_shared:
        specs += [
            TensorSpec(f"{block}{SHARED_GATE}.weight", (n_embd,), Use.ROUTER),
            TensorSpec(f"{block}ffn_gate{SHARED}.weight", (n_embd, n_shared), Use.MATRIX),
            TensorSpec(f"{block}ffn_up{SHARED}.weight", (n_embd, n_shared), Use.MATRIX),
            TensorSpec(f"{block}ffn_down{SHARED}.weight", (n_shared, n_embd), Use.MATRIX),
        ]
    return specs


def mixture(forward: Forward, experts: Experts, block: str, x: Tensor) -> Tensor:
    """The answers of the experts that each row of [n_embd, n_rows] picks, weighed: [n_embd, n_rows]."""
    chosen, weights = forward.route(x, block + _ROUTER, experts.n_used, is_normalised=experts.is_normalised)
    rows = forward.rows_alone(x)
    with forward.experts():
        gate = forward.linear_experts(rows, f"{block}ffn_gate_exps", chosen)
        up = forward.linear_experts(rows, f"{block}ffn_up_exps", chosen)
        answers = forward.linear_experts(forward.swiglu(gate, up), f"{block}ffn_down_exps", chosen)
        return forward.weighted_sum(answers, weights)
