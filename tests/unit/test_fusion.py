"""Fusing matrices that lie side by side in a file."""

from __future__ import annotations

import pytest
from gguf import GGMLQuantizationType as Type

from lucebox.gguf.fusion import Fusion, fuse_adjacent
from lucebox.gguf.specs import TensorSpec, Use
from lucebox.gguf.tensors import TensorInfo

FUSION = Fusion("gate_up.weight", ("gate.weight", "up.weight"))


def matrix(name: str, offset: int, *, n_in: int = 32, kind: Type = Type.F32, part: int = 0):
    info = TensorInfo(name, (n_in, 4), kind, n_in * 4 * 4, offset, part)
    return TensorSpec(name, info.shape, Use.MATRIX), info


def test_neighbours_become_one_matrix_of_the_same_bytes() -> None:
    other = matrix("down.weight", 0)
    fused = fuse_adjacent([other, matrix("gate.weight", 512), matrix("up.weight", 1024)], [FUSION])
    assert [spec.name for spec, _ in fused] == ["down.weight", "gate_up.weight"]
    spec, info = fused[1]
    assert spec == TensorSpec("gate_up.weight", (32, 8), Use.MATRIX)
    assert info == TensorInfo("gate_up.weight", (32, 8), Type.F32, 1024, 512, 0)


@pytest.mark.parametrize(
    "up",
    [
        matrix("up.weight", 0),
        matrix("up.weight", 1056),
        matrix("up.weight", 1024, n_in=64),
        matrix("up.weight", 1024, kind=Type.I32),
        matrix("up.weight", 1024, part=1),
        matrix("another.weight", 1024),
    ],
    ids=["other order", "gap", "other input", "other type", "other part of the file", "absent"],
)
def test_all_else_stays(up) -> None:
    matched = [matrix("gate.weight", 512), up]
    assert fuse_adjacent(matched, [FUSION]) == matched


def test_a_bias_keeps_matrices_apart() -> None:
    matched = [matrix("gate.weight", 512), matrix("up.weight", 1024), matrix("up.bias", 4096)]
    assert fuse_adjacent(matched, [FUSION]) == matched
