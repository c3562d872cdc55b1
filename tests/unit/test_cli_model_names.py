"""A model's bare name behind a verb: told from a prompt, and no more than one."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from lucebox.cli import main
from lucebox.config import EngineOptions, ServerOptions, parse_server_args
from lucebox.errors import ConfigError
from tests.support.cli_engine import opened_as


@dataclass
class Engine:
    """Notes what it was made of and asked."""

    options: EngineOptions = field(default_factory=EngineOptions)
    prompt: str = ""

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None: ...

    def stream(self, prompt: str, _: object) -> Iterator[SimpleNamespace]:
        self.prompt = prompt
        yield SimpleNamespace(text="", timings=None)

    def generate(self, prompt: str, _: object) -> SimpleNamespace:
        self.prompt = prompt
        return SimpleNamespace(text="", tokens=[], origins=[], finish_reason="stop", timings={})


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    return opened_as(Engine(), monkeypatch)


@pytest.mark.parametrize(
    ("argv", "prompt", "model"),
    [
        (["Once", "--threads", "1"], "Once", None),
        (["--json", "Once"], "Once", None),
        (["-p", "Once"], "Once", None),
        (["-p", "smollm2-135m"], "smollm2-135m", None),
        (["a.gguf", "-p", "Once"], "Once", "a.gguf"),
        (["--prompt", "Once", "--stats", "a.gguf"], "Once", "a.gguf"),
        (["a.gguf", "-p", "-"], "from a pipe", "a.gguf"),
        (["Once", "--target-model", "a.gguf"], "Once", "a.gguf"),
    ],
)
def test_generate_tells_a_model_from_a_prompt(
    argv: list[str], prompt: str, model: str | None, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("from a pipe"))
    assert main(["generate", *argv]) == 0
    assert engine.prompt == prompt
    assert engine.options.target_model == (model or EngineOptions().target_model)


@pytest.mark.parametrize("argv", [["a.gguf", "--threads", "1"], ["--no-draft", "a.gguf"]])
def test_chat_takes_a_model(argv: list[str], engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUCEBOX_TARGET_MODEL", "b.gguf")
    monkeypatch.setattr(sys, "stdin", io.StringIO("/exit\n"))
    assert main(["chat", *argv]) == 0
    assert (engine.options.target_model, engine.options.draft_model) == ("a.gguf", None)


def test_the_server_takes_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    argv = ["a.gguf", "--port", "1"]
    assert parse_server_args(argv, {"LUCEBOX_TARGET_MODEL": "b.gguf"}).engine.target_model == "a.gguf"
    asked: list[ServerOptions] = []

    def serve(options: ServerOptions) -> int:
        asked.append(options)
        return 0

    monkeypatch.setattr("lucebox.server.serve", serve)
    assert main(["serve", *argv]) == 0
    assert [options.engine.target_model for options in asked] == ["a.gguf"]


@pytest.mark.parametrize("verb", ["chat", "serve"])
def test_two_models_are_refused(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["a.gguf", "--target-model", "b.gguf"]
    assert main([verb, *argv]) == 2
    assert "two target models were given, a.gguf and b.gguf" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="two target models"):
        parse_server_args(argv, {})
