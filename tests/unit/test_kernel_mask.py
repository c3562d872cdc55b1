"""The kernel that applies a grammar's bits, against its twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucebox.core import UInt32Array
from lucebox.sampling import reference
from lucebox.sampling.kernels import mask

NO_BIT, ALL_BITS = 0, 2**32 - 1
words = st.lists(st.one_of(st.sampled_from([NO_BIT, ALL_BITS]), st.integers(0, ALL_BITS)), max_size=6)


@given(words, st.integers(0, 200))
def test_as_the_twin(given_words: list[int], n_vocab: int) -> None:
    bits = np.array(given_words, np.uint32)
    logits = np.random.default_rng(n_vocab).normal(size=n_vocab).astype(np.float32)
    ids = reference.allowed(bits, n_vocab)
    assert mask.count(bits, n_vocab) == reference.count(bits, n_vocab) == len(ids)
    np.testing.assert_array_equal(mask.allowed(bits, n_vocab), ids)
    assert mask.allowed(bits, n_vocab).dtype == ids.dtype == np.int32
    row = mask.masked(logits, bits)
    np.testing.assert_array_equal(row, reference.masked(logits, bits))
    assert row.dtype == reference.masked(logits, bits).dtype == np.float32


@pytest.mark.parametrize("module", [mask, reference])
def test_bits_are_counted_from_the_lowest(module: type[reference]) -> None:
    bits = np.array([0b1001, 1 << 31], np.uint32)
    assert module.allowed(bits, 64).tolist() == [0, 3, 63]
    assert module.allowed(bits, 63).tolist() == [0, 3]
    assert module.count(bits, 63) == 2
    logits = np.arange(70, dtype=np.float32)
    row = module.masked(logits, bits)
    assert np.flatnonzero(np.isfinite(row)).tolist() == [0, 3, 63]
    assert row[63] == 63.0
    assert logits[1] == 1.0


def test_masks_that_are_read_only_are_taken() -> None:
    """As llguidance's are, which come as bytes."""
    bits: UInt32Array = np.frombuffer(b"\x05\0\0\0", np.uint32)
    assert mask.allowed(bits, 32).tolist() == [0, 2]
