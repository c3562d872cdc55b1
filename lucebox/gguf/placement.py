"""Choosing the buffer type of each weight, by asking ggml what it can compute from where."""

from __future__ import annotations

from collections.abc import Sequence

from lucebox.errors import UnsupportedModelError
from lucebox.ggml import _api
from lucebox.ggml._api import Type
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
    device: int,
    file: GgufFile,
    matched: Sequence[tuple[TensorSpec, TensorInfo]],
    requantise: Requantise | None = None,
    *,
    packs: bool = False,
) -> list[Placement]:
    """Repacking buffer types come first where they can multiply with a matrix of that type and shape;
    everything else stays in the device's own, mapped from the file when the device can read host
    memory. What `requantise` changes is never mapped. With `packs`, which is for CPUs only, our own kernels
    (lucebox.gguf.packing) take, before all of these, what they can of what is not changed.

    A tied head is matrix and table at once: it is repacked as a second copy, and looked up from the
    first. Raises UnsupportedModelError when the device cannot compute with a tensor at all.
    """
    can_map = library.can_map_host_memory(device)
    placements = []
    with _Probe(library, device) as probe:
        for spec, info in matched:
            stored, buffer_type = _choose(probe, spec, info, requantise)
            packed = packed_info(spec, info) if packs and stored is info else None
            if packed is not None:
                placements.append(
                    Placement(spec, info, packed, probe.default, is_mapped=False, is_packed=True)
                )
                continue
            if buffer_type is None:
                name = library.ggml_backend_dev_name(device).decode()
                raise UnsupportedModelError(
                    file.path,
                    f"tensor {info.name}",
                    f"{name} cannot compute with {stored.type.name} of shape {info.shape}",
                    remedy="choose another device or another quantisation",
                )
            is_mapped = can_map and buffer_type == probe.default and stored is info
            placements.append(Placement(spec, info, stored, buffer_type, is_mapped))
    return placements


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

    def __init__(self, library: Library, device: int) -> None:
        self._library = library
        self._device = device
        self.default: int = library.ggml_backend_dev_buffer_type(device)
        self.repacking_types = library.extra_buffer_types(device)
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
            return bool(library.ggml_backend_dev_supports_op(self._device, op))
        finally:
            library.ggml_free(context)

    def _empty_buffer(self, buffer_type: int) -> int:
        if buffer_type not in self._buffers:
            self._buffers[buffer_type] = self._library.ggml_backend_buft_alloc_buffer(buffer_type, 0)
        return self._buffers[buffer_type]
