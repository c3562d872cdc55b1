"""GGUF files byte by byte, so that tests can write what no honest writer would."""

from __future__ import annotations

import struct
from collections.abc import Sequence

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
_FORMATS = dict(zip((U8, I8, U16, I16, U32, I32, F32, BOOL, U64, I64, F64), "BbHhIif?Qqd", strict=True))


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def scalar(kind: int, value: object) -> bytes:
    if kind == STRING:
        assert isinstance(value, str | bytes)
        return string(value)
    return struct.pack("<" + _FORMATS[kind], value)


def key_value(key: str | bytes, kind: int, value: object) -> bytes:
    return string(key) + struct.pack("<I", kind) + scalar(kind, value)


def key_array(key: str, kind: int, values: Sequence[object]) -> bytes:
    head = string(key) + struct.pack("<IIQ", ARRAY, kind, len(values))
    return head + b"".join(scalar(kind, value) for value in values)


def tensor(name: str | bytes, shape: Sequence[int], kind: int = 0, offset: int = 0) -> bytes:
    return (
        string(name)
        + struct.pack("<I", len(shape))
        + b"".join(struct.pack("<Q", n) for n in shape)
        + struct.pack("<IQ", kind, offset)
    )


def gguf(
    key_values: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    version: int = 3,
    n_tensors: int | None = None,
    n_key_values: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A whole file. The counts can be made to lie; `data` begins at the next multiple of `alignment`."""
    header = b"GGUF" + struct.pack(
        "<IQQ",
        version,
        len(tensors) if n_tensors is None else n_tensors,
        len(key_values) if n_key_values is None else n_key_values,
    )
    header += b"".join(key_values) + b"".join(tensors)
    return header + b"\0" * (-len(header) % alignment) + data
