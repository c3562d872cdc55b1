"""Drafts from a small model of the same vocabulary, with a key/value cache of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np

from lucebox.common_prefix import common_prefix_length
from lucebox.core import Distribution, Draft, DrawMode, Float32Array
from lucebox.drafters.base import Ahead, Drafter, DrafterContext, DraftModel, DraftRequest
from lucebox.drafters.drawing import GrowingDraft, branches, draw
from lucebox.errors import RequestError
from lucebox.runtime.rows import Rows, Want
from lucebox.sampling.kernels import sampling
from lucebox.sampling.sampler import Sampler

T = TypeVar("T")


@dataclass(slots=True)
class PendingDraft:
    """One request's draft under way. `cached` and `pending` are ids of the draft model, and `cached` those
    whose keys and values its cache holds."""

    request: DraftRequest
    cached: list[int]
    pending: list[int]  # what must be fed before the next token can be drawn
    tokens: list[int] = field(default_factory=list)
    q: list[Distribution | None] = field(default_factory=list)
    tree: GrowingDraft | None = None  # takes the place of tokens and q

    def draft(self) -> Draft:
        return Draft.chain(self.tokens, self.q) if self.tree is None else self.tree.draft()


class ModelDrafter(Drafter):
    """Autoregressive drafts, one forward per depth for all requests that go on.

    The runtime's n_sequences and n_ctx bound the sequences and their lengths; a sequence that has outgrown it
    gets empty drafts. What was drafted stays cached: a round feeds only tokens that the cache has not seen.
    A sequence that ended keeps its cells until others need them: one that begins alike shares them.
    A tree is fed anew at each depth, which takes no cells of other sequences, and of it the path of first
    children stays.
    Laws are over the target's ids: padding may make their number differ from the draft model's.
    """

    needs_model = True
    can_run_ahead = True

    def __init__(self, context: DrafterContext) -> None:
        super().__init__(context)
        assert context.draft_model is not None
        self.runtime: DraftModel = context.draft_model
        self._cached = context.draft_cached
        self._retired = context.draft_retired

    def lost(self) -> str:
        return self.runtime.lost()

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        self.runtime.renew()
        drafting = [self._begin(request) for request in requests]
        active = [d for d in drafting if d.pending and self._has_room(d)]
        self._draft_trees([d for d in active if d.tree is not None])
        active = [d for d in active if d.tree is None]
        while active:
            for d, logits in self._feed(active):
                self._draw(d, logits)
            active = [d for d in active if d.pending and self._has_room(d)]
        return [d.draft() for d in drafting]

    def fork(self, source: int, target: int) -> None:
        self.release(target)
        self.runtime.cache.fork(source, target)
        self._cached[target] = list(self._cached.get(source, ()))

    def start(self, sequence: int, prefix: Sequence[int]) -> None:
        """Takes what the cache has of `prefix`, from whichever sequence has most of it."""
        found = {other: self._n_known(other, prefix) for other in self._cached}
        source = max(found, key=lambda other: (found[other], other == sequence), default=sequence)
        if source != sequence:
            self.fork(source, sequence)
        self._retired.pop(sequence, None)
        cached = self._cached.setdefault(sequence, [])
        if self._is_sound(sequence):
            self._roll_back(sequence, cached, prefix)

    def retire(self, sequence: int) -> None:
        if sequence >= self.context.n_sequences or not self._is_sound(sequence):
            self.release(sequence)
            return
        self._retired.pop(sequence, None)
        self._retired[sequence] = None

    def release(self, sequence: int) -> None:
        self.runtime.cache.release(sequence)
        self._cached.pop(sequence, None)
        self._retired.pop(sequence, None)

    def forget(self) -> None:
        for sequence in list(self._retired):
            self.release(sequence)

    def close(self) -> None:
        self._cached.clear()
        self._retired.clear()
        self.runtime.close()

    def n_cached(self, sequence: int) -> int:
        """Tokens of `sequence` that need not be computed again."""
        return len(self._cached.get(sequence, ()))

    def n_behind(self, sequence: int, n_prefix: int) -> int:
        return max(0, n_prefix - 1 - self.n_cached(sequence))

    # What a drafter whose model speaks another vocabulary overrides.

    def _inputs(self, request: DraftRequest) -> Sequence[int]:
        """The prefix in ids of the draft model."""
        return request.prefix

    def _input(self, token: int) -> int:
        """A drafted token as an id of the draft model."""
        return token

    def _row(self, logits: Float32Array) -> Float32Array:
        """float32[n_vocab]: logits of the target's ids; an id that the draft model lacks is impossible."""
        n_vocab = self.context.n_vocab
        if len(logits) >= n_vocab:
            return logits[:n_vocab]
        return np.pad(logits, (0, n_vocab - len(logits)), constant_values=-np.inf)

    def _begin(self, request: DraftRequest) -> PendingDraft:
        """Rolls the cache back to what it shares with the prefix, whose last token is always fed."""
        cached = self._cached.setdefault(request.sequence, [])
        self._retired.pop(request.sequence, None)
        if not self._is_sound(request.sequence):
            self.runtime.cache.release(request.sequence)
            cached.clear()
        inputs = self._inputs(request)
        if request.ahead is not None and not request.n_before and not branches(request):
            return self._resume(request, request.ahead, cached, inputs)
        n_shared = self._roll_back(request.sequence, cached, inputs)
        tree = None
        if branches(request):
            n_max = min(request.n_max, self.runtime.n_batch, self.runtime.n_ctx - len(inputs))
            tree = GrowingDraft(request, n_max)
        return PendingDraft(request, cached, list(inputs[n_shared:]), tree=tree)

    def _is_sound(self, sequence: int) -> bool:
        """Whether the cache holds what was put there; not if the model was lost since, and is back."""
        return len(self._cached.get(sequence, ())) == self.runtime.cache.length(sequence)

    def _n_known(self, sequence: int, prefix: Sequence[int]) -> int:
        """Tokens of `prefix` that `sequence` has cached, without the last one, which is fed in any case."""
        if not self._is_sound(sequence):
            return 0
        return min(common_prefix_length(self._cached[sequence], prefix), len(prefix) - 1)

    def _make_room(self, n_rows: int) -> None:
        """Gives up sequences that ended, until `n_rows` cells are free."""
        if self.runtime.cache.n_free < n_rows:
            self.runtime.cache.drop_pending()
        while self.runtime.cache.n_free < n_rows and self._retired:
            self.release(next(iter(self._retired)))

    def _roll_back(self, sequence: int, cached: list[int], inputs: Sequence[int]) -> int:
        """Drops what is cached beyond the tokens that it shares with `inputs`, and returns how many these
        are; the last input is none of them."""
        n_shared = min(common_prefix_length(cached, inputs), len(inputs) - 1)
        if n_shared < len(cached):
            self.runtime.cache.truncate(sequence, n_shared)
            del cached[n_shared:]
        return n_shared

    def _resume(
        self, request: DraftRequest, ahead: Ahead, cached: list[int], inputs: Sequence[int]
    ) -> PendingDraft:
        """Takes from `ahead` what would be drafted again, and goes on behind it."""
        d = PendingDraft(request, cached, [])
        is_over = False
        for token, q, law in zip(ahead.tokens, ahead.q, ahead.laws, strict=True):
            if len(d.tokens) >= request.n_max:
                break
            ahead.n_used += 1
            if is_over := not request.keep_drafting(law, len(d.tokens)):
                break
            d.tokens.append(token)
            d.q.append(q)
            if is_over := token in request.stop_tokens:
                break
        inputs = [*inputs, *map(self._input, d.tokens)]
        n_shared = self._roll_back(request.sequence, cached, inputs)
        if not is_over:
            d.pending.extend(inputs[n_shared:])
        return d

    def _has_room(self, d: PendingDraft) -> bool:
        fits = len(d.cached) + len(d.pending) <= self.runtime.n_ctx
        known = max(d.pending) < self.runtime.n_vocab
        return fits and known and len(d.tokens) < d.request.n_max

    def _feed(self, active: Sequence[PendingDraft]) -> Iterator[tuple[PendingDraft, Float32Array]]:
        """Feeds what is pending, and yields next logits: float32[n_vocab], valid until the next ones."""
        for batch in _batches(active, self.runtime.n_batch):
            parts, ready = [], []
            for d, n, is_last in batch:
                want = Want.LOGITS if is_last else Want.NOTHING
                parts.append(Rows.chain(d.request.sequence, d.pending[:n], len(d.cached), want_last=want))
                if is_last:
                    ready.append(d)
            rows = Rows.concatenate(parts)
            self._make_room(len(rows))
            output = self.runtime.forward(rows)
            first = 0
            for d, n, _ in batch:
                self.runtime.cache.commit(d.request.sequence, range(first, first + n))
                d.cached.extend(d.pending[:n])
                del d.pending[:n]
                first += n
            for d, logits in zip(ready, output.logits, strict=True):
                yield d, self._row(logits)

    def _draw(self, d: PendingDraft, logits: Float32Array) -> None:
        """Draws the next token, or ends the draft by leaving nothing pending."""
        request, depth = d.request, d.request.n_before + len(d.tokens)
        laws = _if_any(partial(self._law, request, logits, [*request.before, *d.tokens]))
        if laws is None or not request.keep_drafting(laws[1], depth):
            return
        law = laws[0]
        token, q = draw(law, request.draw_mode, request.random, depth, depth)
        d.tokens.append(token)
        d.q.append(q)
        if token not in request.stop_tokens:
            d.pending.append(self._input(token))

    def _law(
        self, request: DraftRequest, logits: Float32Array, extra: Sequence[int]
    ) -> tuple[Distribution, Distribution]:
        """The law to draw from, and the one that the controller judges; one-hot if all that counts is the
        likeliest token."""
        if request.draw_mode is DrawMode.ARGMAX and not request.judges_laws:
            law = Distribution.one_hot(len(logits), request.sampler.argmax(logits, extra))
            return law, law
        law = request.sampler.law(logits, extra)
        return law, _confidence(request.sampler, law, logits, extra) if request.judges_laws else law

    def _draft_trees(self, active: Sequence[PendingDraft]) -> None:
        trees: list[tuple[PendingDraft, GrowingDraft]] = []
        for d, logits in self._feed(active):
            assert d.tree is not None
            trees.append((d, d.tree))
            self._grow(d.tree, [logits])
        while trees := [(d, tree) for d, tree in trees if not tree.is_done]:
            for batch in _batches_of_trees(trees, self.runtime.n_batch):
                rows = Rows.concatenate([self._rows(d, tree) for d, tree in batch])
                self._make_room(len(rows))
                output = self.runtime.forward(rows)
                first_row = first_output = 0
                for d, tree in batch:
                    n_rows, n_outputs = len(tree.tokens), len(tree.frontier)
                    logits = output.logits[first_output : first_output + n_outputs]
                    self._grow(tree, [self._row(row) for row in logits])
                    if tree.is_done:
                        self._keep_first_path(d, tree, first_row, n_rows)
                    first_row += n_rows
                    first_output += n_outputs

    def _rows(self, d: PendingDraft, tree: GrowingDraft) -> Rows:
        """All of the tree, behind the committed prefix; logits are wanted of the frontier."""
        tokens = [self._input(token) for token in tree.tokens]
        parents = [row - 1 for row in tree.parents]
        rows = Rows.tree(d.request.sequence, tokens, parents, len(d.cached), want_all=Want.NOTHING)
        rows.wants[[row - 1 for row in tree.frontier]] = Want.LOGITS
        return rows

    def _grow(self, tree: GrowingDraft, logits: Sequence[Float32Array]) -> None:
        """Goes one depth further; `logits` are those of the frontier."""
        request = tree.request
        sampler, laws, wides = request.sampler, [], []
        for row, row_logits in zip(tree.frontier, logits, strict=True):
            extra = [*request.before, *tree.path(row)]
            laws.append(_if_any(partial(sampler.law, row_logits, extra)))
            wides.append(partial(_confidence, sampler, laws[-1], row_logits, extra))
        tree.grow(laws, wides)

    def _keep_first_path(self, d: PendingDraft, tree: GrowingDraft, first_row: int, n_rows: int) -> None:
        """Commits, of the `n_rows` tokens just fed, the path that takes the first child each time."""
        path: list[int] = []
        for i, parent in enumerate(tree.parents[:n_rows]):
            if parent == (path[-1] + 1 if path else 0):
                path.append(i)
        self.runtime.cache.commit(d.request.sequence, [first_row + i for i in path])
        d.cached.extend(self._input(tree.tokens[i]) for i in path)


Plugin = ModelDrafter


def _batches(active: Sequence[PendingDraft], n_batch: int) -> Iterator[list[tuple[PendingDraft, int, bool]]]:
    """Packs pending tokens into forwards of at most `n_batch` rows: (draft, its rows, whether the last)."""
    batch: list[tuple[PendingDraft, int, bool]] = []
    room = n_batch
    for d in active:
        left = len(d.pending)
        while left:
            n = min(left, room)
            left -= n
            room -= n
            batch.append((d, n, left == 0))
            if room == 0:
                yield batch
                batch, room = [], n_batch
    if batch:
        yield batch


def _batches_of_trees(
    trees: Sequence[tuple[PendingDraft, GrowingDraft]], n_batch: int
) -> Iterator[list[tuple[PendingDraft, GrowingDraft]]]:
    """Packs whole trees into forwards of at most `n_batch` rows."""
    batch: list[tuple[PendingDraft, GrowingDraft]] = []
    room = n_batch
    for d, tree in trees:
        if len(tree.tokens) > room:
            yield batch
            batch, room = [], n_batch
        batch.append((d, tree))
        room -= len(tree.tokens)
    if batch:
        yield batch


def _if_any(law: Callable[[], T]) -> T | None:
    """What `law` makes of the draft model's logits; None where the request leaves none of its tokens, or
    where its grammar is too complex to be followed."""
    try:
        return law()
    except RequestError:
        return None


def _confidence(
    sampler: Sampler, law: Distribution | None, logits: Float32Array, extra: Sequence[int]
) -> Distribution:
    """The law that controllers judge: `law`, or the softmax where the chain left but one token, of those that
    the grammar allows."""
    if law is not None and (law.ids is None or len(law.ids) > 1):
        return law
    row = logits if law is None else sampler.allowed(logits, extra)
    return Distribution(len(logits), sampling.softmax(row, 1.0))
