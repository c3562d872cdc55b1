"""Computing graphs on a device."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from lucebox.errors import GgmlError, OutOfMemoryError
from lucebox.ggml import _api
from lucebox.ggml.backend import Backend
from lucebox.ggml.devices import find_device
from lucebox.ggml.library import load


@pytest.fixture
def backend() -> Iterator[Backend]:
    with Backend(find_device("CPU"), n_threads=2) as backend:
        yield backend


def test_a_product_is_numpys(backend: Backend) -> None:
    library = load()
    random = np.random.default_rng(0)
    weights, rows = random.standard_normal((7, 64), np.float32), random.standard_normal((3, 64), np.float32)
    context = library.new_context(8, library.ggml_graph_overhead())
    a = library.ggml_new_tensor_2d(context, _api.Type.F32, 64, 7)
    b = library.ggml_new_tensor_2d(context, _api.Type.F32, 64, 3)
    product = library.ggml_mul_mat(context, a, b)
    graph = library.ggml_new_graph(context)
    library.ggml_build_forward_expand(graph, product)
    buffer = library.ggml_backend_alloc_ctx_tensors_from_buft(context, backend.buffer_type)
    try:
        library.ggml_backend_tensor_set(a, weights.ctypes.data, 0, weights.nbytes)
        library.ggml_backend_tensor_set(b, rows.ctypes.data, 0, rows.nbytes)
        backend.compute(graph)
        result = np.empty((3, 7), np.float32)
        library.ggml_backend_tensor_get(product, result.ctypes.data, 0, result.nbytes)
    finally:
        library.ggml_backend_buffer_free(buffer)
        library.ggml_free(context)
    np.testing.assert_allclose(result, rows @ weights.T, rtol=1e-5, atol=1e-5)
    assert backend.is_host


@pytest.mark.parametrize(
    ("status", "error"), [(_api.Status.ALLOC_FAILED, OutOfMemoryError), (_api.Status.ABORTED, GgmlError)]
)
def test_a_failed_computation_raises(
    backend: Backend, status: _api.Status, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = SimpleNamespace(
        ggml_backend_graph_compute=lambda backend, graph: int(status),
        ggml_status_to_string=load().ggml_status_to_string,
    )
    with monkeypatch.context() as patch:
        patch.setattr(backend, "_library", failing)
        with pytest.raises(error, match="CPU"):
            backend.compute(0)


def test_threads_are_set_through_the_backends_own_procedure(monkeypatch: pytest.MonkeyPatch) -> None:
    library = load()
    seen: list[int] = []
    procedure = library.procedure

    def spy(registry: int, name: str, prototype: object) -> object:
        assert name == "ggml_backend_set_n_threads"
        real = procedure(registry, name, prototype)
        return lambda backend, n_threads: (seen.append(n_threads), real(backend, n_threads))

    monkeypatch.setattr(library, "procedure", spy)
    Backend(find_device("CPU"), n_threads=3).close()
    assert seen == [3]


def test_close_is_idempotent() -> None:
    backend = Backend(find_device("CPU"), n_threads=1)
    backend.close()
    backend.close()
    assert backend.pointer is None


def test_custom_operations_get_the_tensors_that_ctypes_describes(backend: Backend) -> None:
    """The layout of struct ggml_tensor, as a C callback sees it."""
    library = load()
    seen: list[tuple[int, ...]] = []

    def look(result: int, a: int, thread: int, n_threads: int, _: object) -> None:
        tensor = _api.Tensor.from_address(a)
        seen.append((*tensor.ne, tensor.type, tensor.op))
        ctypes.memmove(_api.Tensor.from_address(result).data, tensor.data, 24)

    callback = _api.Custom1Op(look)
    context = library.new_context(4, library.ggml_graph_overhead())
    a = library.ggml_new_tensor_2d(context, _api.Type.F32, 3, 2)
    result = library.ggml_map_custom1(context, a, callback, 1, None)
    graph = library.ggml_new_graph(context)
    library.ggml_build_forward_expand(graph, result)
    buffer = library.ggml_backend_alloc_ctx_tensors_from_buft(context, backend.buffer_type)
    library.ggml_backend_buffer_clear(buffer, 0)
    try:
        backend.compute(graph)
    finally:
        library.ggml_backend_buffer_free(buffer)
        library.ggml_free(context)
    assert seen == [(3, 2, 1, 1, _api.Type.F32, _api.Op.NONE)]
