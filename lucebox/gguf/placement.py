"""Choosing the buffer type of each weight, by asking ggml what it can compute from where."""

from __future__ import annotations

from collections.abc import Sequence

from lucebox.errors import UnsupportedModelError
from lucebox.ggml import _api
from lucebox.ggml._api import Type
from lucebox.ggml.library import Library
from lucebox.gguf.reader import GgufFile
from lucebox.gguf.specs import TensorSpec, Use
from lucebox.gguf.tensors import TensorInfo
from lucebox.gguf.weights import Placement

_PROBE_ROWS = 512


def choose_placements(
    library: Library, device: int, file: GgufFile, matched: Sequence[tuple[TensorSpec, TensorInfo]]
) -> list[Placement]:
    """Repacking buffer types come first where they can multiply with a matrix of that type and shape;
    everything else stays in the device's own, mapped from the file when the device can read host
    memory.

    A tied head is matrix and table at once: it is repacked as a second copy, and looked up from the
    first. Raises UnsupportedModelError when the device cannot compute with a tensor at all.
    """
    default = library.ggml_backend_dev_buffer_type(device)
    can_map = library.can_map_host_memory(device)
    chosen: dict[tuple[Use, int, tuple[int, ...]], int | None] = {}
    placements = []
    with _Probe(library, device) as probe:
        candidates = [*library.extra_buffer_types(device), default]
        for spec, info in matched:
            key = (spec.use, info.type, info.shape)
            if key not in chosen:
                chosen[key] = next((b for b in candidates if probe.is_supported(spec.use, info, b)), None)
            buffer_type = chosen[key]
            if buffer_type is None:
                name = library.ggml_backend_dev_name(device).decode()
                raise UnsupportedModelError(
                    file.path,
                    f"tensor {info.name}",
                    f"{name} cannot compute with {info.type.name} of shape {info.shape}",
                    remedy="choose another device or another quantisation",
                )
            is_mapped = can_map and buffer_type == default
            placements.append(Placement(spec, info, buffer_type, is_mapped))
    return placements


class _Probe:
    """Builds single operations over empty buffers, for ggml to judge."""

    def __init__(self, library: Library, device: int) -> None:
        self._library = library
        self._device = device
        self._buffers: dict[int, int] = {}

    def __enter__(self) -> _Probe:
        return self

    def __exit__(self, *_: object) -> None:
        for buffer in self._buffers.values():
            self._library.ggml_backend_buffer_free(buffer)
        self._buffers.clear()

    def is_supported(self, use: Use, info: TensorInfo, buffer_type: int) -> bool:
        library = self._library
        context = library.new_context(4)
        try:
            weight = library.ggml_new_tensor_4d(context, info.type, *(*info.shape, 1, 1, 1)[:4])
            _api.Tensor.from_address(weight).buffer = self._empty_buffer(buffer_type)
            if use is Use.TABLE:
                rows = library.ggml_new_tensor_1d(context, Type.I32, _PROBE_ROWS)
                op = library.ggml_get_rows(context, weight, rows)
            else:
                x = library.ggml_new_tensor_2d(context, Type.F32, info.shape[0], _PROBE_ROWS)
                op = (
                    library.ggml_mul_mat(context, weight, x)
                    if use is Use.MATRIX
                    else library.ggml_add(context, x, weight)
                )
            return bool(library.ggml_backend_dev_supports_op(self._device, op))
        finally:
            library.ggml_free(context)

    def _empty_buffer(self, buffer_type: int) -> int:
        if buffer_type not in self._buffers:
            self._buffers[buffer_type] = self._library.ggml_backend_buft_alloc_buffer(buffer_type, 0)
        return self._buffers[buffer_type]
