"""The kernel `suffix` against its twin, and both against looking through the text."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucebox._kernels import suffix
from lucebox.core import Int32Array
from lucebox.drafters import kernels, reference

BOTH = pytest.mark.parametrize("implementation", [suffix, reference], ids=["kernel", "twin"])
PRIOR = 1.5


def int32(tokens: Sequence[int]) -> Int32Array:
    return np.array(tokens, np.int32)


@st.composite
def texts(draw: st.DrawFn) -> list[list[int]]:
    """Pieces of a text over a few tokens and breaks."""
    n_vocab = draw(st.sampled_from([1, 2, 3, 40]))
    pieces = st.lists(st.integers(-1, n_vocab - 1), max_size=30)
    return draw(st.lists(pieces, max_size=6))


def longest_repeated_end(text: Sequence[int]) -> int:
    """Tokens of the longest end of `text` that occurs earlier in it."""
    for n in range(len(text) - 1, 0, -1):
        end = list(text[len(text) - n :])
        if any(list(text[i : i + n]) == end for i in range(len(text) - n)):
            return n
    return 0


def longest_end_within(text: Sequence[int], other: Sequence[int]) -> int:
    """Tokens of the longest end of `other` that occurs in `text`."""
    for n in range(len(other), 0, -1):
        end = list(other[len(other) - n :])
        if any(list(text[i : i + n]) == end for i in range(len(text) - n + 1)):
            return n
    return 0


@settings(max_examples=150, deadline=None)
@given(texts(), st.lists(st.integers(0, 3), max_size=12), st.integers(0, 9), st.floats(0, 1))
def test_kernel_is_its_twin(pieces: list[list[int]], query: list[int], n_max: int, p_min: float) -> None:
    ours, theirs = suffix.Automaton(), reference.Automaton()
    match = 0, 0
    for piece in pieces:
        for automaton in (ours, theirs):
            automaton.extend(int32(piece))
        assert ours.n_tokens == theirs.n_tokens
        assert ours.longest() == theirs.longest()
        assert ours.follow(*match, int32(query)) == theirs.follow(*match, int32(query))
        match = ours.follow(*match, int32(query))
        for state, length in (match, ours.longest()):
            tokens, expected = ours.continuation(state, length, n_max, p_min, PRIOR)
            twins, twins_expected = theirs.continuation(state, length, n_max, p_min, PRIOR)
            assert tokens.tolist() == twins.tolist()
            assert expected == pytest.approx(twins_expected)


@BOTH
@settings(max_examples=80, deadline=None)
@given(texts(), st.lists(st.integers(-1, 3), max_size=12))
def test_matches_are_the_longest_there_are(
    implementation: ModuleType, pieces: list[list[int]], query: list[int]
) -> None:
    automaton = implementation.Automaton()
    text: list[int] = []
    for piece in pieces:
        automaton.extend(int32(piece))
        text += piece
        assert automaton.longest()[1] == longest_repeated_end(text)
        assert automaton.follow(0, 0, int32(query))[1] == longest_end_within(text, query)


@BOTH
def test_a_match_stays_valid_while_the_text_grows(implementation: ModuleType) -> None:
    automaton = implementation.Automaton()
    automaton.extend(int32([1, 2, 3]))
    match = automaton.follow(0, 0, int32([2]))
    automaton.extend(int32([9, 2, 4, 2, 4]))  # splits the state of 2 from that of 1, 2
    assert automaton.follow(*match, int32([]))[1] == 1
    tokens, _ = automaton.continuation(*automaton.follow(*match, int32([])), 1, 0.0, PRIOR)
    assert tokens.tolist() == [4]


@BOTH
def test_the_most_frequent_continuation_is_taken_then_the_latest(implementation: ModuleType) -> None:
    automaton = implementation.Automaton()
    automaton.extend(int32([1, 5, 1, 6, 1, 5, 1]))
    assert automaton.continuation(*automaton.longest(), 1, 0.0, PRIOR)[0].tolist() == [6]  # behind 5, 1
    one = automaton.follow(0, 0, int32([1]))
    tokens, expected = automaton.continuation(*one, 1, 0.0, PRIOR)
    assert tokens.tolist() == [5]
    assert expected == pytest.approx(2 / (3 + PRIOR))
    automaton.extend(int32([6, 1]))
    assert automaton.continuation(*automaton.follow(0, 0, int32([1])), 1, 0.0, PRIOR)[0].tolist() == [6]


@BOTH
def test_chances_multiply_and_end_a_draft(implementation: ModuleType) -> None:
    automaton = implementation.Automaton()
    automaton.extend(int32([*range(10), 99, 3, 4]))
    chances = [1 / (1 + PRIOR / length) for length in range(2, 10)]
    tokens, expected = automaton.continuation(*automaton.longest(), 3, 0.0, PRIOR)
    assert tokens.tolist() == [5, 6, 7]
    products = np.cumprod(chances)
    assert expected == pytest.approx(products[:3].sum())
    for p_min, n in ((products[0] + 1e-9, 0), (products[0] - 1e-9, 1), (products[2] - 1e-9, 3)):
        assert len(automaton.continuation(*automaton.longest(), 5, float(p_min), PRIOR)[0]) == n


@BOTH
def test_a_loop_is_guessed_beyond_the_end_of_the_text(implementation: ModuleType) -> None:
    automaton = implementation.Automaton()
    automaton.extend(int32([1, 2, 3] * 20))
    tokens, _ = automaton.continuation(*automaton.longest(), 10, 0.2, PRIOR)
    assert tokens.tolist() == [1, 2, 3, 1, 2, 3, 1, 2, 3, 1]


@BOTH
def test_breaks_are_counted_and_never_proposed(implementation: ModuleType) -> None:
    automaton = implementation.Automaton()
    automaton.extend(int32([7, 8, -1, 7, 8, -1, 7, 8, 9]))
    match = automaton.follow(0, 0, int32([7, 8]))
    tokens, expected = automaton.continuation(*match, 5, 0.0, PRIOR)
    assert tokens.tolist() == [9]
    assert expected == pytest.approx(1 / (3 + PRIOR / 2))
    only_ends = implementation.Automaton()
    only_ends.extend(int32([7, 8, -1]))
    assert len(only_ends.continuation(*only_ends.follow(0, 0, int32([7, 8])), 5, 0.0, PRIOR)[0]) == 0


@BOTH
@pytest.mark.parametrize("kind", ["one token", "random", "copies", "all different"])
def test_memory_is_within_its_bound(implementation: ModuleType, kind: str) -> None:
    n = 5000
    rng = np.random.default_rng(1)
    tokens = {
        "one token": np.zeros(n),
        "random": rng.integers(0, 50, n),
        "copies": np.tile(rng.integers(0, 1000, 500), n // 500),
        "all different": np.arange(n),
    }[kind]
    automaton = implementation.Automaton()
    n_bytes_before = automaton.n_bytes
    n_bytes_after = automaton.n_bytes_after(n)
    automaton.extend(tokens.astype(np.int32))
    assert automaton.n_bytes <= n_bytes_after <= n_bytes_before + n * implementation.MAX_BYTES_PER_TOKEN
    assert automaton.n_tokens == n


def test_the_compiled_kernel_is_in_use() -> None:
    assert kernels.suffix is suffix
    names = {name for name in vars(suffix) if not name.startswith("_")}
    assert names - {"np"} <= set(vars(reference))
