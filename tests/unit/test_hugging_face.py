"""hf: names, with huggingface_hub replaced by one that answers from a table."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lucebox.errors import ConfigError, DownloadError
from lucebox.hub import resolve

huggingface_hub = pytest.importorskip("huggingface_hub", reason="the extra lucebox[hub] is not installed")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    asked: list[tuple[str, str]] = []

    def download(repo: str, name: str) -> str:
        asked.append((repo, name))
        return f"/hub/{name}"

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    return asked


def test_a_file_in_a_repository(asked: list[tuple[str, str]]) -> None:
    assert resolve("hf:owner/repo-GGUF/sub/model.gguf") == Path("/hub/sub/model.gguf")
    assert asked == [("owner/repo-GGUF", "sub/model.gguf")]


def test_all_parts_of_a_split_model(asked: list[tuple[str, str]]) -> None:
    assert resolve("hf:o/r/m-00002-of-00003.gguf") == Path("/hub/m-00001-of-00003.gguf")
    assert asked == [("o/r", f"m-0000{number}-of-00003.gguf") for number in (1, 2, 3)]


def _failing(error: Exception) -> Callable[[str, str], str]:
    def download(repo: str, name: str) -> str:
        raise error

    return download


@pytest.mark.parametrize("error", [OSError("no route\nmore"), ValueError("bad"), ConnectionError()])
def test_failures_are_download_errors(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", _failing(error))
    with pytest.raises(DownloadError, match=r"hf:o/r/m\.gguf could not be fetched") as caught:
        resolve("hf:o/r/m.gguf")
    assert "\n" not in caught.value.message


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match=r"lucebox\[hub\]"):
        resolve("hf:o/r/m.gguf")
