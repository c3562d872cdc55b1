"""The target's laws as acceptance strategies get them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from lucebox.acceptance.base import is_collapsed, uncollapsed
from lucebox.core import Draft, Float32Array
from lucebox.engine.round import LawRows
from lucebox.engine.sequence import EngineSequence
from lucebox.sampling.params import SamplingParams
from lucebox.sampling.sampler import Sampler
from tests.support.enumerate import distribution
from tests.support.toy import P3

N_VOCAB = 12


def rows(params: SamplingParams, draft: Draft) -> LawRows:
    sequence = SimpleNamespace(sampler=Sampler(params, N_VOCAB, [1, 2]))
    return LawRows(cast(EngineSequence, sequence), draft, [logits(row) for row in range(len(draft) + 1)])


def logits(row: int) -> Float32Array:
    return np.random.default_rng(row).normal(size=N_VOCAB).astype(np.float32)


def test_rows_know_their_limit_and_the_law_behind_it() -> None:
    """Behind temperature 0 lies temperature 1, with all filters, and penalties of tokens drafted before."""
    draft = Draft.chain([3, 4, 3], [None] * 3)
    options = {"frequency_penalty": 1.5, "top_k": 4}
    cold = rows(SamplingParams(temperature=0.0, **options), draft)  # type: ignore[arg-type]
    warm = rows(SamplingParams(temperature=1.0, **options), draft)  # type: ignore[arg-type]
    assert is_collapsed(cold)
    assert not is_collapsed(warm)
    for row in range(4):
        assert cold[row].probs.tolist() == [1.0]
        assert cold[row].argmax() == warm[row].argmax()
        behind = uncollapsed(cold, row)
        assert np.array_equal(behind.dense(), warm[row].dense())
        assert len(behind.probs) == 4
        assert uncollapsed(warm, row) is warm[row]


def test_rows_are_computed_once() -> None:
    laws = rows(SamplingParams(temperature=0.7), Draft.chain([3], [None]))
    assert laws[1] is laws[1]
    assert list(laws) == laws[0:2]
    with pytest.raises(IndexError):
        laws[2]


def test_plain_lists_hold_what_they_hold() -> None:
    laws = [distribution(P3)]
    assert not is_collapsed(laws)
    assert uncollapsed(laws, 0) is laws[0]
