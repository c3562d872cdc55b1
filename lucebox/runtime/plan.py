"""What a model will take of each device, known before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from lucebox.ggml.devices import Device
from lucebox.runtime.layout import Layout


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """One model's share of one device, in bytes. `mapped_bytes` of the weights stay in the file's pages, which
    the system may drop and read again. `elsewhere` names operations that the device lacks: the CPU has them.
    """

    device: Device
    n_layers: int
    weights_bytes: int
    mapped_bytes: int
    kv_bytes: int
    compute_bytes: int
    elsewhere: tuple[str, ...] = ()

    @property
    def needed_bytes(self) -> int:
        """What must be free on the device."""
        return self.weights_bytes + self.kv_bytes + self.compute_bytes


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """One model's memory: a DevicePlan for each device of its layout, in that order."""

    name: str
    layout: Layout
    n_ctx: int
    n_cells: int
    kv_type: str
    devices: tuple[DevicePlan, ...]
