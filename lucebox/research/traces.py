"""Traces: what a run drafted, what both models thought of it, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from lucebox.research.records import RecordedRequest, RecordedRound, TraceHeader
from lucebox.research.trace_file import read_records


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded run. `rounds` are in the order in which they were judged."""

    header: TraceHeader
    requests: Sequence[RecordedRequest]
    rounds: Sequence[RecordedRound]

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """The trace in `path`. Raises TraceError for a file that is damaged or no trace, and OSError."""
        records = read_records(path)
        header = next(records)
        assert isinstance(header, TraceHeader)
        requests: list[RecordedRequest] = []
        rounds: list[RecordedRound] = []
        for record in records:
            if isinstance(record, RecordedRequest):
                requests.append(record)
            elif isinstance(record, RecordedRound):
                rounds.append(record)
        return cls(header, requests, rounds)

    @property
    def drafted(self) -> list[RecordedRound]:
        """The rounds that something was drafted in."""
        return [r for r in self.rounds if len(r)]

    def answer(self, request: str) -> list[int]:
        """The tokens that `request` was answered with, by its rounds; what follows an end token included."""
        answer: list[int] = []
        for r in self.rounds:
            if r.request == request:
                answer += [*(int(r.tokens[i]) for i in r.verdict.path), r.verdict.token]
        return answer
