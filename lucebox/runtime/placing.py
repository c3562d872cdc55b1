"""Where weights, keys and values go, by what the devices of a layout can compute."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lucebox.errors import UnsupportedModelError
from lucebox.ggml import _api
from lucebox.ggml._api import Op, Type
from lucebox.ggml.device import Device
from lucebox.ggml.library import Library
from lucebox.gguf.fusion import Matched
from lucebox.gguf.placement import choose_placements
from lucebox.gguf.reader import GgufFile
from lucebox.gguf.requantise import Requantise
from lucebox.gguf.specs import TensorSpec, Use
from lucebox.gguf.weights import Placement
from lucebox.models import Architecture, Hparams
from lucebox.models.attention import OwnAttention
from lucebox.models.forward import Shape
from lucebox.runtime.builder import Builder
from lucebox.runtime.graphs import KV_STEP
from lucebox.runtime.layout import Layout
from lucebox.runtime.sketch import Sketch, sketch_key_values, sketch_weights

_LAYER = re.compile(r"blk\.(\d+)\.")
_TABLE = "token_embd.weight"
_KV_OPERATIONS = frozenset({Op.SET_ROWS, Op.FLASH_ATTN_EXT})
# A token and a piece of a prompt: what devices can compute depends on shapes, too.
_PROBED_SHAPES = (Shape(1, 2 * KV_STEP, 1), Shape(512, 2 * KV_STEP, 32, gathers=True))


@dataclass(frozen=True, slots=True)
class PlacedModel:
    """A layout, with the CPU behind an only device that needs it; the weights, each on one of its devices;
    for each layer the device of its keys and values; and what attends to those on this machine's CPU, if that
    is our own kernel."""

    layout: Layout
    placements: tuple[Placement, ...]
    kv_layers: tuple[int, ...]
    attention: OwnAttention | None


def place_model(
    library: Library,
    file: GgufFile,
    architecture: type[Architecture],
    hparams: Hparams,
    matched: Sequence[Matched],
    layout: Layout,
    element: Type,
    *,
    cpu: Device,
    requantise: Requantise | None = None,
    packs: bool = False,
    attends: bool = False,
) -> PlacedModel:
    """Places a model over `layout`; what a device cannot compute with goes to `cpu`, this machine's.

    `packs` lets our own kernels (lucebox.gguf.packing) have what lies there, `attends` our own attention.
    Raises UnsupportedModelError where the CPU cannot compute with a tensor, either.
    """

    attention = OwnAttention.for_model(hparams, element) if attends else None

    def place(layout: Layout) -> PlacedModel:
        placements = choose_placements(
            library,
            layout.devices,
            file,
            matched,
            requantise,
            packs=packs,
            device_of=lambda spec: _device_of(spec, layout),
        )
        return PlacedModel(layout, tuple(placements), layout.layers, attention)

    if not layout.is_single:
        return _with_reachable_cells(library, architecture, hparams, element, place(layout))
    if layout.main.is_own_cpu:
        return place(layout)
    try:
        placed = place(layout)
        if not _unsupported(library, architecture, hparams, element, placed):
            return placed
    except UnsupportedModelError:
        pass  # the CPU may do better
    together = place(layout.with_cpu(cpu))
    return _with_reachable_cells(library, architecture, hparams, element, together)


def _device_of(spec: TensorSpec, layout: Layout) -> int:
    match = _LAYER.match(spec.name)
    if match is not None:
        layer = int(match[1])
        return layout.experts[layer] if spec.use is Use.EXPERTS else layout.layers[layer]
    if spec.name == _TABLE:
        return layout.input
    return layout.output


def _with_reachable_cells(
    library: Library,
    architecture: type[Architecture],
    hparams: Hparams,
    element: Type,
    placed: PlacedModel,
) -> PlacedModel:
    """With keys and values on the CPU where their device cannot write them or attend to them: ggml would not
    move them there, but abort."""
    lacking = {
        layer
        for operation, layer in _unsupported(library, architecture, hparams, element, placed)
        if operation in _KV_OPERATIONS
    }
    cpu = len(placed.layout.devices) - 1
    kv_layers = tuple(cpu if i in lacking else owner for i, owner in enumerate(placed.kv_layers))
    return replace(placed, kv_layers=kv_layers)


def _unsupported(
    library: Library,
    architecture: type[Architecture],
    hparams: Hparams,
    element: Type,
    placed: PlacedModel,
) -> set[tuple[Op, int]]:
    """Operations, and the layers, that the devices they belong to cannot compute."""
    found = set()
    n_cells = 2 * KV_STEP
    with Sketch(library) as sketch:
        builder = sketch_model(sketch, library, architecture, hparams, placed, n_cells, element)
        for shape in _PROBED_SHAPES:
            graph = builder.build(shape)
            try:
                for node, _ in builder.unsupported(graph):
                    part = graph.forward.parts.get(node)
                    operation = Op(_api.Tensor.from_address(node).op)
                    found.add((operation, 0 if part is None else part.layer))
            finally:
                graph.close()
    return found


def sketch_model(
    sketch: Sketch,
    library: Library,
    architecture: type[Architecture],
    hparams: Hparams,
    placed: PlacedModel,
    n_cells: int,
    element: Type,
) -> Builder:
    """Builds the graphs of a model that is not there."""
    layout = placed.layout
    weights = sketch_weights(sketch, placed.placements, len(layout.devices))
    buffer_types = [library.ggml_backend_dev_buffer_type(device.pointer) for device in layout.devices]
    key_values, _ = sketch_key_values(sketch, buffer_types, placed.kv_layers, hparams, n_cells, element)
    return Builder(
        library, layout, placed.kv_layers, architecture, hparams, weights, key_values, placed.attention
    )
