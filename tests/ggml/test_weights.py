"""Weights: matched against what an architecture expects, placed, and computed with as the file says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lucebox import models
from lucebox.errors import ConfigError, ModelFileError, UnsupportedModelError
from lucebox.ggml.devices import find_device
from lucebox.ggml.library import Library, load
from lucebox.gguf.fusion import fuse_adjacent
from lucebox.gguf.placement import choose_placements
from lucebox.gguf.reader import GgufFile, read
from lucebox.gguf.specs import match_specs
from lucebox.gguf.weights import Placement, Weights
from lucebox.runtime.rows import Rows, Want
from lucebox.runtime.runtime import Runtime
from tests.support.tiny_models import write_tiny


def _placements(file: GgufFile) -> list[Placement]:
    architecture = models.for_file(file)
    matched = match_specs(file, architecture.tensors(architecture.hparams(file)))
    return choose_placements(load(), [find_device("CPU")], file, matched)


def _logits(path: Path) -> NDArray[np.float32]:
    with Runtime.load(path, device="CPU", n_threads=2, n_ctx=128, kv_type="f32") as runtime:
        rows = Rows.chain(0, list(range(40, 70)), 0, want_all=Want.LOGITS)
        return runtime.forward(rows).logits.copy()


def test_plain_weights_are_not_copied(tmp_path: Path) -> None:
    with read(write_tiny(tmp_path / "tiny.gguf", "qwen2")) as file:
        placements = _placements(file)
        assert all(placement.is_mapped for placement in placements)
        progress: list[float] = []
        weights = Weights.load(load(), [find_device("CPU")], file, placements, on_progress=progress.append)
        assert weights.allocated_bytes == 0
        assert set(weights.tensors) == set(file.tensors)
        info = file.tensor("blk.1.ffn_up.weight")
        assert load().ggml_get_data(weights.tensors[info.name]) == file.address() + info.offset
        assert progress == [1.0]
        weights.close()
        weights.close()


def test_repacked_weights_are_copied_and_mean_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", dtype="q4_0")
    with read(path) as file:
        placements = _placements(file)
        copied = [placement for placement in placements if not placement.is_mapped]
        assert {placement.spec.name for placement in copied} == {
            name for name in file.tensors if name.endswith(".weight") and _is_matrix(name)
        }
        progress: list[float] = []
        weights = Weights.load(
            load(), [find_device("CPU")], file, placements, n_threads=2, on_progress=progress.append
        )
        assert weights.allocated_bytes >= sum(placement.info.n_bytes for placement in copied)
        assert progress[0] == 0.0
        assert progress[-1] == 1.0
        assert progress == sorted(progress)
        weights.close()
    repacked = _logits(path)
    monkeypatch.setattr(Library, "extra_buffer_types", lambda self, device: [])
    np.testing.assert_allclose(repacked, _logits(path), atol=1e-3)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "q8_0", "q5_0", "q4_1", "q4_0"])
def test_quantised_files_compute_what_their_values_say(tmp_path: Path, dtype: str) -> None:
    """Against the same values stored as float32: activations are rounded, weights must not be mistaken."""
    quantised = write_tiny(tmp_path / "quantised.gguf", dtype=dtype)
    with read(quantised) as file:
        values = {name: _dequantise(file, name) for name in file.tensors}
    plain = write_tiny(tmp_path / "plain.gguf", tensors=values)
    a, b = _logits(quantised), _logits(plain)
    assert np.corrcoef(a.ravel(), b.ravel())[0, 1] > 0.995


def test_a_tied_head_is_the_embedding(tmp_path: Path) -> None:
    tied = write_tiny(tmp_path / "tied.gguf", tied=True)
    with read(tied) as file:
        embedding = _dequantise(file, "token_embd.weight")
        assert "output.weight" not in file.tensors
    untied = write_tiny(tmp_path / "untied.gguf", tied=True, tensors={"output.weight": embedding})
    assert np.array_equal(_logits(tied), _logits(untied))


def _zeros(*shape: int) -> NDArray[np.float32]:
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    ("tensors", "error", "message"),
    [
        ({"blk.1.ffn_up.weight": None}, ModelFileError, "tensor blk.1.ffn_up.weight: is missing"),
        ({"output_norm.weight": None}, ModelFileError, "tensor output_norm.weight: is missing"),
        (
            {"blk.0.attn_k.weight": _zeros(64, 64)},
            ModelFileError,
            r"blk.0.attn_k.weight: has shape \(64, 64\)",
        ),
        ({"output.weight": _zeros(100, 64)}, ModelFileError, r"output.weight: has shape \(64, 100\)"),
        ({"blk.0.attn_norm.weight": _zeros(64, 64)}, ModelFileError, "blk.0.attn_norm.weight: has shape"),
        ({"token_embd.weight": None}, ModelFileError, "tensor token_embd.weight: is missing"),
        ({"token_embd.weight": _zeros(64)}, UnsupportedModelError, "token_embd.weight: has 1 dimensions"),
        ({"rope_freqs.weight": _zeros(3)}, ModelFileError, r"rope_freqs.weight: has shape \(3,\)"),
        (
            {"blk.0.attn_q_norm.weight": _zeros(16)},
            UnsupportedModelError,
            "blk.0.attn_q_norm.weight: is not part",
        ),
        ({"blk.2.ffn_up.weight": _zeros(128, 64)}, UnsupportedModelError, "blk.2.ffn_up.weight: is not part"),
    ],
)
def test_tensors_that_are_not_what_they_should_be(
    tmp_path: Path, tensors: Mapping[str, Any], error: type[Exception], message: str
) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", tensors=tensors)
    with pytest.raises(error, match=message) as caught:
        _logits(path)
    assert str(path) in str(caught.value)
    assert caught.value.remedy  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"llama.attention.head_count": 3}, "head_count_kv: 2 does not divide the 3 heads"),
        ({"llama.attention.head_count_kv": [2, 1]}, "head_count_kv: differs between layers"),
        ({"llama.attention.head_count_kv": [7, 7]}, "head_count_kv: 7 is not within 1 to 4"),
        ({"llama.block_count": 0}, "block_count: 0 is not within"),
        ({"llama.block_count": 3}, "blk.2.attn_norm.weight: is missing"),
        ({"llama.block_count": None}, "block_count: the key is missing"),
        ({"llama.embedding_length": "64"}, "embedding_length: '64' is not a whole number"),
        ({"llama.attention.layer_norm_rms_epsilon": -1.0}, "layer_norm_rms_epsilon"),
        ({"llama.rope.dimension_count": 15}, "dimension_count: 15 is odd"),
        ({"llama.rope.dimension_count": 32}, "dimension_count: 32 is not within"),
        ({"llama.rope.scaling.type": "longrope"}, "'longrope' is not implemented"),
        ({"llama.expert_count": 8}, "expert_used_count: the key is missing"),
        ({"llama.attention.causal": False}, "not a causal one"),
        ({"llama.vocab_size": 7}, "vocab_size"),
    ],
)
def test_metadata_that_cannot_be_run(tmp_path: Path, metadata: Mapping[str, Any], message: str) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", metadata=metadata)
    with pytest.raises(ModelFileError, match=message):
        _logits(path)


def test_uniform_counts_may_be_given_per_layer(tmp_path: Path) -> None:
    plain = write_tiny(tmp_path / "plain.gguf")
    arrays = {"llama.attention.head_count_kv": [2, 2], "llama.feed_forward_length": [128, 128]}
    per_layer = write_tiny(tmp_path / "arrays.gguf", metadata=arrays)
    assert np.array_equal(_logits(plain), _logits(per_layer))


def test_types_that_ggml_cannot_multiply_are_refused(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", dtype="f16")
    raw = bytearray(path.read_bytes())
    entry = raw.index(b"blk.0.ffn_up.weight") + len("blk.0.ffn_up.weight") + 4 + 2 * 8
    assert raw[entry] == 1, "float16"
    raw[entry : entry + 4] = (25).to_bytes(4, "little")  # int16: as many bytes
    path.write_bytes(raw)
    with pytest.raises(UnsupportedModelError, match=r"tensor blk\.0\.ffn_up\.weight: has type I16"):
        _logits(path)


def test_unknown_architectures_are_named(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", arch="mamba", metadata={"tokenizer.ggml.pre": "qwen2"})
    with pytest.raises(UnsupportedModelError, match=r"'mamba' is not implemented .*llama.*qwen2"):
        _logits(path)
    assert "mamba" not in models.names()
    with pytest.raises(ConfigError, match=r"Unknown models 'lama'.*llama"):
        models.get("lama")


def _is_matrix(name: str) -> bool:
    return "norm" not in name and name != "token_embd.weight"


def _dequantise(file: GgufFile, name: str) -> NDArray[np.float32]:
    import gguf

    info = file.tensor(name)
    rows = file.data(name).copy().reshape(*info.shape[:0:-1], -1)
    if info.type in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16):
        dtype = np.float32 if info.type == gguf.GGMLQuantizationType.F32 else np.float16
        return np.asarray(rows.view(dtype), np.float32).reshape(info.shape[::-1])
    return np.asarray(gguf.dequantize(rows, info.type), np.float32)


def test_fused_matrices_compute_the_same(tmp_path: Path) -> None:
    paths = {
        "gate_up": write_tiny(tmp_path / "written.gguf", "llama"),
        "qv": write_tiny(tmp_path / "sorted.gguf", "llama", sort_tensors=True),
    }
    for fused, path in paths.items():
        with read(path) as file:
            architecture = models.for_file(file)
            hparams = architecture.hparams(file)
            matched = match_specs(file, architecture.tensors(hparams))
            names = {spec.name for spec, _ in fuse_adjacent(matched, architecture.fusions(hparams))}
        assert {pair for pair in paths if any(name.endswith(f"_{pair}.weight") for name in names)} == {fused}
    np.testing.assert_allclose(_logits(paths["gate_up"]), _logits(paths["qv"]), atol=2e-5)
