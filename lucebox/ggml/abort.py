"""ggml's last words: it ends the process on an internal failure, and this says why before that happens."""

from __future__ import annotations

import importlib
import logging
from typing import Any

logger = logging.getLogger("lucebox.ggml")

_MODULE = "lucebox._kernels.abort"


class AbortReport:
    """Has ggml's abort message, and what was running, written to a file descriptor as the process dies.

    The writing is done in C, since the thread that fails may not be Python's and the GIL may be held.
    """

    def __init__(self, library: Any) -> None:
        self._c = _compiled()
        if self._c is None:
            logger.warning(
                "lucebox was installed without a compiler: should ggml abort, only stderr will say why"
            )
            return
        library.ggml_set_abort_callback(self._c.callback_address())

    def write_to(self, fd: int) -> None:
        """Sends the report to `fd`, which must stay open; before this it goes to stderr."""
        if self._c is not None:
            self._c.install(fd)

    def set_activity(self, activity: bytes) -> None:
        """What is running now, for the report; cut to 255 bytes. Cheap enough for every step."""
        if self._c is not None:
            self._c.set_activity(activity)


def _compiled() -> Any:
    try:
        return importlib.import_module(_MODULE)
    except ModuleNotFoundError as error:
        if error.name != _MODULE:
            raise
        return None
