"""One forward as a ggml graph under construction: its inputs and outputs, and what models are made of."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from types import MappingProxyType
from typing import NamedTuple

from lucebox.ggml import _api
from lucebox.ggml._api import GGML_ROPE_TYPE_NEOX, GGML_ROPE_TYPE_NORMAL, Prec, Type
from lucebox.ggml.library import Library
from lucebox.gguf.packing import PackedMatrix
from lucebox.models.attention import OwnAttention
from lucebox.models.hparams import Hparams, Rope

_F32_BYTES = 4
_ALL_THREADS = -1  # GGML_N_TASKS_MAX
_NO_ATTENTION: Mapping[int, OwnAttention] = MappingProxyType({})
_LEAST_TOTAL = 2.0**-14  # below what probabilities of chosen experts sum to: bounds without changing

Tensor = int  # address of a ggml_tensor


class RopeMode(IntEnum):
    """Which dimensions rotate together."""

    ADJACENT = GGML_ROPE_TYPE_NORMAL  # (0, 1), (2, 3), ...
    HALVES = GGML_ROPE_TYPE_NEOX  # (0, n/2), (1, n/2 + 1), ...


class Section(Enum):
    """A stretch of a network that one device computes."""

    INPUT = auto()  # token embeddings
    LAYER = auto()
    EXPERTS = auto()  # of a layer
    OUTPUT = auto()  # final norm and head


class Part(NamedTuple):
    """A section, of a certain layer where there are many."""

    section: Section
    layer: int = 0


class Shape(NamedTuple):
    """What distinguishes one graph of a model from another.

    `n_outputs` rows leave the last layer: those that the `outputs` input names when `gathers`, else all
    of them in order. With none, the graph ends at the last layer's keys and values.
    """

    n_rows: int
    n_kv: int
    n_outputs: int
    gathers: bool = False
    wants_hidden: bool = False
    wants_logits: bool = True


@dataclass(frozen=True, slots=True)
class KeyValues:
    """Per layer, keys and values as [head_dim, n_cells, n_heads_kv]: one head's cells lie together, so that
    attention reads them in one sweep."""

    keys: Sequence[Tensor]
    values: Sequence[Tensor]


@dataclass(slots=True)
class Inputs:
    """What is filled in before a graph is computed."""

    tokens: Tensor  # int32[n_rows]
    positions: Tensor  # int32[n_rows]
    cells: Tensor  # int64[n_rows]: where keys and values are written
    mask: Tensor | None  # float16[n_rows, n_kv]: 0 or -inf
    outputs: Tensor | None  # int32[n_outputs]


class Forward:
    """Builds the nodes of one forward. Shapes in comments have ne0 first, as ggml has them.

    `parts` says of each node which part of the network it belongs to. In layers among `exact_layers` a row's
    result depends on that row alone, not on how many there are, as our own kernels promise; in those that
    have an `attention`, that serves instead of ggml's.
    """

    def __init__(
        self,
        library: Library,
        context: int,
        graph: int,
        shape: Shape,
        weights: Mapping[str, Tensor],
        packed: Mapping[str, PackedMatrix],
        key_values: KeyValues,
        hparams: Hparams,
        exact_layers: Container[int] = (),
        attention: Mapping[int, OwnAttention] = _NO_ATTENTION,
    ) -> None:
        self._library = library
        self._context = context
        self._graph = graph
        self._weights = weights
        self._packed = packed
        self._quantised: dict[Tensor, Tensor] = {}
        self._key_values = key_values
        self._hparams = hparams
        self._exact_layers = exact_layers
        self._attention = attention
        self._part = Part(Section.INPUT)
        self.parts: dict[Tensor, Part] = {}
        self.shape = shape
        self.inputs = Inputs(
            tokens=self._input(Type.I32, shape.n_rows),
            positions=self._input(Type.I32, shape.n_rows),
            cells=self._input(Type.I64, shape.n_rows),
            mask=None,
            outputs=None,
        )
        self.logits: Tensor | None = None
        self.hidden: Tensor | None = None

    @property
    def n_outputs(self) -> int:
        return self.shape.n_outputs

    def begin(self, section: Section, layer: int = 0) -> None:
        """What is built from now on belongs to this part."""
        self._part = Part(section, layer)

    @contextmanager
    def experts(self) -> Iterator[None]:
        """What is built inside belongs to the experts of the layer at hand."""
        part, self._part = self._part, Part(Section.EXPERTS, self._part.layer)
        yield
        self._part = part

    # Operations, in the order a network uses them.

    def has(self, weight: str) -> bool:
        """Whether the model has this tensor, or this fusion of tensors."""
        return weight in self._weights or weight in self._packed

    def embed(self, table: str) -> Tensor:
        """Embeddings of the input tokens: [n_embd, n_rows]."""
        return self._op(self._library.ggml_get_rows, self._weights[table], self.inputs.tokens)

    def rms_norm(self, x: Tensor, weight: str, eps: float) -> Tensor:
        normed = self._op(self._library.ggml_rms_norm, x, eps)
        return self._op(self._library.ggml_mul, normed, self._weights[weight])

    def linear(self, x: Tensor, name: str) -> Tensor:
        """name.weight @ x, plus name.bias where the model has one: [n_out, n_rows]."""
        packed = self._packed.get(name + ".weight")
        if packed is None:
            y = self._op(self._library.ggml_mul_mat, self._weights[name + ".weight"], x)
        else:
            y = self._packed_product(x, packed)
        bias = self._weights.get(name + ".bias")
        return y if bias is None else self.add(y, bias)

    def _packed_product(self, x: Tensor, matrix: PackedMatrix) -> Tensor:
        """As ggml_mul_mat. Activations are quantised once for all matrices that take them."""
        n_rows = _api.Tensor.from_address(x).ne[1]
        if x not in self._quantised:
            self._quantised[x] = self._custom(
                Type.I8, matrix.row_bytes, n_rows, (x,), matrix.quantise_address, matrix.address
            )
        operands = (matrix.tensor, self._quantised[x])
        return self._custom(Type.F32, matrix.n_out, n_rows, operands, matrix.multiply_address, matrix.address)

    def _custom(
        self, kind: Type, ne0: int, ne1: int, operands: Sequence[Tensor], function: int, userdata: int
    ) -> Tensor:
        """An operation of our own, on as many threads as there are: [ne0, ne1]."""
        sources = (ctypes.c_void_p * len(operands))(*operands)
        return self._op(
            self._library.ggml_custom_4d,
            kind,
            *(ne0, ne1, 1, 1),
            sources,
            len(operands),
            function,
            _ALL_THREADS,
            userdata,
        )

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        return self._op(self._library.ggml_add, a, b)

    def heads(self, x: Tensor, head_dim: int, n_heads: int) -> Tensor:
        """[head_dim * n_heads, n_rows] as [head_dim, n_heads, n_rows]."""
        return self._op(self._library.ggml_reshape_3d, x, head_dim, n_heads, self.shape.n_rows)

    def heads_within(self, x: Tensor, width: int, first: int, head_dim: int, n_heads: int) -> Tensor:
        """[head_dim, n_heads, n_rows] of [width, n_rows]: its elements from `first` on, without a copy."""
        shape = (head_dim, n_heads, self.shape.n_rows)
        offsets = (_F32_BYTES * n for n in (head_dim, width, first))
        return self._op(self._library.ggml_view_3d, x, *shape, *offsets)

    def rope(self, x: Tensor, rope: Rope, mode: RopeMode) -> Tensor:
        """Rotates [head_dim, n_heads, n_rows] to the rows' positions."""
        return self._op(
            self._library.ggml_rope_ext,
            x,
            self.inputs.positions,
            self._weights.get("rope_freqs.weight"),
            rope.n_dims,
            mode,
            rope.n_ctx_orig,
            rope.freq_base,
            rope.freq_scale,
            rope.ext_factor,
            rope.attn_factor,
            rope.beta_fast,
            rope.beta_slow,
        )

    def store(self, layer: int, key: Tensor, value: Tensor) -> None:
        """Writes [head_dim, n_heads_kv, n_rows] of keys and values into the rows' cells."""
        caches = self._key_values.keys[layer], self._key_values.values[layer]
        for cache, new in zip(caches, (key, value), strict=True):
            by_head = self._op(self._library.ggml_permute, new, 0, 2, 1, 3)
            self.expand(self._op(self._library.ggml_set_rows, cache, by_head, self.inputs.cells))

    def attend(self, layer: int, query: Tensor, *, scale: float) -> Tensor:
        """softmax(query · keys * scale + mask) · values: [n_heads * head_dim_v, n_rows]."""
        library, h = self._library, self._hparams
        if self.inputs.mask is None:
            self.inputs.mask = self._input(Type.F16, self.shape.n_kv, self.shape.n_rows)
        key = self._visible(self._key_values.keys[layer], h.head_dim_k)
        value = self._visible(self._key_values.values[layer], h.head_dim_v)
        width, n_rows = h.n_heads * h.head_dim_v, self.shape.n_rows
        if (own := self._attention.get(layer)) is not None:
            operands = (query, key, value, self.inputs.mask)
            return self._custom(Type.F32, width, n_rows, operands, own.function, own.userdata(scale))
        by_head = self._op(library.ggml_permute, query, 0, 2, 1, 3)
        attended = self._op(
            library.ggml_flash_attn_ext, by_head, key, value, self.inputs.mask, scale, 0.0, 0.0
        )
        library.ggml_flash_attn_ext_set_prec(attended, Prec.F32)
        return self._op(library.ggml_reshape_2d, attended, width, n_rows)

    def swiglu(self, gate: Tensor, up: Tensor) -> Tensor:
        """silu(gate) * up."""
        return self._op(self._library.ggml_swiglu_split, gate, up)

    def swiglu_halves(self, x: Tensor) -> Tensor:
        """silu(first half) * second half of each row."""
        return self._op(self._library.ggml_swiglu, x)

    def route(self, x: Tensor, router: str, n_used: int, *, is_normalised: bool) -> tuple[Tensor, Tensor]:
        """The experts that each row of `x` picks, int32[n_used, n_rows], and the weights of their answers,
        [1, n_used, n_rows]: the largest of a softmax over all.

        The operations are those, in that order, which some devices compute as one.
        """
        library, op = self._library, self._op
        logits = self.product_by_row(x, router)
        n_experts, n_rows = _api.Tensor.from_address(logits).ne[:2]
        probabilities = op(library.ggml_soft_max, logits)
        column = op(library.ggml_reshape_3d, probabilities, 1, n_experts, n_rows)
        # Probabilities are all NaN or none is: sorting logits of which some are would leave the array.
        chosen = op(library.ggml_argsort_top_k, probabilities, n_used)
        weights = op(library.ggml_get_rows, column, chosen)
        if is_normalised:
            flat = op(library.ggml_reshape_2d, weights, n_used, n_rows)
            total = op(library.ggml_clamp, op(library.ggml_sum_rows, flat), _LEAST_TOTAL, math.inf)
            normalised = op(library.ggml_div, flat, total)
            weights = op(library.ggml_reshape_3d, normalised, 1, n_used, n_rows)
        self.expand(weights)
        return chosen, weights

    def product_by_row(self, x: Tensor, name: str) -> Tensor:
        """name.weight @ x: [n_out, n_rows]. In an exact layer each row is a product of its own: several at
        once are summed in another order."""
        weight = self._weights[name + ".weight"]
        if self._part.layer not in self._exact_layers:
            return self._op(self._library.ggml_mul_mat, weight, x)
        n_in, n_rows = _api.Tensor.from_address(x).ne[:2]
        rows = self._op(self._library.ggml_reshape_3d, x, n_in, 1, n_rows)
        y = self._op(self._library.ggml_mul_mat, weight, rows)
        return self._op(self._library.ggml_reshape_2d, y, _api.Tensor.from_address(y).ne[0], n_rows)

    def linear_experts(self, x: Tensor, name: str, chosen: Tensor) -> Tensor:
        """name.weight[expert] @ x for each chosen expert: [n_out, n_used, n_rows] of x [n_in, n_used or 1,
        n_rows]."""
        return self._op(self._library.ggml_mul_mat_id, self._weights[name + ".weight"], x, chosen)

    def weighted_sum(self, answers: Tensor, weights: Tensor) -> Tensor:
        """[n, n_rows] of answers [n, n_used, n_rows] and weights [1, n_used, n_rows]."""
        weighted = self.multiply(answers, weights)
        n, n_used, n_rows = _api.Tensor.from_address(weighted).ne[:3]
        _, answer_bytes, row_bytes = _api.Tensor.from_address(weighted).nb[:3]
        view = self._library.ggml_view_2d
        terms = (self._op(view, weighted, n, n_rows, row_bytes, i * answer_bytes) for i in range(n_used))
        return functools.reduce(self.add, terms)

    def rows_alone(self, x: Tensor) -> Tensor:
        """[n, n_rows] as [n, 1, n_rows]."""
        n, n_rows = _api.Tensor.from_address(x).ne[:2]
        return self._op(self._library.ggml_reshape_3d, x, n, 1, n_rows)

    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        """Element by element; `b` may repeat."""
        return self._op(self._library.ggml_mul, a, b)

    def sigmoid(self, x: Tensor) -> Tensor:
        return self._op(self._library.ggml_sigmoid, x)

    def select_outputs(self, x: Tensor) -> Tensor:
        """Only the rows that something is wanted of: [n, n_outputs]."""
        if not self.shape.gathers:
            return x
        if self.inputs.outputs is None:
            self.inputs.outputs = self._input(Type.I32, self.n_outputs)
        return self._op(self._library.ggml_get_rows, x, self.inputs.outputs)

    def finish(self, hidden: Tensor, head: str) -> None:
        """Ends the graph with `hidden` [n_embd, n_outputs], its logits [n_vocab, n_outputs], or both."""
        if self.shape.wants_hidden:
            self._library.ggml_set_output(hidden)
            self.hidden = hidden
        if not self.shape.wants_logits:
            self.expand(hidden)
            return
        self.logits = self.linear(hidden, head)
        self._library.ggml_set_output(self.logits)
        self.expand(self.logits)

    def expand(self, x: Tensor) -> None:
        """Makes `x` and what it needs part of the graph now, ahead of what is built later."""
        self._library.ggml_build_forward_expand(self._graph, x)

    def _op(self, function: Callable[..., int], *arguments: object) -> Tensor:
        tensor = int(function(self._context, *arguments))
        self.parts[tensor] = self._part
        return tensor

    def _input(self, kind: Type, *shape: int) -> Tensor:
        ne0, ne1 = shape if len(shape) == 2 else (shape[0], 1)
        tensor = self._op(self._library.ggml_new_tensor_2d, kind, ne0, ne1)
        self._library.ggml_set_input(tensor)
        return tensor

    def _visible(self, cache: Tensor, head_dim: int) -> Tensor:
        """The first n_kv cells of [head_dim, n_cells, n_heads_kv]."""
        _, row_bytes, head_bytes = _api.Tensor.from_address(cache).nb[:3]
        n_heads = self._hparams.n_heads_kv
        return self._op(
            self._library.ggml_view_3d, cache, head_dim, self.shape.n_kv, n_heads, row_bytes, head_bytes, 0
        )
