"""Which device computes which part of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from lucebox.ggml.devices import Device


@dataclass(frozen=True, slots=True)
class Layout:
    """Indices into `devices`: of each layer, of the token embeddings, and of the final norm and LM head.

    With several devices the last one is the CPU, which ggml's scheduler asks for and which computes what
    others cannot. `experts` are where the experts of each layer lie, `layers` where a model has none.
    Accelerators among the devices hold nothing: ggml hands them single products.
    """

    devices: tuple[Device, ...]
    layers: tuple[int, ...]
    input: int
    output: int
    experts: tuple[int, ...]

    def __post_init__(self) -> None:
        assert len(self.devices) == 1 or self.devices[-1].is_own_cpu
        assert len(self.experts) == len(self.layers)

    @classmethod
    def single(cls, device: Device, n_layers: int) -> Self:
        """All of a model on one device."""
        everywhere = (0,) * n_layers
        return cls((device,), everywhere, 0, 0, everywhere)

    def with_cpu(self, cpu: Device) -> Self:
        """The same with `cpu` behind, for the embeddings and for what the only device cannot compute."""
        assert self.is_single
        assert self.main.pointer != cpu.pointer
        return type(self)((*self.devices, cpu), self.layers, 1, self.output, self.experts)

    @property
    def is_single(self) -> bool:
        return len(self.devices) == 1

    @property
    def main(self) -> Device:
        """The device that computes most layers, the first among equals."""
        return self.devices[max(range(len(self.devices)), key=self.layers.count)]

    @property
    def computing(self) -> tuple[Device, ...]:
        """The devices that have layers, `main` first."""
        n_layers = [(self.layers.count(i), device) for i, device in enumerate(self.devices)]
        n_layers.sort(key=lambda share: -share[0])
        return tuple(device for n, device in n_layers if n)

    @property
    def hardware(self) -> str:
        """Which part lies on what, by descriptions: names may mean other devices another day."""
        devices = [
            f"{device.description} ({device.backend}{f' at {device.worker}' if device.worker else ''})"
            for device in self.devices
        ]
        return f"{devices} {self.layers} {self.input} {self.output} {self.experts}"

    def __str__(self) -> str:
        """As `CUDA0 (24 layers), CPU (4 layers)`."""
        if self.is_single:
            return str(self.devices[0])
        shares = [(device, self.layers.count(i)) for i, device in enumerate(self.devices)]
        return ", ".join(f"{device} ({n} layers)" for device, n in shares if n)
