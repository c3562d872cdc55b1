"""`lucebox simulate` and its plots: what is printed, drawn and refused."""

from __future__ import annotations

import builtins
import json
import re
import shlex
import struct
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from lucebox.cli.main import main
from lucebox.errors import ConfigError
from lucebox.research.plots import plot_positions
from lucebox.research.replay import Replay
from tests.support.readme import README


def cells(line: str) -> list[str]:
    return line.split()


def test_the_tables_say_what_the_papers_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--alpha", "0.5,0.8,0.9", "--max-length", "10"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {parts[0]: parts[1:] for line in lines if (parts := cells(line))}
    assert rows["2"] == ["1.458*", "2.033", "2.258", "1.2"]
    assert rows["6"][1] == "2.470*"
    assert rows["serial"] == ["1.458", "(2)", "2.470", "(6)", "3.431", "(10)"]
    assert rows["PEARL"] == ["1.332", "(10)", "2.604", "(10)", "4.106", "(10)"]
    (ssd, oracle) = (cells(line)[4:] for line in lines if line.strip().startswith("SSD"))
    assert ssd == ["1.875", "(5)", "4.155", "(10)", "6.238", "(10)"]
    assert oracle == ["1.999", "(10)", "4.571", "(10)", "6.862", "(10)"]
    (dsi,) = (cells(line)[4:] for line in lines if line.strip().startswith("DSI"))
    assert dsi == ["1.818", "3.571", "5.263"]


def test_measured_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "costs.json"
    path.write_text(json.dumps({"verify_ms": {"1": 38, "2": 65, "4": 97, "5": 148}, "draft_ms": 12}))
    assert main(["simulate", "--alpha", "0.95", "--costs", str(path), "--max-length", "4"]) == 0
    rows = {parts[0]: parts[1:] for line in capsys.readouterr().out.splitlines() if (parts := cells(line))}
    assert rows["3"] == ["1.060*", "3.5"]


@pytest.mark.parametrize("name", ["plot.png", "plot.SVG"])
def test_plots_are_drawn(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / name
    assert main(["simulate", "--alpha", "0.6,0.9", "--plot", str(path)]) == 0
    assert f"drawn to {path}" in capsys.readouterr().out
    if name.endswith("png"):
        width, height = png_size(path)
        assert width > 1000 < 2 * height
    else:
        text = "".join(ElementTree.parse(path).getroot().itertext())
        drawn = path.read_text()
        assert drawn.count("<path") > 20
        assert "Matplotlib" in text


def test_the_readme_s_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (line,) = re.findall(r"^lucebox (simulate .+)$", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert main(shlex.split(line)) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["speed-up.png"]
    assert "drawn to speed-up.png" in capsys.readouterr().out


def png_size(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def test_acceptance_by_position_is_drawn(tmp_path: Path) -> None:
    replay = Replay()
    for n_accepted in (3, 1, 2):
        replay.add(3, n_accepted, 0.0)
    assert replay.n_accepted_at == [3, 2, 1]
    plot_positions(tmp_path / "positions.png", {"block": replay})
    assert png_size(tmp_path / "positions.png") > (900, 600)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--alpha", "0.5,much"], "--alpha must be a number, not 'much'"),
        (["--alpha", "1"], "between 0 and 1"),
        (["--c", "-1"], "positive"),
        (["--c", "cheap"], "--c must be a number"),
        (["--max-length", "0"], "--max-length"),
        (["--hit-rate", "2"], "hit rate"),
        (["--costs", "/no/such/file.json"], "No such file"),
        (["--plot", "plot.pdf"], ".png or .svg"),
        (["--plot", "/no/such/folder/plot.png"], "no folder"),
        (["--c", "0.1", "--costs", "x.json"], "not allowed with"),
    ],
)
def test_what_cannot_be_used_exits_with_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(["simulate", *arguments])
    except SystemExit as exit:
        status = int(exit.code or 0)
    assert status == 2
    out, err = capsys.readouterr()
    assert message in err
    assert not out


def test_a_missing_matplotlib_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    find = builtins.__import__

    def find_all_but_matplotlib(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
        return find(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", find_all_but_matplotlib)
    with pytest.raises(ConfigError, match=r"pip install -e '\.\[plots\]'"):
        plot_positions(tmp_path / "plot.png", {})
