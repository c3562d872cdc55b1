"""What a server that starts says it will load."""

from __future__ import annotations

from msgspec.structs import replace

from lucebox.config import EngineConfig, ModelConfig, ServerConfig
from lucebox.engine.client import EngineState, EngineStatus
from lucebox.engine.messages import DeviceUse, EngineInfo, ModelInfo, Planned
from lucebox.progress import Bars
from lucebox.server.console import say_memory, say_plan, say_ready
from lucebox.server.startup_report import StartupReport
from tests.support.serving import server_config

MODEL = ModelInfo(
    path="x.gguf",
    name="x",
    architecture="llama",
    device="CPU",
    n_vocab=8,
    n_embd=8,
    n_ctx_train=64,
    n_bytes=1,
)
INFO = EngineInfo(
    target=MODEL,
    draft=None,
    n_ctx=64,
    n_parallel=1,
    drafters=(),
    acceptance="auto",
    draft_length="fixed:n=4",
    load_ms=1.0,
)
TARGET = ModelConfig(path="/models/big.gguf", device="auto", n_threads=2, kv_type="f16")


def plan(draft: ModelConfig | None, *drafters: str, target: ModelConfig = TARGET) -> list[str]:
    engine = EngineConfig(
        target=target,
        draft=draft,
        drafters=drafters,
        acceptance="auto",
        draft_length="fixed:n=3",
        n_ctx=512,
        n_parallel=1,
    )
    config = ServerConfig(
        engine=engine, host="127.0.0.1", port=80, model_alias="big", api_keys=("s3cret",), log_level="info"
    )
    said: list[str] = []
    say_plan(config, said.append)
    return said


def test_with_a_draft_model() -> None:
    draft = ModelConfig(
        path="/models/small.gguf",
        device="CPU",
        n_threads=2,
        kv_type="f16",
        quantise="q4_0",
        n_head_rows=32768,
    )
    assert plan(draft, "model", "suffix,model") == [
        "target   big (big.gguf), device auto",
        "draft    small.gguf, device CPU, weights q4_0, the first 32768 tokens",
        "guesses  by model + suffix,model, draft length fixed:n=3, acceptance auto",
        "context  512 tokens, one sequence at a time, KV cache f16, 2 threads",
    ]


def test_without_one() -> None:
    assert plan(None, "suffix")[1:3] == [
        "draft    no model",
        "guesses  by suffix, draft length fixed:n=3, acceptance auto",
    ]


def test_nobody_guesses() -> None:
    assert plan(None)[1:3] == ["draft    no model", "guesses  none"]


def test_one_thread() -> None:
    assert plan(None, target=replace(TARGET, n_threads=1))[-1].endswith(", KV cache f16, 1 thread")


def test_memory_of_each_device() -> None:
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
    said: list[str] = []
    say_memory(Planned(uses, ("--kv-type q8_0",)), said.append)
    assert said == [
        "memory   GPU0: 2,030 of 8,000 MiB free (target 2,030)",
        "lacking  GPU0 leaves FLASH_ATTN_EXT, SET_ROWS to the CPU",
        "memory   CPU: 360 of 9,000 MiB free (target 30 + 70 mapped, draft 330)",
        "fitted   by --kv-type q8_0",
    ]


def test_a_start_is_told_once() -> None:
    """What will be loaded, only when it is known that it can be."""
    said: list[str] = []
    report = StartupReport(server_config(), said.append, Bars(said.append), lambda: "http://here")
    plan = Planned((), ())
    report.on_status(EngineStatus(EngineState.LOADING), None)
    assert said == []
    for status in (
        EngineStatus(EngineState.LOADING, plan=plan),
        EngineStatus(EngineState.LOADING, "target model x.gguf", 0.5, plan=plan),
        EngineStatus(EngineState.READY, plan=plan),
        EngineStatus(EngineState.LOADING, "target model x.gguf", 0.5, plan=plan),
        EngineStatus(EngineState.READY, plan=plan),
    ):
        report.on_status(status, INFO)
    first_words = [line.split()[0] for line in said]
    assert first_words == ["target", "draft", "guesses", "context", "loading:", "ready", "page", "address"]
    assert said[-2] == "page     http://here"
    assert said[-1] == "address  http://here/v1 (Ctrl-C stops)"


def test_who_listens_at_every_address_is_told_so_beside_one_that_opens() -> None:
    said: list[str] = []
    say_ready(INFO, "0.0.0.0", "http://127.0.0.1:80", said.append)
    assert said[1:] == [
        "listens  at 0.0.0.0, every address of this machine",
        "page     http://127.0.0.1:80",
        "address  http://127.0.0.1:80/v1 (Ctrl-C stops)",
    ]


def test_an_engine_that_cannot_load_is_no_plan() -> None:
    said: list[str] = []
    report = StartupReport(server_config(), said.append, Bars(said.append), None)
    report.on_status(EngineStatus(EngineState.FAILED, "There is no device 'GPU7'"), None)
    assert said == []
    assert report.is_over
