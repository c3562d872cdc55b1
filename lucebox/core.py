"""The plain data of speculation that every layer speaks: laws, drafts, verdicts. Imports no other module."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

Int32Array = NDArray[np.int32]
Float32Array = NDArray[np.float32]
UInt32Array = NDArray[np.uint32]


class DrawMode(Enum):
    """How a drafter must pick its tokens, declared by the acceptance strategy."""

    ARGMAX = "argmax"
    SAMPLE = "sample"  # siblings are independent, and may be equal
    SHARED_NOISE = "shared noise"  # argmax of log q plus the Gumbel noise that the target will add, too
    WITHOUT_REPLACEMENT = "without replacement"  # a sample whose siblings differ


class Origin(Enum):
    """Where an emitted token came from."""

    PLAIN = "plain"
    ACCEPTED = "accepted"
    CORRECTED = "corrected"
    BONUS = "bonus"
    FORCED = "forced"  # the only token that the grammar allowed


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """The filtered, renormalised law of one row.

    Dense when `ids` is None: `probs` is float32[n_vocab]. Sparse otherwise: `ids` is int32[k], strictly
    ascending, `probs` float32[k] their probabilities, and every other token has probability zero.
    """

    n_vocab: int
    probs: Float32Array
    ids: Int32Array | None = None

    @classmethod
    def one_hot(cls, n_vocab: int, token: int) -> Distribution:
        return cls(n_vocab, np.ones(1, np.float32), np.array([token], np.int32))

    def prob(self, token: int) -> float:
        """Probability of `token`; zero outside the support."""
        if self.ids is None:
            return float(self.probs[token])
        i = int(np.searchsorted(self.ids, token))
        return float(self.probs[i]) if i < len(self.ids) and self.ids[i] == token else 0.0

    def argmax(self) -> int:
        """The likeliest token; the lowest id among ties."""
        i = int(np.argmax(self.probs))
        return i if self.ids is None else int(self.ids[i])

    def dense(self) -> Float32Array:
        """float32[n_vocab]."""
        if self.ids is None:
            return self.probs
        out = np.zeros(self.n_vocab, np.float32)
        out[self.ids] = self.probs
        return out


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """Proposed tokens as a tree.

    `tokens[i]` is row i+1 of the verification batch; row 0 is the sequence's last committed token.
    `parents[i]` is the row that token i follows, so a chain has parents 0, 1, 2, ...
    `q[i]` is the law token i was really drawn from, or None for a deterministic proposal (one-hot).
    """

    tokens: Int32Array
    parents: Int32Array
    q: Sequence[Distribution | None]

    @classmethod
    def chain(cls, tokens: Sequence[int], q: Sequence[Distribution | None]) -> Draft:
        return cls(np.asarray(tokens, np.int32), np.arange(len(tokens), dtype=np.int32), q)

    @staticmethod
    @functools.cache
    def empty() -> Draft:
        """No guess: plain decoding. One immutable value for every round."""
        draft = Draft.chain((), ())
        draft.tokens.flags.writeable = draft.parents.flags.writeable = False
        return draft

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def is_chain(self) -> bool:
        return bool(np.array_equal(self.parents, np.arange(len(self.tokens))))

    @property
    def depth(self) -> int:
        """The tokens on the longest path."""
        if self.is_chain:
            return len(self.tokens)
        depths = [0]
        for parent in self.parents.tolist():
            depths.append(depths[parent] + 1)
        return max(depths)

    def ancestors(self, row: int) -> list[int]:
        """Draft indices on the path from the root to `row`, in order (empty for row 0)."""
        path: list[int] = []
        while row > 0:
            path.append(row - 1)
            row = int(self.parents[row - 1])
        return path[::-1]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What verification decided: `path` are the accepted draft indices from the root on, `token` is emitted
    after them, drawn at `row` (the row of the last accepted token, or 0)."""

    path: tuple[int, ...]
    token: int
    row: int


@dataclass(frozen=True, slots=True)
class RoundResult:
    """One sequence's finished round, as its controller learns of it.

    `drafter` is "" where none was asked. `n_drafted` tokens were proposed, `depth` is the length of the
    longest path among them, and `n_accepted` of it stood. `draft_ms` and `verify_ms` are the times of the
    whole batch's drafts and forward, `n_rows` the rows of this sequence in that forward, `n_batch_rows` all
    its rows, `n_kv` the tokens the sequence had before, and `n_caught_up` those that the drafter had to
    compute before its first guess, beyond the last one. `n_judged` laws of the draft were shown to the
    controller, one for each forward of a draft model, `n_hidden` of which ran while the target computed the
    round before; `n_draft_sequences` were drafted for together.
    `tokens` are what the round emitted.
    """

    sequence: int
    drafter: str
    n_drafted: int
    n_accepted: int
    draft_ms: float
    verify_ms: float
    n_rows: int
    n_kv: int
    depth: int = 0
    n_caught_up: int = 0
    n_batch_rows: int = 1
    n_judged: int = 0
    n_draft_sequences: int = 1
    tokens: Sequence[int] = ()
    n_hidden: int = 0
