"""A copy of a model whose matrices are float16: what a quantised model is measured against."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from gguf import GGUF_MAGIC, GGUF_VERSION, GGUFValueType
from gguf import GGMLQuantizationType as Type

from lucebox.errors import ConfigError
from lucebox.ggml.library import Library, load
from lucebox.gguf.conversion import RowBlock, RowConverter, check_readable, in_order
from lucebox.gguf.reader import GgufFile, read
from lucebox.gguf.tensors import TensorInfo

_MOSTLY_F16 = 1  # of general.file_type
_DROPPED = (
    "general.file_type",
    "general.quantization_version",
    "split.no",
    "split.count",
    "split.tensors.count",
)
_INTEGERS = frozenset({Type.I8, Type.I16, Type.I32, Type.I64, Type.F64})


def write_f16(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    on_progress: Callable[[float], None] | None = None,
    *,
    n_threads: int = 2,
) -> Path:
    """Writes the model `source` to `target`, every matrix as float16 and all else as it is; one file, also of
    a split one. Returns `target`.

    `on_progress` gets the finished fraction. Needs a few MiB of memory; the file appears when it is whole.
    Raises ModelFileError, and ConfigError where `target` cannot be written.
    """
    path = Path(target)
    part = path.with_name(path.name + ".part")
    with read(source) as file:
        if path.exists() and path.samefile(file.path):
            raise ConfigError(f"{path} is the model to be copied itself", remedy="name another file")
        try:
            _write(file, part, n_threads, on_progress or (lambda fraction: None))
            os.replace(part, path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise ConfigError(
                f"{path} cannot be written: {error.strerror or error}",
                remedy="check the folder and its free space",
            ) from error
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    return path


def _write(file: GgufFile, part: Path, n_threads: int, on_progress: Callable[[float], None]) -> None:
    library = load()
    alignment = file.uint("general.alignment", default=32)
    tensors = _converted(library, file)
    header = _header(file, tensors, alignment)
    data_start = -(-len(header) // alignment) * alignment
    with part.open("wb") as out:
        out.write(header)
        out.truncate(data_start + sum(_padded(info.n_bytes, alignment) for info in tensors.values()))
        out.flush()
        total = sum(info.n_bytes for info in tensors.values())
        done = 0
        tasks = _tasks(library, file, tensors, out.fileno(), data_start, alignment)
        with ThreadPoolExecutor(n_threads, thread_name_prefix="lucebox-copy") as pool:
            for n_bytes in in_order(pool, tasks, n_ahead=2 * n_threads):
                done += n_bytes
                on_progress(done / total)


def _converted(library: Library, file: GgufFile) -> dict[str, TensorInfo]:
    """Every tensor as it will be stored, in the order of the file."""
    tensors = {}
    for name, info in file.tensors.items():
        if len(info.shape) > 1 and info.type not in _INTEGERS:
            check_readable(library, file.path, info)
            info = replace(info, type=Type.F16, n_bytes=2 * info.n_elements)
        tensors[name] = info
    return tensors


def _header(file: GgufFile, tensors: Mapping[str, TensorInfo], alignment: int) -> bytes:
    """All that stands before the data."""
    kept = [file.metadata.stored(key) for key in file.metadata if key not in _DROPPED]
    kept.append(_string("general.file_type") + struct.pack("<II", GGUFValueType.UINT32, _MOSTLY_F16))
    out = [struct.pack("<IIQQ", GGUF_MAGIC, GGUF_VERSION, len(tensors), len(kept)), *kept]
    offset = 0
    for info in tensors.values():
        shape = struct.pack(f"<I{len(info.shape)}Q", len(info.shape), *info.shape)
        out.append(_string(info.name) + shape + struct.pack("<IQ", info.type, offset))
        offset += _padded(info.n_bytes, alignment)
    return b"".join(out)


def _tasks(
    library: Library,
    file: GgufFile,
    tensors: Mapping[str, TensorInfo],
    descriptor: int,
    data_start: int,
    alignment: int,
) -> Iterator[Callable[[], int]]:
    """Writes of some rows each, returning their bytes."""
    offset = data_start
    for name, stored in tensors.items():
        info = file.tensors[name]
        if stored.type == info.type:
            yield partial(_copy, file, info, descriptor, offset)
        else:
            converter = RowConverter(library, info, stored)
            source = file.address(info.part) + info.offset
            for block in converter.blocks():
                yield partial(_convert, converter, block, source, descriptor, offset)
        offset += _padded(stored.n_bytes, alignment)


def _copy(file: GgufFile, info: TensorInfo, descriptor: int, offset: int) -> int:
    _write_all(descriptor, file.data(info.name).data, offset)
    return info.n_bytes


def _convert(converter: RowConverter, block: RowBlock, source: int, descriptor: int, offset: int) -> int:
    rows = np.empty(block.n_rows * converter.target_row_bytes, np.uint8)
    converter.convert(block, source, rows.ctypes.data)
    _write_all(descriptor, rows.data, offset + block.first * converter.target_row_bytes)
    return rows.nbytes


def _write_all(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        n = os.pwrite(descriptor, data, offset)
        data, offset = data[n:], offset + n


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _padded(n_bytes: int, alignment: int) -> int:
    return -(-n_bytes // alignment) * alignment
