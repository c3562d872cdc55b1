"""Speculative decoding of toy models with the production random numbers, and what comes out of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import overload

from scipy import stats

from lucebox.acceptance import AcceptanceStrategy
from lucebox.core import Distribution, Draft, Verdict
from lucebox.drafters.base import DraftRequest
from lucebox.drafters.drawing import GrowingDraft
from lucebox.sampling.random import RoundRandom
from tests.support.enumerate import Model, Outcomes, distribution

Choose = Callable[[tuple[int, ...], Draft | None, Verdict | None], int]
"""The tokens that the next draft may have, of the text so far and the last round."""
Keep = Callable[[Distribution, int], bool]
"""Whether to draft behind a row, of its law and depth."""


class WatchedRows(Sequence[Distribution]):
    """Rows that remember which of them were asked for."""

    def __init__(self, rows: Sequence[Distribution]) -> None:
        self._rows = rows
        self.asked: set[int] = set()

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, row: int) -> Distribution: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Distribution]: ...
    def __getitem__(self, row: int | slice) -> Distribution | Sequence[Distribution]:
        assert isinstance(row, int)
        self.asked.add(row)
        return self._rows[row]


class Decoder:
    """Decodes with a target and a draft model, as the engine does it: drafts, verifies, commits.

    Drafts have the tree `shape` of a Plan, and end behind `stop_tokens` and where `keep` says so.
    """

    def __init__(
        self,
        strategy: AcceptanceStrategy,
        target: Model,
        drafter: Model,
        choose: Choose,
        *,
        random: Callable[[int, int], RoundRandom] = RoundRandom,
        sparse: bool = False,
        shape: tuple[int, ...] = (),
        keep: Keep = lambda law, depth: True,
        stop_tokens: frozenset[int] = frozenset(),
    ) -> None:
        self.strategy, self.choose, self.random = strategy, choose, random
        self._models = target, drafter
        self._laws: dict[tuple[int, tuple[int, ...]], Distribution] = {}
        self._sparse = sparse
        self._shape, self._keep, self._stop_tokens = shape, keep, stop_tokens

    def tokens(self, seed: int, n: int) -> tuple[int, ...]:
        """The first `n` tokens."""
        text: tuple[int, ...] = ()
        draft: Draft | None = None
        verdict: Verdict | None = None
        while len(text) < n:
            draft = self._draft(seed, text, self.choose(text, draft, verdict))
            verdict = self._verify(seed, text, draft)
            text = (*text, *(int(draft.tokens[i]) for i in verdict.path), verdict.token)
        return text[:n]

    def n_accepted(self, seed: int, gamma: int) -> int:
        """Accepted tokens of one round."""
        return len(self._verify(seed, (), self._draft(seed, (), gamma)).path)

    def round(self, seed: int, n_max: int) -> tuple[Draft, Verdict]:
        """The first round."""
        draft = self._draft(seed, (), n_max)
        return draft, self._verify(seed, (), draft)

    def _verify(self, seed: int, text: tuple[int, ...], draft: Draft) -> Verdict:
        behind = [text]
        for parent, token in zip(draft.parents.tolist(), draft.tokens.tolist(), strict=True):
            behind.append((*behind[parent], token))
        rows = [self._law(0, prefix) for prefix in behind]
        return self.strategy.verify(draft, rows, self.random(seed, len(text)))

    def _draft(self, seed: int, text: tuple[int, ...], n_max: int) -> Draft:
        growing = GrowingDraft(self._request(seed, text, n_max), n_max)
        while n_max and not growing.is_done:
            laws = [self._law(1, (*text, *growing.path(row))) for row in growing.frontier]
            growing.grow(laws, [lambda law=law: law for law in laws])  # type: ignore[misc]
        return growing.draft()

    def _request(self, seed: int, text: tuple[int, ...], n_max: int) -> DraftRequest:
        return DraftRequest(
            sequence=0,
            prefix=text,
            n_max=n_max,
            draw_mode=self.strategy.draw_mode,
            sampler=None,  # type: ignore[arg-type]
            random=self.random(seed, len(text)),
            keep_drafting=self._keep,
            stop_tokens=self._stop_tokens,
            shape=self._shape,
        )

    def _law(self, model: int, prefix: tuple[int, ...]) -> Distribution:
        key = model, prefix
        if key not in self._laws:
            self._laws[key] = distribution(self._models[model](prefix), sparse=self._sparse)
        return self._laws[key]


def p_value(decoder: Decoder, exact: Outcomes, n_runs: int) -> float:
    """χ² of the joint law of the first tokens of `n_runs` seeds against `exact`; 0 if the impossible came
    out."""
    n_tokens = len(next(iter(exact)))
    counts = Counter(decoder.tokens(seed, n_tokens) for seed in range(n_runs))
    if any(tokens not in exact for tokens in counts):
        return 0.0
    likely = [tokens for tokens, weight in exact.items() if weight * n_runs >= 5]
    observed = [counts[tokens] for tokens in likely]
    expected = [float(exact[tokens]) * n_runs for tokens in likely]
    rest = n_runs - sum(expected)
    if rest > 1e-6:
        observed.append(n_runs - sum(observed))
        expected.append(rest)
    return float(stats.chisquare(observed, expected).pvalue)
