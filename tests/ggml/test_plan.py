"""Plans of tiny models: what is planned is what is then taken, to the byte, and planning takes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lucebox.cli.main import main
from lucebox.config import EngineConfig, ModelConfig
from lucebox.engine.loader import load
from lucebox.engine.messages import Planned
from lucebox.engine.planning import EnginePlanner, settle
from lucebox.errors import ConfigError, OutOfMemoryError, UnsupportedModelError
from lucebox.ggml.devices import list_devices
from lucebox.runtime import memory
from lucebox.runtime.plan import ModelPlan, plan_model
from lucebox.runtime.runtime import Runtime
from tests.support.tiny_models import write_tiny

MIB = 2**20


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(
        tmp_path_factory.mktemp("plan") / "tiny.gguf", "qwen2", dtype="q4_0", n_embd=256, n_ff=512
    )


def config(path: Path, **options: Any) -> ModelConfig:
    return ModelConfig(**{"path": str(path), "device": "CPU", "n_threads": 1, "kv_type": "f16", **options})


def engine(path: Path, **options: Any) -> EngineConfig:
    usual: dict[str, Any] = {"drafters": (), "acceptance": "auto", "draft_length": "auto", "n_parallel": 1}
    return EngineConfig(**{"target": config(path), "draft": None, "n_ctx": 512, **usual, **options})


def taken(runtime: Runtime) -> tuple[int, int, int]:
    """Bytes of weights, keys and values, and computing, over all devices."""
    used = runtime.used_bytes()
    return sum(w for w, _, _ in used), sum(kv for _, kv, _ in used), sum(c for _, _, c in used)


def planned(plan: ModelPlan) -> tuple[int, int, int]:
    return (
        sum(part.weights_bytes for part in plan.devices),
        sum(part.kv_bytes for part in plan.devices),
        sum(part.compute_bytes for part in plan.devices),
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kv_type": "f32"},
        {"kv_type": "q8_0"},
        {"kv_type": "q4_0"},
        {"cpu_kernels": "ggml"},
        {"quantise": "q8_0"},
        {"n_head_rows": 64},
    ],
)
@pytest.mark.parametrize("n_sequences", [1, 3])
def test_a_plan_is_what_is_then_taken(path: Path, options: dict[str, Any], n_sequences: int) -> None:
    plan = plan_model(config(path, **options), 512, n_sequences)
    with Runtime.load(
        path, device="CPU", n_threads=1, n_ctx=512, n_sequences=n_sequences, **options
    ) as runtime:
        assert planned(plan) == taken(runtime)


def test_mapped_weights_are_apart(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "f32.gguf")
    plan = plan_model(config(path), 256)
    assert plan.devices[0].weights_bytes == 0
    assert 0.9 * path.stat().st_size < plan.devices[0].mapped_bytes < path.stat().st_size


def test_a_plan_pins_what_it_chose(path: Path) -> None:
    asked = config(path, device="auto")
    plan = plan_model(asked, 256)
    pinned = plan.pinned(asked)
    assert pinned.device == plan.layout.main.name
    assert plan_model(pinned, 256).layout.layers == plan.layout.layers


def test_a_file_that_cannot_be_loaded_cannot_be_planned(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "other.gguf", metadata={"llama.attn_logit_softcapping": 30.0})
    with pytest.raises(UnsupportedModelError, match="soft-capped"):
        plan_model(config(path), 256)


def test_more_head_rows_than_tokens_are_refused(path: Path) -> None:
    with pytest.raises(ConfigError, match="--draft-vocab"):
        plan_model(config(path, n_head_rows=10**6), 256)


def test_both_models_are_planned_together(path: Path) -> None:
    both = engine(path, draft=config(path))
    with EnginePlanner(both, shares_vocabulary=True) as planner:
        plan = planner.plan(both)
    (device,) = plan.devices()
    assert list(plan.parts(device)) == ["target", "draft"]
    assert plan.needed_bytes(device) == 2 * plan.models["target"].devices[0].needed_bytes


def test_a_draft_model_of_another_vocabulary_gets_more_context(path: Path) -> None:
    both = engine(path, draft=config(path), n_ctx=256)
    with EnginePlanner(both, shares_vocabulary=False) as planner:
        plan = planner.plan(both)
    assert plan.models["draft"].n_ctx == 320


def test_a_refusal_names_flags_that_fit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda device: 8 * MIB)
    too_long = engine(path, n_ctx=512, n_parallel=64)
    with pytest.raises(OutOfMemoryError, match="CPU has 8 MiB free") as caught:
        settle(too_long, shares_vocabulary=True)
    assert "--kv-type q8_0" in caught.value.remedy or "--parallel" in caught.value.remedy


def test_fit_changes_what_it_says(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = engine(path, n_ctx=512, n_parallel=32, fit=True)
    with EnginePlanner(wide, shares_vocabulary=True) as planner:
        needed = planner.plan(wide).needed_bytes(list_devices()[0])
    monkeypatch.setattr(memory, "available_bytes", lambda device: needed - MIB)
    fitted = settle(wide, shares_vocabulary=True)
    assert fitted.changes == ("--kv-type q8_0",)
    assert fitted.config.target.kv_type == "q8_0"
    assert fitted.config.target.device == "CPU"


def test_planning_takes_no_memory(path: Path) -> None:
    huge = engine(path, n_ctx=512, n_parallel=256)
    with EnginePlanner(huge, shares_vocabulary=True) as planner:
        before = memory.available_bytes(list_devices()[0])
        for _ in range(100):
            planner.plan(huge)
        after = memory.available_bytes(list_devices()[0])
    assert planner is not None
    assert before - after < 512 * MIB  # others compute beside us; one of the plans alone is of 400 MiB


def test_inspect_shows_the_plan(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["inspect", str(path), "--target-device", "CPU", "--ctx-size", "512", "--parallel", "2"]
    assert main([*arguments, "--draft-model", str(path), "--draft-device", "CPU"]) == 0
    out = capsys.readouterr().out.splitlines()
    for role in ("target", "draft"):
        assert f"{role}: 512 tokens, 1,024 cells of f16" in out
    assert out[-4].split()[:2] == ["device", "model"]
    assert [line.split()[-9:][0] for line in out[-3:]] == ["CPU", "draft", "both"]


def test_inspect_shows_what_would_fit(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda device: 8 * MIB)
    assert main(["inspect", str(path), "--parallel", "64"]) == 1
    captured = capsys.readouterr()
    assert "plan, in MiB" in captured.out
    assert "not enough memory: CPU has 8 MiB free" in captured.err


def test_inspect_shows_files_that_cannot_be_planned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_tiny(tmp_path / "other.gguf", metadata={"llama.attn_logit_softcapping": 30.0})
    assert main(["inspect", str(path)]) == 0
    assert "no plan: " in capsys.readouterr().out
    assert main(["inspect", str(path), "--ctx-size", "256"]) == 1


def test_an_engine_that_was_fitted_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long_path = write_tiny(path.with_name("long.gguf"), n_ctx=8192, n_embd=128, n_head=4)
    wide = engine(long_path, n_ctx=8192, n_parallel=4, fit=True)
    monkeypatch.setattr(memory, "available_bytes", lambda device: 40 * MIB)
    said: list[Planned] = []
    loaded = load(wide, lambda stage, fraction: None, on_plan=said.append)
    try:
        assert loaded.info.changes == said[0].changes
        assert any(change.startswith("--ctx-size") for change in loaded.info.changes)
        assert 2048 <= loaded.info.n_ctx < 8192
        assert sum(use.needed_bytes for use in loaded.info.memory) <= 40 * MIB
    finally:
        loaded.close()
