"""Tiny random models of `transformers`, written to GGUF: the oracle of architectures."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.tiny_models import write_tiny

N_VOCAB = 272
N_CTX = 256
_SIZES = {
    "vocab_size": N_VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": N_CTX,
    "rms_norm_eps": 1e-5,
    "initializer_range": 0.2,  # large enough that every part of the network matters to the logits
    "tie_word_embeddings": False,
}


@dataclass(frozen=True, slots=True)
class OracleCase:
    """One configuration of `transformers`, and the metadata that say the same in GGUF."""

    name: str
    arch: str
    config_class: str
    config: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


def _rope(kind: str, **parameters: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10_000.0, **parameters}}


def _mixtral(name: str, *, n_experts: int, n_used: int) -> OracleCase:
    config = {"num_local_experts": n_experts, "num_experts_per_tok": n_used}
    return OracleCase(name, "llama", "MixtralConfig", {**config, **_rope("default")})


_QWEN_EXPERTS = {"num_experts": 20, "num_experts_per_tok": 6, "moe_intermediate_size": 32}
_SHARED_EXPERT = {"shared_expert_intermediate_size": 160}
CASES = (
    OracleCase("llama", "llama", "LlamaConfig"),
    OracleCase("llama-tied", "llama", "LlamaConfig", {"tie_word_embeddings": True}),
    OracleCase("llama-mha", "llama", "LlamaConfig", {"num_key_value_heads": 4}),
    OracleCase("llama-biases", "llama", "LlamaConfig", {"attention_bias": True, "mlp_bias": True}),
    OracleCase("llama-head-dim", "llama", "LlamaConfig", {"head_dim": 32}),
    OracleCase(
        "llama3-rope",
        "llama",
        "LlamaConfig",
        _rope(
            "llama3",
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=64,
        ),
    ),
    OracleCase(
        "llama-linear-rope",
        "llama",
        "LlamaConfig",
        _rope("linear", factor=4.0),
        {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
    ),
    OracleCase(
        "mistral-window",
        "llama",
        "MistralConfig",
        {"sliding_window": 24, "head_dim": 16},
        {"llama.attention.sliding_window": 24},
    ),
    _mixtral("mixtral", n_experts=8, n_used=2),
    _mixtral("mixtral-all", n_experts=3, n_used=3),
    _mixtral("mixtral-one", n_experts=20, n_used=1),
    OracleCase("qwen2moe", "qwen2moe", "Qwen2MoeConfig", {**_QWEN_EXPERTS, **_SHARED_EXPERT}),
    OracleCase(
        "qwen2moe-normalised",
        "qwen2moe",
        "Qwen2MoeConfig",
        {**_QWEN_EXPERTS, **_SHARED_EXPERT, "norm_topk_prob": True},
        {"qwen2moe.expert_weights_norm": True},
    ),
    OracleCase(
        "qwen3moe", "qwen3moe", "Qwen3MoeConfig", {**_QWEN_EXPERTS, "head_dim": 32, "norm_topk_prob": True}
    ),
    OracleCase("qwen2", "qwen2", "Qwen2Config"),
    OracleCase("qwen2-tied", "qwen2", "Qwen2Config", {"tie_word_embeddings": True}),
    OracleCase(
        "qwen2-yarn",
        "qwen2",
        "Qwen2Config",
        _rope("yarn", factor=4.0, original_max_position_embeddings=64),
        {
            "qwen2.rope.scaling.type": "yarn",
            "qwen2.rope.scaling.factor": 4.0,
            "qwen2.rope.scaling.original_context_length": 64,
        },
    ),
)


class Oracle:
    """A `transformers` model in float32 and the GGUF file that holds the same weights."""

    def __init__(self, case: OracleCase, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of packages that are not ours
            import torch
            import transformers

            torch.manual_seed(0)
            config = getattr(transformers, case.config_class)(**{**_SIZES, **case.config})
            config._attn_implementation = "eager"
            self._model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
            for name, parameter in self._model.named_parameters():
                if name.endswith("bias"):  # initialised to zero, which would not be seen
                    torch.nn.init.normal_(parameter, std=0.3)
                elif name.endswith("norm.weight"):  # initialised to one
                    torch.nn.init.normal_(parameter, mean=1.0, std=0.1)
        self._torch = torch
        self.path = self._write(case, folder / f"{case.name}.gguf")

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """float32[n_tokens, n_vocab]."""
        with self._torch.no_grad():
            output = self._model(self._torch.tensor([list(tokens)]))
        return np.asarray(output.logits[0].numpy(), np.float32)

    def hidden(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """float32[n_tokens, n_embd]: behind the final norm."""
        with self._torch.no_grad():
            output = self._model.model(self._torch.tensor([list(tokens)]))
        return np.asarray(output.last_hidden_state[0].numpy(), np.float32)

    def _write(self, case: OracleCase, path: Path) -> Path:
        config = self._model.config
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return write_tiny(
            path,
            case.arch,
            metadata={**_expert_widths(case.arch, config), **case.metadata},
            tensors=self._tensors(case, head_dim),
            n_layer=config.num_hidden_layers,
            n_embd=config.hidden_size,
            n_head=config.num_attention_heads,
            n_head_kv=config.num_key_value_heads,
            head_dim=head_dim,
            n_ff=config.intermediate_size,
            n_expert=getattr(config, "num_local_experts", 0) or getattr(config, "num_experts", 0),
            n_expert_used=getattr(config, "num_experts_per_tok", 0),
            n_ctx=N_CTX,
            n_vocab=N_VOCAB,
            tied=config.tie_word_embeddings,
            rms_eps=config.rms_norm_eps,
        )

    def _tensors(self, case: OracleCase, head_dim: int) -> dict[str, NDArray[np.float32]]:
        tensors = {}
        for name, value in self._model.state_dict().items():
            if name == "lm_head.weight" and self._model.config.tie_word_embeddings:
                continue
            array = np.asarray(value.numpy(), np.float32)
            if name.endswith("experts.gate_up_proj"):
                block = f"blk.{name.split('.')[2]}."
                for kind, part in zip(("gate", "up"), np.split(array, 2, axis=1), strict=True):
                    tensors[f"{block}ffn_{kind}_exps.weight"] = np.ascontiguousarray(part)
                continue
            gguf_name = _gguf_name(name)
            if case.arch == "llama" and gguf_name.split(".")[-2] in ("attn_q", "attn_k"):
                array = _interleave_halves(array, head_dim)
            tensors[gguf_name] = array
        if "llama3" in case.name:
            tensors["rope_freqs.weight"] = self._frequency_divisors(head_dim)
        return tensors

    def _frequency_divisors(self, head_dim: int) -> NDArray[np.float32]:
        plain = 10_000.0 ** (-np.arange(0, head_dim, 2) / head_dim)
        return np.asarray(plain / self._model.model.rotary_emb.inv_freq.numpy(), np.float32)


def _gguf_name(name: str) -> str:
    fixed = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in fixed:
        return fixed[name]
    parts = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "mlp.gate": "ffn_gate_inp",
        "mlp.experts": "ffn_down_exps",
        "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
        "mlp.shared_expert.up_proj": "ffn_up_shexp",
        "mlp.shared_expert.down_proj": "ffn_down_shexp",
        "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    _, _, layer, rest = name.split(".", 3)
    module, _, kind = rest.rpartition(".")
    return f"blk.{layer}.{parts[module]}.{kind if kind == 'bias' else 'weight'}"


def _expert_widths(arch: str, config: Any) -> dict[str, int]:
    """Units of the experts, where the configuration tells them apart from other feed-forward networks."""
    names = {"moe_intermediate_size": "expert", "shared_expert_intermediate_size": "expert_shared"}
    found = {key: getattr(config, name, None) for name, key in names.items()}
    return {f"{arch}.{key}_feed_forward_length": n for key, n in found.items() if n is not None}


def _interleave_halves(array: NDArray[np.float32], head_dim: int) -> NDArray[np.float32]:
    """Rows of each head from (first half, second half) to adjacent pairs, as `llama` files have them."""
    heads = array.reshape(-1, 2, head_dim // 2, *array.shape[1:])
    return np.ascontiguousarray(heads.swapaxes(1, 2)).reshape(array.shape)
