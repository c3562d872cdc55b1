"""Tensors without memory, over which graphs can be built and judged before anything is allocated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from lucebox.ggml import _api
from lucebox.ggml._api import Type
from lucebox.ggml.library import Library
from lucebox.gguf.packing import PackedMatrix, Packer
from lucebox.gguf.weights import Placement
from lucebox.models import Hparams
from lucebox.models.forward import KeyValues
from lucebox.runtime.key_values import kv_shapes


class Sketch:
    """Tensors that belong to buffers of no size: graphs can be built over them, and measured, but not
    computed. Owns them; `close` is idempotent."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._contexts: list[int] = []
        self._buffers: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        while self._contexts:
            self._library.ggml_free(self._contexts.pop())
        while self._buffers:
            self._library.ggml_backend_buffer_free(self._buffers.popitem()[1])

    def tensors(self, buffer_type: int, described: Sequence[tuple[int, Sequence[int]]]) -> SketchedTensors:
        """Tensors of these types and shapes (ne0 first), as if they lay together in one buffer."""
        library = self._library
        context = library.new_context(len(described))
        self._contexts.append(context)
        tensors = [
            library.ggml_new_tensor_4d(context, kind, *(*shape, 1, 1, 1)[:4]) for kind, shape in described
        ]
        n_bytes = library.ggml_backend_alloc_ctx_tensors_from_buft_size(context, buffer_type)
        for tensor in tensors:
            _api.Tensor.from_address(tensor).buffer = self._empty_buffer(buffer_type)
        return SketchedTensors(tensors, int(n_bytes))

    def _empty_buffer(self, buffer_type: int) -> int:
        if buffer_type not in self._buffers:
            self._buffers[buffer_type] = self._library.ggml_backend_buft_alloc_buffer(buffer_type, 0)
        return self._buffers[buffer_type]


@dataclass(frozen=True, slots=True)
class SketchedTensors:
    """`n_bytes` is what a buffer that holds them takes."""

    tensors: list[int]
    n_bytes: int


@dataclass(slots=True)
class SketchedWeights:
    """As Weights, without the weights. Bytes are those of each device."""

    allocated_bytes: list[int]
    mapped_bytes: list[int]
    tensors: dict[str, int] = field(default_factory=dict)
    packed: dict[str, PackedMatrix] = field(default_factory=dict)
    owners: dict[int, int] = field(default_factory=dict)


def sketch_weights(sketch: Sketch, placements: Sequence[Placement], n_devices: int) -> SketchedWeights:
    """The weights that these placements will make."""
    weights = SketchedWeights([0] * n_devices, [0] * n_devices)
    by_buffer = defaultdict(list)
    for placement in placements:
        by_buffer[placement.device, placement.buffer_type, placement.is_mapped].append(placement)
    for (device, buffer_type, is_mapped), group in by_buffer.items():
        described = [(placement.stored.type, placement.stored.shape) for placement in group]
        sketched = sketch.tensors(buffer_type, described)
        if is_mapped:
            weights.mapped_bytes[device] += sketched.n_bytes
        else:
            weights.allocated_bytes[device] += sketched.n_bytes
        for placement, tensor in zip(group, sketched.tensors, strict=True):
            weights.owners[tensor] = device
            if placement.is_packed:
                weights.packed[placement.spec.name] = Packer(placement.info).matrix(tensor)
            else:
                weights.tensors[placement.spec.name] = tensor
    return weights


def sketch_key_values(
    sketch: Sketch,
    buffer_types: Sequence[int],
    layers: Sequence[int],
    hparams: Hparams,
    n_cells: int,
    element: Type,
) -> tuple[KeyValues, list[int]]:
    """Keys and values of `n_cells` cells, as KeyValueMemory makes them, and the bytes that they take of each
    device."""
    keys, values = [0] * hparams.n_layers, [0] * hparams.n_layers
    device_bytes = [0] * len(buffer_types)
    for device, buffer_type in enumerate(buffer_types):
        here = [layer for layer, owner in enumerate(layers) if owner == device]
        if not here:
            continue
        described = [(element, shape) for _ in here for shape in kv_shapes(hparams, n_cells)]
        sketched = sketch.tensors(buffer_type, described)
        device_bytes[device] = sketched.n_bytes
        for i, layer in enumerate(here):
            keys[layer], values[layer] = sketched.tensors[2 * i : 2 * i + 2]
    return KeyValues(keys, values), device_bytes
