"""What a model takes of each device, told by ggml's own allocator, with nothing allocated."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from lucebox.ggml import _api
from lucebox.ggml._api import Type
from lucebox.ggml.library import Library
from lucebox.ggml.scheduler import Assignment
from lucebox.models import Architecture, Hparams
from lucebox.models.forward import Shape
from lucebox.runtime.builder import Builder, operation_name
from lucebox.runtime.graphs import Graph
from lucebox.runtime.placing import PlacedModel
from lucebox.runtime.sketch import Sketch, sketch_key_values, sketch_weights


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes that one model takes of one device; mapped weights lie in the file's pages. `elsewhere` names
    operations of its layers that the device lacks, and that the CPU computes."""

    weights_bytes: int
    mapped_bytes: int
    kv_bytes: int
    compute_bytes: int
    elsewhere: tuple[str, ...] = ()


def measure(
    library: Library,
    placed: PlacedModel,
    architecture: type[Architecture],
    hparams: Hparams,
    n_cells: int,
    element: Type,
    shape: Shape,
) -> tuple[Usage, ...]:
    """What a placed model of `n_cells` cells takes of each device of its layout if `shape` is its largest
    forward."""
    layout = placed.layout
    buffer_types = [library.ggml_backend_dev_buffer_type(device.pointer) for device in layout.devices]
    with Sketch(library) as sketch:
        weights = sketch_weights(sketch, placed.placements, len(layout.devices))
        key_values, kv_bytes = sketch_key_values(
            sketch, buffer_types, placed.kv_layers, hparams, n_cells, element
        )
        builder = Builder(
            library, layout, placed.kv_layers, architecture, hparams, weights, key_values, placed.attention
        )
        graph = builder.build(shape)
        try:
            elsewhere = _elsewhere(builder, graph, placed)
            if layout.is_single:
                compute = _compute_bytes(library, buffer_types, graph.pointer, None)
            else:
                compute = _split_bytes(library, builder, graph, buffer_types)
        finally:
            graph.close()
    return tuple(
        Usage(weights.allocated_bytes[i], weights.mapped_bytes[i], kv_bytes[i], compute[i], elsewhere[i])
        for i in range(len(layout.devices))
    )


def _elsewhere(builder: Builder, graph: Graph, placed: PlacedModel) -> list[tuple[str, ...]]:
    """By device, operations of its that the CPU computes."""
    layout = builder.layout
    names: list[set[str]] = [set() for _ in layout.devices]
    for node, owner in builder.unsupported(graph):
        names[owner].add(operation_name(node))
    for owner, kv_owner in zip(layout.layers, placed.kv_layers, strict=True):
        if kv_owner != owner:
            names[owner].update(("SET_ROWS", "FLASH_ATTN_EXT"))
    return [tuple(sorted(each)) for each in names]


def _compute_bytes(
    library: Library, buffer_types: Sequence[int], graph: int, owners: Sequence[int] | None
) -> list[int]:
    """What the tensors of a ggml_cgraph take of each buffer type, at `owners` of its nodes."""
    n = len(buffer_types)
    allocator = library.ggml_gallocr_new_n((ctypes.c_void_p * n)(*buffer_types), n)
    sizes = (ctypes.c_size_t * n)()
    ids = None if owners is None else (ctypes.c_int * len(owners))(*owners)
    try:
        library.ggml_gallocr_reserve_n_size(allocator, graph, ids, None, sizes)
    finally:
        library.ggml_gallocr_free(allocator)
    return list(sizes)


def _split_bytes(library: Library, builder: Builder, graph: Graph, buffer_types: Sequence[int]) -> list[int]:
    """As _compute_bytes, with the copies that ggml's scheduler will make of what one device needs of another.
    `graph` is of no use behind it."""
    assignments = builder.assign(graph)
    n_sources = 4 * len(assignments)
    context = library.new_context(2 * n_sources, library.ggml_graph_overhead_custom(2 * n_sources, False))
    try:
        split = _Split(library, context, builder, graph, assignments, buffer_types)
        whole = library.ggml_new_graph_custom(context, 2 * n_sources, False)
        leaves = split.leaves()
        for node in (*leaves, *split.nodes):
            library.ggml_graph_add_node(whole, node)
        owners = [*leaves.values(), *split.owners]
        sizes = _compute_bytes(library, buffer_types, whole, owners)
    finally:
        library.ggml_free(context)
    return [
        size if device.holds_models else 0 for size, device in zip(sizes, builder.layout.devices, strict=True)
    ]


class _Split:
    """The nodes of a graph and the device of each, with copies ahead of each run of nodes on one device, as
    ggml's scheduler arranges them (ggml_backend_sched_split_graph in ggml-backend.cpp)."""

    def __init__(
        self,
        library: Library,
        context: int,
        builder: Builder,
        graph: Graph,
        assignments: Sequence[Assignment],
        buffer_types: Sequence[int],
    ) -> None:
        self._library = library
        self._context = context
        self._layout = builder.layout
        self._buffer_types = buffer_types
        self._owner_of = dict(assignments)
        self._copies: dict[tuple[int, int], int] = {}
        self._reaches: dict[tuple[int, int], bool] = {}
        self.nodes: list[int] = []
        self.owners: list[int] = []
        run: list[int] = []
        owner = assignments[0][1]
        for i in range(library.ggml_graph_n_nodes(graph.pointer)):
            node = library.ggml_graph_node(graph.pointer, i)
            if self._owner_of.get(node, owner) != owner:
                self._end_run(run, owner)
                run, owner = [], self._owner_of[node]
            run.append(node)
        self._end_run(run, owner)

    def leaves(self) -> dict[int, int]:
        """What the nodes refer to that is none of them, each with its device: ggml's allocator counts on
        having been told of every tensor."""
        nodes, found = set(self.nodes), {}
        for node in self.nodes:
            tensor = _api.Tensor.from_address(node)
            for source in (*tensor.src, tensor.view_src):
                if source is not None and source not in nodes and source not in found:
                    found[source] = self._place(source)
        return found

    def _end_run(self, run: Sequence[int], owner: int) -> None:
        for node in run:
            if node in self._owner_of:
                self._copy_sources(node, owner)
        for node in run:
            self._add(node, self._place(node))

    def _copy_sources(self, node: int, owner: int) -> None:
        tensor = _api.Tensor.from_address(node)
        for j, source in enumerate(tensor.src):
            if source is None or self._reach(source, owner):
                continue
            if (source, owner) not in self._copies:
                self._copies[source, owner] = self._copy(source, owner)
            tensor.src[j] = self._copies[source, owner]

    def _copy(self, source: int, owner: int) -> int:
        library, context = self._library, self._context
        until_then = library.ggml_view_tensor(context, source)
        _api.Tensor.from_address(until_then).src[0] = source
        self._add(until_then, self._place(source))
        copy: int = library.ggml_dup_tensor(context, source)
        _api.Tensor.from_address(copy).nb = _api.Tensor.from_address(source).nb
        self._add(copy, owner)
        return copy

    def _add(self, node: int, owner: int) -> None:
        self.nodes.append(node)
        self.owners.append(owner)

    def _place(self, node: int) -> int:
        """The device that a tensor of the graph without memory of its own lies on; inputs are the CPU's."""
        base = _api.Tensor.from_address(node).view_src or node
        return self._owner_of.get(node, self._owner_of.get(base, len(self._layout.devices) - 1))

    def _reach(self, source: int, owner: int) -> bool:
        """Whether the device can compute from where the tensor lies."""
        tensor = _api.Tensor.from_address(source)
        base = _api.Tensor.from_address(tensor.view_src) if tensor.view_src else tensor
        if base.buffer:
            buffer_type = self._library.ggml_backend_buffer_get_type(base.buffer)
        else:
            buffer_type = self._buffer_types[self._place(source)]
        key = buffer_type, owner
        if key not in self._reaches:
            device = self._layout.devices[owner].pointer
            self._reaches[key] = bool(self._library.ggml_backend_dev_supports_buft(device, buffer_type))
        return self._reaches[key]
