"""The command: what each verb prints, and that a mistake is one line and an exit code."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lucebox.api import ChunkStream
from lucebox.cli import main
from lucebox.cli.summary import summary
from lucebox.config import EngineOptions
from lucebox.core import Origin
from lucebox.engine.timings import DraftedRound, Timings
from lucebox.errors import ContextLengthError, EngineError
from lucebox.grammar import Grammar
from lucebox.sampling.params import SamplingParams
from tests.support.cli_engine import opened_as
from tests.support.source_tree import ROOT
from tests.support.tiny_models import write_tiny

TIMINGS = (
    Timings(prompt_n=3, prompt_ms=10, predicted_n=5, predicted_ms=100, n_rounds=2)
    + Timings(draft_ms=11, verify_ms=70)
    + DraftedRound("model", 4, 4, 3).timings()
)


@dataclass
class FakeEngine:
    """Answers with what it was told, and notes what it was asked."""

    options: EngineOptions | None = None
    asked: list[tuple[Any, SamplingParams]] = field(default_factory=list)
    fails: list[Exception] = field(default_factory=list)
    closed: bool = False

    def __enter__(self) -> FakeEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def stream(self, prompt: Any, params: SamplingParams) -> Iterator[SimpleNamespace]:
        self.asked.append((prompt, params))
        if self.fails:
            raise self.fails.pop(0)
        yield SimpleNamespace(text="two ", timings=None)
        yield SimpleNamespace(text="words", timings=TIMINGS)

    def stream_chat(self, messages: Sequence[Any], params: SamplingParams) -> ChunkStream:
        def start(cost: Any) -> Iterator[Any]:
            for chunk in self.stream(list(messages), params):
                cost.timings = chunk.timings
                yield chunk

        return ChunkStream(start)  # type: ignore[arg-type]

    def generate(self, prompt: Any, params: SamplingParams) -> SimpleNamespace:
        text = "".join(chunk.text for chunk in self.stream(prompt, params))
        return SimpleNamespace(
            text=text,
            tokens=[7, 8],
            origins=[Origin.ACCEPTED, Origin.BONUS],
            finish_reason="stop",
            timings=TIMINGS,
        )


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    return opened_as(FakeEngine(), monkeypatch)


def test_generate_streams_the_text_alone(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["generate", "Once", "--temperature", "0", "--max-tokens", "9", "--stop", "a", "--stop", "b"]
    assert main([*argv, "--threads", "2", "--no-draft"]) == 0
    assert capsys.readouterr().out == "two words\n"
    [(prompt, params)] = engine.asked
    assert prompt == "Once"
    assert (params.temperature, params.max_tokens, params.stop) == (0, 9, ("a", "b"))
    assert params.speculative.enabled is False
    assert engine.options is not None
    assert engine.options.threads == 2
    assert (engine.options.drafter, engine.options.draft_model) == ("none", None)
    assert engine.closed


def test_without_drafts_what_is_for_the_draft_model_is_left_out(engine: FakeEngine) -> None:
    drafts = ["--draft-device", "CPU", "--draft-threads", "1", "--draft-quant", "q8_0", "--draft-vocab", "9"]
    assert main(["generate", "Once", *drafts, "--no-draft"]) == 0
    assert engine.options == EngineOptions(drafter="none")


def test_what_is_for_a_draft_model_is_refused_without_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "tiny.gguf"
    write_tiny(model)
    for flag, value in (("--draft-device", "CPU"), ("--draft-threads", "2")):
        assert main(["generate", "Once", "--target-model", str(model), flag, value]) == 2
        assert f"{flag} {value} is for a draft model, and there is none" in capsys.readouterr().err


def test_generate_json_is_one_object(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "Once", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["text"] == "two words"
    assert answer["origins"] == ["accepted", "bonus"]
    assert answer["timings"]["draft_n_accepted"] == 3


def test_generate_chat_and_stats(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "Once", "--chat", "--stats"]) == 0
    assert engine.asked[0][0] == [{"role": "user", "content": "Once"}]
    assert capsys.readouterr().err.endswith(summary(TIMINGS) + "\n")


def test_generate_reads_stdin(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("from a pipe"))
    assert main(["generate", "-"]) == 0
    assert engine.asked[0][0] == "from a pipe"


def test_generate_takes_schemas_and_grammars_from_files(engine: FakeEngine, tmp_path: Path) -> None:
    texts = {"json_schema": '{"type": "integer"}', "lark": 'start: "é"', "gbnf": 'root ::= "a"'}
    for kind, text in texts.items():
        file = tmp_path / kind
        file.write_text(text, encoding="utf-8")
        flag = "--json-schema" if kind == "json_schema" else "--grammar"
        assert main(["generate", "x", flag, str(file)]) == 0
        assert engine.asked[-1][1].grammar == Grammar(kind, text)
    assert main(["generate", "x", "--json-schema", texts["json_schema"]]) == 0
    assert engine.asked[-1][1].grammar == Grammar("json_schema", texts["json_schema"])
    assert main(["generate", "x"]) == 0
    assert engine.asked[-1][1].grammar is None


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["generate", "x", "--temperature", "-1"], 1, "temperature must be at least 0"),
        (["generate", "x", "--top-k", "many"], 2, "--top-k: invalid int value: 'many'"),
        (["generate", ""], 2, "PROMPT is missing or empty"),
        (["generate", "x", "--json-schema", "/nowhere/schema.json"], 2, "--json-schema: "),
        (["generate", "x", "--json-schema", "a", "--grammar", "b"], 2, "not allowed with argument"),
        (["generate", "x", "--thread", "2"], 2, "--thread"),
        (["generate"], 2, "PROMPT"),
        (["generate", "x", "--json-schema", "nowhere"], 2, "or write the schema itself"),
        (["generate", "x", "--model", "smollm2-135m"], 2, "did you mean --target-model?"),
        (["chat", "--model=smollm2-135m"], 2, "did you mean --target-model?"),
        (["bench", "spec", "smollm2-135m"], 2, "--target-model smollm2-135m"),
        (["serve", "a.gguf", "b.gguf"], 2, "unknown argument 'b.gguf' (see lucebox serve --help)"),
        (
            ["serve", "a.gguf", "--target-model", "b.gguf"],
            2,
            "two target models were given, a.gguf and b.gguf",
        ),
        (["pull", "a", "b"], 2, "unknown argument 'b' (see lucebox pull --help)"),
        (
            ["pull", "a", "--target-model", "b"],
            2,
            "unknown argument '--target-model' (see lucebox pull --help)",
        ),
        (["generate", "write", "a", "poem"], 2, "put the prompt in quotes"),
        (["generate", "smollm2-135m"], 2, "generate smollm2-135m -p PROMPT"),
        (["generate", "smollm2-135m", "-p", ""], 2, "PROMPT is missing or empty"),
        (["bench"], 2, "a command is missing: lucebox bench takes spec, plain, load, serving, kernels ("),
        (
            ["bench", "sepc"],
            2,
            "unknown command 'sepc' (did you mean lucebox bench spec?; lucebox bench takes spec,",
        ),
        (["inspekt"], 2, "unknown command 'inspekt' (did you mean lucebox inspect?; lucebox takes serve, "),
        (["whatever"], 2, "unknown command 'whatever' (lucebox takes serve, chat, "),
        ([], 2, "a command is missing: lucebox takes serve, chat, "),
        (["serve", "--no-draft"], 2, "unknown argument '--no-draft' (did you mean --draft-model none?)"),
        (["inspect", "/nowhere/model.gguf"], 2, "/nowhere/model.gguf"),
        (["inspect", "smollm2-135"], 2, "did you mean smollm2-135m?"),
        (["serve", "--port", "-5"], 2, "--port must be a whole number from 0 to 65535, not '-5'"),
    ],
)
def test_a_mistake_is_one_line(
    argv: list[str], code: int, words: str, engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("lucebox: ")
    assert err.count("\n") == 1
    assert words in err
    assert not engine.asked


def test_an_engine_that_fails_is_one_line(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    engine.fails.append(EngineError("the engine died\nof \x1b[31msomething", remedy="start it again"))
    assert main(["generate", "x"]) == 1
    assert capsys.readouterr().err == r"lucebox: the engine died of \x1b[31msomething (start it again)" + "\n"


def chat(monkeypatch: pytest.MonkeyPatch, *lines: str) -> int:
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(line + "\n" for line in lines)))
    return main(["chat", "--system", "Be brief."])


def test_chat_over_pipes_keeps_the_conversation(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chat(monkeypatch, "first", "", "second", "/reset", "third", "/stats", "/exit", "never") == 0
    roles = [[message["role"] for message in messages] for messages, _ in engine.asked]
    assert roles == [["system", "user"], ["system", "user", "assistant", "user"], ["system", "user"]]
    assert engine.asked[1][0][2]["content"] == "two words"
    assert engine.asked[2][0][1]["content"] == "third"
    out = capsys.readouterr().out
    assert out.count("two words\n") == 3
    assert "50.0 tokens/s" in out


def test_chat_survives_a_refused_message(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.fails.append(ContextLengthError(512, 600))
    assert chat(monkeypatch, "far too long", "short") == 1
    assert [message["content"] for message in engine.asked[1][0]] == ["Be brief.", "short"]
    assert "maximum context length is 512" in capsys.readouterr().err


def test_chat_tells_of_unknown_commands(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chat(monkeypatch, "/quit", "/undo", "/etc/passwd is a file") == 2
    assert len(engine.asked) == 1
    assert "unknown command /quit" in capsys.readouterr().err


def test_chat_ctrl_c_stops_the_answer_not_the_program(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = iter(["first", "second", KeyboardInterrupt(), "third"])

    def read(_: str) -> str:
        line = next(typed, EOFError())
        if isinstance(line, BaseException):
            raise line
        return line

    closed: list[bool] = []
    plain = engine.stream

    def interrupted(messages: Sequence[Any], params: SamplingParams) -> Iterator[SimpleNamespace]:
        try:
            for i, chunk in enumerate(plain(list(messages), params)):
                if len(engine.asked) == 1 and i == 1:
                    raise KeyboardInterrupt
                yield chunk
        finally:
            closed.append(True)

    monkeypatch.setattr("builtins.input", read)
    monkeypatch.setattr(engine, "stream_chat", interrupted)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    assert main(["chat"]) == 0
    assert len(closed) == 3
    assert engine.asked[1][0][1] == {"role": "assistant", "content": "two "}
    assert "(/exit or Ctrl-D leaves)" in capsys.readouterr().err


def test_output_cannot_steer_a_terminal(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stream(prompt: Any, params: SamplingParams) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(text="a\x1b]0;title\x07é\n", timings=TIMINGS)

    monkeypatch.setattr(engine, "stream", stream)
    assert main(["generate", "x"]) == 0
    assert capsys.readouterr().out == "a\x1b]0;title\x07é\n\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["generate", "x"]) == 0
    assert capsys.readouterr().out == "a\\x1b]0;title\\x07é\n\n"


def test_inspect_reads_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", arch="qwen2", metadata={"general.name": "evil\x1b[2Jname"})
    assert main(["inspect", str(path), "--tensors"]) == 0
    out = capsys.readouterr().out
    assert "architecture   qwen2" in out
    assert "context        512 tokens" in out
    assert "token_embd.weight" in out
    assert "evil\\x1b[2Jname" in out


def test_pull_prints_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def resolve(model: str, *, progress: Any) -> Path:
        for done in (0, 50, 100):
            progress(done, 100)
        return tmp_path / f"{model}.gguf"

    monkeypatch.setattr("lucebox.hub.resolve", resolve)
    assert main(["pull", "smollm2-135m"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{tmp_path / 'smollm2-135m.gguf'}\n"
    assert "fetching smollm2-135m" in err


def list_of_devices(*, worker: str | None = None) -> list[SimpleNamespace]:
    def device(number: int, name: str, kind: str, description: str, gib: int, **more: Any) -> SimpleNamespace:
        values = {"backend": name.rstrip("0"), "worker": None, "holds_models": gib > 0, **more}
        memory = {"free_bytes": (gib - 1) * 2**30 if gib else 0, "total_bytes": gib * 2**30}
        return SimpleNamespace(
            number=number, name=name, kind=kind, description=description, **memory, **values
        )

    return [
        device(0, "CUDA0", "gpu", "NVIDIA H200", 140),
        device(1, "Vulkan0", "integrated gpu", "AMD Radeon 780M (RADV PHOENIX)", 16, worker=worker),
        device(2, "BLAS", "accelerator", "OpenBLAS", 0),
    ]


def test_devices_is_a_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("lucebox.ggml.devices.list_devices", list_of_devices)
    assert main(["devices"]) == 0
    header, first, second, third = capsys.readouterr().out.splitlines()
    assert header.split() == ["number", "name", "kind", "backend", "description", "free", "memory"]
    values = ["NVIDIA", "H200", "139.0", "GiB", "140.0", "GiB"]
    assert first.split() == ["0", "CUDA0", "gpu", "CUDA", *values]
    assert second.split()[:4] == ["1", "Vulkan0", "integrated", "gpu"]
    assert third.split() == ["2", "BLAS", "accelerator", "BLAS", "OpenBLAS"]


def test_devices_of_workers_and_their_speeds_fit_the_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, ...]] = []
    devices = list_of_devices(worker="workshop.example.net:50052")

    def connect(workers: tuple[str, ...], on_lost: object) -> list[SimpleNamespace]:
        asked.append(workers)
        return [SimpleNamespace(close=lambda: asked.append(()))]

    def measure(device: SimpleNamespace, n_threads: int, folder: Path) -> float:
        return 4012.34 if device.name == "CUDA0" else 0.48

    monkeypatch.setattr("lucebox.ggml.devices.list_devices", lambda: devices)
    monkeypatch.setattr("lucebox.worker.client.connect", connect)
    monkeypatch.setattr("lucebox.ggml.bandwidth.measure_and_keep", measure)
    assert main(["devices", "--measure", "--workers", "workshop.example.net:50052"]) == 0
    out = capsys.readouterr().out
    assert asked == [("workshop.example.net:50052",), ()]
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 100
    assert "4,012.3" in out
    assert "0.5" in out
    assert "workshop.example.net:50052" in out


def test_devices_finds_workers_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LUCEBOX_WORKERS", "nonsense")
    assert main(["devices"]) == 2
    assert "must name them as host:port, not 'nonsense'" in capsys.readouterr().err


def test_help_is_quick_to_load() -> None:
    code = "import sys; from lucebox.cli import main\ntry: main(['--help'])\nfinally: print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0
    loaded = run.stdout.splitlines()[-1].split()
    assert not {"numpy", "rich", "starlette", "tokenizers", "jinja2", "lucebox.api"} & set(loaded)


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf")
    command = f"{sys.executable} -m lucebox inspect --tensors {path} | true"
    run = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert "Traceback" not in run.stderr
    assert "Exception" not in run.stderr
