"""What a forward returns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lucebox.core import Float32Array, Int32Array


@dataclass(frozen=True, eq=False)
class Output:
    """`logits` float32[n_outputs, n_vocab] of the rows that want something, in the order of the batch.

    `row_index` int32[n_rows] says which row of `logits` belongs to a row of the batch, -1 for rows that
    want nothing. `hidden` float32[n_outputs, n_embd], the normed state under the head, when any row
    wants it. All but `row_index` are views of the runtime's memory: valid until its next forward, not
    to be written.
    """

    logits: Float32Array
    row_index: Int32Array
    hidden: Float32Array | None = None

    @cached_property
    def argmax(self) -> NDArray[np.int64]:
        """int64[n_outputs]: the likeliest token of each output row, the lowest id among ties."""
        return np.asarray(self.logits.argmax(axis=1), np.int64)
