"""Turns a shape into a graph of a model, and says what graphs need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from lucebox.errors import DeviceError
from lucebox.ggml import _api
from lucebox.ggml.devices import Device
from lucebox.ggml.library import Library
from lucebox.gguf.packing import PackedMatrix
from lucebox.models import Architecture, Hparams
from lucebox.models.forward import Forward, KeyValues, Shape
from lucebox.runtime.graphs import Graph

_NODES_PER_LAYER = 64
_NODES_OF_ROUTING = 32  # besides those for each expert used


class GraphWeights(Protocol):
    """What graphs are built over: Weights, or a sketch of them."""

    @property
    def tensors(self) -> Mapping[str, int]: ...

    @property
    def packed(self) -> Mapping[str, PackedMatrix]: ...


class Builder:
    """Builds graphs of one model over its weights and its key/value memory. Owns neither."""

    def __init__(
        self,
        library: Library,
        device: Device,
        architecture: type[Architecture],
        hparams: Hparams,
        weights: GraphWeights,
        key_values: KeyValues,
    ) -> None:
        self.hparams = hparams
        self._library = library
        self._device = device
        self._architecture = architecture
        self._weights = weights
        self._key_values = key_values

    def build(self, shape: Shape) -> Graph:
        """A graph without memory for its tensors yet."""
        library = self._library
        experts = self.hparams.experts
        n_routing = 0 if experts is None else _NODES_OF_ROUTING + 2 * experts.n_used
        n_nodes = (_NODES_PER_LAYER + n_routing) * (self.hparams.n_layers + 1)
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
        )
        self._architecture.build(forward, self.hparams)
        return Graph(library, context, pointer, forward, self.hparams)

    def check_support(self, graph: Graph) -> None:
        """Raises DeviceError for an operation that the device cannot compute: ggml would abort on it."""
        for i in range(self._library.ggml_graph_n_nodes(graph.pointer)):
            node = self._library.ggml_graph_node(graph.pointer, i)
            if not self._device.supports(node):
                operation = _api.Op(_api.Tensor.from_address(node).op).name
                raise DeviceError(
                    f"{self._device.name} cannot compute {operation}, needed by {self.hparams.architecture}",
                    remedy="choose another device",
                )
