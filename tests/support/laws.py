"""Speculative decoding of toy models with the production random numbers, and what comes out of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import overload

from scipy import stats

from lucebox.acceptance import AcceptanceStrategy
from lucebox.core import Distribution, Draft, DrawMode, Verdict
from lucebox.sampling.draw import sample
from lucebox.sampling.random import Purpose, RoundRandom
from tests.support.enumerate import Model, Outcomes, distribution

Choose = Callable[[tuple[int, ...], Draft | None, Verdict | None], int]
"""The next draft length, of the text so far and the last round."""


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
    """Decodes with a target and a draft model, as the engine does it: drafts, verifies, commits."""

    def __init__(
        self,
        strategy: AcceptanceStrategy,
        target: Model,
        drafter: Model,
        choose: Choose,
        *,
        random: Callable[[int, int], RoundRandom] = RoundRandom,
        sparse: bool = False,
    ) -> None:
        self.strategy, self.choose, self.random = strategy, choose, random
        self._models = target, drafter
        self._laws: dict[tuple[int, tuple[int, ...]], Distribution] = {}
        self._sparse = sparse

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

    def _verify(self, seed: int, text: tuple[int, ...], draft: Draft) -> Verdict:
        drafted = draft.tokens.tolist()
        rows = [self._law(0, (*text, *drafted[:i])) for i in range(len(draft) + 1)]
        return self.strategy.verify(draft, rows, self.random(seed, len(text)))

    def _draft(self, seed: int, text: tuple[int, ...], gamma: int) -> Draft:
        random = self.random(seed, len(text))
        tokens: list[int] = []
        laws: list[Distribution | None] = []
        for depth in range(gamma):
            q = self._law(1, (*text, *tokens))
            is_sampled = self.strategy.draw_mode is DrawMode.SAMPLE
            tokens.append(sample(q, random.uniform(depth, Purpose.DRAFT)) if is_sampled else q.argmax())
            laws.append(q if is_sampled else None)
        return Draft.chain(tokens, laws)

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
