"""Memory planned before it is taken: what a model needs of a device, and the refusal when that is too
much."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lucebox.errors import OutOfMemoryError
from lucebox.ggml._api import Type
from lucebox.ggml.devices import Device, DeviceKind
from lucebox.gguf.weights import Placement
from lucebox.models.hparams import Hparams
from lucebox.runtime.key_values import kv_bytes

_MEMINFO = Path("/proc/meminfo")


def available_bytes(device: Device) -> int:
    """Memory that can be taken without harm: ggml takes all of a CPU's memory to be free, Linux knows
    better."""
    if device.kind is DeviceKind.CPU and _MEMINFO.exists():
        for line in _MEMINFO.read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                return int(value.split()[0]) * 1024
    return device.free_bytes


def check_memory(
    device: Device, placements: Sequence[Placement], hparams: Hparams, n_cells: int, element: Type
) -> None:
    """Raises OutOfMemoryError, with the numbers, when weights to be copied and keys and values do not fit."""
    weights = sum(placement.stored.n_bytes for placement in placements if not placement.is_mapped)
    cache = kv_bytes(hparams, n_cells, element)
    available = available_bytes(device)
    if weights + cache > available:
        mib = 2**20
        raise OutOfMemoryError(
            f"{device.name} has {available / mib:,.0f} MiB free; weights need {weights / mib:,.0f} MiB and "
            f"{n_cells:,} cells of keys and values {cache / mib:,.0f} MiB",
            remedy="use a smaller --ctx-size, --parallel or model, or another device",
        )
