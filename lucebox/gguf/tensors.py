"""The tensor table of a GGUF file: names, shapes, types and offsets, checked before ggml sees them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from lucebox.errors import ModelFileError, UnsupportedModelError
from lucebox.gguf.cursor import REDOWNLOAD, Cursor

MAX_TENSORS = 1 << 17
MAX_DIMS = 4  # GGML_MAX_DIMS
MAX_NAME_BYTES = 63  # GGML_MAX_NAME, less its terminator
_MIN_ENTRY_BYTES = 8 + 1 + 4 + 8 + 4 + 8
_MAX_ELEMENTS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a file: `shape` in ggml's order (ne0, the contiguous row, first)."""

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    n_bytes: int
    offset: int  # absolute, in bytes, in its part
    part: int = 0  # index of the split file it lies in

    @property
    def n_elements(self) -> int:
        return math.prod(self.shape)

    def first_rows(self, n: int) -> TensorInfo:
        """The first `n` rows of a matrix: they lie at its beginning."""
        assert len(self.shape) == 2, self.shape
        assert 1 <= n <= self.shape[1], f"{n} rows of {self.shape[1]}"
        return replace(self, shape=(self.shape[0], n), n_bytes=self.n_bytes // self.shape[1] * n)


def read_tensor_table(cursor: Cursor, n_tensors: int) -> list[TensorInfo]:
    """The table at the cursor, with offsets still relative to the data section (see `place_tensors`)."""
    return [_read_entry(cursor, index) for index in range(n_tensors)]


def count_tensors(cursor: Cursor) -> int:
    return cursor.count("tensor count", maximum=MAX_TENSORS, item_bytes=_MIN_ENTRY_BYTES)


def place_tensors(
    path: str, tensors: list[TensorInfo], *, part: int, data_start: int, alignment: int, file_bytes: int
) -> dict[str, TensorInfo]:
    """Absolute offsets, each checked to be aligned, inside the file and apart from all others."""
    placed: dict[str, TensorInfo] = {}
    for info in tensors:
        field = f"tensor {info.name}"
        if info.name in placed:
            raise ModelFileError(path, field, "occurs twice", remedy=REDOWNLOAD)
        if info.offset % alignment:
            problem = f"offset {info.offset:,} is not a multiple of the alignment, {alignment}"
            raise ModelFileError(path, field, problem, remedy=REDOWNLOAD)
        offset = data_start + info.offset
        if offset + info.n_bytes > file_bytes:
            problem = f"ends at byte {offset + info.n_bytes:,}, but the file ends at {file_bytes:,}"
            raise ModelFileError(path, field, problem, remedy=REDOWNLOAD)
        placed[info.name] = TensorInfo(info.name, info.shape, info.type, info.n_bytes, offset, part)
    end, previous = 0, ""
    for info in sorted(placed.values(), key=lambda info: info.offset):
        if info.offset < end:
            raise ModelFileError(
                path, f"tensor {info.name}", f"overlaps tensor {previous}", remedy=REDOWNLOAD
            )
        end, previous = info.offset + info.n_bytes, info.name
    return placed


def _read_entry(cursor: Cursor, index: int) -> TensorInfo:
    name = cursor.name(f"tensor {index} (name)", maximum=MAX_NAME_BYTES)
    field = f"tensor {name}"
    n_dims = cursor.u32(f"{field} (dimensions)")
    if not 1 <= n_dims <= MAX_DIMS:
        raise cursor.error(field, f"has {n_dims:,} dimensions (1 to {MAX_DIMS} are allowed)")
    shape = tuple(cursor.u64(f"{field} (shape)") for _ in range(n_dims))
    n_elements = math.prod(shape)
    if not 0 < n_elements <= _MAX_ELEMENTS:
        raise cursor.error(field, f"shape {shape} is not possible")
    kind = cursor.u32(f"{field} (type)")
    tensor_type = _known_type(cursor, field, kind)
    block_elements, block_bytes = GGML_QUANT_SIZES[tensor_type]
    if shape[0] % block_elements:
        problem = f"rows of {shape[0]:,} are not whole {tensor_type.name} blocks of {block_elements}"
        raise cursor.error(field, problem)
    n_bytes = n_elements // block_elements * block_bytes
    return TensorInfo(name, shape, tensor_type, n_bytes, cursor.u64(f"{field} (offset)"))


def _known_type(cursor: Cursor, field: str, kind: int) -> GGMLQuantizationType:
    try:
        return GGMLQuantizationType(kind)
    except ValueError:
        raise UnsupportedModelError(
            cursor.path,
            field,
            f"tensor type {kind} is unknown",
            remedy="the file is damaged, or its quantisation is obsolete or newer than this Lucebox",
        ) from None
