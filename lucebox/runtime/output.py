"""What a forward returns."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lucebox.core import Float32Array, Int32Array


class Output:
    """Results of the rows that want something, in the order of the batch.

    `logits` is float32[n_outputs, n_vocab]; `hidden`, when any row wants it, float32[n_outputs, n_embd],
    the normed state under the head. Both are views of the runtime's memory: valid until its next forward,
    not to be written.
    """

    def __init__(
        self, logits: Float32Array, hidden: Float32Array | None, wanting: NDArray[np.intp], n_rows: int
    ) -> None:
        self.logits = logits
        self.hidden = hidden
        self._wanting = wanting
        self._n_rows = n_rows

    def logits_of(self, row: int) -> Float32Array:
        """float32[n_vocab]: the logits of a row of the batch, which must have wanted them."""
        all_wanted = len(self._wanting) == self._n_rows  # then the index would only repeat the row
        output = row if all_wanted else int(self.row_index[row])
        assert output >= 0, f"row {row} wanted no logits"
        logits: Float32Array = self.logits[output]
        return logits

    @cached_property
    def row_index(self) -> Int32Array:
        """int32[n_rows]: which row of `logits` belongs to a row of the batch, -1 where nothing was wanted."""
        index = np.full(self._n_rows, -1, np.int32)
        index[self._wanting] = np.arange(len(self._wanting))
        return index

    @cached_property
    def argmax(self) -> NDArray[np.int64]:
        """int64[n_outputs]: the likeliest token of each output row, the lowest id among ties."""
        return np.asarray(self.logits.argmax(axis=1), np.int64)
