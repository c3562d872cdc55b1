"""How fast devices decode: measured once, kept, and a software GPU loses to its CPU."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lucebox.errors import DeviceError
from lucebox.ggml import bandwidth as module
from lucebox.ggml.bandwidth import bandwidth, measure
from lucebox.ggml.device import Device
from lucebox.ggml.devices import find_device
from tests.support.source_tree import ROOT


@pytest.fixture
def cpu() -> Device:
    return find_device("CPU")


def test_a_cpu_is_measured_in_less_than_a_second(cpu: Device) -> None:
    assert 0.05 < measure(cpu, n_threads=1) < 2000.0


def test_what_was_measured_is_kept(cpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = iter([20.0, 30.0, 40.0, 50.0])
    monkeypatch.setattr(module, "measure", lambda device, n_threads: next(speeds))
    assert bandwidth(cpu, 2, tmp_path) == 20.0
    assert bandwidth(cpu, 2, tmp_path) == 20.0
    assert bandwidth(cpu, 1, tmp_path) == 30.0
    assert bandwidth(replace(cpu, description="another one"), 2, tmp_path) == 40.0
    assert bandwidth(replace(cpu, worker="far:50052"), 2, tmp_path) == 50.0
    assert bandwidth(cpu, 2, tmp_path) == 20.0


def test_threads_do_not_matter_to_other_devices(
    cpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speeds = iter([20.0])
    monkeypatch.setattr(module, "measure", lambda device, n_threads: next(speeds))
    far = replace(cpu, worker="far:50052")
    assert bandwidth(far, 2, tmp_path) == bandwidth(far, 1, tmp_path) == 20.0


@pytest.mark.parametrize("value", ["0.0", "-1.0", "NaN", "null", '"fast"', "[1.0]", "Infinity"])
def test_a_file_that_makes_no_sense_is_measured_anew(
    cpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, value: str
) -> None:
    monkeypatch.setattr(module, "measure", lambda device, n_threads: 20.0)
    bandwidth(cpu, 2, tmp_path)
    [file] = tmp_path.iterdir()
    content = file.read_text()
    assert '"bandwidth": 20.0' in content
    file.write_text(content.replace("20.0", value))
    with caplog.at_level(logging.WARNING):
        assert bandwidth(cpu, 2, tmp_path) == 20.0
    assert "measuring them again" in caplog.text
    assert file.read_text() == content


def test_without_memory_nothing_is_measured_or_kept(cpu: Device, tmp_path: Path) -> None:
    assert bandwidth(replace(cpu, free_bytes=2**20), 1, tmp_path) == 0.0
    assert not list(tmp_path.iterdir())


def test_a_device_that_fails_is_no_choice(
    cpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(device: Device, n_threads: int) -> float:
        raise DeviceError(f"{device.name} cannot be used")

    monkeypatch.setattr(module, "measure", fail)
    assert bandwidth(cpu, 2, tmp_path) == 0.0
    assert "CPU cannot be used" in caplog.text
    assert not list(tmp_path.iterdir())


def test_little_memory_is_enough(cpu: Device) -> None:
    assert measure(replace(cpu, free_bytes=64 * 2**20), 1) > 0.05


CHOICE = """
from lucebox.ggml.devices import find_device, find_devices, list_devices
names = [device.name for device in list_devices()]
if "Vulkan0" in names:
    assert [device.name for device in find_devices("auto")] == ["CPU"], find_devices("auto")
    assert [device.name for device in find_devices("auto", beside=[find_device("CPU")])] == ["CPU"]
print(*names)
"""


def test_a_software_gpu_loses_to_its_cpu(tmp_path: Path) -> None:
    environ = os.environ | {
        "GGML_VK_VISIBLE_DEVICES": "0",
        "LP_NUM_THREADS": "1",
        "LUCEBOX_CACHE": str(tmp_path),
        "PYTHONPATH": str(ROOT),
    }
    run = subprocess.run([sys.executable, "-c", CHOICE], env=environ, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    if "Vulkan0" not in run.stdout.split():
        pytest.skip("no Vulkan device, not even one in software")
    assert len(list((tmp_path / "bandwidth").iterdir())) == 2
