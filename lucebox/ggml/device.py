"""One device that models can run on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from lucebox.ggml.library import load


class DeviceKind(StrEnum):
    """What ggml says a device is."""

    CPU = "cpu"
    GPU = "gpu"
    INTEGRATED_GPU = "integrated gpu"
    ACCELERATOR = "accelerator"  # works beside the CPU, as BLAS does: takes single operations, not models
    META = "meta"


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

    @property
    def is_own_cpu(self) -> bool:
        """Whether it is this machine's CPU, whose memory is ours."""
        return self.kind is DeviceKind.CPU and self.worker is None

    def supports(self, operation: int) -> bool:
        """Whether it can compute the ggml_tensor `operation` from where the operation's sources lie."""
        if self.support is not None:
            return self.support(operation)
        return bool(load().ggml_backend_dev_supports_op(self.pointer, operation))
