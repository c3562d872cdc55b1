"""A ggml operation described for another process: types, shapes and strides, never data or addresses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec

from lucebox.ggml._api import GGML_MAX_OP_PARAMS, GGML_MAX_SRC, Op, Tensor, Type

_MAX_ELEMENTS = 1 << 42
_MAX_STRIDE_BYTES = 1 << 46
_TYPES = frozenset(int(type_) for type_ in Type if type_ is not Type.COUNT)
_MAX_TENSORS = 1 + 2 * (1 + GGML_MAX_SRC)  # the result, its sources, and what all these are views of

# How many first sources an operation must have: backends read them unchecked. Those that no language model
# needs are left out, and nobody is asked for them.
_REQUIRED_SOURCES = {
    **dict.fromkeys((Op.RESHAPE, Op.VIEW, Op.PERMUTE, Op.TRANSPOSE, Op.DUP, Op.CONT, Op.REPEAT), 1),
    **dict.fromkeys((Op.SQR, Op.SQRT, Op.LOG, Op.SIN, Op.COS, Op.SUM, Op.SUM_ROWS, Op.CUMSUM, Op.MEAN), 1),
    **dict.fromkeys((Op.NORM, Op.RMS_NORM, Op.L2_NORM, Op.GROUP_NORM), 1),
    **dict.fromkeys((Op.SCALE, Op.CLAMP, Op.UNARY, Op.GLU, Op.SOFT_MAX, Op.LEAKY_RELU), 1),
    **dict.fromkeys((Op.ARGMAX, Op.ARGSORT, Op.TOP_K, Op.DIAG_MASK_INF, Op.PAD), 1),
    **dict.fromkeys((Op.ADD, Op.ADD1, Op.SUB, Op.MUL, Op.DIV, Op.CPY, Op.CONCAT, Op.MUL_MAT), 2),
    **dict.fromkeys((Op.GET_ROWS, Op.ROPE, Op.SSM_CONV), 2),
    **dict.fromkeys((Op.ADD_ID, Op.MUL_MAT_ID, Op.SET_ROWS, Op.FLASH_ATTN_EXT), 3),
}


class Shape(msgspec.Struct, frozen=True, array_like=True):
    """A tensor without its data: numbers of elements and strides as ggml's `ne` and `nb`. `view_of` is the
    index of the tensor in whose memory it lies, if in another's."""

    type: int
    ne: tuple[int, int, int, int]
    nb: tuple[int, int, int, int]
    view_of: int | None
    view_offset_bytes: int


class Operation(msgspec.Struct, frozen=True, array_like=True):
    """An operation whose result is `tensors[0]`; `sources` are indices, None for an optional one left out."""

    op: int
    params: Annotated[bytes, msgspec.Meta(min_length=GGML_MAX_OP_PARAMS, max_length=GGML_MAX_OP_PARAMS)]
    tensors: Annotated[tuple[Shape, ...], msgspec.Meta(min_length=1, max_length=_MAX_TENSORS)]
    sources: Annotated[tuple[int | None, ...], msgspec.Meta(max_length=GGML_MAX_SRC)]


def describe(pointer: int) -> Operation | None:
    """The description of a ggml_tensor that is the result of an operation; None for one that no language
    model needs."""
    result = Tensor.from_address(pointer)
    if result.op not in _REQUIRED_SOURCES:
        return None
    tensors = [result]
    index_of = {pointer: 0}

    def index(address: int | None) -> int | None:
        if address is None:
            return None
        if address not in index_of:
            index_of[address] = len(tensors)
            tensors.append(Tensor.from_address(address))
        return index_of[address]

    sources = [index(address) for address in result.src]
    while sources and sources[-1] is None:
        sources.pop()
    views = [index(tensor.view_src) for tensor in tensors.copy()]
    views += [None] * (len(tensors) - len(views))  # what others are views of is itself none
    shapes = [
        Shape(tensor.type, tuple(tensor.ne), tuple(tensor.nb), view, tensor.view_offs)
        for tensor, view in zip(tensors, views, strict=True)
    ]
    return Operation(result.op, bytes(result.op_params), tuple(shapes), tuple(sources))


@contextmanager
def rebuild(library: Any, operation: Operation) -> Iterator[int]:
    """The operation's ggml_tensor, without memory, for as long as the context lasts.

    Raises ValueError for a description that ggml itself would not have made, on which backends might abort.
    """
    check(library, operation)
    context = library.new_context(len(operation.tensors))
    try:
        pointers = [library.ggml_new_tensor_4d(context, s.type, *s.ne) for s in operation.tensors]
        for pointer, shape in zip(pointers, operation.tensors, strict=True):
            tensor = Tensor.from_address(pointer)
            tensor.nb[:] = shape.nb
            if shape.view_of is not None:
                tensor.view_src = pointers[shape.view_of]
                tensor.view_offs = shape.view_offset_bytes
        result = Tensor.from_address(pointers[0])
        result.op = operation.op
        result.op_params[:] = memoryview(operation.params).cast("i").tolist()
        for i, source in enumerate(operation.sources):
            result.src[i] = None if source is None else pointers[source]
        yield pointers[0]
    finally:
        library.ggml_free(context)


def check(library: Any, operation: Operation) -> None:
    """Raises ValueError for a description that ggml itself would not have made."""
    if operation.op not in _REQUIRED_SOURCES:
        raise ValueError(f"operation {operation.op} is none of a language model")
    for shape in operation.tensors:
        _check_shape(library, shape, len(operation.tensors))
    n_tensors, sources = len(operation.tensors), operation.sources
    if any(source is not None and not 1 <= source < n_tensors for source in sources):
        raise ValueError("a source is none of the tensors")
    n_required = _REQUIRED_SOURCES[Op(operation.op)]
    if None in sources[:n_required] or len(sources) < n_required:
        raise ValueError(f"{Op(operation.op).name} has {len(sources)} sources, not {n_required}")
    _check_agreement(
        Op(operation.op), operation.tensors[0], [operation.tensors[s] for s in sources[:3] if s is not None]
    )


def _check_shape(library: Any, shape: Shape, n_tensors: int) -> None:
    if shape.type not in _TYPES:
        raise ValueError(f"type {shape.type} is none of ggml's")
    block_size = library.ggml_blck_size(shape.type)
    if min(shape.ne) < 1 or math.prod(shape.ne) > _MAX_ELEMENTS or shape.ne[0] % block_size:
        raise ValueError(f"no tensor has {shape.ne} elements")
    if min(shape.nb) < 0 or max(shape.nb) > _MAX_STRIDE_BYTES:
        raise ValueError(f"no tensor has strides of {shape.nb} bytes")
    if shape.view_of is not None and not 0 <= shape.view_of < n_tensors:
        raise ValueError("a tensor is a view of none of the tensors")
    if not 0 <= shape.view_offset_bytes <= _MAX_STRIDE_BYTES:
        raise ValueError(f"no view begins at {shape.view_offset_bytes} bytes")


def _check_agreement(op: Op, result: Shape, sources: Sequence[Shape]) -> None:
    """What ggml's constructors assert of shapes, where backends divide by it or assert it again."""
    if op in (Op.ADD, Op.SUB, Op.MUL, Op.DIV):
        agree = _repeats(sources[1], sources[0])
    elif op is Op.MUL_MAT:
        agree = sources[0].ne[0] == sources[1].ne[0] and _repeats_outside(sources[0], sources[1])
    elif op is Op.MUL_MAT_ID:
        agree = sources[0].ne[0] == sources[1].ne[0] and sources[2].type == Type.I32
    elif op is Op.FLASH_ATTN_EXT:
        q, k, v = sources
        agree = q.ne[0] == k.ne[0] and k.ne[1:] == v.ne[1:] and _repeats_outside(k, q)
    elif op in (Op.RESHAPE, Op.CPY, Op.CONT, Op.DUP):
        agree = math.prod(result.ne) == math.prod(sources[0].ne)
    else:
        agree = True
    if not agree:
        raise ValueError(f"the shapes of {op.name} do not fit together")


def _repeats(small: Shape, large: Shape) -> bool:
    return all(n % m == 0 for n, m in zip(large.ne, small.ne, strict=True))


def _repeats_outside(small: Shape, large: Shape) -> bool:
    return all(n % m == 0 for n, m in zip(large.ne[2:], small.ne[2:], strict=True))
