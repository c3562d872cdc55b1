"""Models re-quantised while loading, with whole heads and cut ones: near the original, by the type's bits."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

from lucebox import models
from lucebox.errors import ConfigError
from lucebox.ggml.devices import find_device
from lucebox.ggml.library import Library, load
from lucebox.gguf.conversion import RowConverter
from lucebox.gguf.placement import choose_placements
from lucebox.gguf.reader import read
from lucebox.gguf.requantise import TYPES, Requantise
from lucebox.gguf.specs import TensorSpec, Use, match_specs
from lucebox.gguf.tensors import TensorInfo
from lucebox.runtime.rows import Rows, Want
from lucebox.runtime.runtime import Runtime
from lucebox.sampling.params import SamplingParams
from tests.support.tiny_engines import LocalEngine, tiny_config
from tests.support.tiny_models import TinySpec, tiny_tensors, write_tiny

WIDE = {"n_embd": 256, "n_ff": 256, "n_layer": 1}  # whole blocks of every type
# Correlation of the logits with those of float32, at least.
NEAR = {"f16": 0.9999, "bf16": 0.999, "q8_0": 0.999, "q6_k": 0.995, "q5_k": 0.99, "q5_1": 0.99, "q5_0": 0.98}
NEAR |= {"q4_k": 0.96, "q4_1": 0.96, "q4_0": 0.95, "iq4_nl": 0.95, "iq4_xs": 0.95, "mxfp4": 0.9}
NEAR |= {"q3_k": 0.85, "q2_k": 0.6}
HEAD_AND_TABLE = ("output.weight", "token_embd.weight")


def logits(path: Path, **options: Any) -> NDArray[np.float32]:
    with Runtime.load(path, device="CPU", n_threads=2, n_ctx=128, kv_type="f32", **options) as runtime:
        rows = Rows.chain(0, list(range(40, 70)), 0, want_all=Want.LOGITS)
        return runtime.forward(rows).logits.copy()


@pytest.mark.parametrize("kind", [kind.name.lower() for kind in TYPES])
def test_every_type_is_near_the_original(tmp_path: Path, kind: str) -> None:
    path = write_tiny(tmp_path / "m.gguf", **WIDE)
    original, requantised = logits(path), logits(path, quantise=kind)
    assert np.corrcoef(original.ravel(), requantised.ravel())[0, 1] > NEAR[kind]
    assert not np.array_equal(original, requantised)


@pytest.mark.parametrize("dtype", ["f16", "q8_0", "q4_1", "tq2_0"])
def test_any_type_can_be_converted(tmp_path: Path, dtype: str) -> None:
    path = write_tiny(tmp_path / "m.gguf", dtype=dtype, **WIDE)
    pair = logits(path).ravel(), logits(path, quantise="q8_0").ravel()
    assert np.corrcoef(*pair)[0, 1] > 0.99


def test_matrices_are_those_of_ggmls_own_quantiser(tmp_path: Path) -> None:
    """Of many blocks and parts: none is left out or misplaced."""
    rng = np.random.default_rng(0)
    n_in, n_out = 32, 100_000
    values = rng.standard_normal((n_out, n_in)).astype(np.float16)
    source = TensorInfo("m", (n_in, n_out), Type.F16, values.nbytes, 0)
    target = TensorInfo("m", (n_in, n_out), Type.Q8_0, n_out * 34, 0)
    converter = RowConverter(load(), source, target)
    blocks = list(converter.blocks())
    assert len(blocks) > 3
    out = np.zeros((n_out, 34), np.uint8)
    for block in blocks:
        converter.convert(block, values.ctypes.data, out[block.first :].ctypes.data)
    scales = out[:, :2].copy().view(np.float16).astype(np.float32)
    np.testing.assert_allclose(out[:, 2:].view(np.int8) * scales, values, atol=0.03)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("quantise", ["keep", "q4_0"])
def test_a_cut_head_says_the_same_of_the_first_tokens(tmp_path: Path, tied: bool, quantise: str) -> None:
    path = write_tiny(tmp_path / "m.gguf", tied=tied, sharpness=1.0)
    whole, cut = logits(path, quantise=quantise), logits(path, quantise=quantise, n_head_rows=64)
    assert cut.shape == (len(whole), 64)
    np.testing.assert_allclose(cut, whole[:, :64], rtol=1e-6, atol=1e-6)


def test_a_cut_head_still_takes_every_token(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "m.gguf")
    with Runtime.load(path, device="CPU", n_threads=1, n_ctx=64, n_head_rows=8) as runtime:
        assert runtime.n_vocab == 272
        assert runtime.forward(Rows.chain(0, [271, 100], 0)).logits.shape == (1, 8)


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "m.gguf")
    with pytest.raises(ConfigError, match="more than the 272 tokens"):
        logits(path, n_head_rows=273)
    with pytest.raises(ConfigError, match="no matrix has rows of whole blocks of 256"):
        logits(path, quantise="q4_k")
    with pytest.raises(ConfigError, match="is no type"):
        logits(path, quantise="q9")


def test_auto_is_for_layouts_that_are_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tiny(tmp_path / "m.gguf", dtype="f16")
    auto, q4_0, kept = logits(path, quantise="auto"), logits(path, quantise="q4_0"), logits(path)
    assert np.array_equal(auto, q4_0)
    assert not np.array_equal(auto, kept)
    monkeypatch.setattr(Library, "extra_buffer_types", lambda self, device: [])
    assert np.array_equal(logits(path, quantise="auto"), kept)


def test_tables_and_vectors_stay_mapped(tmp_path: Path) -> None:
    with read(write_tiny(tmp_path / "m.gguf", "qwen2", dtype="f16", tied=True)) as file:
        architecture = models.for_file(file)
        matched = match_specs(file, architecture.tensors(architecture.hparams(file)))
        devices = [find_device("CPU")]
        placements = choose_placements(load(), devices, file, matched, Requantise(Type.Q8_0))
        for placement in placements:
            assert placement.is_converted == (placement.spec.use is Use.MATRIX)
            assert placement.is_mapped == (not placement.is_converted)
        head, table = (next(p for p in placements if p.spec.name == n) for n in HEAD_AND_TABLE)
        assert (head.info, head.stored.type) == (table.info, Type.Q8_0)


def test_memory_is_that_of_a_few_matrices(tmp_path: Path) -> None:
    """Staging takes what a few tasks need, however many matrices there are."""
    path = write_tiny(tmp_path / "m.gguf", n_layer=24, n_ff=2048, n_embd=256)
    largest = 2048 * 256 * 34 // 32
    tracemalloc.start()
    try:
        with Runtime.load(path, device="CPU", n_threads=2, n_ctx=64, quantise="q8_0") as runtime:
            assert runtime.cache.n_cells == 256
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    converted = 24 * 3 * largest
    print(f"peak {peak / 2**20:.1f} MiB, converted {converted / 2**20:.1f} MiB")
    assert peak < converted / 2


@pytest.mark.parametrize("quantise", ["q8_0", "q4_0"])
@pytest.mark.parametrize("n_head_rows", [None, 128])
def test_the_target_drafts_for_itself(tmp_path: Path, quantise: str, n_head_rows: int | None) -> None:
    plain = tiny_config(tmp_path)
    draft = msgspec.structs.replace(plain.target, quantise=quantise, n_head_rows=n_head_rows)
    drafted = msgspec.structs.replace(plain, draft=draft, drafters=("model",))
    params = SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True)
    answers = []
    for config in (plain, drafted):
        with LocalEngine(config) as engine:
            answers.append(engine.ask([7, 8, 9], params))
    assert answers[0].tokens == answers[1].tokens
    timings = answers[1].finish.timings
    print(f"{quantise}: {timings.draft_n_accepted} of {timings.draft_n} accepted")
    assert timings.draft_n_accepted > (0.5 if n_head_rows is None else 0.1) * timings.draft_n


def test_what_changes_its_type_is_not_packed_for_our_own_kernels(tmp_path: Path) -> None:
    with Runtime.load(
        write_tiny(tmp_path / "f32.gguf", **WIDE), device="CPU", n_threads=1, n_ctx=64
    ) as runtime:
        file, architecture, hparams = runtime.file, runtime.architecture, runtime.hparams
        matched = [
            (spec, as_q4_k(info) if spec.use is Use.MATRIX else info)
            for spec, info in match_specs(file, architecture.tensors(hparams))
        ]
        for requantise in (Requantise(Type.Q8_0), None):
            placements = choose_placements(
                load(), runtime.layout.devices, file, matched, requantise, packs=True
            )
            matrices = [placement for placement in placements if placement.spec.use is Use.MATRIX]
            assert {placement.is_converted for placement in matrices} == {requantise is not None}
            assert {placement.is_packed for placement in matrices} == {requantise is None}


def as_q4_k(info: TensorInfo) -> TensorInfo:
    """As a file would have it that was quantised so."""
    changed = Requantise(Type.Q4_K).converted(TensorSpec(info.name, info.shape, Use.MATRIX), info)
    assert changed is not None
    return changed


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38, 1e-40])
@pytest.mark.parametrize("kind", [kind.name.lower() for kind in TYPES])
def test_no_numbers_make_ggml_abort(tmp_path: Path, kind: str, value: float) -> None:
    weights = tiny_tensors(TinySpec(**WIDE))["blk.0.ffn_up.weight"]
    weights[3, 5:9] = value
    weights[4] = value
    path = write_tiny(tmp_path / "m.gguf", tensors={"blk.0.ffn_up.weight": weights}, **WIDE)
    assert logits(path, quantise=kind).shape == (30, 272)
