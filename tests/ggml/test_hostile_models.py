"""Sound files of odd or impossible networks: they run, or are refused in words. ggml never aborts."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lucebox.api import Engine
from lucebox.errors import LogitsError, ModelFileError
from lucebox.sampling.params import SamplingParams
from tests.support.tiny_models import TinySpec, tiny_tensors, write_tiny

GREEDY = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
TENSORS = tiny_tensors(TinySpec())


def answer(path: Path) -> list[int]:
    """A prompt of several rows, then single rows."""
    with Engine(str(path), threads=1, ctx_size=64) as engine:
        return engine.generate([1, 2, 3] * 13, GREEDY).tokens


@pytest.mark.parametrize("head_dim", [2, 6, 10, 20, 33, 72, 80, 112, 256, 576])
def test_any_head_size_runs(tmp_path: Path, head_dim: int) -> None:
    rope = {"llama.rope.dimension_count": head_dim // 2 * 2}
    assert len(answer(write_tiny(tmp_path / "m.gguf", head_dim=head_dim, metadata=rope))) == 4


@pytest.mark.parametrize("key_length", [6, 576])
def test_keys_and_values_may_differ_in_size(tmp_path: Path, key_length: int) -> None:
    rng = np.random.default_rng(0)
    lengths = {"attention.key_length": key_length, "rope.dimension_count": key_length}
    tensors = {}
    for layer in range(TinySpec().n_layer):
        tensors[f"blk.{layer}.attn_q.weight"] = rng.standard_normal((4 * key_length, 64))
        tensors[f"blk.{layer}.attn_k.weight"] = rng.standard_normal((2 * key_length, 64))
    metadata = {f"llama.{key}": value for key, value in lengths.items()}
    metadata["llama.attention.value_length"] = 16
    assert len(answer(write_tiny(tmp_path / "m.gguf", metadata=metadata, tensors=tensors))) == 4


@pytest.mark.parametrize("dtype", ["q4_1", "q5_0", "q8_0", "bf16", "tq1_0", "tq2_0"])
def test_uncommon_types_of_weights_run(tmp_path: Path, dtype: str) -> None:
    assert len(answer(write_tiny(tmp_path / "m.gguf", dtype=dtype, n_embd=256, n_ff=256))) == 4


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["output.weight", "token_embd.weight", "blk.0.attn_v.weight"])
def test_weights_without_sense_fail_the_request_only(tmp_path: Path, name: str, value: float) -> None:
    path = write_tiny(tmp_path / "m.gguf", tensors={name: np.full_like(TENSORS[name], value)})
    with Engine(str(path), threads=1, ctx_size=64) as engine:
        for _ in range(2):
            with pytest.raises(LogitsError):
                engine.generate([1, 2, 3], GREEDY)


def reshaped(name: str) -> dict[str, Any]:
    """What may be wrong with the tensor `name`."""
    array = TENSORS[name]
    return {
        "absent": None,
        "short": array[:-1],
        "three-dimensional": np.stack([array, array])[None] if array.ndim == 1 else array[None],
        "transposed": array.T if array.shape != array.T.shape else array.reshape(-1, 1),
    }


@pytest.mark.parametrize("wrong", ["absent", "short", "three-dimensional", "transposed"])
@pytest.mark.parametrize(
    "name", ["token_embd.weight", "output_norm.weight", "blk.1.attn_k.weight", "blk.0.ffn_down.weight"]
)
def test_a_tensor_of_the_wrong_shape_is_named(tmp_path: Path, name: str, wrong: str) -> None:
    path = write_tiny(tmp_path / "m.gguf", tensors={name: reshaped(name)[wrong]})
    with pytest.raises(ModelFileError, match=r"tensor |vocab_size"):
        answer(path)


@pytest.mark.parametrize("factor", [1e-45, 0.5, 1e38])
@pytest.mark.parametrize(
    "more", [{}, {"yarn_beta_fast": -5.0, "yarn_beta_slow": 1e38}, {"original_context_length": 1}]
)
def test_absurd_rope_scaling_aborts_nothing(tmp_path: Path, factor: float, more: dict[str, Any]) -> None:
    given = {"type": "yarn", "factor": factor, **more}
    metadata = {f"llama.rope.scaling.{key}": value for key, value in given.items()}
    path = write_tiny(tmp_path / "m.gguf", metadata=metadata)
    with contextlib.suppress(LogitsError):  # NaN is an honest outcome
        assert len(answer(path)) == 4
