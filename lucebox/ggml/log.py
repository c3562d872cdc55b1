"""ggml's log, passed on to Python's logging as `lucebox.ggml`.

What ggml calls information (which libraries it loads, what it found) is detail to a user of Lucebox: DEBUG.
"""

from __future__ import annotations

import atexit
import logging
import threading
from typing import Any

from lucebox.ggml import _api

logger = logging.getLogger("lucebox.ggml")

_LEVELS = {
    _api.LogLevel.DEBUG: logging.DEBUG,
    _api.LogLevel.INFO: logging.DEBUG,
    _api.LogLevel.WARN: logging.WARNING,
    _api.LogLevel.ERROR: logging.ERROR,
}


class LogBridge:
    """Receives ggml's log on whichever thread it is written, and logs whole lines.

    Must live as long as ggml may log: it owns the C callback.
    """

    def __init__(self, library: Any) -> None:
        self.library = library
        # ggml writes a line in pieces, all on one thread. Not threading.local: for a thread that is not
        # Python's, that lasts a single call.
        self._pending: dict[int, tuple[int, str]] = {}
        self.callback = _api.LogCallback(self._receive)
        library.ggml_log_set(self.callback, None)
        # ggml's threads may outlive the interpreter, which then cannot be called.
        atexit.register(self.close)

    def close(self) -> None:
        """Gives the log back to ggml, which writes to stderr."""
        self.library.ggml_log_set(None, None)

    def _receive(self, level: int, text: bytes | None, _: object) -> None:
        thread = threading.get_ident()
        started, begun = self._pending.pop(thread, (logging.DEBUG, ""))
        if level != _api.LogLevel.CONT:
            started = _LEVELS.get(_api.LogLevel(level), logging.DEBUG)
        *lines, rest = (begun + (text or b"").decode("utf-8", "replace")).split("\n")
        if rest:
            self._pending[thread] = started, rest
        for line in lines:
            if line.strip():
                logger.log(started, "%s", line)
