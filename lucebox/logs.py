"""The log of our processes on stderr: lines for people, or one JSON object a line for machines."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

LogFormat = Literal["text", "json"]


class JsonFormatter(logging.Formatter):
    """One object per record: `time` (RFC 3339, UTC), `level`, `logger`, `process`, `message`.

    A record's `fields`, a dict given as `extra`, are added to it, and so is the traceback of an error.
    """

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC)
        entry: dict[str, Any] = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": self._process,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            entry["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(entry, default=str)


class StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to what stderr is at the time: an open progress bar puts itself in its place."""

    def emit(self, record: logging.LogRecord) -> None:
        self.setStream(sys.stderr)
        super().emit(record)


def configure(level: str, log_format: LogFormat, process: str) -> None:
    """Sets up the log of this process; `process` says which of ours it is."""
    handler = StderrHandler()
    text = logging.Formatter(f"%(asctime)s %(levelname)s {process}: %(message)s")
    handler.setFormatter(JsonFormatter(process) if log_format == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def is_configured() -> bool:
    """Whether anybody has said where the log of this process goes."""
    return bool(logging.getLogger().handlers)


def take_over(names: Iterable[str]) -> None:
    """Has loggers called `names`, which another program set up, write where all others do."""
    for name in names:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True


def silence(name: str) -> None:
    """Has the logger called `name` write nowhere."""
    logger = logging.getLogger(name)
    logger.handlers.clear()
    logger.propagate = False


def current_format() -> LogFormat:
    """The format of this process's log, for those that it starts."""
    handlers = logging.getLogger().handlers
    return "json" if any(isinstance(handler.formatter, JsonFormatter) for handler in handlers) else "text"
