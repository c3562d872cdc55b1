"""What requests have computed of the target's keys and values, for others that begin with the same tokens."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np

from lucebox.core import Int32Array
from lucebox.runtime.cache import Cache

N_BLOCK = 16  # tokens that are known together or not at all

_NO_CELLS = np.empty(0, np.int32)


@dataclass(slots=True, eq=False)
class Block:
    """N_BLOCK tokens behind those of `parent`, and the cells of their keys and values.

    `is_in_order` where these lie above the parent's, or are as one sequence had both.
    """

    parent: Block | None
    tokens: tuple[int, ...]
    cells: Int32Array
    is_in_order: bool = True
    children: dict[tuple[int, ...], Block] = field(default_factory=dict)


class PrefixCache:
    """A tree of blocks that keeps cells of `cache`, at most `n_most` of them, or as many as there are.

    Keys and values depend on all tokens before them, so a block is found behind its own ancestors only.
    Sequences share its cells; nothing is copied. The least recently used blocks make room, those first that
    no other follows; blocks in use by a sequence stay, since their cells would not become free. But where one
    keeps another before it that is in no use, as the sequence has computed that for itself, both may go.
    """

    def __init__(self, cache: Cache, n_most: int | None = None) -> None:
        self._cache = cache
        self.n_most = cache.n_cells if n_most is None else min(n_most, cache.n_cells)  # cells
        self._roots: dict[tuple[int, ...], Block] = {}
        # The least recently used first; a block comes before its parent, which every use of it uses.
        self._order: OrderedDict[Block, None] = OrderedDict()

    @property
    def is_on(self) -> bool:
        """Whether anything can be kept at all."""
        return self.n_most >= N_BLOCK

    @property
    def n_cells(self) -> int:
        """Cells that are kept."""
        return N_BLOCK * len(self._order)

    def find(self, tokens: Sequence[int]) -> Int32Array:
        """int32[n]: the cells of the first n of `tokens`, whole blocks that are known. They may be adopted
        until anything else is asked of this object.

        Blocks that several sequences computed are found as long as their cells ascend: attention would sum
        what another sequence put out of order otherwise than where one computes all.
        """
        chain = list(takewhile(lambda block: block.is_in_order, self._walk(tokens)))
        self._use(chain)
        return np.concatenate([block.cells for block in chain]) if chain else _NO_CELLS

    def add(self, tokens: Sequence[int], cells: Int32Array) -> None:
        """Keeps what `cells` hold of `tokens`, one for each, as far as they fill blocks that are not known
        yet and there is room."""
        assert len(tokens) == len(cells), f"{len(tokens)} tokens in {len(cells)} cells"
        if not self.is_on:
            return
        chain = self._walk(tokens)
        n_missing = len(tokens) // N_BLOCK - len(chain)
        self._use(chain)
        n_room = self.n_most - min(n_missing * N_BLOCK, self.n_most)
        kept = set(chain)
        self._evict(lambda: self.n_cells <= n_room, lambda block: block not in kept and self._is_idle(block))
        for _ in range(min(n_missing, (self.n_most - self.n_cells) // N_BLOCK)):
            n = N_BLOCK * len(chain)
            chain.append(self._append(chain[-1] if chain else None, tokens, cells, n))
        self._use(chain)

    def forget(self, tokens: Sequence[int]) -> None:
        """Drops all that begins with the first block of `tokens`: something was wrong with it."""
        root = self._roots.get(tuple(tokens[:N_BLOCK]))
        if root is not None:
            self._remove_all(root)

    def make_room(self, n_free: int) -> None:
        """Gives up blocks until `n_free` cells are free, or none that would free any is left."""

        def is_enough() -> bool:
            return self._cache.n_free >= n_free

        self._evict(is_enough)
        self._evict(is_enough, self._keeps_others)

    def clear(self) -> None:
        """Drops everything."""
        for root in list(self._roots.values()):
            self._remove_all(root)

    def blocks(self) -> Iterator[Block]:
        """All blocks, the most recently used first, and each behind its parent."""
        return reversed(self._order)

    def restore(self, parents: Sequence[int], tokens: Sequence[tuple[int, ...]], cells: Int32Array) -> None:
        """Blocks as `blocks` gave them, into an empty cache: block i stands behind block `parents[i]` < i, or
        behind none if that is -1. `cells` (N_BLOCK for each, ascending) are kept already."""
        assert not self._order
        assert len(cells) == N_BLOCK * len(tokens) <= self.n_most
        made: list[Block] = []
        for i, (parent, block_tokens) in enumerate(zip(parents, tokens, strict=True)):
            assert -1 <= parent < i
            n = N_BLOCK * i
            block = Block(made[parent] if parent >= 0 else None, block_tokens, cells[n : n + N_BLOCK].copy())
            self._siblings(block)[block_tokens] = block
            made.append(block)
        self._order.update((block, None) for block in reversed(made))

    def check_integrity(self) -> None:
        """Asserts every invariant."""
        assert self.n_cells <= max(0, self.n_most), f"{self.n_cells} cells of at most {self.n_most}"
        place = {block: i for i, block in enumerate(self._order)}
        n_linked = 0
        for block in self._order:
            siblings = self._siblings(block)
            assert siblings.get(block.tokens) is block, "a block is not where its tokens lead"
            assert len(block.tokens) == len(block.cells) == N_BLOCK
            assert block.parent is None or place[block] < place[block.parent], "a parent would go first"
            n_linked += len(block.children)
        assert n_linked + len(self._roots) == len(self._order), "a block that is not in the order"
        cells = [block.cells for block in self._order]
        kept = np.concatenate(cells) if cells else _NO_CELLS
        assert len(np.unique(kept)) == len(kept), "a cell in two blocks"
        assert self._cache.n_kept == len(kept), f"{self._cache.n_kept} cells kept, {len(kept)} in blocks"

    def _walk(self, tokens: Sequence[int]) -> list[Block]:
        chain: list[Block] = []
        children = self._roots
        for n in range(0, len(tokens) - N_BLOCK + 1, N_BLOCK):
            block = children.get(tuple(tokens[n : n + N_BLOCK]))
            if block is None:
                break
            chain.append(block)
            children = block.children
        return chain

    def _use(self, chain: Sequence[Block]) -> None:
        for block in reversed(chain):
            self._order.move_to_end(block)

    def _append(self, parent: Block | None, tokens: Sequence[int], cells: Int32Array, n: int) -> Block:
        is_in_order = (
            parent is None
            or int(parent.cells[-1]) < int(cells[n])
            or np.array_equal(parent.cells, cells[n - N_BLOCK : n])
        )
        block = Block(parent, tuple(tokens[n : n + N_BLOCK]), cells[n : n + N_BLOCK].copy(), is_in_order)
        self._cache.keep(block.cells)
        self._siblings(block)[block.tokens] = block
        self._order[block] = None
        return block

    def _evict(self, is_enough: Callable[[], bool], may_go: Callable[[Block], bool] | None = None) -> None:
        """Removes blocks that nothing follows and that `may_go`, which are those in no use if not given."""
        if is_enough():
            return
        may_go = may_go or self._is_idle
        for block in list(self._order):
            if block.children or not may_go(block):
                continue
            self._remove(block)
            if is_enough():
                return

    def _is_idle(self, block: Block) -> bool:
        """Whether no sequence holds cells of `block`."""
        return not self._cache.is_shared(block.cells)

    def _keeps_others(self, block: Block) -> bool:
        """Whether cells of `block`, or of one before it, would become free without it."""
        before: Block | None = block
        while before is not None:
            if self._is_idle(before):
                return True
            before = before.parent
        return False

    def _remove_all(self, block: Block) -> None:
        """With all that follow it."""
        branch = [block]
        for known in branch:
            branch.extend(known.children.values())
        for known in reversed(branch):
            self._remove(known)

    def _remove(self, block: Block) -> None:
        assert not block.children
        del self._siblings(block)[block.tokens]
        del self._order[block]
        self._cache.leave(block.cells)

    def _siblings(self, block: Block) -> dict[tuple[int, ...], Block]:
        return self._roots if block.parent is None else block.parent.children
