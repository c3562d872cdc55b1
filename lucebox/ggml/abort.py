"""ggml's last words: it ends the process on an internal failure, and this says why before that happens."""

from __future__ import annotations

import importlib
from typing import Any

from lucebox.errors import GgmlError


class AbortReport:
    """Has ggml's abort message, and what was running, written to a file descriptor as the process dies.

    The writing is done in C, since the thread that fails may not be Python's and the GIL may be held.
    """

    def __init__(self, library: Any) -> None:
        try:
            self._c = importlib.import_module("lucebox._kernels.abort")
        except ImportError as error:
            raise GgmlError(
                f"lucebox's compiled modules are missing or broken: {error}",
                remedy="install lucebox again with a C compiler at hand, or run setup.py build_ext --inplace",
            ) from error
        library.ggml_set_abort_callback(self._c.callback_address())

    def write_to(self, fd: int) -> None:
        """Sends the report to `fd`, which must stay open; before this it goes to stderr."""
        self._c.install(fd)

    def set_activity(self, activity: bytes) -> None:
        """What is running now, for the report; cut to 255 bytes. Cheap enough for every step."""
        self._c.set_activity(activity)
