"""Graphs built once per shape and used again: inputs and outputs as arrays, memory in one shared arena."""

from __future__ import annotations

import ctypes
from bisect import bisect_left
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lucebox.errors import OutOfMemoryError
from lucebox.ggml import _api
from lucebox.ggml.library import Library
from lucebox.models.forward import Forward, Shape
from lucebox.models.hparams import Hparams

if TYPE_CHECKING:
    from lucebox.ggml.backend import Backend
    from lucebox.runtime.builder import Builder

ROW_BUCKETS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
KV_STEP = 256  # graphs see a multiple of this many cells
_RESERVED_OUTPUTS = 32


def row_bucket(n: int) -> int:
    """The smallest number of rows, at least n, that graphs are built for."""
    return ROW_BUCKETS[bisect_left(ROW_BUCKETS, n)]


def kv_bucket(n_kv: int, n_cells: int) -> int:
    """Cells that a graph sees when the highest one needed is n_kv - 1."""
    return min(-(-n_kv // KV_STEP) * KV_STEP, n_cells)


def n_cells_for(n_ctx: int, n_sequences: int) -> int:
    """Cells of a cache in which every one of `n_sequences` may grow to `n_ctx` tokens."""
    return -(-n_ctx * n_sequences // KV_STEP) * KV_STEP


def largest_shape(n_cells: int) -> Shape:
    """The forward that memory is reserved for: a whole batch of a prompt over all cells."""
    return Shape(ROW_BUCKETS[-1], n_cells, _RESERVED_OUTPUTS, gathers=True)


class Port:
    """A tensor of a graph as an array: a view of its memory when the host can reach that, else a copy that
    `push` sends to the device and `pull` fetches from it."""

    __slots__ = ("_is_view", "_library", "_tensor", "array")

    def __init__(
        self, library: Library, tensor: int, shape: tuple[int, ...], dtype: type[np.generic], is_host: bool
    ) -> None:
        self._library = library
        self._tensor = tensor
        self._is_view = is_host
        self.array: NDArray[Any] = np.empty(0, dtype)
        if is_host:
            n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
            raw = (ctypes.c_uint8 * n_bytes).from_address(library.ggml_get_data(tensor))
            self.array = np.frombuffer(memoryview(raw), dtype).reshape(shape)
        else:
            self.array = np.empty(shape, dtype)

    def push(self) -> None:
        if not self._is_view:
            self._library.ggml_backend_tensor_set(self._tensor, self.array.ctypes.data, 0, self.array.nbytes)

    def pull(self) -> None:
        if not self._is_view:
            self._library.ggml_backend_tensor_get(self._tensor, self.array.ctypes.data, 0, self.array.nbytes)


class Graph:
    """One forward of one shape. Owns its ggml context."""

    def __init__(
        self, library: Library, context: int, graph: int, forward: Forward, hparams: Hparams
    ) -> None:
        self._library = library
        self._hparams = hparams
        self.context = context
        self.pointer = graph
        self.forward = forward
        self.shape = forward.shape
        self.activity = (
            f"forward of {hparams.architecture}, {forward.shape.n_rows} rows over {forward.shape.n_kv} cells"
        ).encode()
        self.tokens: Port
        self.positions: Port
        self.cells: Port
        self.mask: Port | None = None
        self.outputs: Port | None = None
        self.logits: Port | None = None
        self.hidden: Port | None = None

    def bind(self) -> None:
        """Opens the ports, once the tensors have their memory."""
        inputs, shape, h = self.forward.inputs, self.shape, self._hparams
        rows = (shape.n_rows,)
        self.tokens = self._port(inputs.tokens, rows, np.int32)
        self.positions = self._port(inputs.positions, rows, np.int32)
        self.cells = self._port(inputs.cells, rows, np.int64)
        self.mask = self._optional_port(inputs.mask, (shape.n_rows, shape.n_kv), np.uint16)
        self.outputs = self._optional_port(inputs.outputs, (shape.n_outputs,), np.int32)
        self.logits = self._optional_port(
            self.forward.logits, (shape.n_outputs, self._n_logits()), np.float32
        )
        self.hidden = self._optional_port(self.forward.hidden, (shape.n_outputs, h.n_embd), np.float32)

    def _port(self, tensor: int, dims: tuple[int, ...], dtype: type[np.generic]) -> Port:
        buffer = _api.Tensor.from_address(tensor).buffer
        is_host = bool(self._library.ggml_backend_buffer_is_host(buffer))
        return Port(self._library, tensor, dims, dtype, is_host)

    def _optional_port(
        self, tensor: int | None, dims: tuple[int, ...], dtype: type[np.generic]
    ) -> Port | None:
        return None if tensor is None else self._port(tensor, dims, dtype)

    def _n_logits(self) -> int:
        """Tokens that the head knows: fewer than the vocabulary has where it was cut."""
        logits = self.forward.logits
        return 0 if logits is None else int(_api.Tensor.from_address(logits).ne[0])

    def push(self) -> None:
        """Sends the filled inputs to the device."""
        for port in (self.tokens, self.positions, self.cells, self.mask, self.outputs):
            if port is not None:
                port.push()

    def pull(self) -> None:
        """Fetches the outputs from the device."""
        for port in (self.logits, self.hidden):
            if port is not None:
                port.pull()

    def close(self) -> None:
        if self.context:
            self._library.ggml_free(self.context)
        self.context = 0


class GraphCache:
    """The graphs of one model on one device, least recently used ones dropped beyond `capacity`.

    All share one arena, reserved for the largest, since only one is computed at a time. Should a larger
    one ever come, the arena moves and the graphs built before are dropped.
    """

    def __init__(self, library: Library, backend: Backend, builder: Builder, capacity: int) -> None:
        self._library = library
        self._backend = backend
        self._builder = builder
        self._capacity = capacity
        self._graphs: OrderedDict[Shape, Graph] = OrderedDict()
        self._allocator = library.ggml_gallocr_new(backend.buffer_type)
        self.n_built = 0

    def __len__(self) -> int:
        return len(self._graphs)

    @property
    def arena_bytes(self) -> int:
        return int(self._library.ggml_gallocr_get_buffer_size(self._allocator, 0))

    @property
    def device_bytes(self) -> tuple[int, ...]:
        return (self.arena_bytes,)

    def get(self, shape: Shape) -> Graph:
        """The graph of `shape`, ready to be filled and computed. Raises OutOfMemoryError, and DeviceError
        when the device lacks an operation."""
        graph = self._graphs.get(shape)
        if graph is not None:
            self._graphs.move_to_end(shape)
            return graph
        graph = self._builder.build(shape)
        self.n_built += 1
        self._builder.check_support(graph)
        self._allocate(graph)
        self._graphs[shape] = graph
        if len(self._graphs) > self._capacity:
            self._graphs.popitem(last=False)[1].close()
        return graph

    def reserve(self, shape: Shape) -> None:
        """Makes the arena large enough for `shape`. Raises as `get` does."""
        self.get(shape)

    def compute(self, graph: Graph) -> None:
        """Computes what `get` returned last, and waits for it. Raises OutOfMemoryError and GgmlError."""
        self._backend.compute(graph.pointer)

    def _allocate(self, graph: Graph) -> None:
        library, before = self._library, self.arena_bytes
        # Planned anew: a plan made for a larger graph would spread this one over all of the arena.
        done = library.ggml_gallocr_reserve(self._allocator, graph.pointer)
        if self.arena_bytes != before or not done:
            self._drop_graphs()
        if not done or not library.ggml_gallocr_alloc_graph(self._allocator, graph.pointer):
            graph.close()
            raise OutOfMemoryError(
                f"No memory to compute {graph.shape.n_rows} rows over {graph.shape.n_kv} cells",
                remedy="use a smaller --ctx-size, or another device",
            )
        graph.bind()

    def _drop_graphs(self) -> None:
        while self._graphs:
            self._graphs.popitem()[1].close()

    def close(self) -> None:
        """Frees graphs and arena; idempotent."""
        self._drop_graphs()
        if self._allocator:
            self._library.ggml_gallocr_free(self._allocator)
        self._allocator = None
