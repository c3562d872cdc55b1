"""Weights on a device: which buffer each tensor goes to, and getting it there without a needless copy."""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np

from lucebox.errors import OutOfMemoryError
from lucebox.ggml._api import BackendBufferUsage, BackendDevType
from lucebox.ggml.device import Device
from lucebox.ggml.library import Library
from lucebox.gguf.conversion import RowBlock, RowConverter, check_readable, in_order
from lucebox.gguf.packing import PackedMatrix, Packer
from lucebox.gguf.reader import GgufFile
from lucebox.gguf.specs import TensorSpec, check_bytes
from lucebox.gguf.tensors import TensorInfo

_PAGE_BYTES = mmap.PAGESIZE


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one tensor of the graph goes; a mapped one is used where it lies in the file's mapping.

    `info` is the tensor in the file, `stored` what lies on the device: the same, or of another type, or
    the bytes of a packed matrix (lucebox.gguf.packing). `device` is an index into the devices that it was
    chosen from.
    """

    spec: TensorSpec
    info: TensorInfo
    stored: TensorInfo
    buffer_type: int
    is_mapped: bool
    is_packed: bool = False
    device: int = 0

    @property
    def is_converted(self) -> bool:
        return self.stored.type != self.info.type and not self.is_packed


class Weights:
    """The tensors of a model by the names its graph knows them by, packed matrices apart from the others.
    Owns their buffers, not the file.

    `owners` has each tensor's device, `device_bytes` what was allocated on each. The file must stay open as
    long: mapped tensors point into it. `close` is idempotent.
    """

    def __init__(self, library: Library, file: GgufFile, devices: Sequence[Device]) -> None:
        self.tensors: dict[str, int] = {}
        self.packed: dict[str, PackedMatrix] = {}
        self.owners: dict[int, int] = {}
        self.device_bytes = [0] * len(devices)
        self._library = library
        self._file = file
        self._contexts: list[int] = []
        self._buffers: list[int] = []
        # Devices of one worker share a socket, which threads would garble; a bus is no faster for two.
        one_at_a_time = threading.Lock()
        self._sending: list[AbstractContextManager[object]] = [
            nullcontext() if device.is_own_cpu else one_at_a_time for device in devices
        ]

    @classmethod
    def load(
        cls,
        library: Library,
        devices: Sequence[Device],
        file: GgufFile,
        placements: Sequence[Placement],
        *,
        n_threads: int = 1,
        on_progress: Callable[[float], None] | None = None,
    ) -> Weights:
        """Maps or uploads every placement, to its one of `devices`. `on_progress` gets the finished fraction
        of the bytes to be copied, on the calling thread. Raises OutOfMemoryError when a device has no room.
        """
        weights = cls(library, file, devices)
        copied, mapped = defaultdict(list), defaultdict(list)
        for placement in placements:
            if placement.is_mapped:
                mapped[placement.device].append(placement)
            else:
                copied[placement.device, placement.buffer_type].append(placement)
        try:
            for index, group in mapped.items():
                weights._map(devices[index].pointer, group)
            uploads = []
            for (index, buffer_type), group in copied.items():
                uploads += weights._allocate(index, buffer_type, group)
            weights._upload(uploads, n_threads, on_progress or (lambda fraction: None))
        except BaseException:
            weights.close()
            raise
        return weights

    @property
    def allocated_bytes(self) -> int:
        return sum(self.device_bytes)

    def close(self) -> None:
        """Frees the buffers; no graph may use the tensors any more."""
        self.tensors.clear()
        self.packed.clear()
        self.owners.clear()
        while self._buffers:
            self._library.ggml_backend_buffer_free(self._buffers.pop())
        while self._contexts:
            self._library.ggml_free(self._contexts.pop())

    def _map(self, device: int, placements: list[Placement]) -> None:
        """Tensors over the file's own pages, one buffer for each part of the file."""
        by_part = defaultdict(list)
        for placement in placements:
            by_part[placement.info.part].append(placement)
        for part, group in by_part.items():
            mapping = self._file.mappings[part]
            address = self._file.address(part)
            largest = max(placement.info.n_bytes for placement in group)
            buffer = self._library.ggml_backend_dev_buffer_from_host_ptr(
                device, address, len(mapping), largest
            )
            assert buffer, "the device was said to take host memory"
            self._own(buffer)
            for placement, tensor in zip(group, self._new_tensors(group), strict=True):
                _advise(mapping, "MADV_WILLNEED", placement.info)
                status = self._library.ggml_backend_tensor_alloc(
                    buffer, tensor, address + placement.info.offset
                )
                assert status == 0, f"ggml_backend_tensor_alloc: {status}"

    def _allocate(self, index: int, buffer_type: int, group: list[Placement]) -> list[tuple[Placement, int]]:
        tensors = self._new_tensors(group)
        buffer = self._library.ggml_backend_alloc_ctx_tensors_from_buft(self._contexts[-1], buffer_type)
        needed = sum(placement.stored.n_bytes for placement in group)
        if not buffer:
            name = self._library.ggml_backend_buft_name(buffer_type).decode()
            raise OutOfMemoryError(
                f"{self._file.path}: {needed / 2**20:,.0f} MiB of weights do not fit into {name}",
                remedy="use a smaller model or quantisation, or another device",
            )
        self._own(buffer)
        n_bytes = int(self._library.ggml_backend_buffer_get_size(buffer))
        self.device_bytes[index] += n_bytes
        device = self._library.ggml_backend_buft_get_device(buffer_type)
        # The CPU's plain buffer type names no device.
        if not device or self._library.ggml_backend_dev_type(device) == BackendDevType.CPU:
            _prefer_huge_pages(self._library.ggml_backend_buffer_get_base(buffer), n_bytes)
        return list(zip(group, tensors, strict=True))

    def _upload(
        self, uploads: list[tuple[Placement, int]], n_threads: int, on_progress: Callable[[float], None]
    ) -> None:
        """Copies (and converts, and repacks, where the buffer type does) in parallel; ggml's calls hold no
        GIL."""
        total = sum(placement.stored.n_bytes for placement, _ in uploads)
        done = 0
        on_progress(0.0 if total else 1.0)
        tasks = (task for upload in uploads for task in self._tasks(*upload))
        with ThreadPoolExecutor(max(1, n_threads), thread_name_prefix="lucebox-upload") as pool:
            for n_bytes in in_order(pool, tasks, n_ahead=4 * n_threads):
                if n_bytes:
                    done += n_bytes
                    on_progress(done / total)

    def _tasks(self, placement: Placement, tensor: int) -> Iterator[Callable[[], int]]:
        """What brings a tensor to the device, each returning the bytes that are there now."""
        info = placement.info
        source = self._file.address(info.part) + info.offset
        if placement.is_converted:
            check_readable(self._library, self._file.path, info)
            converter = RowConverter(self._library, info, placement.stored)
            staging = _Staging(placement.stored.n_bytes, len(list(converter.blocks())))
            for block in converter.blocks():
                yield partial(self._convert, placement, tensor, converter, staging, block, source)
        elif placement.is_packed:
            yield from self._packing_tasks(placement, tensor, source)
        else:
            yield partial(self._set, placement, tensor, source)

    def _packing_tasks(self, placement: Placement, tensor: int, source: int) -> Iterator[Callable[[], int]]:
        packer = Packer(placement.info)
        target: int = self._library.ggml_get_data(tensor)
        blocks = list(packer.blocks())
        share = placement.stored.n_bytes / blocks[-1][1]

        def pack(first: int, last: int) -> int:
            packer.pack(source, target, first, last)
            if last == blocks[-1][1]:
                _advise(self._file.mappings[placement.info.part], "MADV_DONTNEED", placement.info)
            return round(share * (last - first))

        for first, last in blocks:
            yield partial(pack, first, last)

    def _convert(
        self,
        placement: Placement,
        tensor: int,
        converter: RowConverter,
        staging: _Staging,
        block: RowBlock,
        source: int,
    ) -> int:
        """Converts some rows; whoever is last sends the tensor, since repacking takes it as a whole."""
        converter.convert(block, source, staging.address + block.first * converter.target_row_bytes)
        return self._set(placement, tensor, staging.address) if staging.is_last() else 0

    def _set(self, placement: Placement, tensor: int, source: int) -> int:
        info, n_bytes = placement.info, placement.stored.n_bytes
        with self._sending[placement.device]:
            self._library.ggml_backend_tensor_set(tensor, source, 0, n_bytes)
        _advise(self._file.mappings[info.part], "MADV_DONTNEED", info)
        return n_bytes

    def _new_tensors(self, group: list[Placement]) -> list[int]:
        """Tensors without data, in a context of their own (the last one)."""
        library = self._library
        context = library.new_context(len(group))
        self._contexts.append(context)
        tensors = []
        for placement in group:
            stored = placement.stored
            shape = (*stored.shape, 1, 1, 1)[:4]
            tensor = library.ggml_new_tensor_4d(context, stored.type, *shape)
            check_bytes(self._file, stored, library.ggml_nbytes(tensor))
            library.ggml_set_name(tensor, placement.spec.name.encode())
            if placement.is_packed:
                self.packed[placement.spec.name] = Packer(placement.info).matrix(tensor)
            else:
                self.tensors[placement.spec.name] = tensor
            self.owners[tensor] = placement.device
            tensors.append(tensor)
        return tensors

    def _own(self, buffer: int) -> None:
        self._library.ggml_backend_buffer_set_usage(buffer, BackendBufferUsage.WEIGHTS)
        self._buffers.append(buffer)


class _Staging:
    """Memory in which the rows of a tensor gather, by several tasks."""

    def __init__(self, n_bytes: int, n_tasks: int) -> None:
        self._memory = np.empty(n_bytes, np.uint8)
        self._n_tasks = n_tasks
        self._lock = threading.Lock()
        self.address: int = self._memory.ctypes.data

    def is_last(self) -> bool:
        """Whether the task that asks, having finished, is the last of them."""
        with self._lock:
            self._n_tasks -= 1
            return self._n_tasks == 0


def _prefer_huge_pages(address: int, n_bytes: int) -> None:
    """Asks Linux for huge pages: every token reads all weights, and 3% of that was address translation."""
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    start = -(-address // _PAGE_BYTES) * _PAGE_BYTES
    length = (address + n_bytes - start) // _PAGE_BYTES * _PAGE_BYTES
    if advice is not None and length > 0:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), advice)


def _advise(mapping: mmap.mmap, advice: str, info: TensorInfo) -> None:
    """Tells the system about the whole pages of a tensor, where it can be told."""
    option = getattr(mmap, advice, None)
    start = -(-info.offset // _PAGE_BYTES) * _PAGE_BYTES
    n_bytes = (info.offset + info.n_bytes - start) // _PAGE_BYTES * _PAGE_BYTES
    if option is not None and n_bytes > 0:
        mapping.madvise(option, start, n_bytes)
