"""Toy language models with exact laws."""

from __future__ import annotations

from functools import cache

from tests.support.enumerate import Law, Model, law, one_hot


def constant(exact: Law) -> Model:
    """The same law behind every prefix."""
    return lambda prefix: exact


TOY_P, TOY_Q = law("1/3", "2/3"), law("2/3", "1/3")
P3, Q3 = law("0.5", "0.3", "0.2"), law("0.2", "0.5", "0.3")
P4, Q4 = law("0.6", "0.3", "0.1", 0), law("0.4", "0.2", "0.2", "0.2")


def markov(n_vocab: int, salt: int) -> Model:
    """A law for each of the last two tokens, some of whose probabilities are zero."""

    @cache
    def behind(a: int, b: int) -> Law:
        weights = [
            (salt * (i + 2) + 3 * (a + 2) * (i + 1) + 5 * (b + 2) * (i + salt)) % 7 for i in range(n_vocab)
        ]
        return law(*weights) if any(weights) else one_hot(n_vocab, 0)

    return lambda prefix: behind(*(-1, -1, *prefix)[-2:])
