"""One vector for a text: what its tokens' hidden states are pooled to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lucebox.config import Pooling
from lucebox.core import Int32Array
from lucebox.engine.messages import Embed, Embedded
from lucebox.errors import EngineError
from lucebox.runtime.output import Output
from lucebox.runtime.rows import Rows, Want


class Pooler:
    """Takes the final norm's states of a text of `n_tokens`, in order and as they are computed.

    `mean` is that of all tokens, `last` and `cls` are the last and the first one's, as sentence-transformers
    calls them. The vector has length 1.
    """

    def __init__(self, embed: Embed) -> None:
        self._id = embed.id
        self._pooling: Pooling = embed.pooling
        self._n_tokens = len(embed.prompt)
        self._n_seen = 0
        self._sum: NDArray[np.float64] | None = None

    def wants(self, n: int) -> Int32Array:
        """int32[n]: what is wanted of the next `n` tokens."""
        wants = np.full(n, Want.NOTHING, np.int32)
        match self._pooling:
            case "mean":
                wants[:] = Want.STATE
            case "cls" if self._n_seen == 0:
                wants[0] = Want.STATE
            case "last" if self._n_seen + n == self._n_tokens:
                wants[-1] = Want.STATE
        return wants

    def rows(self, slot: int, tokens: Sequence[int]) -> Rows:
        """`tokens`, the next ones, as sequence `slot` of the cache."""
        rows = Rows.chain(slot, tokens, self._n_seen)
        rows.wants[:] = self.wants(len(tokens))
        return rows

    def add(self, output: Output, first_row: int, n: int) -> Embedded | None:
        """Takes the next `n` tokens, which `output` has from `first_row` on; the embedding after the last.

        Raises EngineError for states that are no numbers.
        """
        wanted = first_row + np.flatnonzero(self.wants(n))
        self._n_seen += n
        if len(wanted):
            assert output.hidden is not None
            states = output.hidden[output.row_index[wanted]]
            total = np.asarray(states.sum(axis=0), np.float64)
            self._sum = total if self._sum is None else self._sum + total
        return Embedded(id=self._id, vector=self._vector()) if self._n_seen == self._n_tokens else None

    def _vector(self) -> bytes:
        """A sum points where the mean does."""
        assert self._sum is not None
        length = float(np.linalg.norm(self._sum))
        if not np.isfinite(length):
            raise EngineError(
                "the model's hidden states are no numbers",
                remedy="check the model file's hash, and the device",
            )
        unit = self._sum / length if length else self._sum
        return unit.astype("<f4").tobytes()
