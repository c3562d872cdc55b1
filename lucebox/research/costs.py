"""What a round costs, for simulations: by rows to verify, in milliseconds or in units of a plain step."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Self

import numpy as np

from lucebox.errors import ConfigError
from lucebox.research.records import RecordedRound


@dataclass(frozen=True, slots=True)
class CostModel:
    """Milliseconds: `verify[rows]` for a forward of the target, `draft` for a drafted token.

    Rows between two measured ones cost what lies between them; rows beyond the largest cost in proportion to
    it. Implements lucebox.draft_length.base.Costs for one drafter that is always caught up.
    """

    verify: Mapping[int, float]
    draft: float

    def __post_init__(self) -> None:
        if 1 not in self.verify:
            raise ConfigError("a cost table needs the cost of verifying one row", remedy='add "1": ms')
        rows_and_ms = [*self.verify.items(), (1, self.draft or 1.0)]
        are_possible = all(1 <= rows < 2**31 and 0 < ms < float("inf") for rows, ms in rows_and_ms)
        if not are_possible or self.draft < 0:
            raise ConfigError("costs must be positive and finite, for one row or more")

    @classmethod
    def textbook(cls, c: float) -> Self:
        """Verifying costs 1 however many rows there are, and a drafted token costs `c`."""
        return cls({1: 1.0, 2**20: 1.0}, c)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """The table in a JSON file: {"verify_ms": {"1": 38.0, "2": 65.0, …}, "draft_ms": 20.0}, or what an
        engine measured and keeps as `costs/*.json` in the cache folder, at an empty context.

        Raises ConfigError for any other content.
        """
        try:
            table = json.loads(Path(path).read_text(encoding="utf-8"))
            if "verify_ms" not in table:
                return cls._of_engine(table["costs"])
            verify = {int(rows): float(ms) for rows, ms in table["verify_ms"].items()}
            draft = float(table["draft_ms"])
        except (ArithmeticError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ConfigError(
                f"{path} is no cost table: {error!r}",
                remedy='write {"verify_ms": {"1": 38.0, "2": 65.0}, "draft_ms": 20.0}',
            ) from error
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
        return cls(verify, draft)

    @classmethod
    def _of_engine(cls, table: Mapping[str, Any]) -> Self:
        verify = {int(rows): float(ms) for rows, ms in table["verify"]["points"].items()}
        return cls(verify, float(table["draft"]["points"]["1"]))

    @classmethod
    def of_rounds(cls, rounds: Sequence[RecordedRound]) -> Self:
        """Medians of recorded rounds, those that caught a drafter up left out.

        Raises ConfigError where no plain round was recorded and none with a draft.
        """
        verify: defaultdict[int, list[float]] = defaultdict(list)
        draft: list[float] = []
        for r in rounds:
            if r.n_rows == len(r) + 1:
                verify[r.n_rows].append(r.verify_ms)
            if len(r) and not r.n_caught_up:
                draft.append(r.draft_ms / len(r))
        if 1 not in verify or not draft:
            raise ConfigError(
                "the trace has no plain round, or none with a draft, to take costs from",
                remedy="give a cost table",
            )
        return cls({rows: median(times) for rows, times in verify.items()}, median(draft))

    @property
    def c(self) -> float:
        """A drafted token in units of a plain step."""
        return self.draft / self.verify[1]

    def verify_ms(self, n_rows: int, n_kv: int = 0) -> float:
        """A forward of `n_rows` rows."""
        rows = sorted(self.verify)
        if n_rows > rows[-1]:
            return self.verify[rows[-1]] * n_rows / rows[-1]
        return float(np.interp(n_rows, rows, [self.verify[r] for r in rows]))

    def draft_ms(self, drafter: str, n_tokens: int, n_kv: int = 0) -> float:
        """A chain of `n_tokens`."""
        return self.draft * n_tokens

    def catch_up_ms(self, drafter: str, n_tokens: int, n_kv: int = 0) -> float:
        """Nothing: the drafter is caught up."""
        return 0.0
