"""The drafters of an engine: made on demand, shared by combinations, and not without end."""

from __future__ import annotations

import pytest

from lucebox.drafters.combination import Combination
from lucebox.drafters.ngram import NgramDrafter
from lucebox.drafters.suffix import SuffixDrafter
from lucebox.engine.pool import MAX_COMBINATIONS, MAX_WITH_OPTIONS, DrafterPool
from lucebox.errors import ConfigError
from tests.support.drafting import drafter_context
from tests.support.fake_runtime import FakeRuntime, random_model

N_VOCAB = 16


def test_drafters_are_made_once_and_on_demand() -> None:
    pool = DrafterPool(drafter_context(N_VOCAB), ["suffix"])
    assert [type(drafter) for drafter in pool.singles()] == [SuffixDrafter]
    assert pool.get("suffix") is pool.get("suffix")
    assert isinstance(pool.get("ngram"), NgramDrafter)
    assert pool.get("ngram:n=3") is not pool.get("ngram")
    assert len(pool.singles()) == 3
    assert pool.defaults == ("suffix",)


def test_combinations_share_their_parts_and_are_no_singles() -> None:
    pool = DrafterPool(drafter_context(N_VOCAB), ["ngram", "suffix,ngram"])
    combination = pool.get("suffix,ngram")
    assert isinstance(combination, Combination)
    assert pool.get("suffix,ngram") is combination
    assert combination.parts == (pool.get("suffix"), pool.get("ngram"))
    assert len(pool.singles()) == 2


def test_a_draft_model_is_needed_where_one_is_named() -> None:
    pool = DrafterPool(drafter_context(N_VOCAB), [])
    for spec in ("model", "suffix,model"):
        with pytest.raises(ConfigError, match="needs a draft model"):
            pool.get(spec)
    runtime = FakeRuntime(N_VOCAB, random_model(N_VOCAB, 1))
    pool = DrafterPool(drafter_context(N_VOCAB, runtime), ["model", "suffix,model"])
    assert len(pool.singles()) == 2
    pool.close()
    assert runtime.is_closed


def test_requests_cannot_fill_the_memory_with_options() -> None:
    pool = DrafterPool(drafter_context(N_VOCAB), [])
    for n in range(MAX_WITH_OPTIONS):
        pool.get(f"suffix:n_min={n + 2}")
    message = r"makes no further one for 'suffix:n_min=99' \(use one of suffix:n_min=2; "
    with pytest.raises(ConfigError, match=message):
        pool.get("suffix:n_min=99")
    assert pool.get("suffix:n_min=2")
    assert pool.get("prediction")  # what has no options is always to be had
    for n in range(MAX_COMBINATIONS + 2):
        order = ("ngram", "suffix") if n % 2 else ("suffix", "ngram")
        pool.get(f"{order[0]}{' ' * n},{order[1]}")
    assert len(pool._combinations) <= MAX_COMBINATIONS


def test_everybody_remembers() -> None:
    pool = DrafterPool(drafter_context(N_VOCAB), ["suffix,ngram"])
    suffix = pool.get("suffix")
    assert isinstance(suffix, SuffixDrafter)
    pool.remember([1, 2, 3], 1)
    assert suffix.memory.n_tokens == 4
