"""ggml's scheduler: one graph computed by several devices, each its part."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Self

from lucebox.errors import GgmlError, OutOfMemoryError
from lucebox.ggml import _api
from lucebox.ggml.backend import Backend
from lucebox.ggml.library import load

Assignment = tuple[int, int]  # a node of a graph, and the index of the backend that computes it


class Scheduler:
    """Splits graphs among `backends`, of which the last is a CPU, copies what one needs of another, and has
    memory for one graph at a time on each. Owns that memory, not the backends.

    A graph that was split refers to the scheduler's copies: to be split again, it must be as it was built.
    Accelerators stand before the CPU and take from it the products that they support. `close` is idempotent.
    """

    def __init__(self, backends: Sequence[Backend], max_tensors: int) -> None:
        """For graphs of at most `max_tensors` nodes and leaves."""
        self._library = library = load()
        self._backends = list(backends)
        self._compute = library.ggml_backend_sched_graph_compute
        pointers = (ctypes.c_void_p * len(backends))(*(backend.pointer for backend in backends))
        self._pointer: int | None = library.ggml_backend_sched_new(
            pointers, None, len(backends), max_tensors, False, False
        )

    def reserve(self, graph: int, assignments: Iterable[Assignment]) -> None:
        """Takes the memory that `graph` needs, if more than there is. Raises OutOfMemoryError."""
        self._assign(assignments)
        if not self._library.ggml_backend_sched_reserve(self._pointer, graph):
            raise self._out_of_memory()

    def allocate(self, graph: int, assignments: Iterable[Assignment]) -> None:
        """Splits the ggml_cgraph `graph` and gives its tensors their memory, which any other graph loses.
        Raises OutOfMemoryError."""
        self._assign(assignments)
        if not self._library.ggml_backend_sched_alloc_graph(self._pointer, graph):
            raise self._out_of_memory()

    def split(self, graph: int, assignments: Iterable[Assignment]) -> None:
        """Splits `graph` without taking memory for it."""
        self._assign(assignments)
        self._library.ggml_backend_sched_split_graph(self._pointer, graph)

    def compute(self, graph: int) -> None:
        """Computes the graph that was allocated last, and waits for it. Raises OutOfMemoryError and
        GgmlError."""
        status = self._compute(self._pointer, graph)
        if status == _api.Status.SUCCESS:
            return
        if status == _api.Status.ALLOC_FAILED:
            raise self._out_of_memory()
        name = self._library.ggml_status_to_string(status).decode()
        raise GgmlError(f"{self._names} could not compute a graph: {name}")

    @property
    def n_splits(self) -> int:
        """How often the graph that was split last changes between backends, plus one."""
        return int(self._library.ggml_backend_sched_get_n_splits(self._pointer))

    @property
    def backend_bytes(self) -> tuple[int, ...]:
        """Memory taken on each backend. Accelerators share the CPU's, which counts as the CPU's."""
        get_size = self._library.ggml_backend_sched_get_buffer_size
        sizes = [int(get_size(self._pointer, backend.pointer)) for backend in self._backends]
        for i, backend in enumerate(self._backends):
            if not backend.device.holds_models:
                sizes[-1] += sizes[i]
                sizes[i] = 0
        return tuple(sizes)

    @property
    def _names(self) -> str:
        return ", ".join(backend.device.name for backend in self._backends)

    def _assign(self, assignments: Iterable[Assignment]) -> None:
        assign, scheduler = self._library.ggml_backend_sched_set_tensor_backend, self._pointer
        pointers = [backend.pointer for backend in self._backends]
        self._library.ggml_backend_sched_reset(scheduler)
        for node, index in assignments:
            assign(scheduler, node, pointers[index])

    def _out_of_memory(self) -> OutOfMemoryError:
        return OutOfMemoryError(
            f"{self._names} have no memory left for a computation", remedy="use a smaller --ctx-size"
        )

    def close(self) -> None:
        """Frees the memory; nothing may be computing any more."""
        if self._pointer is not None:
            self._library.ggml_backend_sched_free(self._pointer)
        self._pointer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
