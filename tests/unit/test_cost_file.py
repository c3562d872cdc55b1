"""Costs that are kept: found again, measured anew where they cannot be read, and never half written."""

from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lucebox.config import ModelConfig
from lucebox.draft_length.costs import CostTable
from lucebox.engine.cost_file import CostFile, machine_key, model_key

KEY = {"target": {"n_bytes": 5, "cores": (0, 1)}}


def table(ms: float = 28.0) -> CostTable:
    costs = CostTable()
    costs.verify.set([(1, 0, ms), (8, 0, 138.0)])
    return costs


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = CostFile(tmp_path / "costs", KEY)
    costs = CostTable()
    assert not file.read_into(costs)
    file.write(table())
    assert file.read_into(costs)
    assert costs.verify_ms(1, 0) == pytest.approx(28.0)
    assert [path.suffix for path in file.path.parent.iterdir()] == [".json"]


def test_other_settings_have_other_files(tmp_path: Path) -> None:
    CostFile(tmp_path, KEY).write(table())
    assert not CostFile(tmp_path, {"target": {"n_bytes": 6}}).read_into(CostTable())


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", '{"key": 1}', "\x00\xff", '{"costs": {}}', "[" * 100_000]
)
def test_a_file_that_cannot_be_read_is_measured_anew(tmp_path: Path, content: str) -> None:
    file = CostFile(tmp_path, KEY)
    file.path.write_text(content, encoding="utf-8")
    assert not file.read_into(CostTable())
    file.write(table())
    assert file.read_into(CostTable())


@pytest.mark.parametrize(
    "points", [{"1": "fast"}, {"1": 10**400}, {"1": 1e300}, {"0": 1.0}, {"1": float("nan")}, []]
)
def test_costs_that_make_no_sense_are_measured_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, points: object
) -> None:
    file = CostFile(tmp_path, KEY)
    file.write(table())
    content = json.loads(file.path.read_text())
    content["costs"]["verify"]["points"] = points
    file.path.write_text(json.dumps(content))
    assert not file.read_into(CostTable())
    assert "measuring them again" in caplog.text


def test_writers_at_the_same_time_leave_a_whole_file(tmp_path: Path) -> None:
    file = CostFile(tmp_path, KEY)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: file.write(table(20.0 + i)), range(64)))
        assert all(pool.map(lambda _: file.read_into(CostTable()), range(8)))
    assert [path.name for path in tmp_path.iterdir()] == [file.path.name]


def test_a_folder_that_cannot_be_written_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "costs").write_text("a file")
    with caplog.at_level(logging.INFO):
        CostFile(tmp_path / "costs", KEY).write(table())
    assert "not kept" in caplog.text
    assert not CostFile(tmp_path / "costs", KEY).read_into(CostTable())


def test_a_key_tells_files_options_and_devices_apart(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"12345")
    config = ModelConfig(path=str(path), device="CPU", n_threads=2, kv_type="f16")
    keys = [model_key(config, "Fast CPU"), model_key(config, "Slow CPU")]
    changes = ({"n_threads": 4}, {"kv_type": "f32"}, {"quantise": "q4_0"}, {"n_head_rows": 100})
    for changed in (*changes, {"cores": (0,)}, {"cpu_kernels": "ggml"}):
        options = {"path": str(path), "device": "CPU", "n_threads": 2, "kv_type": "f16"} | changed
        keys.append(model_key(ModelConfig(**options), "Fast CPU"))  # type: ignore[arg-type]
    path.write_bytes(b"123456")
    keys.append(model_key(config, "Fast CPU"))
    assert len({json.dumps(key, sort_keys=True) for key in keys}) == len(keys)
    assert json.dumps(machine_key())


def test_another_build_of_ggml_is_measured_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUCEBOX_GGML_LIB", str(tmp_path))
    keys = [machine_key()]
    for name, content in (("libggml.so", b"1"), ("libggml-cpu-x64.so", b"1"), ("libggml.so", b"12")):
        (tmp_path / name).write_bytes(content)
        keys.append(machine_key())
    (tmp_path / "LICENSE").write_text("no library")
    assert machine_key() == keys[-1]
    assert len({json.dumps(key, sort_keys=True) for key in keys}) == len(keys)
