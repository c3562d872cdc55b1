"""A device's executor: computes graphs."""

from __future__ import annotations

from typing import Self

from lucebox.errors import DeviceError, GgmlError, OutOfMemoryError
from lucebox.ggml import _api
from lucebox.ggml.device import Device
from lucebox.ggml.library import load


class Backend:
    """A stream of work on `device`, with `n_threads` threads where that is a CPU. Owns its ggml_backend_t.

    Backends of one CPU device that are used from one Python thread share OpenMP's threads, hence the cores.
    `close` is idempotent.
    """

    def __init__(self, device: Device, n_threads: int) -> None:
        self.device = device
        self.n_threads = n_threads
        self._library = library = load()
        self.pointer: int | None = library.ggml_backend_dev_init(device.pointer, None)
        if self.pointer is None:
            raise DeviceError(
                f"{device.name} ({device.description}) cannot be used", remedy="see the log above"
            )
        library.set_threads(self.pointer, n_threads)
        self.buffer_type = int(library.ggml_backend_get_default_buffer_type(self.pointer))
        self.is_host = bool(library.ggml_backend_buft_is_host(self.buffer_type))

    def compute(self, graph: int) -> None:
        """Computes the ggml_cgraph and waits for it. Raises OutOfMemoryError and GgmlError."""
        status = self._library.ggml_backend_graph_compute(self.pointer, graph)
        if status == _api.Status.SUCCESS:
            return
        if status == _api.Status.ALLOC_FAILED:
            raise OutOfMemoryError(
                f"{self.device.name} has no memory left for a computation", remedy="use a smaller --ctx-size"
            )
        name = self._library.ggml_status_to_string(status).decode()
        raise GgmlError(f"{self.device.name} could not compute a graph: {name}")

    def close(self) -> None:
        """Ends the stream; nothing computed by it may be running any more."""
        if self.pointer is not None:
            self._library.ggml_backend_free(self.pointer)
        self.pointer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
