"""Rows of a request at temperature 0, with the laws behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from lucebox.acceptance.base import TargetRows
from lucebox.core import Distribution


class CollapsedRows(TargetRows):
    """The one-hot limits of `laws`, as the engine has them at temperature 0."""

    def __init__(self, laws: Sequence[Distribution]) -> None:
        self._laws = laws

    def __len__(self) -> int:
        return len(self._laws)

    @overload
    def __getitem__(self, row: int) -> Distribution: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Distribution]: ...
    def __getitem__(self, row: int | slice) -> Distribution | Sequence[Distribution]:
        assert isinstance(row, int)
        return Distribution.one_hot(self._laws[row].n_vocab, self._laws[row].argmax())

    @property
    def is_collapsed(self) -> bool:
        return True

    def uncollapsed(self, row: int) -> Distribution:
        return self._laws[row]
