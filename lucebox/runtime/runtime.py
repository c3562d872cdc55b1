"""A model on a device, with its key/value cache: rows in, logits out."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from lucebox import models
from lucebox.core import Int32Array
from lucebox.errors import EngineError, GgmlError
from lucebox.gguf.placement import choose_placements
from lucebox.gguf.reader import GgufFile, read
from lucebox.gguf.specs import match_specs
from lucebox.gguf.weights import Weights
from lucebox.models.forward import Forward, Shape
from lucebox.runtime.cache import Cache
from lucebox.runtime.graphs import KV_STEP, ROW_BUCKETS, Graph, GraphCache, kv_bucket, row_bucket
from lucebox.runtime.key_values import KeyValueMemory, kv_type
from lucebox.runtime.masks import MaskWriter
from lucebox.runtime.output import Output
from lucebox.runtime.rows import Rows, Want

N_BATCH = ROW_BUCKETS[-1]
_RESERVED_OUTPUTS = 32
_NODES_PER_LAYER = 64
_STATUS_SUCCESS = 0


class Runtime:
    """One model instance. `forward` computes; `cache` says what stays. Not thread safe."""

    n_batch = N_BATCH

    def __init__(self, api, device: int, file: GgufFile, *, n_threads: int, n_ctx: int, n_sequences: int, kv: str, on_progress=None):
        self._api = api
        self.file = file
        self.device = device
        self.n_ctx = n_ctx
        self._architecture = models.for_file(file)
        self.hparams = h = self._architecture.hparams(file)
        self.n_vocab = h.n_vocab
        placements = choose_placements(api, device, file, match_specs(file, self._architecture.tensors(h)))
        self._weights = Weights.load(api, device, file, placements, n_threads=n_threads, on_progress=on_progress)
        buffer_type = api.ggml_backend_dev_buffer_type(device)
        n_cells = -(-n_ctx * n_sequences // KV_STEP) * KV_STEP
        self._memory = KeyValueMemory(api, buffer_type, h, n_cells, kv_type(kv))
        self._backend = api.ggml_backend_dev_init(device, None)
        api.set_threads(self._backend, n_threads)
        self.cache = Cache(n_cells, n_sequences)
        self._masks = MaskWriter(N_BATCH, h.sliding_window)
        self._graphs = GraphCache(api, buffer_type, self._build, h.n_vocab, h.n_embd)
        self._graphs.get(Shape(N_BATCH, n_cells, _RESERVED_OUTPUTS, gathers=True))

    def forward(self, rows: Rows) -> Output:
        """Computes `rows`; their cells are pending in `cache` until committed."""
        self._check(rows)
        cells = self.cache.reserve(rows)
        try:
            return self._compute(rows, cells)
        except BaseException:
            self.cache.drop_pending()
            raise

    def _compute(self, rows: Rows, cells: Int32Array) -> Output:
        n = len(rows)
        wanting = np.flatnonzero(rows.wants)
        n_wanting = len(wanting)
        n_kv = int(cells[-1]) + 1
        for sequence in set(rows.sequences.tolist()):
            n_kv = max(n_kv, self.cache.n_kv(sequence))
        gathers = 0 < n_wanting < n
        bucket = row_bucket(n)
        shape = Shape(
            bucket,
            kv_bucket(n_kv, self.cache.n_cells),
            row_bucket(n_wanting) if gathers else bucket if n_wanting else 0,
            gathers,
            bool((rows.wants == Want.HIDDEN).any()),
        )
        graph = self._graphs.get(shape)
        self._fill(graph, rows, cells, wanting)
        status = self._api.ggml_backend_graph_compute(self._backend, graph.pointer)
        if status != _STATUS_SUCCESS:
            raise GgmlError(f"ggml could not compute a forward of {n} rows: status {status}")
        return self._output(graph, n, wanting)

    def _fill(self, graph: Graph, rows: Rows, cells: Int32Array, wanting) -> None:
        n = len(rows)
        graph.tokens.array[:n] = rows.tokens
        graph.positions.array[:n] = rows.positions
        graph.cells.array[:n] = cells
        if n < graph.shape.n_rows:
            graph.tokens.array[n:] = 0
            graph.positions.array[n:] = 0
            graph.cells.array[n:] = self._memory.scratch_cell
        if graph.outputs is not None:
            graph.outputs.array[: len(wanting)] = wanting
            graph.outputs.array[len(wanting) :] = 0
        if graph.mask is not None:
            self._masks.write(graph.mask.array, rows, cells, self.cache)
        graph.push()

    def _output(self, graph: Graph, n: int, wanting) -> Output:
        n_wanting = len(wanting)
        row_index = np.full(n, -1, np.int32)
        row_index[wanting] = np.arange(n_wanting)
        graph.pull()
        logits = graph.logits.array[:n_wanting] if graph.logits is not None else np.empty((0, self.n_vocab), np.float32)
        hidden = graph.hidden.array[:n_wanting] if graph.hidden is not None else None
        return Output(logits, row_index, hidden)

    def _check(self, rows: Rows) -> None:
        n = len(rows)
        if not 1 <= n <= N_BATCH:
            raise EngineError(f"A forward takes 1 to {N_BATCH} rows, not {n}")

    def _build(self, shape: Shape) -> Graph:
        api, h = self._api, self.hparams
        n_nodes = _NODES_PER_LAYER * (h.n_layers + 1)
        context = api.new_context(n_nodes, api.ggml_graph_overhead_custom(n_nodes, False))
        pointer = api.ggml_new_graph_custom(context, n_nodes, False)
        forward = Forward(api, context, pointer, shape, self._weights.tensors, self._memory.tensors, h)
        self._architecture.build(forward, h)
        return Graph(api, context, pointer, forward)
