"""Matrices that a file stores side by side, used as one: fewer products, so fewer waits between threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from lucebox.gguf.specs import TensorSpec, Use
from lucebox.gguf.tensors import TensorInfo

Matched = tuple[TensorSpec, TensorInfo]


@dataclass(frozen=True, slots=True)
class Fusion:
    """`parts`, names of matrices with the same input, may become `name`, their outputs one after another."""

    name: str
    parts: tuple[str, ...]


def fuse_adjacent(matched: Sequence[Matched], fusions: Sequence[Fusion]) -> list[Matched]:
    """`matched` with every fusion made whose parts lie in order, without a gap, in one part of the file.

    Nothing is copied: the fused matrix is the same bytes. Parts of different types, or with a bias, stay.
    """
    by_name = {spec.name: (spec, info) for spec, info in matched}
    for fusion in fusions:
        parts = [by_name[name] for name in fusion.parts if name in by_name]
        biases = [name.removesuffix("weight") + "bias" for name in fusion.parts]
        if len(parts) < len(fusion.parts) or any(bias in by_name for bias in biases):
            continue
        infos = [info for _, info in parts]
        if all(_follows(a, b) for a, b in pairwise(infos)):
            for name in fusion.parts:
                del by_name[name]
            by_name[fusion.name] = _fused(fusion.name, infos)
    return list(by_name.values())


def _follows(a: TensorInfo, b: TensorInfo) -> bool:
    same = (a.part, a.type, a.shape[0], len(a.shape)) == (b.part, b.type, b.shape[0], len(b.shape))
    return same and a.offset + a.n_bytes == b.offset


def _fused(name: str, infos: Sequence[TensorInfo]) -> Matched:
    first = infos[0]
    shape = (first.shape[0], sum(info.shape[1] for info in infos))
    n_bytes = sum(info.n_bytes for info in infos)
    info = TensorInfo(name, shape, first.type, n_bytes, first.offset, first.part)
    return TensorSpec(name, shape, Use.MATRIX), info
