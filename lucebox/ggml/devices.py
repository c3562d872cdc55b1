"""What models can run on: the devices of all backends that ggml found, by name and number."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from lucebox.cores import physical_cores
from lucebox.errors import DeviceError, UnknownDeviceError
from lucebox.ggml import _api
from lucebox.ggml.bandwidth import bandwidth
from lucebox.ggml.device import Device, DeviceKind
from lucebox.ggml.library import Library, load
from lucebox.host_memory import host_memory
from lucebox.paths import cache_dir

__all__ = [
    "AUTO",
    "Device",
    "DeviceKind",
    "WorkerDevice",
    "accelerators",
    "add_worker_device",
    "by_speed",
    "by_speed_beside",
    "find_device",
    "find_devices",
    "list_devices",
    "remove_worker_device",
]

AUTO = "auto"

_KINDS = {
    _api.BackendDevType.CPU: DeviceKind.CPU,
    _api.BackendDevType.GPU: DeviceKind.GPU,
    _api.BackendDevType.IGPU: DeviceKind.INTEGRATED_GPU,
    _api.BackendDevType.ACCEL: DeviceKind.ACCELERATOR,
    _api.BackendDevType.META: DeviceKind.META,
}
# A device of its own is worth so much to a draft model: the two then compute at the same time.
_OWN_DEVICE_GAIN = 2.0

# What bandwidth across a network is worth: forwards wait for it, too, once for each run of layers.
_WORKER_WORTH = 0.8

Speed = Callable[[Device], float]


@dataclass(frozen=True, slots=True)
class WorkerDevice:
    """What a worker says about one of its devices, under the name it has here. Memory is that of now."""

    name: str
    worker: str
    description: str
    kind: DeviceKind
    free_bytes: int
    total_bytes: int
    support: Callable[[int], bool]


def add_worker_device(pointer: int, describe: Callable[[], WorkerDevice]) -> None:
    """Lists a device that ggml's registry does not have; `describe` is asked at each listing, instead of
    ggml, which would end this process if the worker were gone."""
    load().worker_devices[pointer] = describe


def remove_worker_device(pointer: int) -> None:
    """Lists it no more. Idempotent."""
    load().worker_devices.pop(pointer, None)


def list_devices() -> list[Device]:
    """This machine's devices, those of workers, then accelerators, numbered from 0.

    Raises GgmlError when ggml cannot be loaded, and WorkerError when a worker does not answer.
    """
    library = load()
    pointers = [library.ggml_backend_dev_get(i) for i in range(library.ggml_backend_dev_count())]
    found = [_describe(library, pointer) for pointer in pointers]
    found += [_describe_remote(*item) for item in library.worker_devices.copy().items()]
    listed = [device for device in found if device.kind is not DeviceKind.META]
    listed.sort(key=lambda device: (not device.holds_models, device.worker is not None))
    return [replace(device, number=number) for number, device in enumerate(listed)]


def accelerators(devices: Sequence[Device]) -> tuple[Device, ...]:
    """Those that help the CPU out."""
    return tuple(device for device in devices if device.kind is DeviceKind.ACCELERATOR)


def find_devices(
    spec: str,
    devices: Sequence[Device] | None = None,
    *,
    n_threads: int | None = None,
    beside: Sequence[Device] = (),
) -> tuple[Device, ...]:
    """The devices that `spec` means: names in any case or numbers, joined by commas, or `auto`. At least one
    of them holds models; accelerators may be among them.

    For `auto` these are candidates, to be filled in this order: see `by_speed` and, for the draft model of a
    target that lies on `beside`, `by_speed_beside`. Speeds are measured, where there is a choice, once for
    each device, a CPU with `n_threads` (all cores unless given). Raises DeviceError, which lists what exists.
    """
    devices = list_devices() if devices is None else devices
    if spec.strip().lower() == AUTO:
        folder = cache_dir() / "bandwidth"
        speed = partial(bandwidth, n_threads=n_threads or physical_cores(), folder=folder)
        return by_speed_beside(beside, devices, speed) if beside else by_speed(devices, speed)
    found = tuple(_named(name.strip(), devices) for name in spec.split(","))
    for index, device in enumerate(found):
        if device in found[:index]:
            raise DeviceError(f"{spec!r} names {device.name} twice", remedy="name each device once")
    if not any(device.holds_models for device in found):
        raise DeviceError(
            f"{found[0].name} ({found[0].description}) takes single operations of the CPU's, not models",
            remedy=f"name both: CPU,{found[0].name}",
        )
    return found


def by_speed(devices: Sequence[Device], speed: Speed) -> tuple[Device, ...]:
    """The devices that hold models, fastest first, each piece of hardware once.

    This machine's that are slower than its CPU are left out: what they lack in speed they do not have in
    memory, as a Vulkan in software. Those of workers count for less than they would here. `speed` is not
    asked about an only one.
    """
    able = [device for device in devices if device.holds_models]
    if len(able) < 2:
        return tuple(able)
    speeds = {device.pointer: speed(device) * (_WORKER_WORTH if device.worker else 1.0) for device in able}
    floor = max((speeds[device.pointer] for device in able if device.is_own_cpu), default=0.0)
    able.sort(key=lambda device: -speeds[device.pointer])
    useful = [device for device in able if device.worker or speeds[device.pointer] >= floor]
    return tuple(device for i, device in enumerate(useful) if not _is_known(device, useful[:i]))


def by_speed_beside(target: Sequence[Device], devices: Sequence[Device], speed: Speed) -> tuple[Device, ...]:
    """Where the draft model of a target on `target` (its main device first) should go.

    On a device of its own that is at least half as fast as the target's main one, so that both compute at
    once; else on that one; else wherever there is room, fastest first.
    """
    ordered = by_speed(devices, speed)
    if len(ordered) < 2:
        return ordered
    needed = speed(target[0]) / _OWN_DEVICE_GAIN
    own = [device for device in ordered if speed(device) >= needed and not _is_shared(device, target)]
    main = [device for device in ordered if device.pointer == target[0].pointer]
    return tuple({device.pointer: device for device in (*own, *main, *ordered)}.values())


def find_device(spec: str, devices: Sequence[Device] | None = None) -> Device:
    """The one device that `spec` means, the fastest for `auto`. Raises DeviceError."""
    found = find_devices(spec, devices)
    if len(found) > 1 and spec.strip().lower() != AUTO:
        raise DeviceError(f"{spec!r} names several devices, and one is wanted", remedy="name one")
    return found[0]


def _named(name: str, devices: Sequence[Device]) -> Device:
    for device in devices:
        if (device.number == int(name)) if name.isdecimal() else (device.name.lower() == name.lower()):
            return device
    known = ", ".join(f"{device.number} {device.name}" for device in devices) or "none"
    problem = f"There is no device {name!r}; there is: {known}"
    raise UnknownDeviceError(problem, remedy="see `lucebox devices`")


def _is_shared(device: Device, others: Sequence[Device]) -> bool:
    """Whether it cannot compute at the same time as `others`: calls to one worker wait for each other."""
    is_here = any(other.pointer == device.pointer for other in others)
    is_there = device.worker is not None and any(other.worker == device.worker for other in others)
    return is_here or is_there or _is_known(device, others)


def _is_known(device: Device, others: Sequence[Device]) -> bool:
    """Whether another backend drives the same hardware."""
    place = device.worker, device.hardware
    return bool(device.hardware) and any((other.worker, other.hardware) == place for other in others)


def _describe(library: Library, pointer: int) -> Device:
    """The device without its number."""
    backend = library.ggml_backend_reg_name(library.ggml_backend_dev_backend_reg(pointer))
    properties = _api.BackendDevProps()
    library.ggml_backend_dev_get_props(pointer, ctypes.byref(properties))
    kind = _KINDS[_api.BackendDevType(properties.type)]
    memory = host_memory() if kind is DeviceKind.CPU else None
    free_bytes, total_bytes = memory or (properties.memory_free, properties.memory_total)
    return Device(
        number=-1,
        name=properties.name.decode(),
        description=properties.description.decode(),
        kind=kind,
        free_bytes=free_bytes,
        total_bytes=total_bytes,
        pointer=pointer,
        backend=backend.decode(),
        hardware=(properties.device_id or b"").decode(),
    )


def _describe_remote(pointer: int, describe: Callable[[], WorkerDevice]) -> Device:
    facts = describe()
    return Device(
        number=-1,
        name=facts.name,
        description=facts.description,
        kind=facts.kind,
        free_bytes=facts.free_bytes,
        total_bytes=facts.total_bytes,
        pointer=pointer,
        backend="RPC",
        worker=facts.worker,
        support=facts.support,
    )
