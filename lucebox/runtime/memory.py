"""Memory that is there for the taking, and the refusal of a model that needs more."""

from __future__ import annotations

from collections.abc import Sequence

from lucebox.errors import OutOfMemoryError
from lucebox.ggml._api import Type
from lucebox.ggml.devices import Device, DeviceKind
from lucebox.host_memory import host_memory
from lucebox.models.hparams import Hparams
from lucebox.runtime.key_values import kv_bytes
from lucebox.runtime.placing import PlacedModel

_DRIVER_SHARE = 0.03  # of an accelerator's memory, for what its driver and ggml's backend take beside ours


def available_bytes(device: Device) -> int:
    """Memory that can be taken without harm, now for this machine's CPU, else as of the device's listing."""
    if device.kind is DeviceKind.CPU:
        own = host_memory() if device.worker is None else None
        return device.free_bytes if own is None else own[0]
    return max(0, device.free_bytes - int(_DRIVER_SHARE * device.total_bytes))


def share_memory(a: Device, b: Device) -> bool:
    """Whether what one takes is missing to the other: the same device, the same chip by two backends, or an
    integrated GPU and its CPU."""
    if a.pointer == b.pointer:
        return True
    if a.worker != b.worker:
        return False
    is_one_chip = bool(a.hardware) and a.hardware == b.hardware
    return is_one_chip or {a.kind, b.kind} == {DeviceKind.CPU, DeviceKind.INTEGRATED_GPU}


def free_memory(devices: Sequence[Device]) -> dict[int, int]:
    """The available bytes of each, by its pointer."""
    return {device.pointer: available_bytes(device) for device in devices}


def check_memory(placed: PlacedModel, hparams: Hparams, n_cells: int, element: Type) -> None:
    """Raises OutOfMemoryError, with the numbers, when weights to be copied and keys and values do not fit on
    one of the devices."""
    per_layer = kv_bytes(hparams, n_cells, element) // hparams.n_layers
    for index, device in enumerate(placed.layout.devices):
        here = [placement for placement in placed.placements if placement.device == index]
        weights = sum(placement.stored.n_bytes for placement in here if not placement.is_mapped)
        cache = per_layer * placed.kv_layers.count(index)
        available = available_bytes(device)
        if device.holds_models and weights + cache > available:
            mib = 2**20
            raise OutOfMemoryError(
                f"{device.name} has {available / mib:,.0f} MiB free; weights need {weights / mib:,.0f} MiB "
                f"and {n_cells:,} cells of keys and values {cache / mib:,.0f} MiB",
                remedy="use a smaller --ctx-size, --parallel or model, or another device",
            )
