"""Choosing the buffer type of each weight, by asking ggml what it can compute from where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from lucebox.errors import UnsupportedModelError
from lucebox.ggml import _api
from lucebox.ggml._api import Type
from lucebox.ggml.device import Device
from lucebox.ggml.library import Library
from lucebox.gguf.packing import packed_info
from lucebox.gguf.reader import GgufFile
from lucebox.gguf.requantise import Requantise
from lucebox.gguf.specs import TensorSpec, Use
from lucebox.gguf.tensors import TensorInfo
from lucebox.gguf.weights import Placement

_PROBE_ROWS = 512


def choose_placements(
    library: Library,
    devices: Sequence[Device],
    file: GgufFile,
    matched: Sequence[tuple[TensorSpec, TensorInfo]],
    requantise: Requantise | None = None,
    *,
    packs: bool = False,
    device_of: Callable[[TensorSpec], int] = lambda spec: 0,
) -> list[Placement]:
    """Each tensor goes to the device that `device_of` says, an index into `devices`, or to the last one where
    that cannot compute with it.

    There, repacking buffer types come first where they can multiply with a matrix of that type and shape;
    everything else stays in the device's own, mapped from the file when the device can read host
    memory. What `requantise` changes is never mapped. With `packs` our own kernels (lucebox.gguf.packing)
    take, on this machine's CPU and before all of these, what they can of what is not changed.

    A tied head is matrix and table at once: it is repacked as a second copy, and looked up from the
    first. Raises UnsupportedModelError when no device can compute with a tensor.
    """
    placements = []
    with ExitStack() as probing:
        probes = [probing.enter_context(_Probe(library, device)) for device in devices]
        for spec, info in matched:
            wanted = device_of(spec)
            owners = dict.fromkeys((wanted, len(devices) - 1))
            found = (_place(probes[i], i, spec, info, requantise, packs=packs) for i in owners)
            placement = next((placement for placement in found if placement is not None), None)
            if placement is None:
                raise UnsupportedModelError(
                    file.path,
                    f"tensor {info.name}",
                    f"{devices[wanted]} cannot compute with {info.type.name} of shape {info.shape}",
                    remedy="choose another device or another quantisation",
                )
            placements.append(placement)
    return placements


def _place(
    probe: _Probe,
    device: int,
    spec: TensorSpec,
    info: TensorInfo,
    requantise: Requantise | None,
    *,
    packs: bool,
) -> Placement | None:
    """Where on one device a tensor goes; None where that cannot compute with it."""
    stored, buffer_type = _choose(probe, spec, info, requantise)
    if packs and stored is info and probe.device.is_own_cpu:
        packed = packed_info(spec, info)
        if packed is not None:
            return Placement(spec, info, packed, probe.default, False, is_packed=True, device=device)
    if buffer_type is None:
        return None
    is_mapped = probe.can_map and buffer_type == probe.default and stored is info
    return Placement(spec, info, stored, buffer_type, is_mapped, device=device)


def _choose(
    probe: _Probe, spec: TensorSpec, info: TensorInfo, requantise: Requantise | None
) -> tuple[TensorInfo, int | None]:
    """What of `info` will lie on the device, and where; None where the device cannot compute with it."""
    converted = None if requantise is None else requantise.converted(spec, info)
    if requantise is not None and converted is not None:
        everywhere = not requantise.only_if_faster
        candidates = probe.all_types if everywhere else probe.repacking_types
        buffer_type = probe.first_supported(spec.use, converted, candidates)
        if everywhere or buffer_type is not None:
            return converted, buffer_type
    # A router's rows are products of their own, in three dimensions: no repacking layout takes them.
    candidates = [probe.default] if spec.use is Use.ROUTER else probe.all_types
    return info, probe.first_supported(spec.use, info, candidates)


class _Probe:
    """Builds single operations over empty buffers, for ggml to judge."""

    def __init__(self, library: Library, device: Device) -> None:
        self._library = library
        self.device = device
        self.can_map = library.can_map_host_memory(device.pointer)
        self.default: int = library.ggml_backend_dev_buffer_type(device.pointer)
        self.repacking_types = library.extra_buffer_types(device.pointer)
        self.all_types = [*self.repacking_types, self.default]
        self._buffers: dict[int, int] = {}
        self._answers: dict[tuple[Use, int, tuple[int, ...], int], bool] = {}

    def __enter__(self) -> _Probe:
        return self

    def __exit__(self, *_: object) -> None:
        for buffer in self._buffers.values():
            self._library.ggml_backend_buffer_free(buffer)
        self._buffers.clear()

    def first_supported(self, use: Use, info: TensorInfo, buffer_types: Sequence[int]) -> int | None:
        """The first of `buffer_types` from which the device can compute with such a tensor."""
        for buffer_type in buffer_types:
            key = (use, info.type, info.shape, buffer_type)
            if key not in self._answers:
                self._answers[key] = self._is_supported(use, info, buffer_type)
            if self._answers[key]:
                return buffer_type
        return None

    def _is_supported(self, use: Use, info: TensorInfo, buffer_type: int) -> bool:
        library = self._library
        context = library.new_context(4)
        try:
            weight = library.ggml_new_tensor_4d(context, info.type, *(*info.shape, 1, 1, 1)[:4])
            _api.Tensor.from_address(weight).buffer = self._empty_buffer(buffer_type)
            if use is Use.TABLE:
                rows = library.ggml_new_tensor_1d(context, Type.I32, _PROBE_ROWS)
                op = library.ggml_get_rows(context, weight, rows)
            elif use is Use.EXPERTS:
                x = library.ggml_new_tensor_3d(context, Type.F32, info.shape[0], 1, _PROBE_ROWS)
                chosen = library.ggml_new_tensor_2d(context, Type.I32, 1, _PROBE_ROWS)
                op = library.ggml_mul_mat_id(context, weight, x, chosen)
            else:
                x = library.ggml_new_tensor_2d(context, Type.F32, info.shape[0], _PROBE_ROWS)
                op = (
                    library.ggml_add(context, x, weight)
                    if use is Use.VECTOR
                    else library.ggml_mul_mat(context, weight, x)
                )
            return self.device.supports(op)
        finally:
            library.ggml_free(context)

    def _empty_buffer(self, buffer_type: int) -> int:
        if buffer_type not in self._buffers:
            self._buffers[buffer_type] = self._library.ggml_backend_buft_alloc_buffer(buffer_type, 0)
        return self._buffers[buffer_type]
