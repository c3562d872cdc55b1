"""How fast devices decode: the bytes of quantised weights that one row is multiplied by per second, measured.

Decoding reads every weight for each token, so that this is its speed, on whatever device and behind whatever
network.
"""

from __future__ import annotations

import ctypes
import logging
import math
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lucebox.cache_file import CacheFile
from lucebox.errors import DeviceError, GgmlError, OutOfMemoryError
from lucebox.ggml import _api
from lucebox.ggml.backend import Backend
from lucebox.ggml.device import Device, DeviceKind
from lucebox.ggml.library import Library, library_identity, load

logger = logging.getLogger(__name__)

_FORMAT = 2
_WIDTH = 4096
_TYPE = _api.Type.Q8_0
_MATRIX_BYTES = _WIDTH * _WIDTH // 32 * 34
_N_MATRICES = 8  # 143 MB: more than caches hold
_N_PRODUCTS = (1, 8, 32, 128)  # of one graph: the first warms up, and the next is as long as time allows
_BUDGET_S = 0.15  # for the graphs of one device, once it is warm


def bandwidth(device: Device, n_threads: int, folder: Path) -> float:
    """GB/s of `device`, from `folder` if it was measured before, with `n_threads` where it is a CPU.

    0.0 for one that cannot be used, cannot multiply, or has no memory left to try.
    """
    file = CacheFile(folder, "bandwidth", _key(device, n_threads))
    known = file.read(_parse)
    return measure_and_keep(device, n_threads, folder) if known is None else known


def measure_and_keep(device: Device, n_threads: int, folder: Path) -> float:
    """As `bandwidth`, measured now."""
    try:
        speed = measure(device, n_threads)
    except (DeviceError, GgmlError, OutOfMemoryError) as error:
        logger.warning("%s (%s) cannot be measured: %s", device.name, device.description, error)
        return 0.0
    logger.info("%s (%s): %.1f GB/s", device.name, device.description, speed)
    if speed:
        CacheFile(folder, "bandwidth", _key(device, n_threads)).write(speed)
    return speed


def measure(device: Device, n_threads: int) -> float:
    """GB/s of `device`: a chain of products of Q8_0 matrices and one row, the best of a few graphs. Raises
    DeviceError, GgmlError and OutOfMemoryError."""
    library = load()
    n_matrices = min(_N_MATRICES, device.free_bytes // (2 * _MATRIX_BYTES))
    if n_matrices == 0:
        return 0.0
    with Backend(device, n_threads) as backend, _chains(library, backend, n_matrices) as chains:
        if not chains or not device.supports(chains[0].product):
            return 0.0
        return _best(backend, chains)


@dataclass(frozen=True, slots=True)
class _Chain:
    """A graph of products, each of the result of the one before it, and one of its nodes."""

    graph: int
    n_products: int
    product: int


@contextmanager
def _chains(library: Library, backend: Backend, n_matrices: int) -> Iterator[Sequence[_Chain]]:
    """Graphs of different lengths over the same matrices of zeros; none where there is no memory for them."""
    n_tensors = n_matrices + 1 + sum(_N_PRODUCTS)
    graphs_bytes = sum(library.ggml_graph_overhead_custom(2 * n, False) for n in _N_PRODUCTS)
    context = library.new_context(n_tensors, graphs_bytes)
    buffer = None
    try:
        matrices = [library.ggml_new_tensor_2d(context, _TYPE, _WIDTH, _WIDTH) for _ in range(n_matrices)]
        row = library.ggml_new_tensor_1d(context, _api.Type.F32, _WIDTH)
        chains = [_chain(library, context, matrices, row, n) for n in _N_PRODUCTS]
        buffer = library.ggml_backend_alloc_ctx_tensors_from_buft(context, backend.buffer_type)
        if buffer:
            library.ggml_backend_buffer_clear(buffer, 0)
        yield chains if buffer else ()
    finally:
        if buffer:
            library.ggml_backend_buffer_free(buffer)
        library.ggml_free(context)


def _chain(library: Library, context: int, matrices: Sequence[int], row: int, n_products: int) -> _Chain:
    graph = library.ggml_new_graph_custom(context, 2 * n_products, False)
    product = row
    for i in range(n_products):
        product = library.ggml_mul_mat(context, matrices[i % len(matrices)], product)
    library.ggml_build_forward_expand(graph, product)
    return _Chain(graph, n_products, product)


def _best(backend: Backend, chains: Sequence[_Chain]) -> float:
    """GB/s of the fastest graph among as many as the budget allows, the long ones for the fast devices."""
    warm_up, *rest = chains
    _run(backend, warm_up)
    best, spent_s = 0.0, 0.0
    for _ in range(3):
        affordable = [chain for chain in rest if _seconds(chain, best) < _BUDGET_S - spent_s]
        chain = affordable[-1] if affordable and best else warm_up
        started_s = time.perf_counter()
        _run(backend, chain)
        took_s = time.perf_counter() - started_s
        best = max(best, chain.n_products * _MATRIX_BYTES / took_s / 1e9)
        spent_s += took_s
    return best


def _run(backend: Backend, chain: _Chain) -> None:
    """Until a number of the result is here: ggml returns before a worker has computed."""
    backend.compute(chain.graph)
    number = ctypes.c_float()
    load().ggml_backend_tensor_get(chain.product, ctypes.byref(number), 0, ctypes.sizeof(number))


def _seconds(chain: _Chain, gb_per_s: float) -> float:
    return chain.n_products * _MATRIX_BYTES / gb_per_s / 1e9 if gb_per_s else math.inf


def _key(device: Device, n_threads: int) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "node": platform.node(),
        "ggml": library_identity(),
        "backend": device.backend,
        "device": device.description,
        "hardware": device.hardware,
        "worker": device.worker,
        "n_threads": n_threads if device.kind is DeviceKind.CPU and device.worker is None else None,
    }


def _parse(value: Any) -> float:
    if not 0.0 < value < math.inf:
        raise ValueError(f"{value} GB/s")
    return float(value)
