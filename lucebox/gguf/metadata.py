"""The key-value section of a GGUF file, with typed getters that say what is wrong and what to do."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
from gguf import GGUFValueType
from numpy.typing import NDArray

from lucebox.errors import ModelFileError
from lucebox.gguf.cursor import MAX_ARRAY_LENGTH, MAX_KEY_BYTES, Cursor, decode_strings

_Number = TypeVar("_Number", int, float)

MAX_KEY_VALUES = 1 << 16
NOT_THIS_MODEL = (
    "the file does not describe a model that Lucebox can run: convert it again with current tools"
)

_SCALARS: dict[int, tuple[struct.Struct, type[np.generic]]] = {
    GGUFValueType.UINT8: (struct.Struct("<B"), np.uint8),
    GGUFValueType.INT8: (struct.Struct("<b"), np.int8),
    GGUFValueType.UINT16: (struct.Struct("<H"), np.uint16),
    GGUFValueType.INT16: (struct.Struct("<h"), np.int16),
    GGUFValueType.UINT32: (struct.Struct("<I"), np.uint32),
    GGUFValueType.INT32: (struct.Struct("<i"), np.int32),
    GGUFValueType.FLOAT32: (struct.Struct("<f"), np.float32),
    GGUFValueType.UINT64: (struct.Struct("<Q"), np.uint64),
    GGUFValueType.INT64: (struct.Struct("<q"), np.int64),
    GGUFValueType.FLOAT64: (struct.Struct("<d"), np.float64),
    GGUFValueType.BOOL: (struct.Struct("<B"), np.uint8),
}


class _StringArray:
    """An array of strings still in the file: vocabularies are large and not every reader wants them."""

    __slots__ = ("n", "start")

    def __init__(self, start: int, n: int) -> None:
        self.start = start
        self.n = n

    def __len__(self) -> int:
        return self.n


class Metadata(Mapping[str, Any]):
    """Keys to values: Python scalars and strings, NumPy arrays of numbers, lists of strings.

    Bytes that are not UTF-8 are kept as surrogates (PEP 383). Arrays of strings are decoded on first use,
    which must come before the file is closed.
    """

    def __init__(self, cursor: Cursor, n_key_values: int) -> None:
        self._path = cursor.path
        self._buffer = cursor.buffer
        self._values: dict[str, Any] = {}
        self._stored: dict[str, tuple[int, int]] = {}  # first byte and end of each entry
        for index in range(n_key_values):
            start = cursor.position
            key = cursor.name(f"metadata key {index}", maximum=MAX_KEY_BYTES)
            if key in self._values:
                raise cursor.error(key, "the key occurs twice")
            self._values[key] = _read_value(cursor, key)
            self._stored[key] = start, cursor.position

    def __getitem__(self, key: str) -> Any:
        value = self._values[key]
        if isinstance(value, _StringArray):
            value = self._values[key] = decode_strings(self._buffer, value.start, value.n)
        return value

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def is_array(self, key: str) -> bool:
        return isinstance(self._values.get(key), _StringArray | list | np.ndarray)

    def stored(self, key: str) -> bytes:
        """The whole entry of `key` as it stands in the file, which must be open."""
        start, end = self._stored[key]
        return self._buffer[start:end]

    def length(self, key: str) -> int:
        """Number of entries of an array, without decoding it."""
        value = self._get(key, None)
        if isinstance(value, _StringArray | list | np.ndarray):
            return len(value)
        raise self._error(key, f"{_shown(value)} is not an array")

    def uint(
        self, key: str, *, minimum: int = 0, maximum: int = 2**63 - 1, default: int | None = None
    ) -> int:
        """A whole number within [minimum, maximum]. `default` serves only when the key is absent."""
        value = self._get(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._error(key, f"{_shown(value)} is not a whole number")
        return self._ranged(key, value, minimum, maximum)

    def float(
        self, key: str, *, minimum: float = -math.inf, maximum: float = math.inf, default: float | None = None
    ) -> float:
        """A finite number within [minimum, maximum]."""
        value = self._get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            raise self._error(key, f"{_shown(value)} is not a finite number")
        return self._ranged(key, float(value), minimum, maximum)

    def bool(self, key: str, *, default: bool | None = None) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self._error(key, f"{_shown(value)} is not true or false")
        return value

    def string(self, key: str, *, default: str | None = None) -> str:
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self._error(key, f"{_shown(value)} is not a string")
        return value

    def strings(self, key: str, *, length: int | None = None) -> list[str]:
        """An array of strings, of exactly `length` entries when that is given."""
        value = self[key] if key in self else self._missing(key)
        if isinstance(value, np.ndarray) and not len(value):
            value = []  # an empty array may be stored with any element type
        if not isinstance(value, list):
            raise self._error(key, f"{_shown(value)} is not an array of strings")
        self._check_length(key, len(value), length)
        return value

    def numbers(self, key: str, *, length: int | None = None) -> NDArray[Any]:
        """An array of numbers as stored, of exactly `length` entries when that is given."""
        value = self._get(key, None)
        if not isinstance(value, np.ndarray):
            raise self._error(key, f"{_shown(value)} is not an array of numbers")
        self._check_length(key, len(value), length)
        return value

    def _get(self, key: str, default: Any) -> Any:
        if key in self._values:
            return self._values[key]
        return self._missing(key) if default is None else default

    def _missing(self, key: str) -> Any:
        raise self._error(key, "the key is missing")

    def _check_length(self, key: str, n: int, expected: int | None) -> None:
        if expected is not None and n != expected:
            raise self._error(key, f"has {n:,} entries where {expected:,} are needed")

    def _ranged(self, key: str, value: _Number, minimum: _Number, maximum: _Number) -> _Number:
        if not minimum <= value <= maximum:
            raise self._error(key, f"{value:,} is not within {minimum:,} to {maximum:,}")
        return value

    def _error(self, key: str, problem: str) -> ModelFileError:
        return ModelFileError(self._path, key, problem, remedy=NOT_THIS_MODEL)


def _shown(value: Any) -> str:
    if isinstance(value, _StringArray | list | np.ndarray):
        return "an array"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _read_value(cursor: Cursor, key: str) -> Any:
    kind = cursor.u32(f"{key} (value type)")
    if kind == GGUFValueType.STRING:
        return cursor.raw_string(key).decode("utf-8", "surrogateescape")
    if kind == GGUFValueType.ARRAY:
        return _read_array(cursor, key)
    layout, _ = _SCALARS.get(kind) or _unknown_kind(cursor, key, kind)
    value = cursor.scalar(layout, key)
    return value != 0 if kind == GGUFValueType.BOOL else value


def _read_array(cursor: Cursor, key: str) -> Any:
    kind = cursor.u32(f"{key} (element type)")
    if kind == GGUFValueType.ARRAY:
        raise cursor.error(key, "is an array of arrays, which GGUF readers do not support")
    if kind == GGUFValueType.STRING:
        n = cursor.count(f"{key} (length)", maximum=MAX_ARRAY_LENGTH, item_bytes=8)
        return _StringArray(cursor.skip_strings(n, key), n)
    layout, dtype = _SCALARS.get(kind) or _unknown_kind(cursor, key, kind)
    n = cursor.count(f"{key} (length)", maximum=MAX_ARRAY_LENGTH, item_bytes=layout.size)
    values = cursor.numbers(n, dtype, key)
    return values != 0 if kind == GGUFValueType.BOOL else values


def _unknown_kind(cursor: Cursor, key: str, kind: int) -> tuple[struct.Struct, type[np.generic]]:
    raise cursor.error(
        key, f"value type {kind} is unknown", "the file is damaged, or newer than this Lucebox"
    )
