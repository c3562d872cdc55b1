"""A bounds-checked position in the header of a GGUF file: every read of hostile bytes goes through here."""

from __future__ import annotations

import mmap
import struct

import numpy as np
from numpy.typing import DTypeLike, NDArray

from lucebox.errors import ModelFileError

MAX_ARRAY_LENGTH = 1 << 24  # the largest vocabularies have under 2**19 entries
MAX_KEY_BYTES = 65_535  # the GGUF specification's limit
REDOWNLOAD = "the file is truncated or damaged: fetch it again"

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class Cursor:
    """Reads little-endian values from `buffer`, raising ModelFileError where the file ends too early."""

    __slots__ = ("buffer", "path", "position", "size")

    def __init__(self, path: str, buffer: mmap.mmap) -> None:
        self.path = path
        self.buffer = buffer
        self.size = len(buffer)
        self.position = 0

    def error(self, field: str, problem: str, remedy: str = REDOWNLOAD) -> ModelFileError:
        return ModelFileError(self.path, field, problem, remedy=remedy)

    def require(self, n_bytes: int, field: str) -> None:
        """Fails unless `n_bytes` more bytes are in the file."""
        if n_bytes > self.size - self.position:
            raise self.error(
                field,
                f"needs {n_bytes:,} bytes at byte {self.position:,}, but the file ends at {self.size:,}",
            )

    def scalar(self, layout: struct.Struct, field: str) -> int | float:
        self.require(layout.size, field)
        (value,) = layout.unpack_from(self.buffer, self.position)
        self.position += layout.size
        return value  # type: ignore[no-any-return]

    def u32(self, field: str) -> int:
        return int(self.scalar(_U32, field))

    def u64(self, field: str) -> int:
        return int(self.scalar(_U64, field))

    def count(self, field: str, *, maximum: int, item_bytes: int) -> int:
        """A u64 count of items of at least `item_bytes` each, refused before anything is allocated for it."""
        n = self.u64(field)
        if n > maximum:
            raise self.error(field, f"{n:,} is absurd (at most {maximum:,} are allowed)")
        self.require(n * item_bytes, field)
        return n

    def raw_string(self, field: str, *, maximum: int | None = None) -> bytes:
        length = self.u64(field)
        if maximum is not None and length > maximum:
            raise self.error(field, f"a name of {length:,} bytes (at most {maximum:,} are allowed)")
        self.require(length, field)
        start = self.position
        self.position += length
        return self.buffer[start : self.position]

    def name(self, field: str, *, maximum: int) -> str:
        """A key or tensor name: strict UTF-8, not empty."""
        raw = self.raw_string(field, maximum=maximum)
        try:
            name = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.error(field, f"{raw[:80]!r} is not UTF-8") from error
        if not name or "\0" in name:
            raise self.error(field, f"{name!r} is not a name")
        return name

    def skip_strings(self, n: int, field: str) -> int:
        """Steps over `n` strings; returns where they began, for `decode_strings` when they are wanted."""
        start = position = self.position
        buffer, unpack = self.buffer, _U64.unpack_from
        try:
            for _ in range(n):
                position += 8 + unpack(buffer, position)[0]
        except (struct.error, OverflowError) as error:
            raise self.error(
                field, f"a string runs past the end of the file ({self.size:,} bytes)"
            ) from error
        if position > self.size:
            raise self.error(field, f"its last string runs past the end of the file ({self.size:,} bytes)")
        self.position = position
        return start

    def numbers(self, n: int, dtype: DTypeLike, field: str) -> NDArray[np.generic]:
        """A copy of `n` numbers, in the machine's byte order and aligned."""
        stored = np.dtype(dtype).newbyteorder("<")
        self.require(n * stored.itemsize, field)
        values = (
            np.frombuffer(self.buffer, dtype=stored, count=n, offset=self.position)
            if n
            else np.empty(0, stored)
        )
        self.position += n * stored.itemsize
        return values.astype(np.dtype(dtype))


def decode_strings(buffer: mmap.mmap, start: int, n: int) -> list[str]:
    """The `n` length-prefixed strings at byte `start`, which `Cursor.skip_strings` has checked."""
    strings: list[str] = []
    append, unpack, position = strings.append, _U64.unpack_from, start
    for _ in range(n):
        begin = position + 8
        position = begin + unpack(buffer, position)[0]
        append(str(buffer[begin:position], "utf-8", "surrogateescape"))
    return strings
