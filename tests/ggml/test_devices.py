"""Listing devices, and finding the one that a user means."""

from __future__ import annotations

import pytest

from lucebox.errors import DeviceError
from lucebox.ggml import _api
from lucebox.ggml.devices import Device, DeviceKind, find_device, list_devices
from lucebox.ggml.library import load


def device(number: int, name: str, kind: DeviceKind) -> Device:
    return Device(number, name, "for tests", kind, 0, 0, pointer=0)


CPU = device(0, "CPU", DeviceKind.CPU)
IGPU = device(1, "Vulkan0", DeviceKind.INTEGRATED_GPU)
GPU = device(2, "CUDA0", DeviceKind.GPU)
GPU_2 = device(3, "CUDA1", DeviceKind.GPU)


def test_the_cpu_is_listed_with_its_memory() -> None:
    devices = list_devices()
    assert [entry.number for entry in devices] == list(range(len(devices)))
    [cpu] = [entry for entry in devices if entry.kind is DeviceKind.CPU]
    assert cpu.name == "CPU"
    assert cpu.description
    assert cpu.total_bytes >= cpu.free_bytes > 0


def test_auto_is_the_fastest_kind_and_the_first_of_it() -> None:
    assert find_device("auto", [CPU, IGPU, GPU, GPU_2]) is GPU
    assert find_device("AUTO", [CPU, IGPU]) is IGPU
    assert find_device("auto", [CPU]) is CPU


@pytest.mark.parametrize(("spec", "expected"), [("cuda1", GPU_2), (" CUDA0 ", GPU), ("3", GPU_2), ("0", CPU)])
def test_by_name_in_any_case_or_by_number(spec: str, expected: Device) -> None:
    assert find_device(spec, [CPU, IGPU, GPU, GPU_2]) is expected


@pytest.mark.parametrize("spec", ["CUDA7", "9", "", "-1", "CUDA"])
def test_an_unknown_device_is_refused_with_those_that_exist(spec: str) -> None:
    with pytest.raises(DeviceError, match="there is: 0 CPU, 2 CUDA0"):
        find_device(spec, [CPU, GPU])


def test_the_cpu_says_what_it_supports() -> None:
    library = load()
    cpu = find_device("cpu")
    context = library.new_context(5)
    try:
        a = library.ggml_new_tensor_2d(context, _api.Type.F32, 256, 4)
        same = library.ggml_mul_mat(context, library.ggml_new_tensor_2d(context, _api.Type.Q4_0, 256, 4), a)
        assert cpu.supports(same)
        converted = library.ggml_cpy(
            context, a, library.ggml_new_tensor_2d(context, _api.Type.IQ2_XXS, 256, 4)
        )
        assert not cpu.supports(converted)
    finally:
        library.ggml_free(context)
