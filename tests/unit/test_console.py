"""What a server that starts says it will load."""

from __future__ import annotations

import pytest

from lucebox.config import EngineConfig, ModelConfig, ServerConfig
from lucebox.engine.messages import DeviceUse, Planned
from lucebox.server.console import say_memory, say_plan

TARGET = ModelConfig(path="/models/big.gguf", device="auto", n_threads=2, kv_type="f16")


def plan(capsys: pytest.CaptureFixture[str], draft: ModelConfig | None, *drafters: str) -> list[str]:
    engine = EngineConfig(
        target=TARGET,
        draft=draft,
        drafters=drafters,
        acceptance="auto",
        draft_length="fixed:n=3",
        n_ctx=512,
        n_parallel=1,
    )
    config = ServerConfig(
        engine=engine, host="127.0.0.1", port=80, model_alias="big", api_key="s3cret", log_level="info"
    )
    say_plan(config)
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


def test_with_a_draft_model(capsys: pytest.CaptureFixture[str]) -> None:
    draft = ModelConfig(
        path="/models/small.gguf",
        device="CPU",
        n_threads=2,
        kv_type="f16",
        quantise="q4_0",
        n_head_rows=32768,
    )
    assert plan(capsys, draft, "model", "suffix,model") == [
        "lucebox: target   big (big.gguf), device auto",
        "lucebox: draft    small.gguf, device CPU, weights q4_0, the first 32768 tokens",
        "lucebox: guesses  by model + suffix,model, draft length fixed:n=3, acceptance auto",
        "lucebox: context  512 tokens, one sequence at a time, KV cache f16, 2 threads",
    ]


def test_without_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(capsys, None, "suffix")[1:3] == [
        "lucebox: draft    no model",
        "lucebox: guesses  by suffix, draft length fixed:n=3, acceptance auto",
    ]


def test_nobody_guesses(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(capsys, None)[1:3] == ["lucebox: draft    no model", "lucebox: guesses  none"]


def test_memory_of_each_device(capsys: pytest.CaptureFixture[str]) -> None:
    def use(device: str, role: str, weights_mib: int, free_mib: int, mapped_mib: int = 0) -> DeviceUse:
        return DeviceUse(
            device=device,
            role=role,
            n_layers=4,
            weights_bytes=weights_mib << 20,
            mapped_bytes=mapped_mib << 20,
            kv_bytes=20 << 20,
            compute_bytes=10 << 20,
            free_bytes=free_mib << 20,
            elsewhere=("FLASH_ATTN_EXT", "SET_ROWS") if device == "GPU0" else (),
        )

    uses = (
        use("GPU0", "target", 2000, 8000),
        use("CPU", "target", 0, 9000, 70),
        use("CPU", "draft", 300, 9000),
    )
    say_memory(Planned(uses, ("--kv-type q8_0",)))
    assert capsys.readouterr().err.splitlines() == [
        "lucebox: memory   GPU0: 2,030 of 8,000 MiB free (target 2,030)",
        "lucebox: lacking  GPU0 leaves FLASH_ATTN_EXT, SET_ROWS to the CPU",
        "lucebox: memory   CPU: 360 of 9,000 MiB free (target 30 + 70 mapped, draft 330)",
        "lucebox: fitted   by --kv-type q8_0",
    ]
