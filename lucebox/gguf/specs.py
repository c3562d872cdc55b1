"""What an architecture expects of a file's tensors, and the check of it before ggml sees any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from gguf import GGMLQuantizationType as Type

from lucebox.errors import ModelFileError, UnsupportedModelError
from lucebox.gguf.reader import GgufFile
from lucebox.gguf.tensors import TensorInfo

_REQUANTISE = "convert the model again to one of the usual types, such as Q4_K_M, Q8_0 or F16"
# Rotary tables that old converters stored and nobody reads.
_IGNORED_SUFFIXES = (".attn_rot_embd.weight", ".rotary_emb.inv_freq", ".rope_freqs.weight")
_NOT_MATRICES = frozenset({Type.I8, Type.I16, Type.I32, Type.I64, Type.F64, Type.Q8_1, Type.Q8_K})


class Use(Enum):
    """What the graph does with a tensor; decides its types and where it may lie."""

    MATRIX = "matrix"  # ggml_mul_mat's first operand
    ROUTER = "router"  # the same, but small and decisive: it keeps its type
    EXPERTS = "experts"  # matrices of which each row picks some (ggml_mul_mat_id): [n_in, n_out, n_experts]
    TABLE = "table"  # rows are looked up (ggml_get_rows)
    VECTOR = "vector"  # added, multiplied, or rope frequencies: float32


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor of an architecture: `shape` has ne0 first. An optional one may be absent; with `tied_to`, the
    tensor of that name then stands in for it."""

    name: str
    shape: tuple[int, ...]
    use: Use
    optional: bool = False
    tied_to: str | None = None


def match_specs(file: GgufFile, specs: Sequence[TensorSpec]) -> list[tuple[TensorSpec, TensorInfo]]:
    """Each spec with its tensor, absent optional ones left out.

    Raises ModelFileError for a missing tensor or a wrong shape, UnsupportedModelError for a type that
    cannot be computed with, or for a tensor that the architecture knows nothing of (its graph would be
    wrong).
    """
    found = []
    for spec in specs:
        source = spec.name
        if source not in file.tensors and spec.tied_to is not None:
            source = spec.tied_to
        elif source not in file.tensors and spec.optional:
            continue
        info = file.tensor(source, _stored_shape(file, source, spec))
        _check_type(file, spec, info)
        found.append((spec, info))
    known = {spec.name for spec in specs}
    for name in file.tensors:
        if name not in known and not name.endswith(_IGNORED_SUFFIXES):
            problem = f"is not part of the {file.architecture} architecture as Lucebox implements it"
            raise UnsupportedModelError(
                file.path, f"tensor {name}", problem, remedy="use another model, or a newer Lucebox"
            )
    return found


def _stored_shape(file: GgufFile, name: str, spec: TensorSpec) -> tuple[int, ...]:
    """The shape of `spec`; a router of one output may be stored as a matrix or as a vector."""
    as_matrix = (*spec.shape, 1)
    is_matrix = name in file.tensors and file.tensors[name].shape == as_matrix
    return as_matrix if spec.use is Use.ROUTER and is_matrix else spec.shape


def _check_type(file: GgufFile, spec: TensorSpec, info: TensorInfo) -> None:
    wrong = info.type != Type.F32 if spec.use is Use.VECTOR else info.type in _NOT_MATRICES
    if wrong:
        expected = "F32 is needed" if spec.use is Use.VECTOR else "it cannot be multiplied with"
        problem = f"has type {info.type.name}; {expected}"
        raise UnsupportedModelError(file.path, f"tensor {info.name}", problem, remedy=_REQUANTISE)


def check_bytes(file: GgufFile, info: TensorInfo, n_bytes: int) -> None:
    """Asserts in effect that ggml and the reader agree on a tensor's size."""
    if n_bytes != info.n_bytes:
        raise ModelFileError(
            file.path,
            f"tensor {info.name}",
            f"{info.type.name} of shape {info.shape} is {n_bytes:,} bytes to ggml, {info.n_bytes:,} here",
            remedy=_REQUANTISE,
        )
