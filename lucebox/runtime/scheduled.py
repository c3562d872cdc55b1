"""Graphs that several devices compute together, built once per shape and used again."""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Sequence

from lucebox.errors import OutOfMemoryError
from lucebox.ggml.backend import Backend
from lucebox.ggml.library import Library
from lucebox.ggml.scheduler import Assignment, Scheduler
from lucebox.models.forward import Shape
from lucebox.runtime.builder import Builder
from lucebox.runtime.graphs import Graph


class _Original:
    """A graph as it was built, which splitting it changes, and who computes what of it."""

    def __init__(self, library: Library, graph: Graph, assignments: list[Assignment]) -> None:
        self.graph = graph
        self.assignments = assignments
        self._address: int = library.ggml_get_mem_buffer(graph.context)
        self._memory = ctypes.string_at(self._address, library.ggml_used_mem(graph.context))

    def restore(self) -> None:
        """Undoes a split: operations refer to each other again, and tensors have no memory."""
        ctypes.memmove(self._address, self._memory, len(self._memory))


class ScheduledGraphs:
    """As GraphCache, for a layout of several devices: one arena on each, for one graph at a time.

    Computing the same graph again costs nothing; going over to another that was built before takes a third
    of a millisecond for 30 layers, most of it ggml's, which splits it anew.
    """

    def __init__(
        self, library: Library, backends: Sequence[Backend], builder: Builder, capacity: int
    ) -> None:
        self._library = library
        self._backends = backends
        self._builder = builder
        self._capacity = capacity
        self._originals: OrderedDict[Shape, _Original] = OrderedDict()
        self._current: _Original | None = None
        self._scheduler = self._new_scheduler()
        self.n_built = 0
        self.n_allocated = 0

    def __len__(self) -> int:
        return len(self._originals)

    @property
    def arena_bytes(self) -> int:
        return sum(self.device_bytes)

    @property
    def device_bytes(self) -> tuple[int, ...]:
        return self._scheduler.backend_bytes

    @property
    def n_splits(self) -> int:
        """How many pieces the graph consists of that was asked for last."""
        return self._scheduler.n_splits

    def get(self, shape: Shape) -> Graph:
        """The graph of `shape`, ready to be filled and computed; others must be asked for again. Raises
        OutOfMemoryError."""
        original = self._original(shape)
        if original is not self._current:
            self._allocate(original)
        return original.graph

    def reserve(self, shape: Shape) -> None:
        """Makes the arenas large enough for `shape`. Raises OutOfMemoryError."""
        original = self._original(shape)
        self._current = None
        original.restore()
        self._scheduler.reserve(original.graph.pointer, original.assignments)

    def compute(self, graph: Graph) -> None:
        """Computes what `get` returned last, and waits for it. Raises OutOfMemoryError and GgmlError."""
        assert self._current is not None
        assert graph is self._current.graph
        self._scheduler.compute(graph.pointer)

    def _original(self, shape: Shape) -> _Original:
        original = self._originals.get(shape)
        if original is not None:
            self._originals.move_to_end(shape)
            return original
        graph = self._builder.build(shape)
        self.n_built += 1
        try:
            original = _Original(self._library, graph, self._builder.assign(graph))
        except BaseException:
            graph.close()
            raise
        self._originals[shape] = original
        if len(self._originals) > self._capacity:
            self._originals.popitem(last=False)[1].graph.close()
        return original

    def _allocate(self, original: _Original) -> None:
        self._current = None
        original.restore()
        self.n_allocated += 1
        try:
            self._scheduler.allocate(original.graph.pointer, original.assignments)
        except OutOfMemoryError:
            self._scheduler.close()  # it may have freed an arena without getting a larger one
            self._scheduler = self._new_scheduler()
            raise
        original.graph.bind()
        self._current = original

    def _new_scheduler(self) -> Scheduler:
        return Scheduler(self._backends, 2 * self._builder.max_nodes)  # as many leaves as nodes, at most

    def close(self) -> None:
        """Frees graphs and arenas; idempotent."""
        self._current = None
        while self._originals:
            self._originals.popitem()[1].graph.close()
        self._scheduler.close()
