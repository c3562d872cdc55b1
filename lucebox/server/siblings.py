"""One process per server: workers of one ASGI server would each load the models."""

from __future__ import annotations

import fcntl
import hashlib
import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from lucebox.config import ServerConfig
from lucebox.errors import ConfigError
from lucebox.paths import cache_dir


@contextmanager
def only_worker(config: ServerConfig, folder: Path | None = None) -> Iterator[None]:
    """Raises ConfigError where another worker of the same parent process serves the same `config`.

    Workers are processes of `multiprocessing`, as uvicorn's and hypercorn's are, and gunicorn's. `folder` is
    where the lock file lies that they contend for. Where there can be none, nothing is refused.
    """
    if not _is_worker():
        yield
        return
    digest = hashlib.sha256(msgspec.json.encode(config)).hexdigest()[:16]
    path = (folder or cache_dir() / "workers") / f"{os.getppid()}-{digest}.lock"
    file = _open(path)
    if file is None:
        yield
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                "another worker of this server has the models loaded already, and each would load its own",
                remedy="run one worker (uvicorn: --workers 1); --parallel is for several requests at a time",
            ) from None
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink()


def _is_worker() -> bool:
    return multiprocessing.parent_process() is not None or "gunicorn.arbiter" in sys.modules


def _open(path: Path) -> BinaryIO | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("ab")
    except OSError:
        return None
