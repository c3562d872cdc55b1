"""Recorded rounds judged again: exact expectations against enumeration, and strategies against both."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucebox import acceptance
from lucebox.core import Distribution, Verdict
from lucebox.draft_length.base import Costs, DraftLengthController, Plan, SequenceState
from lucebox.errors import ConfigError
from lucebox.research import RecordedRound, Trace, TraceHeader, Truncation
from lucebox.research.costs import CostModel
from lucebox.research.enumeration import expected_accepted as enumerated
from lucebox.research.enumeration import gumbel_expected_accepted
from lucebox.research.exact_chain import RULES as CHAIN_RULES
from lucebox.research.exact_chain import Law
from lucebox.research.expected import STRATEGIES, Bounds, expected_accepted, standing
from lucebox.research.kept_law import keep
from lucebox.research.records import RecordedRequest
from lucebox.research.replay import replay
from lucebox.sampling.params import SamplingParams
from tests.support.enumerate import distribution
from tests.support.toy import P3, P4, Q3, Q4, TOY_P, TOY_Q

EXACT = Truncation(exact=True)
COSTS = CostModel({1: 10.0, 8: 20.0}, 1.0)
PAIRS = [(P3, Q3), (P4, Q4), (TOY_P, TOY_Q)]


def round_of(
    tokens: Sequence[int],
    p: Sequence[Distribution],
    q: Sequence[Distribution | None],
    truncation: Truncation = EXACT,
    *,
    parents: Sequence[int] | None = None,
    has_q: bool = True,
) -> RecordedRound:
    """A round of which nothing was accepted."""
    rows = range(len(tokens)) if parents is None else parents
    kept = [
        keep(
            p[i],
            [q[j] for j, row in enumerate(rows) if row == i],
            [tokens[j] for j, row in enumerate(rows) if row == i],
            truncation,
        )
        for i in range(len(tokens) + 1)
    ]
    laws = [iter(qs) for _, qs in kept]
    return RecordedRound(
        request="r0",
        n_prefix=7,
        drafter="model",
        tokens=np.array(tokens, np.int32),
        parents=np.array(rows, np.int32),
        p=[law for law, _ in kept],
        q=[next(laws[row]) for row in rows],
        has_q=has_q,
        verdict=Verdict((), 0, 0),
        draft_ms=1.0,
        verify_ms=10.0,
        n_rows=len(tokens) + 1,
        n_caught_up=0,
    )


def trace_of(rounds: Sequence[RecordedRound], temperature: float = 1.0) -> Trace:
    header = TraceHeader(
        target="target",
        draft="draft",
        n_vocab=rounds[0].p[0].known.n_vocab,
        acceptance="block",
        draft_length="fixed:n=3",
        drafters=("model",),
        params=SamplingParams(temperature=temperature),
        truncation=EXACT,
    )
    return Trace(header, [RecordedRequest(id="r0", prompt=[1], seed=1)], rounds)


def chains(p: Law, q: Law, gamma: int) -> list[tuple[RecordedRound, Fraction]]:
    """A round for every chain that may be drawn from q, and how likely it is."""
    found = []
    for tokens in product(range(len(q)), repeat=gamma):
        weight = Fraction(1)
        for token in tokens:
            weight *= q[token]
        if weight:
            laws = [distribution(p)] * (gamma + 1)
            found.append((round_of(tokens, laws, [distribution(q)] * gamma), weight))
    return found


@pytest.mark.parametrize(("p", "q"), PAIRS)
@pytest.mark.parametrize("gamma", [1, 3])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_expectations_over_all_chains_are_the_exact_ones(strategy: str, gamma: int, p: Law, q: Law) -> None:
    rounds = chains(p, q, gamma)
    bounds = [expected_accepted(strategy, r) for r, _ in rounds]
    assert all(low == high for low, high in bounds)
    found = sum(float(weight) * b.low for b, (_, weight) in zip(bounds, rounds, strict=True))
    if strategy == "gumbel":
        assert found == pytest.approx(float(gumbel_expected_accepted(p, q, gamma)), rel=1e-6)
    else:
        assert found == pytest.approx(float(enumerated(CHAIN_RULES[strategy], p, q, gamma)), rel=1e-6)


@pytest.mark.parametrize(("p", "q"), PAIRS[:2])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategies_accept_what_is_expected_of_them(strategy: str, p: Law, q: Law) -> None:
    """Each chain as often as it is drafted, judged by the production code: 4 standard errors."""
    rounds = [r for r, weight in chains(p, q, 2) for _ in range(int(1000 * weight))]
    result = replay(trace_of(rounds), strategy, n_times=5)
    expected = sum(expected_accepted(strategy, r).low for r in rounds) / len(rounds)
    assert result.n_rounds == 5 * len(rounds)
    assert result.n_drafted == 2 * result.n_rounds
    assert result.n_accepted == sum(result.n_accepted_at)
    found, error = result.mean_acceptance_length - 1, 4 * (1.0 / result.n_rounds) ** 0.5
    assert abs(found - expected) < error
    assert result.acceptance_rate == pytest.approx(found / 2)


def test_a_seed_fixes_a_replay() -> None:
    trace = trace_of([r for r, _ in chains(P3, Q3, 3)])
    first = replay(trace, "token", seed=1, n_times=3)
    assert replay(trace, "token", seed=1, n_times=3) == first
    assert replay(trace, "token", seed=2, n_times=3) != first


weights = st.lists(st.integers(0, 50), min_size=6, max_size=6).filter(any)


@st.composite
def rounds(draw: st.DrawFn, truncation: Truncation = EXACT) -> RecordedRound:
    """A round of up to five tokens of any laws, some of them deterministic."""
    n = draw(st.integers(1, 5))
    p = [_law(draw(weights)) for _ in range(n + 1)]
    tokens: list[int] = []
    q: list[Distribution | None] = []
    for _ in range(n):
        law = _law(draw(weights))
        tokens.append(draw(st.sampled_from(np.flatnonzero(law.probs).tolist())))
        q.append(None if draw(st.integers(0, 4)) == 0 else law)
    return round_of(tokens, p, q, truncation)


def _law(of: list[int]) -> Distribution:
    return Distribution(len(of), (np.array(of) / sum(of)).astype(np.float32))


@given(rounds())
def test_block_is_never_expected_to_accept_less_than_token(r: RecordedRound) -> None:
    block, token = expected_accepted("block", r).low, expected_accepted("token", r).low
    match, gumbel = expected_accepted("match", r).low, expected_accepted("gumbel", r).low
    assert 0 <= match <= gumbel + 1e-6 <= token + 2e-6
    assert token <= block <= len(r)


@given(st.data(), st.integers(1, 5), st.floats(0.1, 1.0))
def test_truncation_leaves_bounds_around_the_truth(data: st.DataObject, top_k: int, mass: float) -> None:
    whole = data.draw(rounds())
    cut = round_of(
        whole.tokens.tolist(),
        [law.known for law in whole.p],
        [None if law is None else law.known for law in whole.q],
        Truncation(top_k=top_k, mass=mass),
    )
    for strategy in STRATEGIES:
        truth, bounds = expected_accepted(strategy, whole).low, expected_accepted(strategy, cut)
        assert bounds.low - 1e-5 <= truth <= bounds.high + 1e-5
        assert strategy == "gumbel" or bounds == Bounds(truth, truth)


def test_each_place_of_a_chain() -> None:
    """p/q of P3: 2.5, .6, 2/3. `block` carries over what the first token has to spare, capped at 1."""
    r = round_of([1, 0, 1], [distribution(P3)] * 4, [distribution(Q3)] * 3)
    assert [s.low for s in standing("token", r)] == pytest.approx([0.6, 0.6, 0.36])
    assert [s.low for s in standing("block", r)] == pytest.approx([0.6, 1.0, 0.6])
    assert [s.low for s in standing("match", r)] == pytest.approx([0.3, 0.15, 0.045])


def test_no_formula_is_an_error() -> None:
    (r, _), *_ = chains(P3, Q3, 2)
    with pytest.raises(ConfigError, match="did you mean token"):
        expected_accepted("tokn", r)
    tree = round_of([0, 1], [distribution(P3)] * 3, [distribution(Q3)] * 2, parents=[0, 0])
    with pytest.raises(ConfigError, match="trees"):
        expected_accepted("block", tree)
    with pytest.raises(ConfigError, match="laws of the draft"):
        expected_accepted("token", round_of([0], [distribution(P3)] * 2, [None], has_q=False))


def test_trees_are_replayed_by_strategies_that_judge_them() -> None:
    tree = round_of([1, 2], [distribution(P3)] * 3, [distribution(Q3)] * 2, parents=[0, 0])
    result = replay(trace_of([tree]), "specinfer", n_times=2000)
    assert result.n_drafted == 4000
    assert 0.5 < result.mean_acceptance_length - 1 <= 1
    with pytest.raises(ConfigError, match="trees"):
        replay(trace_of([tree]), "block")
    with pytest.raises(ConfigError, match="without a controller"):
        replay(trace_of([tree]), "specinfer", "fixed:n=1", costs=COSTS)


def test_strategies_that_lack_something_are_refused() -> None:
    (r, _), *_ = chains(P3, Q3, 2)
    with pytest.raises(ConfigError, match="temperature 0"):
        replay(trace_of([r]), "greedy")
    assert replay(trace_of([r], temperature=0.0), "greedy").n_rounds == 1
    unknown = round_of([0], [distribution(P3)] * 2, [None], has_q=False)
    for strategy in ("token", "gumbel"):
        with pytest.raises(ConfigError, match="laws of the draft"):
            replay(trace_of([unknown]), strategy)
    assert replay(trace_of([unknown]), "match").n_rounds == 1


def test_controllers_see_what_a_chain_shows_and_no_more() -> None:
    sure, unsure = distribution((Fraction(9, 10), Fraction(1, 10), Fraction(0))), distribution(Q3)
    rounds = [round_of([0, 0, 0], [distribution(P3)] * 4, [sure, sure, unsure])]
    result = replay(trace_of(rounds), "token", "threshold:n=8,p_min=0.6", costs=COSTS)
    assert (result.n_drafted, result.n_censored) == (2, 0)
    result = replay(trace_of(rounds), "token", "threshold:n=8,p_min=0.4", costs=COSTS)
    assert (result.n_drafted, result.n_censored) == (3, 1)
    result = replay(trace_of(rounds), "token", "fixed:n=1", costs=COSTS)
    assert (result.n_drafted, result.n_censored) == (1, 0)
    assert result.ms == pytest.approx(1.0 + 10.0 + 10.0 / 7)


@pytest.mark.parametrize("controller", ["fixed:n=2", "threshold", "auto"])
def test_controllers_run_over_a_whole_trace(controller: str) -> None:
    rounds = [r for r, _ in chains(P3, Q3, 3)] * 3
    result = replay(trace_of(rounds), "block", controller, costs=COSTS)
    assert result.n_rounds == len(rounds)
    assert result.ms_per_token > 0
    assert result.n_accepted <= result.n_drafted <= 3 * len(rounds)


class Impatient(DraftLengthController):
    """Has a draft end behind its second token, and thinks little of what was looked up."""

    def plan(self, batch: Sequence[SequenceState], costs: Costs) -> dict[int, Plan]:
        (state,) = batch
        assert state.acceptance == "Token"
        return {state.sequence: Plan("nobody", 3, otherwise=Plan(state.drafters[0], 8))}

    def is_long_enough(self, sequence: int, depth: int) -> bool:
        return depth == 2

    def trim(self, sequence: int, drafter: str, tokens: Sequence[int]) -> int:
        return len(tokens) - 2


def test_controllers_end_and_trim_drafts() -> None:
    token = acceptance.create("token")
    drawn = round_of([0, 0, 0], [distribution(P3)] * 4, [distribution(Q3)] * 3)
    looked_up = round_of([0, 0, 0], [distribution(P3)] * 4, [None] * 3)
    for r, n_drafted in ((drawn, 2), (looked_up, 1)):
        result = replay(trace_of([r]), token, Impatient(), costs=COSTS)
        assert (result.n_drafted, result.n_censored) == (n_drafted, 0)


def test_no_draft_at_all_is_plain_decoding() -> None:
    for strategy in ("gumbel", "token"):
        rounds = [r for r, _ in chains(P3, Q3, 2)]
        result = replay(trace_of(rounds), strategy, "threshold:n=2,p_min=0.9", costs=COSTS)
        assert (result.n_drafted, result.acceptance_rate, result.mean_acceptance_length) == (0, 0.0, 1.0)
        assert result.ms_per_token == 10.0


def test_rounds_that_no_noise_drafts_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucebox.research.replay.MAX_NOISE_TRIES", 1)
    rounds = [r for r, _ in chains(P3, Q3, 2)]
    result = replay(trace_of(rounds), "gumbel", n_times=50)
    assert result.n_rounds + result.n_unjudged == 50 * len(rounds)
    assert result.n_unjudged > 100


def test_a_controller_needs_costs() -> None:
    (r, _), *_ = chains(P3, Q3, 2)
    with pytest.raises(ConfigError, match="cost table"):
        replay(trace_of([r]), "token", "fixed:n=1")


def test_costs_of_a_trace() -> None:
    drafted = [r for r, _ in chains(P3, Q3, 3)][:3]
    plain = round_of([], [distribution(P3)], [])
    assert CostModel.of_rounds([*drafted, plain]) == CostModel({1: 10.0, 4: 10.0}, 1.0 / 3)
    with pytest.raises(ConfigError, match="no plain round"):
        CostModel.of_rounds(drafted)
