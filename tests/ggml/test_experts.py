"""Mixtures of experts: rows do not depend on their company, files are checked, and drafts change nothing."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lucebox import models
from lucebox.api import Engine
from lucebox.cli import main
from lucebox.errors import ConfigError, LogitsError, ModelFileError, UnsupportedModelError
from lucebox.ggml.devices import find_device
from lucebox.ggml.library import load
from lucebox.gguf import packing
from lucebox.gguf.placement import choose_placements
from lucebox.gguf.reader import read
from lucebox.gguf.requantise import Requantise, parse_type
from lucebox.gguf.specs import Use, match_specs
from lucebox.gguf.weights import Placement
from lucebox.runtime.rows import Rows, Want
from lucebox.runtime.runtime import Runtime
from lucebox.sampling.params import SamplingParams, SpeculativeParams
from tests.support.mixed_devices import VULKAN, EngineProcess, need
from tests.support.tiny_engines import LocalEngine, tiny_config
from tests.support.tiny_models import TinySpec, tiny_tensors, write_tiny

N_EXPERT = 24  # more than the 16 that std::sort treats apart
MOE: dict[str, Any] = {"n_expert": N_EXPERT, "n_expert_used": 3, "n_ff": 64}
WIDE: dict[str, Any] = {**MOE, "n_embd": 256, "n_ff": 256, "n_vocab": 64}  # whole blocks of every type
TENSORS = tiny_tensors(TinySpec(**MOE))
MAX_LOGPROB_ERROR = 0.02  # in nats: Vulkan's attention computes in half precision
GREEDY = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
TOKENS = np.random.default_rng(0).integers(0, 60, 64).tolist()


def logits(path: Path, **options: Any) -> NDArray[np.float32]:
    with Runtime.load(path, device="CPU", n_threads=2, n_ctx=128, kv_type="f32", **options) as runtime:
        return runtime.forward(Rows.chain(0, TOKENS[:30], 0, want_all=Want.LOGITS)).logits.copy()


def placed(path: Path, requantise: Requantise | None = None, *, packs: bool = False) -> list[Placement]:
    with read(path) as file:
        architecture = models.for_file(file)
        matched = match_specs(file, architecture.tensors(architecture.hparams(file)))
        return choose_placements(load(), [find_device("CPU")], file, matched, requantise, packs=packs)


@pytest.mark.skipif(not packing.is_available(), reason="needs AVX-512 VNNI")
@pytest.mark.parametrize("dtype", ["q4_k", "q6_k"])
def test_a_row_is_the_same_in_any_company(tmp_path: Path, dtype: str) -> None:
    """To the bit where our own kernels multiply: alone, in chains, in trees, beside another sequence."""
    path = write_tiny(tmp_path / "m.gguf", dtype=dtype, **WIDE)
    with Runtime.load(path, device="CPU", n_threads=2, n_ctx=128, n_sequences=2) as runtime:
        runtime.forward(Rows.chain(0, TOKENS[:9], 0, want_last=Want.NOTHING))
        runtime.cache.commit(0, range(9))
        alone = []
        for i, token in enumerate(TOKENS[9:49]):
            alone.append(runtime.forward(Rows.chain(0, [token], 9 + i)).logits[0].copy())
            runtime.cache.commit(0, [0])
        runtime.cache.truncate(0, 9)
        for n in (2, 5, 9, 33, 40):
            chain = Rows.chain(0, TOKENS[9 : 9 + n], 9, want_all=Want.LOGITS)
            np.testing.assert_array_equal(runtime.forward(chain).logits, np.array(alone[:n]))
        tree = Rows.tree(0, [TOKENS[9], 1, TOKENS[10], 2, 3, TOKENS[11]], [-1, -1, 0, 0, 1, 2], 9)
        beside = Rows.concatenate([Rows.chain(1, TOKENS[:7], 0, want_all=Want.LOGITS), tree])
        for rows, places in ((tree, (0, 2, 5)), (beside, (7, 9, 12))):
            got = runtime.forward(rows).logits[list(places)]
            np.testing.assert_array_equal(got, np.array(alone[:3]))


@pytest.mark.parametrize("dtype", ["f16", "q8_0", "q4_0", "q4_k"])
def test_quantised_experts_are_near_the_original(tmp_path: Path, dtype: str) -> None:
    original = logits(write_tiny(tmp_path / "f32.gguf", **WIDE)).ravel()
    stored = logits(write_tiny(tmp_path / "q.gguf", dtype=dtype, **WIDE)).ravel()
    assert np.corrcoef(original, stored)[0, 1] > (0.99 if dtype in ("f16", "q8_0") else 0.8)


@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
def test_requantised_experts_are_those_of_a_requantised_file(tmp_path: Path, kind: str) -> None:
    """And the router is left alone."""
    path = write_tiny(tmp_path / "f32.gguf", **WIDE)
    while_loading = logits(path, quantise=kind)
    with read(write_tiny(tmp_path / "q.gguf", dtype=kind, **WIDE)) as file:
        assert file.tensors["blk.0.ffn_up_exps.weight"].type == parse_type(kind)
        beforehand = logits(file.path)
    assert np.corrcoef(while_loading.ravel(), beforehand.ravel())[0, 1] > 0.95
    changed = {p.spec.name: p.stored.type for p in placed(path, Requantise(parse_type(kind)))}
    assert changed["blk.0.ffn_gate_inp.weight"] == 0
    assert {changed[f"blk.1.ffn_{name}_exps.weight"] for name in ("gate", "up", "down")} == {parse_type(kind)}


def test_experts_lie_where_they_can_be_picked_from(tmp_path: Path) -> None:
    """In a repacking buffer where ggml multiplies from one; never packed by us."""
    path = write_tiny(tmp_path / "m.gguf", dtype="q4_0", **WIDE)
    library, device = load(), find_device("CPU").pointer
    plain = library.ggml_backend_dev_buffer_type(device)
    by_use = {use: [p for p in placed(path, packs=True) if p.spec.use is use] for use in Use}
    assert len(by_use[Use.EXPERTS]) == 2 * 3
    assert not any(p.is_packed for p in by_use[Use.EXPERTS] + by_use[Use.ROUTER])
    assert {p.buffer_type for p in by_use[Use.ROUTER]} == {plain}
    repacks = {p.buffer_type for p in by_use[Use.MATRIX]}
    assert {p.buffer_type for p in by_use[Use.EXPERTS]} == repacks


@pytest.mark.parametrize(("n_expert", "n_used"), [(1, 1), (2, 1), (64, 64)])
def test_any_number_of_experts_runs(tmp_path: Path, n_expert: int, n_used: int) -> None:
    path = write_tiny(tmp_path / "m.gguf", n_expert=n_expert, n_expert_used=n_used, n_ff=32)
    with Engine(str(path), threads=1, ctx_size=64) as engine:
        assert len(engine.generate([1, 2, 3] * 9, GREEDY).tokens) == 4


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("expert_count", 1.5),
        ("expert_count", 2**31),
        ("expert_count", "8"),
        ("expert_used_count", 0),
        ("expert_used_count", N_EXPERT + 1),
        ("expert_used_count", 2**32 - 1),
        ("expert_used_count", None),
        ("expert_feed_forward_length", 0),
        ("expert_feed_forward_length", 2**31),
        ("expert_shared_feed_forward_length", 2**31),
        ("expert_weights_norm", 1),
        ("expert_weights_scale", 2.5),
        ("expert_gating_func", 2),
        ("expert_group_count", 4),
        ("leading_dense_block_count", 1),
        ("interleave_moe_layer_step", 2),
    ],
)
def test_experts_that_cannot_be_name_their_key(tmp_path: Path, key: str, value: Any) -> None:
    with pytest.raises(ModelFileError) as caught:
        logits(write_tiny(tmp_path / "m.gguf", metadata={f"llama.{key}": value}, **MOE))
    assert caught.value.field == f"llama.{key}"


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"llama.expert_count": 8}, "blk.0.ffn_gate_inp.weight"),
        ({"llama.expert_feed_forward_length": 32}, "blk.0.ffn_gate_exps.weight"),
        ({"llama.expert_shared_feed_forward_length": 32}, "blk.0.ffn_gate_inp_shexp.weight"),
        ({"llama.expert_count": 0}, "blk.0.ffn_gate.weight"),
    ],
)
def test_metadata_at_odds_with_the_tensors_are_refused(
    tmp_path: Path, metadata: dict[str, Any], field: str
) -> None:
    with pytest.raises(ModelFileError) as caught:
        logits(write_tiny(tmp_path / "m.gguf", metadata=metadata, **MOE))
    assert caught.value.field == f"tensor {field}"


@pytest.mark.parametrize("name", ["ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"])
@pytest.mark.parametrize("wrong", ["absent", "fewer", "flat"])
def test_a_tensor_of_experts_that_is_wrong_is_named(tmp_path: Path, name: str, wrong: str) -> None:
    tensor = f"blk.1.{name}.weight"
    array = TENSORS[tensor]
    tensors = {tensor: {"absent": None, "fewer": array[:-1], "flat": array.reshape(1, -1)}[wrong]}
    with pytest.raises(ModelFileError) as caught:
        logits(write_tiny(tmp_path / "m.gguf", tensors=tensors, **MOE))
    assert caught.value.field == f"tensor {tensor}"


def test_experts_stored_one_by_one_are_refused_with_what_to_do(tmp_path: Path) -> None:
    tensors: dict[str, Any] = dict.fromkeys(name for name in TENSORS if "_exps" in name)
    for layer in range(TinySpec().n_layer):
        for kind in ("gate", "up", "down"):
            for i, matrix in enumerate(TENSORS[f"blk.{layer}.ffn_{kind}_exps.weight"]):
                tensors[f"blk.{layer}.ffn_{kind}.{i}.weight"] = matrix
    with pytest.raises(UnsupportedModelError, match=r"ffn_gate\.0\.weight") as caught:
        logits(write_tiny(tmp_path / "m.gguf", tensors=tensors, **MOE))
    assert "convert" in str(caught.value.remedy)


@pytest.mark.parametrize("arch", ["qwen2moe", "qwen3moe"])
def test_architectures_of_experts_need_some(tmp_path: Path, arch: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        logits(write_tiny(tmp_path / "m.gguf", arch))
    assert caught.value.field == f"{arch}.expert_count"


def test_other_architectures_have_none(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="mixture of experts is not implemented"):
        logits(write_tiny(tmp_path / "m.gguf", "qwen2", metadata={"qwen2.expert_count": 4}))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("name", ["ffn_gate_inp", "ffn_down_exps"])
@pytest.mark.parametrize("spread", ["all", "every third"])
def test_experts_without_sense_fail_the_request_only(
    tmp_path: Path, name: str, value: float, spread: str
) -> None:
    """Some NaN among the numbers to be sorted would lead std::sort out of its array."""
    tensors = {}
    for layer in range(TinySpec().n_layer):
        array = TENSORS[f"blk.{layer}.{name}.weight"].copy()
        array[:: 1 if spread == "all" else 3] = value
        tensors[f"blk.{layer}.{name}.weight"] = array
    path = write_tiny(tmp_path / "m.gguf", tensors=tensors, **MOE)
    with Engine(str(path), threads=1, ctx_size=64) as engine:
        for _ in range(2):
            try:
                tokens = engine.generate([1, 2, 3] * 9, GREEDY).tokens
            except LogitsError:
                continue
            assert len(tokens) == 4


@pytest.mark.parametrize("sampled", [False, True])
def test_drafts_change_nothing(tmp_path: Path, sampled: bool) -> None:
    """The draft has experts of its own, which agree with the target's often, not always."""
    rng = random.Random(0)
    options = {**MOE, "n_vocab": 40, "n_layer": 2, "sharpness": 3.0, "n_ff": 32}
    asked = []
    for _ in range(16):
        shape = rng.choice(("fixed:n=4", "fixed:n=7", "fixed:n=6,shape=3x2"))
        speculative = SpeculativeParams(acceptance="match" if sampled else "greedy", draft_length=shape)
        params = SamplingParams(
            temperature=0.8 if sampled else 0.0, max_tokens=24, ignore_eos=True, speculative=speculative
        )
        asked.append(([rng.randrange(40) for _ in range(rng.choice((1, 5, 20)))], params))
    with LocalEngine(tiny_config(tmp_path, n_ctx=64, **options)) as engine:
        plain = [engine.ask(prompt, params, seed=3).tokens for prompt, params in asked]
    config = tiny_config(tmp_path, draft={"perturbation": 0.05}, n_ctx=64, n_parallel=3, **options)
    with LocalEngine(config) as engine:
        drafted = [engine.submit(prompt, params, seed=3) for prompt, params in asked]
        engine.run()
    assert [answer.tokens for answer in drafted] == plain
    timings = [answer.finish.timings for answer in drafted]
    assert sum(t.draft_n for t in timings) > sum(t.draft_n_accepted for t in timings) > 100


def test_a_model_without_experts_cannot_keep_them_anywhere(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "dense.gguf")
    with pytest.raises(ConfigError, match=r"dense\.gguf has no experts.*--cpu-moe") as caught:
        Engine(str(path), threads=1, ctx_size=64, cpu_moe=True)
    assert "--cpu-moe" in str(caught.value.remedy)


def test_where_the_cpu_computes_all_experts_are_there_already(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "m.gguf", **MOE)
    answers = []
    for cpu_moe in (False, True):
        with Engine(str(path), threads=1, ctx_size=64, target_device="CPU", cpu_moe=cpu_moe) as engine:
            answers.append(engine.generate([1, 2, 3], GREEDY).tokens)
    assert answers[0] == answers[1]


def test_inspect_counts_experts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(write_tiny(tmp_path / "m.gguf", **MOE))]) == 0
    assert "24, of which a token uses 3" in capsys.readouterr().out
    assert main(["inspect", str(write_tiny(tmp_path / "dense.gguf"))]) == 0
    assert "\nexperts" not in capsys.readouterr().out


def test_a_gpu_leaves_experts_to_the_cpu(tmp_path: Path) -> None:
    """And says what the CPU says alone, with a draft and without."""
    shape = {**MOE, "n_layer": 3}
    path = str(write_tiny(tmp_path / "target.gguf", **shape))
    draft = str(write_tiny(tmp_path / "draft.gguf", **shape, perturbation=0.1))
    prompts = [TOKENS[:5], TOKENS[:40]]
    common = {"target_model": path, "kv_type": "f32", "ctx_size": 128, "threads": 1}
    drafted = {"draft_model": draft, "draft_device": "CPU", "draft_threads": 1, "draft_length": "fixed:n=3"}
    with EngineProcess(tmp_path / "engine.log", {"LUCEBOX_CACHE": str(tmp_path / "cache")}) as process:
        need(VULKAN, found=process.devices())
        plain = process.ask(prompts, 24, target_device="CPU", drafter="none", **common)
        for more in ({"drafter": "none"}, {"drafter": "model", **drafted}):
            found = process.ask(prompts, 24, target_device=VULKAN, cpu_moe=True, **more, **common)
            assert VULKAN in found.target
            for mine, its in zip(found.answers, plain.answers, strict=True):
                assert mine.tokens == its.tokens
                for (_, a), (_, b) in zip((t[0] for t in mine.top), (t[0] for t in its.top), strict=True):
                    assert a == pytest.approx(b, abs=MAX_LOGPROB_ERROR)
