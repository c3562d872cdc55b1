"""Listing devices, and finding the one that a user means."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lucebox.errors import DeviceError
from lucebox.ggml import _api
from lucebox.ggml.devices import (
    Device,
    DeviceKind,
    WorkerDevice,
    accelerators,
    add_worker_device,
    by_speed,
    by_speed_beside,
    find_device,
    find_devices,
    list_devices,
)
from lucebox.ggml.library import load
from lucebox.host_memory import host_memory


def device(number: int, name: str, kind: DeviceKind) -> Device:
    return Device(number, name, "for tests", kind, 0, 0, pointer=number + 1)


CPU = device(0, "CPU", DeviceKind.CPU)
IGPU = device(1, "Vulkan0", DeviceKind.INTEGRATED_GPU)
GPU = device(2, "CUDA0", DeviceKind.GPU)
GPU_2 = device(3, "CUDA1", DeviceKind.GPU)
BLAS = device(4, "BLAS", DeviceKind.ACCELERATOR)


def test_the_cpu_is_listed_with_its_memory() -> None:
    devices = list_devices()
    assert [entry.number for entry in devices] == list(range(len(devices)))
    [cpu] = [entry for entry in devices if entry.kind is DeviceKind.CPU]
    assert cpu.name == "CPU"
    assert cpu.description
    assert cpu.total_bytes >= cpu.free_bytes > 0


SPEEDS = {"CPU": 50.0, "Vulkan0": 90.0, "CUDA0": 900.0, "CUDA1": 800.0, "far": 100.0, "llvmpipe": 2.0}


def speed(device: Device) -> float:
    return SPEEDS[device.name]


def test_auto_fills_the_fastest_first() -> None:
    assert by_speed([CPU, IGPU, GPU, GPU_2, BLAS], speed) == (GPU, GPU_2, IGPU, CPU)


def test_auto_measures_nothing_where_there_is_no_choice() -> None:
    def refuse(device: Device) -> float:
        raise AssertionError(device.name)

    assert by_speed([CPU, BLAS], refuse) == (CPU,)
    assert by_speed_beside([CPU], [CPU, BLAS], refuse) == (CPU,)
    assert find_devices("auto", [CPU, BLAS]) == (CPU,)
    assert find_device("AUTO", [CPU, BLAS]) is CPU


def test_auto_leaves_out_what_is_slower_than_the_cpu_unless_it_is_another_machine() -> None:
    llvmpipe = device(5, "llvmpipe", DeviceKind.GPU)
    far = replace(device(6, "far", DeviceKind.CPU), worker="far:50052")
    assert by_speed([llvmpipe, CPU], speed) == (CPU,)
    assert by_speed([far, llvmpipe, CPU], speed) == (far, CPU)
    twin = replace(device(7, "Vulkan0", DeviceKind.CPU), worker="far:50052")
    assert by_speed([twin, IGPU], speed) == (IGPU, twin)  # a network between them costs
    slow = replace(llvmpipe, worker="far:50052")
    assert by_speed([slow, CPU], speed) == (CPU, slow)


def test_auto_takes_hardware_once() -> None:
    cuda, vulkan = replace(GPU, hardware="0000:01:00.0"), replace(GPU_2, hardware="0000:01:00.0")
    assert by_speed([CPU, vulkan, cuda], speed) == (cuda, CPU)
    elsewhere = replace(vulkan, worker="far:50052")
    assert by_speed([CPU, elsewhere, cuda], speed) == (cuda, elsewhere, CPU)


@pytest.mark.parametrize(
    ("target", "devices", "expected"),
    [
        ([GPU], [CPU, GPU], (GPU, CPU)),  # a CPU is too slow beside a GPU
        ([GPU], [CPU, GPU, GPU_2], (GPU_2, GPU, CPU)),
        ([GPU, GPU_2], [CPU, GPU, GPU_2], (GPU, GPU_2, CPU)),
        ([GPU_2], [CPU, GPU, GPU_2], (GPU, GPU_2, CPU)),
        ([CPU], [CPU, GPU], (GPU, CPU)),
        ([IGPU], [CPU, IGPU], (CPU, IGPU)),
    ],
)
def test_auto_gives_a_draft_model_its_own_device_if_that_is_half_as_fast(
    target: list[Device], devices: list[Device], expected: tuple[Device, ...]
) -> None:
    assert by_speed_beside(target, devices, speed) == expected


def test_devices_that_take_turns_are_no_devices_of_their_own() -> None:
    first, second = replace(GPU, worker="far:50052"), replace(GPU_2, worker="far:50052")
    assert by_speed_beside([first], [CPU, first, second], speed) == (first, second, CPU)
    other = replace(second, worker="near:50052")
    assert by_speed_beside([first], [CPU, first, other], speed) == (other, first, CPU)
    cuda, vulkan = replace(GPU, hardware="0000:01:00.0"), replace(GPU_2, hardware="0000:01:00.0")
    assert by_speed_beside([vulkan], [CPU, cuda, vulkan], speed) == (cuda, CPU)


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


def test_several_by_name_and_number_in_the_order_given() -> None:
    devices = [CPU, IGPU, GPU, GPU_2]
    assert find_devices("cuda1, CUDA0,0", devices) == (GPU_2, GPU, CPU)
    assert find_devices("1", devices) == (IGPU,)
    assert find_devices("CPU,BLAS", [CPU, BLAS]) == (CPU, BLAS)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("CPU,cpu", "names CPU twice"),
        ("CUDA0,2", "names CUDA0 twice"),
        ("CPU,", "There is no device ''"),
        ("CPU,auto", "There is no device 'auto'"),
        ("BLAS", "takes single operations"),
        ("CPU,9", "There is no device '9'; there is: 0 CPU, 2 CUDA0, 4 BLAS"),
    ],
)
def test_lists_that_name_nothing_useful_are_refused(spec: str, words: str) -> None:
    with pytest.raises(DeviceError, match=words):
        find_devices(spec, [CPU, GPU, BLAS])


def test_one_device_is_not_several() -> None:
    with pytest.raises(DeviceError, match="names several devices"):
        find_device("CPU,CUDA0", [CPU, GPU])


def test_accelerators_are_listed_last_and_hold_nothing() -> None:
    devices = list_devices()
    kinds = [entry.kind for entry in devices]
    n_models = len(devices) - kinds.count(DeviceKind.ACCELERATOR)
    assert [entry.holds_models for entry in devices] == [True] * n_models + [False] * (
        len(devices) - n_models
    )
    assert accelerators(devices) == tuple(devices[n_models:])


def test_memory_of_the_cpu_is_what_linux_calls_available() -> None:
    [cpu] = [entry for entry in list_devices() if entry.kind is DeviceKind.CPU]
    memory = host_memory()
    if memory is None:
        pytest.skip("only ggml knows this system's memory")
    assert abs(cpu.free_bytes - memory[0]) < 2**30
    assert cpu.total_bytes == memory[1]


def test_a_device_of_a_worker_is_what_the_worker_says(monkeypatch: pytest.MonkeyPatch) -> None:
    library = load()
    [cpu] = [entry for entry in list_devices() if entry.kind is DeviceKind.CPU]
    facts = WorkerDevice(
        "RPC0", "far:50052", "a far GPU", DeviceKind.GPU, 3, 4, support=lambda operation: operation == 7
    )
    monkeypatch.setattr(library, "worker_devices", {})
    add_worker_device(cpu.pointer, lambda: facts)
    [far] = [entry for entry in list_devices() if entry.worker]
    assert (far.description, far.kind, far.free_bytes, far.total_bytes) == ("a far GPU", DeviceKind.GPU, 3, 4)
    assert (far.name, far.worker, far.backend) == ("RPC0", "far:50052", "RPC")
    assert far.supports(7)
    assert not far.supports(8)
