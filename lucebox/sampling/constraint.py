"""What a request's grammar allows behind the committed tokens, and behind what drafts put after them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np

from lucebox.common_prefix import common_prefix_length
from lucebox.core import Draft, Float32Array, Int32Array, UInt32Array
from lucebox.errors import RequestError
from lucebox.sampling.kernels import mask as kernel
from lucebox.sampling.spare_time import SpareTime
from lucebox.text.grammar import GrammarMatcher

MAX_FORCED = 64  # tokens at a time, so that none fills the batch
MAX_RENEWAL_S = 0.05  # once in an answer
SPARE_S = 0.01  # of one step, for the masks of all sequences that could be done without


@dataclass(frozen=True, slots=True, eq=False)
class Mask:
    """Of `n_vocab` tokens, the `n_allowed` that may come next: bit i % 32 of word i // 32 is token i's."""

    words: UInt32Array
    n_vocab: int
    n_allowed: int

    @classmethod
    def of(cls, words: UInt32Array, n_vocab: int) -> Mask:
        return cls(words, n_vocab, kernel.count(words, n_vocab))

    def allows(self, token: int) -> bool:
        word = token >> 5
        return word < len(self.words) and bool(self.words[word] >> np.uint32(token & 31) & 1)

    def tokens(self) -> Int32Array:
        """All that are allowed, ascending."""
        return kernel.allowed(self.words, self.n_vocab)

    def without(self, tokens: Iterable[int]) -> Mask:
        words = self.words.copy()
        for token in tokens:
            if token >> 5 < len(words):
                words[token >> 5] &= ~np.uint32(1 << (token & 31))
        return Mask.of(words, self.n_vocab)

    def apply(self, logits: Float32Array) -> Float32Array:
        """A copy of `logits` in which no other token has a chance."""
        return kernel.masked(logits, self.words)


class Constraint:
    """A grammar over the tokens of one request, which never allows what is `banned`. `end_tokens`, of which
    `end_token` is the usual one, end an answer, and are allowed exactly where the grammar may end; with
    `ignores_end`, only where nothing else is.

    Methods may be asked about `extra`, tokens that would follow the committed ones. The matcher walks
    from one such path to the next, and what it found at each is kept until tokens are committed: a draft of k
    tokens costs k steps, a tree one for each of its rows.

    Some grammars take milliseconds for each mask, and what an engine computes for one request holds up all
    others. So masks of drafts and of forced tokens are made in `spare` time only. And some become too complex
    on some paths: where a draft does, it ends there, and the matcher begins anew.
    """

    def __init__(
        self,
        matcher: GrammarMatcher,
        n_vocab: int,
        end_tokens: frozenset[int],
        end_token: int,
        *,
        banned: frozenset[int] = frozenset(),
        ignores_end: bool = False,
        spare: SpareTime | None = None,
    ) -> None:
        assert end_token in end_tokens
        self.spare = spare or SpareTime()
        self._beginning = matcher
        self._committed: list[int] = []
        self._matcher = matcher.copy()  # behind the committed tokens and `_path`
        self._n_vocab = n_vocab
        self._end_tokens = end_tokens
        self._end_token = end_token
        self._banned = banned
        self._ignores_end = ignores_end
        self._failure: RequestError | None = None
        self._is_anew = False
        self._path: list[int] = []
        self._masks: dict[tuple[int, ...], Mask | None] = {}

    def mask(self, extra: Sequence[int] = ()) -> Mask | None:
        """What may follow `extra`; None where `extra` itself is not allowed, or ends the answer, and it is no
        matter what follows.

        Raises RequestError where the grammar is too complex to be followed.
        """
        key = tuple(extra)
        if key not in self._masks:
            with self.spare.measured(is_spare=bool(key)):
                self._masks[key] = self._found(key)
        return self._masks[key]

    def n_allowed(self, tokens: Sequence[int], extra: Sequence[int] = ()) -> int:
        """How many of `tokens`, in order, may follow `extra`, as far as there is time to find out."""
        path = [*extra, *tokens]
        for i in range(len(tokens)):
            mask = self._mask_in_time(path[: len(extra) + i])
            if mask is None or not mask.allows(tokens[i]):
                return i
        return len(tokens)

    def permitted(self, draft: Draft) -> Draft:
        """`draft` without the tokens that were looked up and are not allowed, as far as there is time to find
        out, and without what follows them.

        What was drawn stays: a strategy must know of every draw. Samplers give forbidden tokens no chance.
        """
        kept: list[int] = []
        rows = {0: 0}
        for i, (token, parent) in enumerate(zip(draft.tokens.tolist(), draft.parents.tolist(), strict=True)):
            if parent not in rows:
                continue
            if draft.q[i] is None:
                mask = self._mask_in_time([int(draft.tokens[j]) for j in draft.ancestors(parent)])
                if mask is None or not mask.allows(token):
                    continue
            kept.append(i)
            rows[i + 1] = len(kept)
        if len(kept) == len(draft):
            return draft
        parents = [rows[int(draft.parents[i])] for i in kept]
        return Draft(draft.tokens[kept], np.array(parents, np.int32), [draft.q[i] for i in kept])

    def forced(self, extra: Sequence[int] = ()) -> list[int]:
        """The tokens that must follow `extra`, as far as there is no choice and time to find out, MAX_FORCED
        at most.

        The last is an end token where all that is left is to end the answer: which one makes no difference.
        """
        return list(self._forced(extra))

    def commit(self, tokens: Sequence[int]) -> None:
        """`tokens` follow what was committed before; nothing follows an end token. Where the grammar becomes
        too complex on the way, `mask` will say so."""
        ends = bool(tokens) and tokens[-1] in self._end_tokens
        done = tuple(tokens[:-1] if ends else tokens)
        try:
            is_allowed = self._walk(done) and (not ends or self._may_follow(tokens[-1], done))
        except RequestError:
            is_allowed = True  # as far as it could be told
        assert is_allowed, f"the grammar does not allow the generated {list(tokens)}"
        self._committed.extend(done)
        self._path = []
        n = len(done)
        self._masks = {key[n:]: mask for key, mask in self._masks.items() if key[:n] == done}

    def copy(self) -> Constraint:
        """The same, for another thread to go on with."""
        other = copy(self)
        other.spare = copy(self.spare)
        other._matcher = self._matcher.copy()
        other._committed = self._committed.copy()
        other._path = self._path.copy()
        other._masks = self._masks.copy()
        return other

    def _found(self, path: tuple[int, ...]) -> Mask | None:
        """What follows `path`. A matcher that failed stays so, and may have failed for what it had seen of
        other paths: a new one goes on, and along no other than the committed one."""
        try:
            return self._mask() if self._walk(path) else None
        except RequestError as error:
            self.spare.end()
            if self._failure is not None:
                raise
            self._begin_anew(error)
            if path:
                raise
        return self._mask()

    def _begin_anew(self, error: RequestError) -> None:
        """Raises `error` for good where a new matcher does not come as far either, would be the second one,
        or would take so long to make that others had to wait."""
        self._failure = error
        if self._is_anew or self._beginning.compile_s > MAX_RENEWAL_S:
            raise error
        self._is_anew = True
        self._path = []
        self._matcher = self._beginning.anew()
        if self._matcher.advance(self._committed) < len(self._committed):
            raise error
        self._failure = None

    def _mask(self) -> Mask:
        """Of the place where the matcher is."""
        mask = Mask.of(self._matcher.words(), self._n_vocab)
        if self._banned:
            mask = mask.without(self._banned)
        if not self._ignores_end or self._can_only_end(mask):
            return mask
        return mask.without(self._end_tokens)

    def _mask_in_time(self, extra: Sequence[int]) -> Mask | None:
        """As `mask`, for what is of use but not needed; None, too, where that would take too long, or where
        the grammar is too complex."""
        key = tuple(extra)
        if key and key not in self._masks and not self.spare.is_left:
            return None
        try:
            return self.mask(key)
        except RequestError:
            return None

    def _may_follow(self, token: int, path: Sequence[int]) -> bool:
        mask = self.mask(path)
        return mask is not None and mask.allows(token)

    def _can_only_end(self, mask: Mask) -> bool:
        is_short = 0 < mask.n_allowed <= len(self._end_tokens)
        return is_short and all(token in self._end_tokens for token in mask.tokens().tolist())

    def _forced(self, extra: Sequence[int]) -> Iterator[int]:
        path = list(extra)
        for _ in range(MAX_FORCED):
            mask = self._mask_in_time(path)
            if mask is None:
                return
            if self._can_only_end(mask):
                usual = self._end_token
                yield usual if mask.allows(usual) else int(mask.tokens()[0])
                return
            if mask.n_allowed != 1:
                return
            path.append(int(mask.tokens()[0]))
            yield path[-1]

    def _walk(self, path: Sequence[int]) -> bool:
        """Takes the matcher along `path`, and returns whether all of it is allowed and goes on behind it.
        Raises RequestError, as the matcher does."""
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        if not self._end_tokens.isdisjoint(path):
            return False
        n = common_prefix_length(path, self._path)
        if n < len(self._path):
            self._matcher.roll_back(len(self._path) - n)
            del self._path[n:]
        n_more = self._matcher.advance(path[n:]) if n < len(path) else 0
        self._path.extend(path[n : n + n_more])
        return n + n_more == len(path)


def share_spare_time(constraints: Iterable[Constraint]) -> None:
    """A step begins, for these grammars and no others."""
    shared = list(constraints)
    for constraint in shared:
        constraint.spare.renew(SPARE_S / len(shared))
