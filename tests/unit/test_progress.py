"""Progress: bars on a terminal, one line each elsewhere, nothing where nothing takes long."""

from __future__ import annotations

import sys

import pytest

from lucebox.engine.client import EngineState, EngineStatus
from lucebox.progress import Bars


def use(bars: Bars) -> None:
    for done in range(0, 101, 10):
        bars.on_download("a-model", done * 1_000_000, 100_000_000)
    for progress in (0.0, 0.5, 1.0):
        bars.on_status(EngineStatus(EngineState.LOADING, "target", progress))
    bars.on_status(EngineStatus(EngineState.READY))


def test_elsewhere_one_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    with Bars() as bars:
        use(bars)
    out, err = capsys.readouterr()
    assert (out, err) == ("", "lucebox: fetching a-model 100 MB\nlucebox: loading: target\n")


def test_a_terminal_gets_bars_and_keeps_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with Bars() as bars:
        use(bars)
    out, err = capsys.readouterr()
    assert out == ""
    assert "fetching a-model" in err
    assert "100 of 100 MB" in err
    assert "loading: target" in err
    assert err.endswith("\x1b[2K")


def test_nothing_to_show_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Bars():
        pass
    bars = Bars()
    bars.close()
    use(bars)
    assert capsys.readouterr() == ("", "")
