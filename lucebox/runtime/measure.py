"""What a model takes of a device, told by ggml's own allocators, with nothing allocated."""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from lucebox.ggml import _api
from lucebox.ggml._api import Type
from lucebox.ggml.devices import Device
from lucebox.ggml.library import Library
from lucebox.gguf.packing import PackedMatrix, Packer
from lucebox.gguf.weights import Placement
from lucebox.models import Architecture, Hparams
from lucebox.models.forward import KeyValues, Shape
from lucebox.runtime.builder import Builder
from lucebox.runtime.key_values import _ELEMENT_BYTES


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes that one model takes of one device; mapped weights lie in the file's pages."""

    weights_bytes: int
    mapped_bytes: int
    kv_bytes: int
    compute_bytes: int


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
    """As Weights, without the weights."""

    tensors: dict[str, int] = field(default_factory=dict)
    packed: dict[str, PackedMatrix] = field(default_factory=dict)
    allocated_bytes: int = 0
    mapped_bytes: int = 0


def sketch_weights(sketch: Sketch, placements: Sequence[Placement]) -> SketchedWeights:
    """The weights that these placements, all on one device, will make of it."""
    weights = SketchedWeights()
    by_buffer = defaultdict(list)
    for placement in placements:
        by_buffer[placement.buffer_type, placement.is_mapped].append(placement)
    for (buffer_type, is_mapped), group in by_buffer.items():
        described = [(placement.stored.type, placement.stored.shape) for placement in group]
        sketched = sketch.tensors(buffer_type, described)
        if is_mapped:
            weights.mapped_bytes += sketched.n_bytes
        else:
            weights.allocated_bytes += sketched.n_bytes
        for placement, tensor in zip(group, sketched.tensors, strict=True):
            if placement.is_packed:
                weights.packed[placement.spec.name] = Packer(placement.info).matrix(tensor)
            else:
                weights.tensors[placement.spec.name] = tensor
    return weights


def sketch_key_values(
    sketch: Sketch, buffer_type: int, hparams: Hparams, n_cells: int, element: Type
) -> tuple[KeyValues, int]:
    """Keys and values of `n_cells` cells, as KeyValueMemory makes them, and the bytes that they take."""
    h, n_rows = hparams, n_cells + 1
    shapes = [(head_dim, n_rows, h.n_heads_kv) for head_dim in (h.head_dim_k, h.head_dim_v)]
    described = [(element, shape) for shape in shapes for _ in range(h.n_layers)]
    sketched = sketch.tensors(buffer_type, described)
    keys, values = sketched.tensors[: h.n_layers], sketched.tensors[h.n_layers :]
    return KeyValues(keys, values, n_rows, _ELEMENT_BYTES[element]), sketched.n_bytes


def measure(
    library: Library,
    device: Device,
    architecture: type[Architecture],
    hparams: Hparams,
    placements: Sequence[Placement],
    n_cells: int,
    element: Type,
    shape: Shape,
) -> Usage:
    """What a model of these weights and cells takes of `device` if `shape` is its largest forward."""
    buffer_type = library.ggml_backend_dev_buffer_type(device.pointer)
    with Sketch(library) as sketch:
        weights = sketch_weights(sketch, placements)
        key_values, kv_bytes = sketch_key_values(sketch, buffer_type, hparams, n_cells, element)
        builder = Builder(library, device, architecture, hparams, weights, key_values)
        graph = builder.build(shape)
        allocator = library.ggml_gallocr_new(buffer_type)
        try:
            size = ctypes.c_size_t()
            library.ggml_gallocr_reserve_n_size(allocator, graph.pointer, None, None, ctypes.addressof(size))
        finally:
            library.ggml_gallocr_free(allocator)
            graph.close()
    return Usage(weights.allocated_bytes, weights.mapped_bytes, kv_bytes, size.value)
