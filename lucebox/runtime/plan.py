"""What a model will take of each device, known before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

from lucebox import models
from lucebox.config import AUTO, ModelConfig
from lucebox.ggml._api import Type
from lucebox.ggml.devices import Device, list_devices
from lucebox.ggml.library import load
from lucebox.gguf import packing
from lucebox.gguf.fusion import fuse_adjacent
from lucebox.gguf.head import check_head_rows, cut_head
from lucebox.gguf.reader import GgufFile, read
from lucebox.gguf.requantise import parse_requantise
from lucebox.gguf.specs import match_specs
from lucebox.runtime.graphs import largest_shape, n_cells_for
from lucebox.runtime.key_values import parse_kv_type
from lucebox.runtime.layout import Layout
from lucebox.runtime.measure import measure
from lucebox.runtime.memory import free_memory, share_memory
from lucebox.runtime.placing import PlacedModel, place_model
from lucebox.runtime.split import find_layout, own_cpu


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """One model's share of one device, in bytes. `mapped_bytes` of the weights stay in the file's pages,
    which the system may drop and read again. `elsewhere` names operations that the device lacks: the CPU has
    them.
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
    """One model's memory: a DevicePlan for each device of its layout but accelerators, in that order."""

    name: str
    layout: Layout
    n_ctx: int
    n_cells: int
    kv_type: str
    devices: tuple[DevicePlan, ...]

    def pinned(self, config: ModelConfig) -> ModelConfig:
        """`config` with the devices and the number of layers on each that were planned, so that loading does
        not choose again."""
        layout = self.layout
        if layout.is_single:
            return msgspec.structs.replace(config, device=layout.main.name, split=(), n_cpu_layers=None)
        return msgspec.structs.replace(
            config,
            device=",".join(device.name for device in layout.devices),
            split=tuple(float(layout.layers.count(i)) for i in range(len(layout.devices))),
            n_cpu_layers=None,
        )


@dataclass(frozen=True, slots=True)
class JointPlan:
    """Models that are to be loaded together, by their roles, and what each device (by its pointer) has to
    give."""

    models: Mapping[str, ModelPlan]
    free_bytes: Mapping[int, int]

    def devices(self) -> list[Device]:
        """All that any model uses, the first model's first."""
        used = [part.device for plan in self.models.values() for part in plan.devices]
        return list({device.pointer: device for device in used}.values())

    def parts(self, device: Device) -> dict[str, DevicePlan]:
        """What each role takes of `device`, where it takes any."""
        return {
            role: part
            for role, plan in self.models.items()
            for part in plan.devices
            if part.device.pointer == device.pointer
        }

    def needed_bytes(self, device: Device) -> int:
        return sum(part.needed_bytes for part in self.parts(device).values())

    def sharing(self, device: Device) -> list[Device]:
        """The other devices that take from the same memory."""
        return [d for d in self.devices() if d.pointer != device.pointer and share_memory(d, device)]

    def fits(self, device: Device) -> bool:
        pool = (device, *self.sharing(device))
        return sum(map(self.needed_bytes, pool)) <= self.free_bytes[device.pointer]


class Planner:
    """Plans the model of one configuration, again and again at little cost. Owns its file, which is read but
    not loaded; `close` is idempotent. Raises what loading it would: ModelFileError, UnsupportedModelError,
    ConfigError and DeviceError.
    """

    def __init__(self, config: ModelConfig, devices: Sequence[Device]) -> None:
        self.file: GgufFile = read(config.path)
        self._config = config
        self._devices = devices
        self._placed: dict[object, PlacedModel] = {}
        try:
            self._architecture = models.for_file(self.file)
            self.hparams = self._architecture.hparams(self.file)
            self._match()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.file.close()

    def plan(
        self,
        config: ModelConfig,
        n_ctx: int,
        n_sequences: int,
        free_bytes: Mapping[int, int],
        beside: Sequence[Device] = (),
    ) -> ModelPlan:
        """The plan for `n_sequences` sequences of `n_ctx` tokens. `config` may differ from the planner's in
        device, split, layers and KV type. `free_bytes`, by a device's pointer, is what each has to give.
        `beside` are the devices of the target of this draft model.
        """
        n_cells = n_cells_for(n_ctx, n_sequences)
        element = parse_kv_type(config.kv_type, self.hparams)
        layout = find_layout(
            self.file,
            self.hparams,
            config.device,
            n_cells=n_cells,
            element=element,
            split=config.split,
            n_cpu_layers=config.n_cpu_layers,
            cpu_moe=config.cpu_moe,
            devices=self._devices,
            free_bytes=free_bytes,
            n_threads=config.n_threads,
            beside=beside,
        )
        placed = self._place(layout, element)
        layout = placed.layout
        usages = measure(
            load(), placed, self._architecture, self.hparams, n_cells, element, largest_shape(n_cells)
        )
        devices = tuple(
            DevicePlan(
                device,
                layout.layers.count(i),
                usage.weights_bytes,
                usage.mapped_bytes,
                usage.kv_bytes,
                usage.compute_bytes,
                usage.elsewhere,
            )
            for i, (device, usage) in enumerate(zip(layout.devices, usages, strict=True))
            if device.holds_models
        )
        return ModelPlan(Path(config.path).name, layout, n_ctx, n_cells, config.kv_type, devices)

    def _match(self) -> None:
        """The weights as the graph knows them, whatever device they will lie on."""
        config, h = self._config, self.hparams
        matched = match_specs(self.file, self._architecture.tensors(h))
        if config.n_head_rows is not None:
            check_head_rows(self.file, config.n_head_rows)
            matched = cut_head(matched, config.n_head_rows)
        self._matched = fuse_adjacent(matched, self._architecture.fusions(h))
        self._requantise = parse_requantise(config.quantise)
        if self._requantise is not None:
            self._requantise.check(self.file.path, self._matched)

    def _place(self, layout: Layout, element: Type) -> PlacedModel:
        key = tuple(d.pointer for d in layout.devices), layout.layers, layout.experts, layout.input, element
        if key not in self._placed:
            self._placed[key] = place_model(
                load(),
                self.file,
                self._architecture,
                self.hparams,
                self._matched,
                layout,
                element,
                cpu=own_cpu(self._devices),
                requantise=self._requantise,
                packs=self._config.cpu_kernels == AUTO and packing.is_available(),
                attends=self._config.cpu_kernels == AUTO,
            )
        return self._placed[key]


def plan_model(config: ModelConfig, n_ctx: int, n_sequences: int = 1) -> ModelPlan:
    """What the model of `config` will take of each device, told by its file's header alone: nothing is
    loaded. Raises as Planner does."""
    devices = list_devices()
    with Planner(config, devices) as planner:
        return planner.plan(config, n_ctx, n_sequences, free_memory(devices))
