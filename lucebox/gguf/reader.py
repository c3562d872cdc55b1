"""Opening GGUF files: memory-mapped, split files as one, every count and offset checked."""

from __future__ import annotations

import mmap
import os
import re
import stat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lucebox.errors import ModelFileError
from lucebox.gguf.cursor import REDOWNLOAD, Cursor
from lucebox.gguf.metadata import MAX_KEY_VALUES, Metadata
from lucebox.gguf.tensors import TensorInfo, count_tensors, place_tensors, read_tensor_table

_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_MAX_ALIGNMENT = 1 << 20
_MIN_KEY_VALUE_BYTES = 8 + 1 + 4 + 1
_SPLIT_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


class _Part:
    """One file on disk: its mapping, its metadata and its placed tensors."""

    def __init__(self, path: Path, index: int) -> None:
        self.path = path
        self.mapping = _map(path)
        try:
            self._read_header(index)
        except BaseException:
            self.mapping.close()
            raise

    def _read_header(self, index: int) -> None:
        cursor = Cursor(str(self.path), self.mapping)
        _read_magic_and_version(cursor)
        n_tensors = count_tensors(cursor)
        n_key_values = cursor.count("metadata count", maximum=MAX_KEY_VALUES, item_bytes=_MIN_KEY_VALUE_BYTES)
        self.metadata = Metadata(cursor, n_key_values)
        table = read_tensor_table(cursor, n_tensors)
        alignment = self.metadata.uint("general.alignment", default=_DEFAULT_ALIGNMENT)
        if not 0 < alignment <= _MAX_ALIGNMENT or alignment & (alignment - 1):
            raise cursor.error(
                "general.alignment", f"{alignment:,} is not a power of two up to {_MAX_ALIGNMENT:,}"
            )
        data_start = -(-cursor.position // alignment) * alignment
        self.tensors = place_tensors(
            str(self.path),
            table,
            part=index,
            data_start=data_start,
            alignment=alignment,
            file_bytes=cursor.size,
        )


class GgufFile:
    """An open model: metadata, tensor table and the mapped bytes of one file or of all parts of a split one.

    Owns its mappings. `close` (or leaving the `with` block) unmaps them; no view from `data` may be in use
    then, and arrays of strings must have been read before.
    """

    def __init__(self, parts: list[_Part]) -> None:
        assert parts
        self.path = parts[0].path
        self.metadata = parts[0].metadata
        self.mappings = tuple(part.mapping for part in parts)
        self.tensors: dict[str, TensorInfo] = {}
        for part in parts:
            for name, info in part.tensors.items():
                if name in self.tensors:
                    raise ModelFileError(
                        part.path, f"tensor {name}", "is in another part too", remedy=REDOWNLOAD
                    )
                self.tensors[name] = info
        # Typed getters, at hand where the metadata is read most.
        self.uint = self.metadata.uint
        self.float = self.metadata.float
        self.bool = self.metadata.bool
        self.string = self.metadata.string
        self.strings = self.metadata.strings
        self.numbers = self.metadata.numbers

    @property
    def mapping(self) -> mmap.mmap:
        """The mapping of the first part; of a split file, see `mappings[info.part]`."""
        return self.mappings[0]

    @property
    def architecture(self) -> str:
        return self.string("general.architecture")

    @property
    def n_ctx_train(self) -> int:
        """Tokens of context that the model was trained for. Raises ModelFileError."""
        return self.uint(f"{self.architecture}.context_length", minimum=1)

    @property
    def n_bytes(self) -> int:
        """Size on disk of all parts."""
        return sum(len(mapping) for mapping in self.mappings)

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> TensorInfo:
        """The tensor `name`; ModelFileError when it is absent or not of `shape` (ne0 first)."""
        info = self.tensors.get(name)
        field = f"tensor {name}"
        if info is None:
            raise ModelFileError(self.path, field, "is missing", remedy=REDOWNLOAD)
        if shape is not None and info.shape != shape:
            problem = f"has shape {info.shape} where the metadata imply {shape}"
            raise ModelFileError(
                self.path, field, problem, remedy="convert the model again with current tools"
            )
        return info

    def data(self, name: str) -> NDArray[np.uint8]:
        """The stored bytes of a tensor: uint8[n_bytes], a read-only view of the mapping."""
        info = self.tensor(name)
        return np.frombuffer(self.mappings[info.part], np.uint8, count=info.n_bytes, offset=info.offset)

    def address(self, part: int = 0) -> int:
        """Where the mapping of `part` begins in memory. Valid until `close`; the pages are read-only."""
        return int(np.frombuffer(self.mappings[part], np.uint8).ctypes.data)

    def close(self) -> None:
        """Unmaps the file. BufferError when a view from `data` is still in use."""
        for mapping in self.mappings:
            mapping.close()

    def __enter__(self) -> GgufFile:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"GgufFile({str(self.path)!r}, {len(self.tensors)} tensors, {self.n_bytes:,} bytes)"


def read(path: str | os.PathLike[str]) -> GgufFile:
    """Opens a GGUF file (version 2 or 3, little-endian), or all parts of a split one given any of them.

    Only the header is touched; weights are paged in when used, so the file must not shrink meanwhile.
    Raises ModelFileError for a file that cannot be read or is not sound.
    """
    first = _Part(Path(path), 0)
    parts = [first]
    try:
        n_parts = first.metadata.uint("split.count", default=1, minimum=1, maximum=99_999)
        if n_parts > 1:
            paths = _part_paths(first.path, n_parts)
            if first.metadata.uint("split.no", maximum=n_parts - 1) != 0:
                first.mapping.close()
                parts = [_Part(paths[0], 0)]
            for index in range(1, n_parts):
                parts.append(_Part(paths[index], index))
            _check_split(parts)
        return GgufFile(parts)
    except BaseException:
        for part in parts:
            part.mapping.close()
        raise


def _part_paths(path: Path, n_parts: int) -> list[Path]:
    match = _SPLIT_NAME.fullmatch(path.name)
    if match is None or int(match["count"]) != n_parts:
        raise ModelFileError(
            path,
            "split.count",
            f"the file is one of {n_parts} parts, but is not named so",
            remedy=f"name the parts NAME-00001-of-{n_parts:05}.gguf and so on, in one folder",
        )
    return [
        path.with_name(f"{match['stem']}-{number:05}-of-{n_parts:05}.gguf")
        for number in range(1, n_parts + 1)
    ]


def _check_split(parts: list[_Part]) -> None:
    for index, part in enumerate(parts):
        number = part.metadata.uint("split.no", maximum=len(parts) - 1)
        count = part.metadata.uint("split.count")
        if (number, count) != (index, len(parts)):
            problem = f"is part {number + 1} of {count}, where part {index + 1} of {len(parts)} is needed"
            raise ModelFileError(part.path, "split.no", problem, remedy=REDOWNLOAD)
    expected = parts[0].metadata.uint("split.tensors.count")
    found = sum(len(part.tensors) for part in parts)
    if found != expected:
        problem = f"the parts hold {found:,} tensors where {expected:,} are announced"
        raise ModelFileError(parts[0].path, "split.tensors.count", problem, remedy=REDOWNLOAD)


def _map(path: Path) -> mmap.mmap:
    try:
        # O_NONBLOCK: opening a named pipe must not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ModelFileError(path, "file", reason, remedy="check the path and its permissions") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ModelFileError(
                path, "file", "is not a regular file", remedy="give the path of a .gguf file"
            )
        if status.st_size == 0:
            raise ModelFileError(path, "file", "is empty", remedy=REDOWNLOAD)
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ModelFileError(path, "file", str(error), remedy="the file cannot be memory-mapped") from error
    finally:
        os.close(descriptor)


def _read_magic_and_version(cursor: Cursor) -> None:
    magic = cursor.buffer[:4]
    if magic != b"GGUF"[: len(magic)]:
        raise cursor.error(
            "magic", f"{magic!r} is not b'GGUF'", "this is not a GGUF file: give a .gguf model"
        )
    cursor.require(4, "magic")
    cursor.position = 4
    version = cursor.u32("version")
    if version in _VERSIONS:
        return
    if int.from_bytes(version.to_bytes(4, "little"), "big") in _VERSIONS:
        raise cursor.error("version", "the file is big-endian", "use a little-endian conversion of the model")
    raise cursor.error(
        "version",
        f"{version} is not among those known, {_VERSIONS}",
        "convert the model again with current tools",
    )
