"""Drafts from text that the caller expects in the answer, followed as far as the answer follows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lucebox.core import Draft, Int32Array
from lucebox.drafters.base import Drafter, DrafterContext, DraftRequest, Observation
from lucebox.errors import ConfigError

NEAR = 8  # tokens: so close to where the answer left, a single match is enough
MAX_MATCH = 32  # tokens compared at one place
MAX_PLACES = 256  # places compared after a deviation, the nearest ones


@dataclass(slots=True)
class _Alignment:
    """How far the answer has been followed. `place` is where the prediction goes on behind the first `n_seen`
    tokens of the sequence, of which `n_start` are prompt; it is where it was left unless `is_aligned`."""

    n_start: int
    n_seen: int
    place: int = 0
    is_aligned: bool = True
    prediction: Int32Array | None = None  # of the request, once it has asked


class PredictionDrafter(Drafter):
    """Proposes how the request's prediction goes on, as OpenAI's predicted outputs do.

    Where the answer deviates, the draft ends. It goes on where the last tokens of the answer are met again:
    one of them close by, `n_match` of them anywhere; the longest match counts, then the nearest.
    """

    def __init__(self, context: DrafterContext, *, n_match: int = 3) -> None:
        super().__init__(context)
        if not 1 <= n_match <= MAX_MATCH:
            raise ConfigError(f"drafter prediction: n_match must be from 1 to {MAX_MATCH}, not {n_match}")
        self._n_match = n_match
        self._alignments: dict[int, _Alignment] = {}

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [self._draft(request) for request in requests]

    def observe(self, observation: Observation) -> None:
        """Where the answer begins is seen in its first round only."""
        n_prefix = observation.n_prefix
        self._alignments.setdefault(observation.sequence, _Alignment(n_prefix, n_prefix))

    def fork(self, source: int, target: int) -> None:
        self.release(target)
        if source in self._alignments:
            self._alignments[target] = replace(self._alignments[source])

    def release(self, sequence: int) -> None:
        self._alignments.pop(sequence, None)

    def _draft(self, request: DraftRequest) -> Draft:
        if not request.prediction:
            return Draft.empty()
        n_committed = len(request.prefix) - request.n_before
        a = self._alignments.setdefault(request.sequence, _Alignment(n_committed, n_committed))
        if a.prediction is None:
            a.prediction = np.array(request.prediction, np.int32)
        self._follow(a, request.prefix[:n_committed], a.prediction)
        ahead = replace(a)
        self._follow(ahead, request.prefix, a.prediction)
        if not ahead.is_aligned:
            return Draft.empty()
        return request.deterministic(a.prediction[ahead.place : ahead.place + request.n_max].tolist())

    def _follow(self, a: _Alignment, tokens: Sequence[int], prediction: Int32Array) -> None:
        """Brings the alignment up to all of `tokens`."""
        if len(tokens) < a.n_seen:  # the text became another one
            a.n_seen, a.place, a.is_aligned = a.n_start, 0, True
        while a.is_aligned and a.n_seen < len(tokens):
            if a.place < len(prediction) and prediction[a.place] == tokens[a.n_seen]:
                a.place += 1
            else:
                a.is_aligned = False
            a.n_seen += 1
        if not a.is_aligned:
            a.n_seen = len(tokens)
            self._realign(a, tokens, prediction)

    def _realign(self, a: _Alignment, tokens: Sequence[int], prediction: Int32Array) -> None:
        """Looks for where the prediction has the last tokens of the answer, and goes on behind them."""
        ends = np.flatnonzero(prediction == tokens[a.n_seen - 1]) + 1
        distances = np.abs(2 * (ends - a.place) - 1)  # ahead before behind
        ends = ends[np.argsort(distances, kind="stable")][:MAX_PLACES]
        longest = 0
        for end in ends.tolist():
            limit = min(MAX_MATCH, end, a.n_seen - a.n_start)
            n = 1
            while n < limit and prediction[end - 1 - n] == tokens[a.n_seen - 1 - n]:
                n += 1
            if n > longest and (n >= self._n_match or abs(end - a.place) <= NEAR):
                longest = n
                place = end
        if longest:
            a.place, a.is_aligned = place, True


Plugin = PredictionDrafter
