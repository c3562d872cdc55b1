"""The plan as `lucebox inspect` shows it."""

from __future__ import annotations

import pytest

from lucebox.cli.plan_table import show_plan
from lucebox.ggml.devices import Device, DeviceKind
from lucebox.runtime.layout import Layout
from lucebox.runtime.plan import DevicePlan, JointPlan, ModelPlan

MIB = 2**20
GPU = Device(0, "GPU0", "a GPU", DeviceKind.GPU, 0, 0, pointer=1)
CPU = Device(1, "CPU", "a CPU", DeviceKind.CPU, 0, 0, pointer=2)


def part(device: Device, n_layers: int, weights_mib: int, *elsewhere: str, mapped_mib: int = 0) -> DevicePlan:
    return DevicePlan(device, n_layers, weights_mib * MIB, mapped_mib * MIB, 20 * MIB, 10 * MIB, elsewhere)


def model(*parts: DevicePlan) -> ModelPlan:
    devices = tuple(part.device for part in parts)
    layers = tuple(i for i, part in enumerate(parts) for _ in range(part.n_layers))
    layout = Layout(devices, layers, len(devices) - 1, layers[-1], layers)
    return ModelPlan("m.gguf", layout, 2048, 4096, "q8_0", parts)


def test_devices_models_and_sums(capsys: pytest.CaptureFixture[str]) -> None:
    target = model(part(GPU, 3, 2000, "FLASH_ATTN_EXT", "SET_ROWS"), part(CPU, 1, 500, mapped_mib=70))
    plan = JointPlan({"target": target, "draft": model(part(CPU, 2, 300))}, {1: 8000 * MIB, 2: 9000 * MIB})
    show_plan(plan)
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "",
        "plan, in MiB",
        "target: 2,048 tokens, 4,096 cells of q8_0",
        "draft: 2,048 tokens, 4,096 cells of q8_0",
        "device  model   layers  weights  KV  compute    sum   free  mapped",
        "GPU0    target       3    2,000  20       10  2,030  8,000       0",
        "CPU     target       1      500  20       10    530             70",
        "        draft        2      300  20       10    330              0",
        "        both                                    860  9,000",
        "GPU0 lacks, so that the CPU computes for the target: FLASH_ATTN_EXT, SET_ROWS",
    ]
