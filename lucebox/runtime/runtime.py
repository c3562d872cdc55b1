"""A model on a device or several, with its key/value cache: rows in, logits out."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lucebox import models
from lucebox.config import AUTO, KEEP
from lucebox.core import Int32Array
from lucebox.errors import EngineError
from lucebox.ggml.backend import Backend
from lucebox.ggml.devices import Device, list_devices
from lucebox.ggml.library import load
from lucebox.gguf import packing
from lucebox.gguf.fusion import fuse_adjacent
from lucebox.gguf.head import check_head_rows, cut_head
from lucebox.gguf.reader import GgufFile, read
from lucebox.gguf.requantise import Requantise, parse_requantise
from lucebox.gguf.specs import match_specs
from lucebox.gguf.weights import Weights
from lucebox.models.forward import Shape
from lucebox.runtime.builder import Builder
from lucebox.runtime.cache import Cache
from lucebox.runtime.graphs import (
    ROW_BUCKETS,
    Graph,
    GraphCache,
    kv_bucket,
    largest_shape,
    n_cells_for,
    row_bucket,
)
from lucebox.runtime.key_values import KeyValueMemory, parse_kv_type
from lucebox.runtime.layout import Layout
from lucebox.runtime.masks import MaskWriter
from lucebox.runtime.memory import check_memory
from lucebox.runtime.output import Output
from lucebox.runtime.placing import PlacedModel, place_model
from lucebox.runtime.rows import Rows, Want
from lucebox.runtime.scheduled import ScheduledGraphs
from lucebox.runtime.split import find_layout, own_cpu

logger = logging.getLogger(__name__)


class Runtime:
    """One model instance on one device or several: weights, key/value cache and graphs.

    `forward` computes rows; `cache` decides which of them stay. Not thread safe, and meant to be used
    from one thread: the threads that ggml computes with belong to the thread that calls it. Made by
    `Runtime.load`.
    """

    n_batch = ROW_BUCKETS[-1]  # most rows of one forward

    def __init__(
        self, file: GgufFile, *, n_threads: int, n_ctx: int, n_sequences: int, kv_type: str, owned: ExitStack
    ) -> None:
        self.file = file
        self.layout: Layout
        self.n_threads = n_threads
        self.n_ctx = n_ctx
        self.architecture = models.for_file(file)
        self.hparams = self.architecture.hparams(file)
        self.n_vocab = self.hparams.n_vocab
        self.cache: Cache
        self.graphs: GraphCache | ScheduledGraphs
        self.backend: Backend
        self._n_cells = n_cells_for(n_ctx, n_sequences)
        self._element = parse_kv_type(kv_type, self.hparams)
        self._owned = owned
        self._no_logits = np.empty((0, self.n_vocab), np.float32)

    @classmethod
    def load(
        cls,
        model: str | os.PathLike[str] | GgufFile,
        *,
        device: str = AUTO,
        split: Sequence[float] = (),
        n_cpu_layers: int | None = None,
        cpu_moe: bool = False,
        n_threads: int,
        n_ctx: int,
        n_sequences: int = 1,
        n_spare_sequences: int = 0,
        kv_type: str = "f16",
        quantise: str = KEEP,
        n_head_rows: int | None = None,
        cpu_kernels: str = AUTO,
        max_graphs: int = 64,
        on_progress: Callable[[float], None] | None = None,
    ) -> Runtime:
        """Loads a GGUF file onto a device or, where `device` names several, joined by commas, onto all of
        them, layer by layer (see lucebox.runtime.split). What a device cannot compute, the CPU does.

        `n_ctx` tokens for each of `n_sequences` sequences share one pool of cells; `n_spare_sequences` more
        are for forks, and bring no cells of their own. Graphs are kept for `max_graphs` shapes. `quantise` is
        the type that matrices get (see Requantise): `keep`, `auto` or a name such as `q4_0`. Logits are those
        of the first `n_head_rows` tokens, if given; every token of the vocabulary may be fed. `cpu_kernels`
        is `auto` (our own where they can serve) or `ggml`. `on_progress` gets fractions of the weights
        copied. A GgufFile that is passed in stays open and must outlive the runtime. Raises ModelFileError,
        UnsupportedModelError, DeviceError, ConfigError and OutOfMemoryError.
        """
        with ExitStack() as owned:
            file = model if isinstance(model, GgufFile) else owned.enter_context(read(model))
            runtime = cls(
                file,
                n_threads=n_threads,
                n_ctx=n_ctx,
                n_sequences=n_sequences,
                kv_type=kv_type,
                owned=owned,
            )
            devices = list_devices()
            layout = find_layout(
                file,
                runtime.hparams,
                device,
                n_cells=runtime._n_cells,
                element=runtime._element,
                split=split,
                n_cpu_layers=n_cpu_layers,
                cpu_moe=cpu_moe,
                devices=devices,
                n_threads=n_threads,
            )
            placed = runtime._place(
                layout, own_cpu(devices), parse_requantise(quantise), n_head_rows, cpu_kernels
            )
            runtime._allocate(placed, n_sequences + n_spare_sequences, max_graphs, on_progress)
            runtime._owned = owned.pop_all()
        return runtime

    def _place(
        self,
        layout: Layout,
        cpu: Device,
        requantise: Requantise | None,
        n_head_rows: int | None,
        cpu_kernels: str,
    ) -> PlacedModel:
        """Where each weight goes, and as what."""
        h = self.hparams
        matched = match_specs(self.file, self.architecture.tensors(h))
        if n_head_rows is not None:
            check_head_rows(self.file, n_head_rows)
            matched = cut_head(matched, n_head_rows)
        matched = fuse_adjacent(matched, self.architecture.fusions(h))
        if requantise is not None:
            requantise.check(self.file.path, matched)
        placed = place_model(
            load(),
            self.file,
            self.architecture,
            h,
            matched,
            layout,
            self._element,
            cpu=cpu,
            requantise=requantise,
            packs=cpu_kernels == AUTO and packing.is_available(),
            attends=cpu_kernels == AUTO,
        )
        if requantise is not None:
            n_converted = sum(placement.is_converted for placement in placed.placements)
            name = requantise.type.name.lower()
            logger.info("%s: %d matrices become %s", self.file.path.name, n_converted, name)
        return placed

    def _allocate(
        self,
        placed: PlacedModel,
        n_sequences: int,
        max_graphs: int,
        on_progress: Callable[[float], None] | None,
    ) -> None:
        library, owned, h, n_cells = load(), self._owned, self.hparams, self._n_cells
        layout = self.layout = placed.layout
        check_memory(placed, h, n_cells, self._element)
        weights = Weights.load(
            library,
            layout.devices,
            self.file,
            placed.placements,
            n_threads=self.n_threads,
            on_progress=on_progress,
        )
        owned.callback(weights.close)
        backends = [owned.enter_context(Backend(device, self.n_threads)) for device in layout.devices]
        self.backend = backends[layout.devices.index(layout.main)]
        buffer_types = [backend.buffer_type for backend in backends]
        memory = KeyValueMemory(library, buffer_types, placed.kv_layers, h, n_cells, self._element)
        owned.callback(memory.close)
        self.key_values = memory
        self._taken_bytes = weights.device_bytes, memory.device_bytes
        self._scratch_cell = memory.scratch_cell
        self._set_activity = library.abort_report.set_activity
        builder = Builder(
            library, layout, placed.kv_layers, self.architecture, h, weights, memory.tensors, placed.attention
        )
        if layout.is_single:
            self.graphs = GraphCache(library, self.backend, builder, max_graphs)
        else:
            self.graphs = ScheduledGraphs(library, backends, builder, max_graphs)
        owned.callback(self.graphs.close)
        self.graphs.reserve(largest_shape(n_cells))
        self._masks = MaskWriter(self.n_batch, h.sliding_window)
        self.cache = Cache(n_cells, n_sequences)

    @property
    def device(self) -> Device:
        """The device that computes most layers."""
        return self.layout.main

    def used_bytes(self) -> tuple[tuple[int, int, int], ...]:
        """Bytes of weights, of keys and values, and for computing, on each device of the layout.
        Accelerators, which have none, are left out."""
        taken = zip(*self._taken_bytes, self.graphs.device_bytes, strict=True)
        devices = zip(self.layout.devices, taken, strict=True)
        return tuple(used for device, used in devices if device.holds_models)

    def lost(self) -> str:
        """Always "": what a lucebox.engine.remote_runtime.RemoteRuntime loses, ends this process."""
        return ""

    def renew(self) -> None:
        """Nothing: see `lost`."""

    def close(self) -> None:
        """Frees graphs, cache and weights; idempotent. Outputs must not be read any more."""
        self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def forward(self, rows: Rows) -> Output:
        """Computes `rows`, each with the committed cells of its sequence, its ancestors and itself in
        view.

        Their cells are pending in `cache` until committed, and rows of the previous forward that were
        not committed are gone. Raises EngineError for rows that contradict the cache, OutOfCellsError
        (nothing has changed then) and GgmlError.
        """
        self._check(rows)
        cells = self.cache.reserve(rows)
        try:
            return self._compute(rows, cells)
        except BaseException:
            self.cache.drop_pending()
            raise

    def _compute(self, rows: Rows, cells: Int32Array) -> Output:
        wanting = np.flatnonzero(rows.wants)
        graph = self.graphs.get(self._shape(rows, cells, len(wanting)))
        self._fill(graph, rows, cells, wanting)
        self._set_activity(graph.activity)
        self.graphs.compute(graph)
        graph.pull()
        n_wanting = len(wanting)
        hidden = None if graph.hidden is None else graph.hidden.array[:n_wanting]
        logits = self._no_logits if graph.logits is None else graph.logits.array[:n_wanting]
        return Output(logits, hidden, wanting, len(rows))

    def _shape(self, rows: Rows, cells: Int32Array, n_wanting: int) -> Shape:
        n = len(rows)
        n_kv = int(cells.max()) + 1
        for sequence in rows.distinct_sequences():
            n_kv = max(n_kv, self.cache.n_kv(sequence))
        n_rows = row_bucket(n)
        gathers = 0 < n_wanting < n
        wants_hidden = bool((rows.wants >= Want.HIDDEN).any())
        n_ungathered = n_rows if n_wanting else 0
        return Shape(
            n_rows=n_rows,
            n_kv=kv_bucket(n_kv, self.cache.n_cells),
            n_outputs=row_bucket(n_wanting) if gathers else n_ungathered,
            gathers=gathers,
            wants_hidden=wants_hidden,
            wants_logits=not wants_hidden or bool((rows.wants % Want.STATE).any()),
        )

    def _fill(self, graph: Graph, rows: Rows, cells: Int32Array, wanting: NDArray[np.intp]) -> None:
        n = len(rows)
        graph.tokens.array[:n] = rows.tokens
        graph.positions.array[:n] = rows.positions
        graph.cells.array[:n] = cells
        if n < graph.shape.n_rows:
            graph.tokens.array[n:] = 0
            graph.positions.array[n:] = 0
            graph.cells.array[n:] = self._scratch_cell
        if graph.outputs is not None:
            graph.outputs.array[: len(wanting)] = wanting
            graph.outputs.array[len(wanting) :] = 0
        if graph.mask is not None:
            self._masks.write(graph.mask.array, rows, cells, self.cache)
        graph.push()

    def _check(self, rows: Rows) -> None:
        """Nothing that contradicts the model or the cache reaches ggml, which would abort or compute
        nonsense."""
        n = len(rows)
        if not 1 <= n <= self.n_batch:
            raise EngineError(f"A forward takes 1 to {self.n_batch} rows, not {n}")
        tokens, parents, sequences = rows.tokens, rows.parents, rows.sequences
        if n == 1:
            self._check_single(int(tokens[0]), int(sequences[0]), int(rows.positions[0]), int(parents[0]))
            return
        if tokens.min() < 0 or tokens.max() >= self.n_vocab:
            raise EngineError(f"A token is outside the vocabulary of {self.n_vocab}")
        if sequences.min() < 0 or sequences.max() >= self.cache.n_sequences:
            raise EngineError(f"A sequence is none of the {self.cache.n_sequences} of this runtime")
        if (parents >= np.arange(n)).any() or parents.min() < -1:
            raise EngineError("A row's parent must be an earlier row, or -1")
        lengths = np.array([self.cache.length(s) for s in range(self.cache.n_sequences)], np.int32)
        is_root = parents < 0
        expected_positions = np.where(is_root, lengths[sequences], rows.positions[parents] + 1)
        if (rows.positions != expected_positions).any():
            raise EngineError("A row does not stand one behind its parent or the end of its sequence")
        if (sequences[parents] != sequences)[~is_root].any():
            raise EngineError("A row's parent belongs to another sequence")

    def _check_single(self, token: int, sequence: int, position: int, parent: int) -> None:
        if not 0 <= token < self.n_vocab:
            raise EngineError(f"Token {token} is outside the vocabulary of {self.n_vocab}")
        if not 0 <= sequence < self.cache.n_sequences:
            raise EngineError(f"Sequence {sequence} is none of the {self.cache.n_sequences} of this runtime")
        expected = self.cache.length(sequence)
        if parent != -1 or position != expected:
            raise EngineError(f"A row stands at {position}, its sequence goes on at {expected}")
