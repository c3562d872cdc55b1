"""Drafts from a small model of the same vocabulary, with a key/value cache of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from lucebox.core import Distribution, Draft, DrawMode, Float32Array
from lucebox.drafters.base import Drafter, DrafterContext, DraftRequest
from lucebox.runtime.rows import Rows, Want
from lucebox.runtime.runtime import Runtime
from lucebox.sampling.draw import sample
from lucebox.sampling.kernels import sampling
from lucebox.sampling.random import Purpose

COMPARE_CHUNK = 256


@dataclass(slots=True)
class _Drafting:
    """One request's draft under way. `cached` are the tokens whose keys and values the cache holds."""

    request: DraftRequest
    cached: list[int]
    pending: list[int]  # what must be fed before the next token can be drawn
    tokens: list[int] = field(default_factory=list)
    q: list[Distribution | None] = field(default_factory=list)


class ModelDrafter(Drafter):
    """Autoregressive drafts, one forward per depth for all requests that go on.

    The runtime's n_sequences and n_ctx bound the sequences and their lengths; a sequence that has outgrown it
    gets empty drafts. What was drafted stays cached: a round feeds only tokens that the cache has not seen.
    Laws are over the target's ids: padding may make their number differ from the draft model's.
    """

    needs_model = True

    def __init__(self, context: DrafterContext) -> None:
        super().__init__(context)
        assert context.draft_model is not None
        self.runtime: Runtime = context.draft_model
        self._n_vocab = context.n_vocab
        self._cached: dict[int, list[int]] = {}

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        drafting = [self._begin(request) for request in requests]
        active = [d for d in drafting if self._has_room(d)]
        while active:
            for d, logits in self._feed(active):
                self._draw(d, logits)
            active = [d for d in active if d.pending and self._has_room(d)]
        return [Draft.chain(d.tokens, d.q) for d in drafting]

    def fork(self, source: int, target: int) -> None:
        self.release(target)
        self.runtime.cache.fork(source, target)
        self._cached[target] = list(self._cached.get(source, ()))

    def release(self, sequence: int) -> None:
        self.runtime.cache.release(sequence)
        self._cached.pop(sequence, None)

    def close(self) -> None:
        self._cached.clear()
        self.runtime.close()

    def n_cached(self, sequence: int) -> int:
        """Tokens of `sequence` that need not be computed again."""
        return len(self._cached.get(sequence, ()))

    def n_behind(self, sequence: int, n_prefix: int) -> int:
        return max(0, n_prefix - 1 - self.n_cached(sequence))

    def _begin(self, request: DraftRequest) -> _Drafting:
        """Rolls the cache back to what it shares with the prefix, whose last token is always fed."""
        cached = self._cached.setdefault(request.sequence, [])
        n_shared = min(common_prefix_length(cached, request.prefix), len(request.prefix) - 1)
        if n_shared < len(cached):
            self.runtime.cache.truncate(request.sequence, n_shared)
            del cached[n_shared:]
        return _Drafting(request, cached, list(request.prefix[n_shared:]))

    def _has_room(self, d: _Drafting) -> bool:
        fits = len(d.cached) + len(d.pending) <= self.runtime.n_ctx
        known = max(d.pending) < self.runtime.n_vocab
        return fits and known and len(d.tokens) < d.request.n_max

    def _feed(self, active: Sequence[_Drafting]) -> Iterator[tuple[_Drafting, Float32Array]]:
        """Feeds what is pending, and yields next logits: float32[n_vocab], valid until the next ones."""
        for batch in _batches(active, self.runtime.n_batch):
            parts, ready = [], []
            for d, n, is_last in batch:
                want = Want.LOGITS if is_last else Want.NOTHING
                parts.append(Rows.chain(d.request.sequence, d.pending[:n], len(d.cached), want_last=want))
                if is_last:
                    ready.append(d)
            output = self.runtime.forward(Rows.concatenate(parts))
            first = 0
            for d, n, _ in batch:
                self.runtime.cache.commit(d.request.sequence, range(first, first + n))
                d.cached.extend(d.pending[:n])
                del d.pending[:n]
                first += n
            for d, logits in zip(ready, output.logits, strict=True):
                yield d, _resized(logits, self._n_vocab)

    def _draw(self, d: _Drafting, logits: Float32Array) -> None:
        """Draws the next token, or ends the draft by leaving nothing pending."""
        request, depth = d.request, d.request.n_before + len(d.tokens)
        law = request.sampler.law(logits, [*request.before, *d.tokens])
        if not request.keep_drafting(_confidence(law, logits), depth):
            return
        if request.draw_mode is DrawMode.SAMPLE:
            token = sample(law, request.random.uniform(depth, Purpose.DRAFT))
            d.q.append(law)
        else:
            token = law.argmax()
            d.q.append(None)
        d.tokens.append(token)
        if token not in request.stop_tokens:
            d.pending.append(token)


Plugin = ModelDrafter


def common_prefix_length(a: Sequence[int], b: Sequence[int]) -> int:
    """How many first elements `a` and `b` share. Compares slices first, which C does."""
    limit = min(len(a), len(b))
    n = 0
    while n < limit and a[n : n + COMPARE_CHUNK] == b[n : n + COMPARE_CHUNK]:
        n += COMPARE_CHUNK
    while n < limit and a[n] == b[n]:
        n += 1
    return min(n, limit)


def _batches(active: Sequence[_Drafting], n_batch: int) -> Iterator[list[tuple[_Drafting, int, bool]]]:
    """Packs pending tokens into forwards of at most `n_batch` rows: (draft, its rows, whether the last)."""
    batch: list[tuple[_Drafting, int, bool]] = []
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


def _resized(logits: Float32Array, n_vocab: int) -> Float32Array:
    """float32[n_vocab]: logits of the target's ids; an id that the draft model lacks is impossible."""
    if len(logits) >= n_vocab:
        return logits[:n_vocab]
    return np.pad(logits, (0, n_vocab - len(logits)), constant_values=-np.inf)


def _confidence(law: Distribution, logits: Float32Array) -> Distribution:
    """The law that controllers judge: `law`, or the softmax where the chain left but one token."""
    if law.ids is None or len(law.ids) > 1:
        return law
    return Distribution(law.n_vocab, sampling.softmax(logits, 1.0))
