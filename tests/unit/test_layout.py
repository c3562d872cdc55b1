"""What a layout says about itself."""

from __future__ import annotations

from dataclasses import replace

from lucebox.ggml.device import Device, DeviceKind
from lucebox.runtime.layout import Layout


def device(name: str, kind: DeviceKind, description: str, *, worker: str | None = None) -> Device:
    return Device(0, name, description, kind, 0, 0, hash(name), backend="B", worker=worker)


GPU = device("CUDA0", DeviceKind.GPU, "NVIDIA H200")
FAR = device("RPC0", DeviceKind.GPU, "AMD Radeon", worker="far:50052")
CPU = device("CPU", DeviceKind.CPU, "AMD EPYC")
MIXED = Layout((GPU, FAR, CPU), (0, 1, 1, 2), 2, 2, (0, 1, 1, 2))


def test_the_main_device_computes_most_layers_and_comes_first() -> None:
    assert MIXED.main is FAR
    assert MIXED.computing == (FAR, GPU, CPU)
    assert Layout((GPU, FAR, CPU), (0, 0), 2, 0, (0, 0)).computing == (GPU,)
    assert Layout((GPU, CPU), (0, 1), 1, 1, (0, 1)).computing == (GPU, CPU)


def test_it_is_shown_by_names_and_layers() -> None:
    assert str(Layout.single(CPU, 3)) == "CPU"
    assert str(MIXED) == "CUDA0 (1 layers), RPC0 (2 layers), CPU (1 layers)"


def test_its_hardware_is_what_the_devices_are_and_which_layers_they_have() -> None:
    moved = replace(MIXED, devices=(replace(GPU, name="CUDA1", pointer=7, free_bytes=5), FAR, CPU))
    assert moved.hardware == MIXED.hardware
    others = [
        replace(MIXED, devices=(replace(GPU, description="NVIDIA L4"), FAR, CPU)),
        replace(MIXED, devices=(replace(GPU, backend="Vulkan"), FAR, CPU)),
        replace(MIXED, devices=(GPU, replace(FAR, worker="near:50052"), CPU)),
        replace(MIXED, layers=(0, 0, 1, 2)),
        replace(MIXED, experts=(2, 2, 2, 2)),
        replace(MIXED, input=0),
        replace(MIXED, output=1),
        Layout.single(GPU, 4),
    ]
    assert len({layout.hardware for layout in (MIXED, *others)}) == 1 + len(others)
