"""The exact rule that a strategy's own code follows: it is run over every random outcome that matters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from lucebox.acceptance.base import AcceptanceStrategy
from lucebox.core import Distribution, Draft, DrawMode
from lucebox.errors import ConfigError
from lucebox.research.exact_chain import ChainRule, Law, Outcomes
from lucebox.sampling.random import Purpose, RoundRandom

Key = tuple[int, ...]


def rule_of(strategy: AcceptanceStrategy, n_cells: int) -> ChainRule:
    """`strategy` as a rule for lucebox.research.enumeration.

    Every random number that it asks for takes the middle of each of `n_cells` equal parts of [0, 1) in turn.
    That is exact where all it compares them with are multiples of 1/n_cells: probabilities of tokens, ratios
    p/q, residual laws. Raises ConfigError for a strategy on shared noise, which takes a seed instead.
    """
    if strategy.draw_mode is DrawMode.SHARED_NOISE:
        raise ConfigError("a strategy on shared noise has no rule given the draft")

    @lru_cache(maxsize=4096)
    def outcomes(tokens: tuple[int, ...], p: tuple[Law, ...], q: tuple[Law, ...]) -> Outcomes:
        rows = [_distribution(row) for row in p]
        draft = Draft.chain(tokens, [None if 1 in row else _distribution(row) for row in q])
        found: Outcomes = {}
        pending: list[dict[Key, float]] = [{}]
        while pending:
            answers = pending.pop()
            try:
                verdict = strategy.verify(draft, rows, _Answers(0, 0, answers))
            except _UnansweredError as asked:
                middles = [(cell + 0.5) / n_cells for cell in range(n_cells)]
                pending += [answers | {asked.key: u} for u in middles]
                continue
            outcome = (len(verdict.path), verdict.token)
            found[outcome] = found.get(outcome, Fraction(0)) + Fraction(1, n_cells ** len(answers))
        return found

    def rule(tokens: Sequence[int], p: Sequence[Law], q: Sequence[Law]) -> Outcomes:
        return outcomes(tuple(tokens), tuple(p), tuple(q))

    return rule


class _UnansweredError(Exception):
    """A random number was asked for that has no value yet."""

    def __init__(self, key: Key) -> None:
        super().__init__()
        self.key = key


@dataclass(frozen=True, slots=True)
class _Answers(RoundRandom):
    """Answers what it knows, the same to the same question."""

    answers: dict[Key, float]

    def uniform(self, offset: int, purpose: Purpose, sibling: int = 0) -> float:
        return self._answer((offset, purpose, sibling))

    def at_position(self, position: int, purpose: Purpose) -> float:
        return self._answer((position, purpose))

    def _answer(self, key: Key) -> float:
        if key not in self.answers:
            raise _UnansweredError(key)
        return self.answers[key]


def _distribution(law: Law) -> Distribution:
    return Distribution(len(law), np.array([float(w) for w in law], np.float32))
