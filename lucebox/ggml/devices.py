"""What models can run on: the devices of all backends that ggml found, by name and number."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from lucebox.errors import DeviceError
from lucebox.ggml import _api
from lucebox.ggml.library import load

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
    """One device; `pointer` is its ggml_backend_dev_t. The memory figures are of the time of listing."""

    number: int
    name: str
    description: str
    kind: DeviceKind
    free_bytes: int
    total_bytes: int
    pointer: int = field(repr=False)

    def __str__(self) -> str:
        return self.name

    def supports(self, operation: int) -> bool:
        """Whether it can compute the ggml_tensor `operation` from where the operation's sources lie."""
        return bool(load().ggml_backend_dev_supports_op(self.pointer, operation))


def list_devices() -> list[Device]:
    """The devices that models can run on, numbered from 0. Raises GgmlError when ggml cannot be loaded."""
    library = load()
    pointers = [library.ggml_backend_dev_get(i) for i in range(library.ggml_backend_dev_count())]
    found = [_describe(library, pointer) for pointer in pointers]
    usable = [values for values in found if values["kind"] in _PREFERENCE]
    return [Device(number=number, **values) for number, values in enumerate(usable)]


def find_device(spec: str, devices: Sequence[Device] | None = None) -> Device:
    """The device that `spec` means: a name in any case, a number, or `auto` (a GPU if there is one).

    Raises DeviceError, which lists what exists.
    """
    devices = list_devices() if devices is None else devices
    wanted = spec.strip()
    if wanted.lower() == AUTO:
        by_speed = sorted(devices, key=lambda device: _PREFERENCE.index(device.kind))
        found = by_speed[:1]
    elif wanted.isdecimal():
        found = [device for device in devices if device.number == int(wanted)]
    else:
        found = [device for device in devices if device.name.lower() == wanted.lower()]
    if not found:
        known = ", ".join(f"{device.number} {device.name}" for device in devices) or "none"
        raise DeviceError(f"There is no device {spec!r}; there is: {known}", remedy="see `lucebox devices`")
    return found[0]


def _describe(library: Any, pointer: int) -> dict[str, Any]:
    properties = _api.BackendDevProps()
    library.ggml_backend_dev_get_props(pointer, ctypes.byref(properties))
    return {
        "name": properties.name.decode(),
        "description": properties.description.decode(),
        "kind": _KINDS[_api.BackendDevType(properties.type)],
        "free_bytes": properties.memory_free,
        "total_bytes": properties.memory_total,
        "pointer": pointer,
    }
