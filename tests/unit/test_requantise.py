"""Which matrices change their type, and where heads are cut."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as Type

from lucebox.errors import ConfigError
from lucebox.gguf.head import HEAD, check_head_rows, cut_head, usual_head_rows
from lucebox.gguf.reader import read
from lucebox.gguf.requantise import TYPES, Requantise, parse_requantise, parse_type
from lucebox.gguf.specs import TensorSpec, Use
from lucebox.gguf.tensors import TensorInfo
from tests.support import gguf_bytes


def tensor(kind: Type, n_in: int = 256, n_out: int = 10, name: str = "m.weight") -> TensorInfo:
    block, n_bytes = GGML_QUANT_SIZES[kind]
    return TensorInfo(name, (n_in, n_out), kind, n_in * n_out // block * n_bytes, 4096, 1)


def spec(info: TensorInfo, use: Use = Use.MATRIX) -> TensorSpec:
    return TensorSpec(info.name, info.shape, use)


def test_names_of_types() -> None:
    assert parse_type("Q4_0") == Type.Q4_0
    assert {parse_type(kind.name.lower()) for kind in TYPES} == set(TYPES)
    assert parse_requantise("keep") is None
    assert parse_requantise("q8_0") == Requantise(Type.Q8_0)
    assert parse_requantise("auto") == Requantise(Type.Q4_0, only_if_faster=True)


@pytest.mark.parametrize("name", ["", "q4", "f64", "i8", "q8_k", "self", "tq1_0"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is no type that weights can be re-quantised to"):
        parse_requantise(name)


@pytest.mark.parametrize("name", ["iq1_s", "IQ2_XXS", "iq3_s"])
def test_types_that_need_an_importance_matrix_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="importance matrix"):
        parse_type(name)


def test_only_matrices_of_whole_blocks_change() -> None:
    wanted = Requantise(Type.Q4_0)
    info = tensor(Type.F16)
    assert wanted.converted(spec(info), info) == TensorInfo(
        "m.weight", (256, 10), Type.Q4_0, 8 * 10 * 18, 4096, 1
    )
    assert wanted.converted(spec(info, Use.TABLE), info) is None
    assert wanted.converted(spec(info, Use.VECTOR), info) is None
    same, odd = tensor(Type.Q4_0), tensor(Type.F16, n_in=33)
    assert wanted.converted(spec(same), same) is None
    assert wanted.converted(spec(odd), odd) is None
    narrow = tensor(Type.F16, n_in=896)
    assert Requantise(Type.Q4_K).converted(spec(narrow), narrow) is None


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (Type.F16, True),
        (Type.Q6_K, True),
        (Type.Q5_0, True),
        (Type.Q4_1, True),
        (Type.Q4_K, False),
        (Type.IQ4_NL, False),
        (Type.Q2_K, False),
    ],
)
def test_auto_changes_what_gets_smaller(kind: Type, changes: bool) -> None:
    info = tensor(kind)
    assert (Requantise(Type.Q4_0, only_if_faster=True).converted(spec(info), info) is not None) == changes


def test_a_type_that_fits_no_matrix_is_refused() -> None:
    matched = [(spec(info), info) for info in (tensor(Type.F16, n_in=896), tensor(Type.F16, n_in=160))]
    with pytest.raises(ConfigError, match="whole blocks of 256") as caught:
        Requantise(Type.Q4_K).check("a.gguf", matched)
    assert "q4_0" in caught.value.remedy
    Requantise(Type.Q8_0).check("a.gguf", matched)
    Requantise(Type.Q4_0, only_if_faster=True).check("a.gguf", [])


def test_the_first_rows_are_the_first_bytes() -> None:
    info = tensor(Type.Q4_0, n_in=64, n_out=7)
    assert info.first_rows(3) == TensorInfo("m.weight", (64, 3), Type.Q4_0, 3 * 36, 4096, 1)
    assert info.first_rows(7) == info


def test_only_the_head_is_cut() -> None:
    table, head = tensor(Type.F16, name="token_embd.weight"), tensor(Type.F16, name=HEAD)
    cut = cut_head([(spec(table, Use.TABLE), table), (spec(head), head)], 4)
    assert [info.shape for _, info in cut] == [(256, 10), (256, 4)]


def model(path: Path, n_vocab: int, *, n_ff: int, tied: bool) -> Path:
    """A file of a header and a hole: the tensors of a model of width 64, as float16."""
    shapes = {"token_embd.weight": (64, n_vocab), "blk.0.ffn_up.weight": (64, n_ff), "norm.weight": (64,)}
    if not tied:
        shapes[HEAD] = (64, n_vocab)
    tensors, offset = [], 0
    for name, shape in shapes.items():
        tensors.append(gguf_bytes.tensor(name, shape, int(Type.F16), offset))
        offset += 2 * math.prod(shape)
    header = gguf_bytes.gguf(tensors=tensors)
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + offset)
    return path


@pytest.mark.parametrize(
    ("n_vocab", "n_ff", "tied", "rows"),
    [
        (262_144, 150_000, True, 32_768),  # Gemma 3 270M: more than half is spared
        (262_144, 150_000, False, 32_768),
        (151_936, 400_000, True, None),  # Qwen2.5 0.5B: a fifth
        (32_768, 1_000, True, None),
        (32_000, 10, True, None),
    ],
)
def test_heads_are_cut_where_that_spares_a_third(
    tmp_path: Path, n_vocab: int, n_ff: int, tied: bool, rows: int | None
) -> None:
    with read(model(tmp_path / "model.gguf", n_vocab, n_ff=n_ff, tied=tied)) as file:
        assert usual_head_rows(file) == rows
        check_head_rows(file, n_vocab)
        with pytest.raises(ConfigError, match=f"more than the {n_vocab} tokens"):
            check_head_rows(file, n_vocab + 1)
