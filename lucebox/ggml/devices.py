"""What models can run on: the devices of all backends that ggml found, by name and number."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from lucebox.errors import DeviceError
from lucebox.ggml import _api
from lucebox.ggml.library import Library, load
from lucebox.host_memory import host_memory

AUTO = "auto"


class DeviceKind(StrEnum):
    """What ggml says a device is."""

    CPU = "cpu"
    GPU = "gpu"
    INTEGRATED_GPU = "integrated gpu"
    ACCELERATOR = "accelerator"  # works beside the CPU, as BLAS does: takes single operations, not models
    META = "meta"


_KINDS = {
    _api.BackendDevType.CPU: DeviceKind.CPU,
    _api.BackendDevType.GPU: DeviceKind.GPU,
    _api.BackendDevType.IGPU: DeviceKind.INTEGRATED_GPU,
    _api.BackendDevType.ACCEL: DeviceKind.ACCELERATOR,
    _api.BackendDevType.META: DeviceKind.META,
}
# Fastest first, for `auto`.
_PREFERENCE = (DeviceKind.GPU, DeviceKind.INTEGRATED_GPU, DeviceKind.CPU)


@dataclass(frozen=True, slots=True)
class Device:
    """One device; `pointer` is its ggml_backend_dev_t. The memory figures are of the time of listing.

    `backend` is the name of ggml's backend, `hardware` what tells two backends of the same chip apart from
    two chips ("" where unknown). A device of another machine has the address of its `worker`, which answers
    for what it supports: ggml would say that it does anything.
    """

    number: int
    name: str
    description: str
    kind: DeviceKind
    free_bytes: int
    total_bytes: int
    pointer: int = field(repr=False)
    backend: str = ""
    hardware: str = field(default="", repr=False)
    worker: str | None = None
    support: Callable[[int], bool] | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return self.name

    @property
    def holds_models(self) -> bool:
        """Whether weights can lie there; others take single operations."""
        return self.kind is not DeviceKind.ACCELERATOR

    def supports(self, operation: int) -> bool:
        """Whether it can compute the ggml_tensor `operation` from where the operation's sources lie."""
        if self.support is not None:
            return self.support(operation)
        return bool(load().ggml_backend_dev_supports_op(self.pointer, operation))


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


def find_devices(spec: str, devices: Sequence[Device] | None = None) -> tuple[Device, ...]:
    """The devices that `spec` means: names in any case or numbers, joined by commas, or `auto`.

    Raises DeviceError, which lists what exists.
    """
    devices = list_devices() if devices is None else devices
    if spec.strip().lower() == AUTO:
        return (_fastest(devices),)
    found = tuple(_named(name.strip(), devices) for name in spec.split(","))
    for index, device in enumerate(found):
        if not device.holds_models:
            raise DeviceError(
                f"{device.name} ({device.description}) takes single operations of the CPU's, not models",
                remedy="name the CPU: it is used by itself",
            )
        if device in found[:index]:
            raise DeviceError(f"{spec!r} names {device.name} twice", remedy="name each device once")
    return found


def find_device(spec: str, devices: Sequence[Device] | None = None) -> Device:
    """The one device that `spec` means, the fastest for `auto`. Raises DeviceError."""
    found = find_devices(spec, devices)
    if len(found) > 1:
        raise DeviceError(f"{spec!r} names several devices, and one is wanted", remedy="name one")
    return found[0]


def _named(name: str, devices: Sequence[Device]) -> Device:
    for device in devices:
        if (device.number == int(name)) if name.isdecimal() else (device.name.lower() == name.lower()):
            return device
    known = ", ".join(f"{device.number} {device.name}" for device in devices) or "none"
    raise DeviceError(f"There is no device {name!r}; there is: {known}", remedy="see `lucebox devices`")


def _fastest(devices: Sequence[Device]) -> Device:
    able = [device for device in devices if device.holds_models]
    return min(able, key=lambda device: _PREFERENCE.index(device.kind))


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
