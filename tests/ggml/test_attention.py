"""Our own attention: it is attention, and a row gets the same bits whatever else is computed with it."""

from __future__ import annotations

import ctypes
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lucebox.ggml._api import Type
from lucebox.models import attention
from lucebox.models.attention import OwnAttention
from lucebox.models.hparams import Hparams
from lucebox.runtime.rows import Rows, Want
from lucebox.runtime.runtime import Runtime
from tests.support.fake_tensors import fake_tensor
from tests.support.tiny_models import write_tiny

pytestmark = pytest.mark.skipif(not attention.is_available(), reason="this processor lacks AVX-512")

FunctionType = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
Array = NDArray[Any]
DTYPES = {Type.F16: np.float16, Type.F32: np.float32}


def hparams(n_heads: int, n_heads_kv: int, dk: int, dv: int) -> Hparams:
    fields: dict[str, Any] = dict.fromkeys(Hparams.__dataclass_fields__, 0)
    return Hparams(
        **(fields | {"n_heads": n_heads, "n_heads_kv": n_heads_kv, "head_dim_k": dk, "head_dim_v": dv})
    )


class Case:
    """Queries [rows, heads, dk], keys [kv heads, cells, dk], values [kv heads, cells, dv], and who sees what
    [rows, cells]."""

    def __init__(
        self,
        heads: tuple[int, int],
        dims: tuple[int, int],
        n_rows: int,
        n_cells: int,
        element: Type = Type.F16,
        seed: int = 0,
        share: float = 0.7,
    ) -> None:
        rng = np.random.default_rng(seed)
        (n_heads, n_heads_kv), (dk, dv), dtype = heads, dims, DTYPES[element]
        self.query = rng.normal(size=(n_rows, n_heads, dk)).astype(np.float32)
        self.keys = rng.normal(size=(n_heads_kv, n_cells, dk)).astype(dtype)
        self.values = rng.normal(size=(n_heads_kv, n_cells, dv)).astype(dtype)
        self.seen = rng.random((n_rows, n_cells)) < share
        self.scale = 1 / np.sqrt(dk)
        own = OwnAttention.for_model(hparams(*heads, *dims), element)
        assert own is not None
        self._own = own

    def run(self, n_threads: int = 1) -> Array:
        """float32[rows, heads, dv]."""
        n_rows, n_heads, _ = self.query.shape
        out = np.full((n_rows, n_heads * self.values.shape[-1]), 7.0, np.float32)
        mask = np.where(self.seen, np.float16(0), np.float16(-np.inf))
        sources = [fake_tensor(x) for x in (self.query, self.keys, self.values, mask)]
        target = fake_tensor(out, *sources)
        attend = FunctionType(self._own.function)
        for i in range(n_threads):
            attend(ctypes.addressof(target), i, n_threads, self._own.userdata(float(self.scale)))
        return out.reshape(n_rows, n_heads, -1)

    def expected(self) -> Array:
        n_group = self.query.shape[1] // len(self.keys)
        keys, values = (np.repeat(x.astype(np.float64), n_group, 0) for x in (self.keys, self.values))
        scores = np.einsum("rhd,hcd->rhc", self.query.astype(np.float64), keys) * self.scale
        scores = np.where(self.seen[:, None], scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        found: Array = np.einsum("rhc,hcd->rhd", weights / weights.sum(-1, keepdims=True), values)
        return found


@settings(deadline=None, max_examples=60)
@given(
    n_group=st.sampled_from([1, 2, 3, 7, 12]),
    n_heads_kv=st.integers(1, 3),
    dims=st.tuples(*[st.sampled_from([16, 32, 48, 64, 80, 128, 192, 256])] * 2),
    n_rows=st.integers(1, 40),
    n_cells=st.integers(1, 150),
    element=st.sampled_from(list(DTYPES)),
    n_threads=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_it_is_attention(
    n_group: int,
    n_heads_kv: int,
    dims: tuple[int, int],
    n_rows: int,
    n_cells: int,
    element: Type,
    n_threads: int,
    seed: int,
) -> None:
    case = Case((n_group * n_heads_kv, n_heads_kv), dims, n_rows, n_cells, element, seed)
    case.seen[:, seed % n_cells] = True
    np.testing.assert_allclose(case.run(n_threads), case.expected(), rtol=2e-5, atol=2e-6)


def test_many_cells_for_few_queries_at_a_time() -> None:
    case = Case((6, 2), (64, 64), 3, 40_000, share=0.9)
    np.testing.assert_allclose(case.run(2), case.expected(), rtol=1e-4, atol=2e-6)


@settings(deadline=None, max_examples=40)
@given(n_rows=st.integers(1, 70), n_threads=st.integers(1, 16), seed=st.integers(0, 99), data=st.data())
def test_a_row_gets_the_same_bits_whatever_is_computed_with_it(
    n_rows: int, n_threads: int, seed: int, data: st.DataObject
) -> None:
    case = Case((6, 2), (64, 80), n_rows, 300, seed=seed)
    whole = case.run(n_threads)
    row = data.draw(st.integers(0, n_rows - 1))
    alone = Case((6, 2), (64, 80), 1, 300)
    alone.query, alone.seen = case.query[row : row + 1].copy(), case.seen[row : row + 1].copy()
    # Its cells lie elsewhere, in the same order, among cells that hold anything.
    own = np.flatnonzero(case.seen[row])
    places = np.sort(np.random.default_rng(seed).choice(500, len(own), replace=False))
    for name in ("keys", "values"):
        moved = np.full((2, 500, getattr(case, name).shape[-1]), np.nan, np.float16)
        moved[:, places] = getattr(case, name)[:, own]
        setattr(alone, name, moved)
    alone.seen = np.zeros((1, 500), bool)
    alone.seen[0, places] = True
    assert np.array_equal(alone.run(), whole[row : row + 1]), "to the last bit"


def test_who_sees_nothing_gets_zeros_and_large_scores_do_not_overflow() -> None:
    case = Case((2, 1), (16, 16), 3, 20, Type.F32)
    case.seen[1] = False
    case.query *= 1e4
    found = case.run()
    assert not found[1].any()
    case.seen[1] = True  # for the sake of the reference
    np.testing.assert_allclose(found[::2], case.expected()[::2], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_one_row_sees_is_nothing_to_another(value: float) -> None:
    case = Case((4, 2), (32, 48), 9, 40)
    case.seen[:, :8] = False
    case.seen[:, 8] = True
    expected = case.run()
    case.seen[5, 3] = True
    case.keys[:, 3] = case.values[:, 3] = value
    found = case.run()
    others = np.arange(9) != 5
    assert np.array_equal(found[others], expected[others])
    assert np.isnan(found[5]).all()


def test_scores_as_far_apart_as_floats_allow() -> None:
    case = Case((2, 1), (16, 16), 1, 20, Type.F32)
    case.seen[:] = True
    case.query[:], case.keys[:] = 1e7, 0.0
    case.keys[0, 3] = -1e7
    np.testing.assert_allclose(case.run(), case.expected(), rtol=1e-5, atol=1e-6)


def test_not_a_number_is_not_hidden() -> None:
    case = Case((2, 1), (16, 16), 1, 20, Type.F32)
    case.seen[:] = True
    case.keys[0, 3, 0] = np.nan
    assert np.isnan(case.run()).all()


@pytest.mark.parametrize(
    ("dims", "element"), [((40, 64), Type.F16), ((64, 272), Type.F16), ((64, 64), Type.Q8_0)]
)
def test_what_it_does_not_know_is_left_to_ggml(dims: tuple[int, int], element: Type) -> None:
    assert OwnAttention.for_model(hparams(4, 2, *dims), element) is None


@pytest.mark.parametrize("kv_type", ["f16", "f32"])
def test_a_prompt_has_the_same_logits_in_pieces_of_any_size(tmp_path: Path, kv_type: str) -> None:
    """On a quantised model: ggml's products of floats depend on the number of rows."""
    path = write_tiny(tmp_path / "tiny.gguf", "qwen2", n_embd=256, n_ff=256, dtype="q4_0")
    ids = random.Random(1).choices(range(5, 60), k=150)
    found = []
    for sizes in ((150,), (1,) * 150, (64, 70, 16), (3, 100, 47)):
        with Runtime.load(path, device="CPU", n_threads=2, n_ctx=256, kv_type=kv_type) as runtime:
            got, start = [], 0
            for n in sizes:
                rows = Rows.chain(0, ids[start : start + n], start, want_all=Want.LOGITS)
                got.append(runtime.forward(rows).logits.copy())
                runtime.cache.commit(0, range(n))
                start += n
            found.append(np.concatenate(got))
    for other in found[1:]:
        assert np.array_equal(found[0], other), "to the last bit"
