"""Turns a shape into a graph of a model, and says which device computes what of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from lucebox.errors import DeviceError
from lucebox.ggml import _api
from lucebox.ggml._api import Op
from lucebox.ggml.library import Library
from lucebox.ggml.scheduler import Assignment
from lucebox.gguf.packing import PackedMatrix
from lucebox.models import Architecture, Hparams
from lucebox.models.attention import OwnAttention
from lucebox.models.forward import Forward, KeyValues, Part, Section, Shape
from lucebox.runtime.graphs import Graph
from lucebox.runtime.layout import Layout

_NODES_PER_LAYER = 64
_NODES_OF_ROUTING = 32  # besides those for each expert used
_VIEWS = frozenset({Op.VIEW, Op.RESHAPE, Op.PERMUTE, Op.TRANSPOSE})  # computed by nobody
_NEAR_CELLS = frozenset({Op.SET_ROWS, Op.FLASH_ATTN_EXT})  # computed where keys and values lie
_SMALL_WEIGHTS = frozenset({Op.ROPE})  # which go to the activations: frequencies are no reason to move those


class GraphWeights(Protocol):
    """What graphs are built over: Weights, or a sketch of them."""

    @property
    def tensors(self) -> Mapping[str, int]: ...

    @property
    def packed(self) -> Mapping[str, PackedMatrix]: ...

    @property
    def owners(self) -> Mapping[int, int]: ...


class Builder:
    """Builds graphs of one model over its weights and its key/value memory. Owns neither.

    `kv_layers` has the device of each layer's keys and values, an index into the layout's devices; our own
    `attention` serves those on this machine's CPU.
    """

    def __init__(
        self,
        library: Library,
        layout: Layout,
        kv_layers: tuple[int, ...],
        architecture: type[Architecture],
        hparams: Hparams,
        weights: GraphWeights,
        key_values: KeyValues,
        attention: OwnAttention | None,
    ) -> None:
        self.hparams = hparams
        self.layout = layout
        self._library = library
        self._kv_layers = kv_layers
        self._architecture = architecture
        self._weights = weights
        self._key_values = key_values
        self._attention = {
            layer: attention
            for layer, owner in enumerate(kv_layers)
            if attention is not None and layout.devices[owner].is_own_cpu
        }
        # Our own kernels serve this machine's CPU, and promise that a row's result depends on that row alone.
        self._exact_layers = frozenset(
            layer
            for layer, owner in enumerate(layout.layers)
            if weights.packed and layout.devices[owner].is_own_cpu
        )

    @property
    def max_nodes(self) -> int:
        """More than any graph has."""
        experts = self.hparams.experts
        n_routing = 0 if experts is None else _NODES_OF_ROUTING + 2 * experts.n_used
        return (_NODES_PER_LAYER + n_routing) * (self.hparams.n_layers + 1)

    def build(self, shape: Shape) -> Graph:
        """A graph without memory for its tensors yet."""
        library, n_nodes = self._library, self.max_nodes
        context = library.new_context(n_nodes, library.ggml_graph_overhead_custom(n_nodes, False))
        pointer = library.ggml_new_graph_custom(context, n_nodes, False)
        forward = Forward(
            library,
            context,
            pointer,
            shape,
            self._weights.tensors,
            self._weights.packed,
            self._key_values,
            self.hparams,
            self._exact_layers,
            self._attention,
        )
        self._architecture.build(forward, self.hparams)
        return Graph(library, context, pointer, forward, self.hparams)

    def nodes(self, graph: Graph) -> Iterator[Assignment]:
        """The operations of a graph, each with the device that its weights, its cells or its part of the
        network lie on, whether or not that can compute it."""
        library, parts = self._library, graph.forward.parts
        part = Part(Section.INPUT)
        for i in range(library.ggml_graph_n_nodes(graph.pointer)):
            node = library.ggml_graph_node(graph.pointer, i)
            part = parts.get(node, part)  # ggml makes some nodes by itself, among those they belong to
            tensor = _api.Tensor.from_address(node)
            if tensor.op not in _VIEWS:
                yield node, self._owner(tensor, part)

    def assign(self, graph: Graph) -> list[Assignment]:
        """The operations of a graph, each with the device that computes it: the CPU where the one at hand
        cannot. Raises DeviceError where the CPU cannot, either."""
        devices, cpu = self.layout.devices, len(self.layout.devices) - 1
        assignments = []
        for node, owner in self.nodes(graph):
            if not devices[owner].supports(node):
                if owner == cpu or not devices[cpu].supports(node):
                    raise self._lacks(cpu, node)
                owner = cpu
            assignments.append((node, owner))
        return assignments

    def unsupported(self, graph: Graph) -> Iterator[Assignment]:
        """The operations that the device at hand cannot compute, with that device."""
        devices = self.layout.devices
        return ((node, owner) for node, owner in self.nodes(graph) if not devices[owner].supports(node))

    def check_support(self, graph: Graph) -> None:
        """Raises DeviceError for an operation that the only device cannot compute: ggml would abort on it."""
        for node, owner in self.unsupported(graph):
            raise self._lacks(owner, node)

    def _owner(self, tensor: _api.Tensor, part: Part) -> int:
        layout = self.layout
        if tensor.op == Op.CUSTOM:
            return len(layout.devices) - 1  # our own kernels serve this machine's CPU
        if tensor.op in _NEAR_CELLS:
            return self._kv_layers[part.layer]
        if tensor.op not in _SMALL_WEIGHTS:
            for source in tensor.src:
                if source in self._weights.owners:
                    return self._weights.owners[source]
        match part.section:
            case Section.INPUT:
                return layout.input
            case Section.LAYER:
                return layout.layers[part.layer]
            case Section.EXPERTS:
                return layout.experts[part.layer]
            case Section.OUTPUT:
                return layout.output

    def _lacks(self, device: int, node: int) -> DeviceError:
        name, operation = self.layout.devices[device].name, operation_name(node)
        return DeviceError(
            f"{name} cannot compute {operation}, needed by {self.hparams.architecture}",
            remedy="choose another device, or name the CPU behind it",
        )


def operation_name(node: int) -> str:
    """As ggml has it: FLASH_ATTN_EXT."""
    return Op(_api.Tensor.from_address(node).op).name
