"""A Runtime without ggml: the real rows and cache, and logits that a Python function makes of the context."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lucebox.core import Float32Array, Int32Array
from lucebox.errors import DraftLostError
from lucebox.runtime.cache import VISIBLE, Cache
from lucebox.runtime.output import Output
from lucebox.runtime.rows import Rows, Want

LogitsOf = Callable[[tuple[int, ...]], Float32Array]


class FakeRuntime:
    """Reads each row's context from the cells it may see, so that a wrong commit shows as wrong logits.

    Its hidden states are the logits. It has the fewest cells that a Runtime would have, a context for each of
    `n_sequences` (lucebox.runtime.graphs.n_cells_for rounds that up), and none to spare.
    """

    n_batch = 64

    def __init__(
        self,
        n_vocab: int,
        logits_of: LogitsOf,
        *,
        n_ctx: int = 64,
        n_sequences: int = 1,
        n_spare: int = 0,
    ) -> None:
        self.n_vocab = n_vocab
        self.n_ctx = n_ctx
        self.cache = Cache(n_ctx * n_sequences, n_sequences + n_spare)
        self.n_rows_fed: list[int] = []
        self.is_closed = False
        self.why_lost = ""
        self.is_new = False
        self._logits_of = logits_of
        self._cell_tokens = np.full(self.cache.n_cells, -1)
        self._cell_positions = np.full(self.cache.n_cells, -1)
        self._logits = np.empty((self.n_batch, n_vocab), np.float32)

    def forward(self, rows: Rows) -> Output:
        assert not self.is_closed
        if self.why_lost:
            raise DraftLostError(self.why_lost)
        assert 0 < len(rows) <= self.n_batch
        cells = self.cache.reserve(rows)
        self._cell_tokens[cells] = rows.tokens
        self._cell_positions[cells] = rows.positions
        self.n_rows_fed.append(len(rows))
        wanting = np.flatnonzero(rows.wants != Want.NOTHING)
        self._logits[:] = np.nan  # views of an earlier forward are invalid from here on
        for i, row in enumerate(wanting.tolist()):
            self._logits[i] = self._logits_of(self._context(rows, cells, row))
        logits = self._logits[: len(wanting)]
        wants_hidden = bool((rows.wants >= Want.HIDDEN).any())
        return Output(logits, logits.copy() if wants_hidden else None, wanting, len(rows))

    def lost(self) -> str:
        return self.why_lost

    def renew(self) -> None:
        """As if loaded anew, if a test has said so."""
        if self.is_new:
            self.cache, self.is_new = Cache(self.cache.n_cells, self.cache.n_sequences), False

    def close(self) -> None:
        self.is_closed = True

    def _context(self, rows: Rows, cells: Int32Array, row: int) -> tuple[int, ...]:
        sequence = int(rows.sequences[row])
        committed = np.flatnonzero(self.cache.mask(sequence) == VISIBLE)
        order = np.argsort(self._cell_positions[committed])
        positions = self._cell_positions[committed][order].tolist()
        context = self._cell_tokens[committed][order].tolist()
        path: list[int] = []
        while row >= 0:
            path.append(row)
            row = int(rows.parents[row])
        for r in reversed(path):
            positions.append(int(rows.positions[r]))
            context.append(int(rows.tokens[r]))
        assert positions == list(range(len(positions))), "a row sees a gap or a stranger's cell"
        return tuple(context)


def scripted(n_vocab: int, script: Sequence[int], n_prompt: int) -> LogitsOf:
    """Prefers `script[i]` as the i-th token behind a prompt of `n_prompt` tokens, whatever came before."""

    def logits_of(context: tuple[int, ...]) -> Float32Array:
        logits = np.zeros(n_vocab, np.float32)
        i = len(context) - n_prompt
        logits[script[i] if 0 <= i < len(script) else 0] = 20.0
        return logits

    return logits_of


def random_model(
    n_vocab: int, seed: int, *, order: int = 3, noise: float = 0.0, sharpness: float = 2.0
) -> LogitsOf:
    """A random law for each of the last `order` tokens; `noise` makes a draft that agrees partly."""

    def logits_of(context: tuple[int, ...]) -> Float32Array:
        tail = [t + 1 for t in context[-order:]]
        logits = sharpness * np.random.default_rng([seed, *tail]).standard_normal(n_vocab)
        if noise:
            logits += noise * np.random.default_rng([seed + 1, *tail]).standard_normal(n_vocab)
        return logits.astype(np.float32)

    return logits_of
