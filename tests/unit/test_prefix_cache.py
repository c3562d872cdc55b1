"""Which tokens are known, and which cells hold them: by example, and against a model that searches all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lucebox.core import Int32Array
from lucebox.engine.prefix_cache import N_BLOCK, PrefixCache
from lucebox.runtime.cache import Cache
from lucebox.runtime.rows import Rows

N_SEQUENCES = 3


def text(*words: int, n_tail: int = 0) -> list[int]:
    """A block of each word, and the beginning of another one."""
    return [word for word in words for _ in range(N_BLOCK)] + [9] * n_tail


def compute(cache: Cache, sequence: int, tokens: Sequence[int]) -> Int32Array:
    """Appends `tokens`, and returns all cells of the sequence."""
    cache.reserve(Rows.chain(sequence, tokens, cache.length(sequence)))
    cache.commit(sequence, range(len(tokens)))
    return cache.cells(sequence).copy()


def made(n_blocks: int = 8, n_most: int | None = None) -> tuple[Cache, PrefixCache]:
    cache = Cache(n_blocks * N_BLOCK, N_SEQUENCES)
    return cache, PrefixCache(cache, n_most)


def remember(cache: Cache, prefixes: PrefixCache, tokens: list[int]) -> Int32Array:
    """A request of its own that computes all of `tokens`."""
    cells = compute(cache, 0, tokens)
    prefixes.add(tokens, cells)
    cache.release(0)
    prefixes.check_integrity()
    cache.check_integrity()
    return cells


def test_what_two_sequences_computed_is_found_as_far_as_its_cells_ascend() -> None:
    cache, prefixes = made(16)
    remember(cache, prefixes, text(1))
    compute(cache, 1, text(5, 5, 5))
    prefixes.add(text(1, 2), compute_behind(cache, prefixes, 0, text(1), text(2)))
    cache.release(1)
    cache.release(0)
    own = compute_behind(cache, prefixes, 0, text(1), text(2, 3))  # block 2 is known, but computed once more
    assert own.tolist() == list(range(3 * N_BLOCK))
    prefixes.add(text(1, 2, 3), own)
    prefixes.check_integrity()
    assert prefixes.find(text(1, 2, 3)).tolist() == [*range(N_BLOCK), *range(4 * N_BLOCK, 5 * N_BLOCK)]


def compute_behind(
    cache: Cache, prefixes: PrefixCache, sequence: int, known: list[int], tokens: list[int]
) -> Int32Array:
    """A sequence that adopts `known`, and computes `tokens` itself; all of its cells."""
    cache.adopt(sequence, prefixes.find(known))
    return compute(cache, sequence, tokens)


def test_whole_blocks_are_known() -> None:
    cache, prefixes = made()
    cells = remember(cache, prefixes, text(1, 2, n_tail=5))
    assert prefixes.n_cells == 2 * N_BLOCK == cache.n_cells - cache.n_free
    assert prefixes.find(text(1, 2, 3)).tolist() == cells[: 2 * N_BLOCK].tolist()
    assert prefixes.find(text(1, 3)).tolist() == cells[:N_BLOCK].tolist()
    assert len(prefixes.find(text(2))) == 0, "the same words behind others are another text"


@pytest.mark.parametrize("n_tail", [0, 1, N_BLOCK - 1])
def test_no_more_than_was_asked_for_is_found(n_tail: int) -> None:
    cache, prefixes = made()
    remember(cache, prefixes, text(1, 2, 3))
    asked = [*text(1), *text(2)[:n_tail]]
    assert len(prefixes.find(asked)) == N_BLOCK <= len(asked)
    assert len(prefixes.find(text(1)[:-1])) == 0
    assert len(prefixes.find([])) == 0


def test_what_two_have_in_common_is_kept_once() -> None:
    cache, prefixes = made()
    first = remember(cache, prefixes, text(1, 2))
    cache.adopt(1, prefixes.find(text(1)))
    prefixes.add(text(1, 3), compute(cache, 1, text(3)))
    cache.release(1)
    assert prefixes.n_cells == 3 * N_BLOCK
    assert prefixes.find(text(1)).tolist() == first[:N_BLOCK].tolist()
    twice = compute(cache, 2, text(1, 2))
    prefixes.add(text(1, 2), twice)
    cache.release(2)
    assert prefixes.find(text(1, 2)).tolist() == first.tolist(), "what was known first stays"
    prefixes.check_integrity()
    assert cache.n_free == cache.n_cells - 3 * N_BLOCK


def test_the_least_recently_used_makes_room() -> None:
    cache, prefixes = made(4)
    remember(cache, prefixes, text(1, 2))
    remember(cache, prefixes, text(3))
    prefixes.find(text(1))
    prefixes.make_room(2 * N_BLOCK)
    assert len(prefixes.find(text(1, 2))) == N_BLOCK, "a block goes before the one it stands behind"
    assert len(prefixes.find(text(3))) == N_BLOCK
    prefixes.find(text(1))
    prefixes.make_room(3 * N_BLOCK)
    assert len(prefixes.find(text(3))) == 0
    assert len(prefixes.find(text(1))) == N_BLOCK


def test_blocks_in_use_stay() -> None:
    cache, prefixes = made(4)
    remember(cache, prefixes, text(1, 2))
    remember(cache, prefixes, text(3))
    cache.adopt(1, prefixes.find(text(1)))
    prefixes.find(text(3))
    prefixes.make_room(cache.n_cells)
    assert prefixes.n_cells == N_BLOCK
    assert len(prefixes.find(text(1))) == N_BLOCK
    cache.release(1)
    prefixes.make_room(cache.n_cells)
    assert prefixes.n_cells == 0
    assert cache.n_free == cache.n_cells


def test_blocks_in_use_go_if_they_keep_others() -> None:
    """A sequence that did not reuse what was known goes on behind it."""
    cache, prefixes = made(6)
    remember(cache, prefixes, text(1, 2))
    prefixes.add(text(1, 2, 3), compute(cache, 1, text(1, 2, 3)))
    assert (prefixes.n_cells, cache.n_free) == (3 * N_BLOCK, N_BLOCK)
    prefixes.make_room(2 * N_BLOCK)
    assert cache.n_free == 2 * N_BLOCK
    assert len(prefixes.find(text(1, 2, 3))) == N_BLOCK
    prefixes.make_room(3 * N_BLOCK)
    assert (prefixes.n_cells, cache.n_free) == (0, 3 * N_BLOCK)
    prefixes.check_integrity()


def test_no_more_is_kept_than_may_be() -> None:
    cache, prefixes = made(8, n_most=2 * N_BLOCK + 3)
    remember(cache, prefixes, text(1, 2, 3))
    assert prefixes.n_cells == 2 * N_BLOCK
    assert len(prefixes.find(text(1, 2, 3))) == 2 * N_BLOCK
    remember(cache, prefixes, text(1, 4))
    assert len(prefixes.find(text(1, 4))) == 2 * N_BLOCK, "the older of two ends gave way"
    assert len(prefixes.find(text(1, 2))) == N_BLOCK


def test_a_cache_that_is_off_keeps_nothing() -> None:
    cache, prefixes = made(4, n_most=0)
    remember(cache, prefixes, text(1, 2))
    assert not prefixes.is_on
    assert (prefixes.n_cells, cache.n_free) == (0, cache.n_cells)


def test_what_was_wrong_is_forgotten_with_all_behind_it() -> None:
    cache, prefixes = made()
    for words in ((1, 2, 3), (1, 4), (5, 1)):
        remember(cache, prefixes, text(*words))
    prefixes.forget(text(1, 6))
    assert len(prefixes.find(text(1, 2, 3))) == 0
    assert len(prefixes.find(text(5, 1))) == 2 * N_BLOCK
    prefixes.forget([1, 2])
    prefixes.check_integrity()
    prefixes.clear()
    assert cache.n_free == cache.n_cells


words = st.lists(st.integers(1, 2), max_size=4)
tails = st.integers(0, N_BLOCK - 1)
sequences = st.integers(0, N_SEQUENCES - 1)


class Requests(RuleBasedStateMachine):
    """Requests come, grow, share and end. `held[cell]` is the text whose last token's keys and values are in
    the cell; `known` has every text of whole blocks that ought to be found, with the time of its last use."""

    def __init__(self) -> None:
        super().__init__()
        self.cache, self.prefixes = made(8, n_most=5 * N_BLOCK)
        self.held: dict[int, tuple[int, ...]] = {}
        self.running: dict[int, list[int]] = {}
        self.known: dict[tuple[int, ...], int] = {}
        self.cells: dict[tuple[int, ...], list[int]] = {}
        self.out_of_order: set[tuple[int, ...]] = set()
        self.now = 0

    def use(self, tokens: Sequence[int], n: int) -> None:
        self.now += 1
        for i in range(N_BLOCK, n + 1, N_BLOCK):
            self.known[tuple(tokens[:i])] = self.now

    def longest(self, tokens: Sequence[int]) -> int:
        n = 0
        while n + N_BLOCK <= len(tokens) and tuple(tokens[: n + N_BLOCK]) in self.known:
            n += N_BLOCK
        return n

    def victim(
        self, spared: Sequence[tuple[int, ...]] = (), *, keeps_others: bool = False
    ) -> tuple[int, ...] | None:
        """The text to give up next: used longest ago, of those the longest, not in use, none behind it. What
        `keeps_others` that are in no use may be in use itself."""
        used = {int(cell) for slot in self.running for cell in self.cache.cells(slot)}
        idle = [known for known in self.known if not used.intersection(self.cells[known])]
        leaves = [
            known
            for known in self.known
            if known not in spared
            and not any(other[: len(known)] == known and other != known for other in self.known)
            and (known in idle or (keeps_others and any(known[: len(other)] == other for other in idle)))
        ]
        return min(leaves, key=lambda known: (self.known[known], -len(known)), default=None)

    def give_up(self, known: tuple[int, ...]) -> None:
        del self.known[known], self.cells[known]
        self.out_of_order.discard(known)

    @rule(slot=sequences, words=words, n_tail=tails)
    def start(self, slot: int, words: list[int], n_tail: int) -> None:
        if slot in self.running:
            return
        tokens = text(*words, n_tail=n_tail)
        cells = self.prefixes.find(tokens)
        n_found = self.longest(tokens)
        ends = [n for n in range(0, n_found, N_BLOCK) if tuple(tokens[: n + N_BLOCK]) in self.out_of_order]
        assert len(cells) == min([n_found, *ends])
        assert [self.held[int(cell)] for cell in cells] == [tuple(tokens[: i + 1]) for i in range(len(cells))]
        self.use(tokens, len(cells))
        self.cache.adopt(slot, cells)
        self.running[slot] = tokens[: len(cells)]
        self.grow(slot, tokens[len(cells) :])

    @precondition(lambda self: self.running)
    @rule(data=st.data(), word=st.integers(1, 2), n=st.integers(1, N_BLOCK))
    def go_on(self, data: st.DataObject, word: int, n: int) -> None:
        slot = data.draw(st.sampled_from(sorted(self.running)))
        self.grow(slot, [word] * n)

    def grow(self, slot: int, tokens: list[int]) -> None:
        """Computes `tokens`, if there is room, for which blocks are given up."""
        if not tokens:
            return
        self.prefixes.make_room(len(tokens))
        self.forget_gone()
        if self.cache.n_free < len(tokens):
            assert self.victim(keeps_others=True) is None, "there was more to give up"
            return
        cells = compute(self.cache, slot, tokens)
        self.running[slot] += tokens
        for i, cell in enumerate(cells.tolist()):
            self.held[cell] = tuple(self.running[slot][: i + 1])

    def forget_gone(self) -> None:
        """Follows `make_room`, which gives up no more than it must, and always the right one."""
        n_gone = len(self.known) - self.prefixes.n_cells // N_BLOCK
        keeps_others = False
        for _ in range(n_gone):
            keeps_others = keeps_others or self.victim() is None
            known = self.victim(keeps_others=keeps_others)
            assert known is not None
            self.give_up(known)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), ends=st.booleans())
    def keep(self, data: st.DataObject, ends: bool) -> None:
        slot = data.draw(st.sampled_from(sorted(self.running)))
        tokens, cells = self.running[slot], self.cache.cells(slot)
        self.prefixes.add(tokens, cells)
        n_known = self.longest(tokens)
        self.use(tokens, n_known)
        chain = [tuple(tokens[:i]) for i in range(N_BLOCK, n_known + 1, N_BLOCK)]
        n_new = (len(tokens) - n_known) // N_BLOCK
        while len(self.known) > max(0, 5 - n_new) and (known := self.victim(chain)) is not None:
            self.give_up(known)
        for _ in range(min(n_new, 5 - len(self.known))):
            before = self.cells.get(tuple(tokens[:n_known]), [])
            own_before = cells[max(0, n_known - N_BLOCK) : n_known].tolist()
            n_known += N_BLOCK
            known = tuple(tokens[:n_known])
            self.known[known] = 0
            self.cells[known] = cells[n_known - N_BLOCK : n_known].tolist()
            if before not in ([], own_before) and before[-1] > self.cells[known][0]:
                self.out_of_order.add(known)
        self.use(tokens, n_known)
        if ends:
            del self.running[slot]
            self.cache.release(slot)

    @rule(words=words)
    def fail(self, words: list[int]) -> None:
        tokens = text(*words)
        self.prefixes.forget(tokens)
        for known in [k for k in self.known if k[:N_BLOCK] == tuple(tokens[:N_BLOCK])]:
            self.give_up(known)

    @invariant()
    def nothing_is_lost_or_mixed_up(self) -> None:
        self.prefixes.check_integrity()
        self.cache.check_integrity()
        assert self.prefixes.n_cells == N_BLOCK * len(self.known)
        for known, cells in self.cells.items():
            assert [self.held[cell] for cell in cells] == [
                known[: i + 1] for i in range(len(known) - N_BLOCK, len(known))
            ]
        if not self.running:
            assert self.cache.n_cells - self.cache.n_free == self.prefixes.n_cells


TestRequests = Requests.TestCase
TestRequests.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


def test_cells_that_are_kept_are_not_free() -> None:
    cache = Cache(8, 1)
    cells = compute(cache, 0, [1, 2, 3])
    cache.keep(cells[:2])
    cache.release(0)
    assert (cache.n_free, cache.n_kept) == (6, 2)
    cache.adopt(0, cells[:2])
    assert cache.is_shared(cells[:2])
    cache.leave(cells[:2])
    assert cache.length(0) == 2
    cache.check_integrity()
    with pytest.raises(AssertionError):
        cache.adopt(0, np.array([5], np.int32))
