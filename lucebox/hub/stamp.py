"""Remembering that a file was verified, so that it is not hashed again at every start."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from contextlib import suppress
from pathlib import Path

CHUNK_BYTES = 1 << 20


def write_stamp(path: Path, sha256: str) -> None:
    """Notes beside `path` that its bytes, as of now, have this hash."""
    content = json.dumps({"sha256": sha256, **_identity(path)})
    temporary = _stamp_path(path).with_suffix(f".{os.getpid()}-{threading.get_ident()}.tmp")
    temporary.write_text(content + "\n", encoding="utf-8")
    os.replace(temporary, _stamp_path(path))


def is_verified(path: Path, sha256: str) -> bool:
    """Whether `path` has this hash: by its stamp if the file is unchanged since, else by hashing it."""
    if not path.is_file():
        return False
    try:
        stamp = json.loads(_stamp_path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        stamp = None
    if stamp == {"sha256": sha256, **_identity(path)}:
        return True
    if file_sha256(path) != sha256:
        return False
    with suppress(OSError):  # a cache that is read-only is still a cache
        write_stamp(path, sha256)
    return True


def remove_with_stamp(path: Path) -> None:
    _stamp_path(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _stamp_path(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _identity(path: Path) -> dict[str, int]:
    status = path.stat()
    return {"n_bytes": status.st_size, "mtime_ns": status.st_mtime_ns}
