"""hf: names, with huggingface_hub replaced by one that answers from a table."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lucebox.errors import ConfigError, DownloadError
from lucebox.hub import hugging_face, resolve
from tests.support.source_tree import ROOT

huggingface_hub = pytest.importorskip("huggingface_hub", reason="the extra lucebox[hub] is not installed")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    asked: list[tuple[str, str]] = []

    def download(repo: str, name: str, *, etag_timeout: float) -> str:
        assert etag_timeout <= 4
        asked.append((repo, name))
        return f"/hub/{name}"

    _answering(monkeypatch, lambda *_, **__: None)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    return asked


def _answering(monkeypatch: pytest.MonkeyPatch, answer: Callable[..., object]) -> None:
    """Hugging Face, asked about a file, gives this `answer`."""
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", answer)


def test_a_file_in_a_repository(asked: list[tuple[str, str]]) -> None:
    assert resolve("hf:owner/repo-GGUF/sub/model.gguf") == Path("/hub/sub/model.gguf")
    assert asked == [("owner/repo-GGUF", "sub/model.gguf")]


def test_all_parts_of_a_split_model(asked: list[tuple[str, str]]) -> None:
    assert resolve("hf:o/r/m-00002-of-00003.gguf") == Path("/hub/m-00001-of-00003.gguf")
    assert asked == [("o/r", f"m-0000{number}-of-00003.gguf") for number in (1, 2, 3)]


def _failing(error: Exception) -> Callable[..., str]:
    def download(*_: object, **__: object) -> str:
        raise error

    return download


@pytest.mark.parametrize("error", [OSError("no route\nmore"), ValueError("bad"), ConnectionError()])
def test_failures_are_download_errors(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    _answering(monkeypatch, lambda *_, **__: None)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", _failing(error))
    with pytest.raises(DownloadError, match=r"hf:o/r/m\.gguf could not be fetched") as caught:
        resolve("hf:o/r/m.gguf")
    assert "\n" not in caught.value.message


def test_a_refusal_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = huggingface_hub.errors.RepositoryNotFoundError
    _answering(monkeypatch, _failing(kind.__new__(kind)))
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", _failing(ValueError("404: no such file")))
    with pytest.raises(DownloadError, match="no such file"):
        resolve("hf:o/r/m.gguf")


def test_without_a_network_it_says_what_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "smollm2-135m.gguf").touch()
    (tmp_path / "models" / "no-name.gguf").touch()
    monkeypatch.setenv("LUCEBOX_CACHE", str(tmp_path))
    _answering(monkeypatch, _failing(OSError("[Errno -3] resolve")))
    with pytest.raises(DownloadError, match=r"cannot be reached") as caught:
        resolve("hf:o/r/m.gguf")
    assert caught.value.remedy.endswith("fetched: smollm2-135m")


def test_without_a_network_what_is_cached_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    cached = {"a-00001-of-00002.gguf", "a-00002-of-00002.gguf", "b-00001-of-00002.gguf"}
    _answering(monkeypatch, _failing(ConnectionError()))
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", _failing(AssertionError("it was asked")))
    monkeypatch.setattr(
        huggingface_hub, "try_to_load_from_cache", lambda _, name: f"/c/{name}" if name in cached else None
    )
    assert resolve("hf:o/r/a-00002-of-00002.gguf") == Path("/c/a-00001-of-00002.gguf")
    with pytest.raises(DownloadError, match="cannot be reached"):
        resolve("hf:o/r/b-00001-of-00002.gguf")


def test_a_silent_network_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(hugging_face, "_TIMEOUT_S", 0.2)
    _answering(monkeypatch, lambda *_, **__: over.wait(60))
    started_s = time.monotonic()
    with pytest.raises(DownloadError, match="cannot be reached"):
        resolve("hf:o/r/a-00001-of-00009.gguf")
    assert time.monotonic() - started_s < 10
    over.set()


def test_the_command_says_so_once_and_soon(tmp_path: Path) -> None:
    """With huggingface_hub itself, at a port where nobody answers: no retries, no log of its own."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path)}
        environ["LUCEBOX_CACHE"] = str(tmp_path)
        started_s = time.monotonic()
        run = subprocess.run(
            [sys.executable, "-m", "lucebox", "pull", "hf:o/r/m.gguf"],
            capture_output=True,
            text=True,
            env=environ,
            timeout=60,
        )
    assert time.monotonic() - started_s < 20  # retries take longer
    assert run.returncode == 1
    assert run.stdout == ""
    [line] = run.stderr.splitlines()
    assert "Hugging Face cannot be reached" in line


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match="pip install huggingface_hub"):
        resolve("hf:o/r/m.gguf")
