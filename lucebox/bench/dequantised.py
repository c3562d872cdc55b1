"""The float16 copy of a quantised model, made once: a target that is slow to read, for the same answers."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from lucebox.errors import ConfigError
from lucebox.gguf import read
from lucebox.gguf.copy import write_f16
from lucebox.hub.lock import exclusive
from lucebox.paths import models_dir

_SPARE_BYTES = 64 * 2**20  # a disk that is full to the last byte serves nobody


def f16_copy(
    source: Path, on_progress: Callable[[float], None] = lambda fraction: None, *, n_threads: int = 2
) -> Path:
    """The copy of `source` in the cache folder, written unless it is there; `on_progress` gets the finished
    fraction. Raises ConfigError without room for it, ModelFileError for a file that cannot be read."""
    folder = models_dir()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{source.stem}-f16-{_identity(source)}.gguf"
    with exclusive(path.with_suffix(".lock")):
        if not path.is_file():
            _require_room(source, folder)
            write_f16(source, path, on_progress, n_threads=n_threads)
    return path


def _identity(source: Path) -> str:
    """Another one when the file is replaced or edited."""
    status = source.stat()
    text = f"{source.absolute()} {status.st_size} {status.st_mtime_ns}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _require_room(source: Path, folder: Path) -> None:
    with read(source) as file:
        n_bytes = sum(max(info.n_bytes, 2 * info.n_elements) for info in file.tensors.values())
    needed, free = n_bytes + _SPARE_BYTES, shutil.disk_usage(folder).free
    if free < needed:
        raise ConfigError(
            f"the float16 copy needs {needed / 1e9:.1f} GB in {folder}; {free / 1e9:.1f} GB are free",
            remedy="make room, or set LUCEBOX_CACHE to another directory",
        )
