"""Trees of several shapes: the joint law of the first tokens over two rounds and more, with the production
drawing and the production random numbers, and the rates at which candidates are accepted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from lucebox import acceptance
from lucebox.acceptance import AcceptanceStrategy
from lucebox.core import Distribution, Draft, DrawMode, Verdict
from lucebox.research.exact_tree import RULES
from lucebox.research.exact_tree import acceptance as exact_acceptance
from lucebox.sampling.random import Purpose, RoundRandom
from tests.support.enumerate import Law, joint_law, law, one_hot
from tests.support.laws import Choose, Decoder, p_value
from tests.support.toy import P3, P4, Q3, Q4, constant, markov

N_RUNS = 2_000
P, Q = markov(3, 1), markov(3, 3)
LAW_4, OTHER_LAW_4 = law("0.4", "0.3", "0.2", "0.1"), law("0.2", "0.25", "0.35", "0.2")
SPECINFER = acceptance.create("specinfer")
ON_TREES = [name for name in acceptance.names() if acceptance.get(name).supports_trees]
# A new strategy that calls itself lossless is tested by being there.
LOSSLESS = [
    name for name in ON_TREES if acceptance.get(name).lossless and not acceptance.get(name).temperature_0_only
]
SHAPES = {"3": (3,), "2x2": (2, 2), "1x3": (1, 3), "4x1x2": (4, 1, 2), "2, cut short": (2,)}
N_MAX = {"3": 3, "2x2": 6, "1x3": 7, "4x1x2": 16, "2, cut short": 5}


def always(n: int) -> Choose:
    return lambda text, draft, verdict: n


def by_what_was_discarded(text: tuple[int, ...], draft: Draft | None, verdict: Verdict | None) -> int:
    """Sizes that depend on candidates of the last round which fell."""
    return 3 if draft is None or not len(draft) else 2 + 2 * int(draft.tokens[-1])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", LOSSLESS)
def test_trees_keep_the_law(name: str, shape: str) -> None:
    decoder = Decoder(acceptance.create(name), P, Q, always(N_MAX[shape]), shape=SHAPES[shape])
    assert p_value(decoder, joint_law(P, 4), N_RUNS) > 1e-3


@pytest.mark.parametrize("name", LOSSLESS)
def test_trees_keep_the_law_of_sparse_rows(name: str) -> None:
    p, q = markov(5, 3), markov(5, 4)
    decoder = Decoder(acceptance.create(name), p, q, always(9), sparse=True, shape=(3, 2))
    assert p_value(decoder, joint_law(p, 3), N_RUNS) > 1e-3


@pytest.mark.parametrize("name", LOSSLESS)
def test_sizes_may_depend_on_what_was_discarded(name: str) -> None:
    decoder = Decoder(acceptance.create(name), P, Q, by_what_was_discarded, shape=(2, 2))
    assert p_value(decoder, joint_law(P, 4), N_RUNS) > 1e-3


@pytest.mark.parametrize("name", LOSSLESS)
def test_branches_may_end_early(name: str) -> None:
    """A branch ends behind a stop token or an unsure law; what others grow to must not tell of it."""
    decoder = Decoder(
        acceptance.create(name),
        P,
        Q,
        always(8),
        shape=(2, 2),
        keep=lambda q, depth: depth == 0 or float(q.probs.max()) < 0.7,
        stop_tokens=frozenset({2}),
    )
    assert p_value(decoder, joint_law(P, 4), N_RUNS) > 1e-3


@pytest.mark.parametrize("name", LOSSLESS)
def test_deterministic_candidates_keep_the_law(name: str) -> None:
    """Text-based drafters propose without chance, whatever they are asked for: q is one-hot then."""
    strategy = Redrawn(acceptance.create(name))
    decoder = Decoder(strategy, P, Q, always(6), shape=(2, 2))
    assert p_value(decoder, joint_law(P, 4), N_RUNS) > 1e-3


class Redrawn(AcceptanceStrategy):
    """Has its drafts made of the likeliest tokens, which come without laws."""

    lossless = needs_q = supports_trees = True
    draw_mode = DrawMode.ARGMAX

    def __init__(self, strategy: AcceptanceStrategy) -> None:
        self._strategy = strategy

    def verify(self, draft: Draft, p_rows: Sequence[Distribution], random: RoundRandom) -> Verdict:
        assert set(draft.q) == {None}
        return self._strategy.verify(draft, p_rows, random)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ON_TREES)
def test_temperature_zero_is_greedy(name: str, shape: str) -> None:
    """The target's argmax comes out whatever is drafted, and siblings are there to be found."""
    p, q = markov(5, 3), markov(5, 4)
    cold = Decoder(
        acceptance.create(name), collapsed(p), collapsed(q), always(N_MAX[shape]), shape=SHAPES[shape]
    )
    expected = next(iter(joint_law(collapsed(p), 8)))
    assert {cold.tokens(seed, 8) for seed in range(10)} == {expected}


def collapsed(model: Callable[[tuple[int, ...]], Law]) -> Callable[[tuple[int, ...]], Law]:
    def behind(prefix: tuple[int, ...]) -> Law:
        probs = model(prefix)
        return one_hot(len(probs), probs.index(max(probs)))

    return behind


@pytest.mark.parametrize("laws", [(P3, Q3), (P4, Q4)], ids=["P3", "P4"])
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("name", RULES)
def test_acceptance(name: str, k: int, laws: tuple[Law, Law]) -> None:
    p, q = laws
    decoder = Decoder(acceptance.create(name), constant(p), constant(q), always(k), shape=(k,))
    rate = sum(decoder.n_accepted(seed, k) for seed in range(N_RUNS)) / N_RUNS
    expected = float(exact_acceptance(name, p, q, k))
    assert abs(rate - expected) <= 4 * (expected * (1 - expected) / N_RUNS) ** 0.5


def test_dropping_duplicates_would_be_seen() -> None:
    """The trap: it passes P3 and P4, and is biased by a total variation of 29/2000 here."""
    p, q = LAW_4, OTHER_LAW_4
    n_runs = 25_000
    exact = joint_law(constant(p), 1)
    right = Decoder(SPECINFER, constant(p), constant(q), always(2), shape=(2,))
    wrong = Decoder(WithoutDuplicates(), constant(p), constant(q), always(2), shape=(2,))
    assert p_value(right, exact, n_runs) > 1e-3
    assert p_value(wrong, exact, n_runs) < 1e-6
    assert abs(total_variation(wrong, p, n_runs) - 29 / 2000) < 4 * (0.25 / n_runs) ** 0.5


def test_sorting_candidates_would_be_seen() -> None:
    """The trap: the likeliest first is not draw order. Total variation 3/20 on P3."""
    wrong = Decoder(SortedByQ(), constant(P3), constant(Q3), always(2), shape=(2,))
    assert p_value(wrong, joint_law(constant(P3), 1), N_RUNS) < 1e-6
    assert abs(total_variation(wrong, P3, N_RUNS) - 3 / 20) < 4 * (0.25 / N_RUNS) ** 0.5


def test_siblings_that_share_draws_would_be_seen() -> None:
    p, q = constant(LAW_4), constant(OTHER_LAW_4)
    decoder = Decoder(SPECINFER, p, q, always(3), shape=(3,), random=SiblingsShare)
    assert p_value(decoder, joint_law(p, 1), N_RUNS) < 1e-6


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", LOSSLESS)
def test_no_two_draws_of_a_round_share_a_key(name: str, shape: str) -> None:
    """Neither siblings nor nodes at one depth behind different parents."""
    keys: list[tuple[int, Purpose, int]] = []

    class Recorded(RoundRandom):
        def uniform(self, offset: int, purpose: Purpose, sibling: int = 0) -> float:
            keys.append((offset, purpose, sibling))
            return super().uniform(offset, purpose, sibling)

    decoder = Decoder(
        acceptance.create(name), P, Q, always(N_MAX[shape]), shape=SHAPES[shape], random=Recorded
    )
    for seed in range(20):
        keys.clear()
        decoder.round(seed, N_MAX[shape])
        assert len(set(keys)) == len(keys)


class SiblingsShare(RoundRandom):
    """The wrong key: no sibling in it."""

    def uniform(self, offset: int, purpose: Purpose, sibling: int = 0) -> float:
        return super().uniform(offset, purpose, 0)


class WithoutDuplicates(AcceptanceStrategy):
    """`specinfer` on sets of candidates."""

    lossless = needs_q = supports_trees = True
    draw_mode = DrawMode.SAMPLE

    def verify(self, draft: Draft, p_rows: Sequence[Distribution], random: RoundRandom) -> Verdict:
        kept = sorted(draft.tokens.tolist().index(t) for t in set(draft.tokens.tolist()))
        return _judged(draft, kept, p_rows, random)


class SortedByQ(AcceptanceStrategy):
    """`specinfer` with the candidates that q likes best in front."""

    lossless = needs_q = supports_trees = True
    draw_mode = DrawMode.SAMPLE

    def verify(self, draft: Draft, p_rows: Sequence[Distribution], random: RoundRandom) -> Verdict:
        def likelihood(i: int) -> float:
            q = draft.q[i]
            assert q is not None
            return -q.prob(int(draft.tokens[i]))

        return _judged(draft, sorted(range(len(draft)), key=likelihood), p_rows, random)


def _judged(
    draft: Draft, order: Sequence[int], p_rows: Sequence[Distribution], random: RoundRandom
) -> Verdict:
    """The verdict of `specinfer` on the leaves `order` of the root."""
    leaves = replace(
        draft, tokens=draft.tokens[order], parents=draft.parents[order], q=[draft.q[i] for i in order]
    )
    rows = [p_rows[0], *(p_rows[i + 1] for i in order)]
    verdict = SPECINFER.verify(leaves, rows, random)
    path = tuple(order[i] for i in verdict.path)
    return Verdict(path, verdict.token, path[-1] + 1 if path else 0)


def total_variation(decoder: Decoder, p: Law, n_runs: int) -> float:
    counts = [0] * len(p)
    for seed in range(n_runs):
        counts[decoder.tokens(seed, 1)[0]] += 1
    return sum(abs(c / n_runs - float(w)) for c, w in zip(counts, p, strict=True)) / 2
