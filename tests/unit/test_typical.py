"""`typical`: what it accepts, and nothing else."""

from __future__ import annotations

import pytest

from lucebox import acceptance
from lucebox.acceptance.typical import Typical
from lucebox.core import Draft, DrawMode, Verdict
from lucebox.errors import ConfigError
from lucebox.sampling.draw import sample
from lucebox.sampling.random import Purpose, RoundRandom
from tests.support.enumerate import Law, distribution, law
from tests.support.target_rows import CollapsedRows
from tests.support.toy import P3

TYPICAL = acceptance.create("typical")
UNIFORM = law(*[1] * 50)


def accepts(strategy: acceptance.AcceptanceStrategy, p: Law, token: int, *, sparse: bool = False) -> bool:
    row = distribution(p, sparse=sparse)
    verdicts = [
        strategy.verify(Draft.chain([token], [None]), [row, row], RoundRandom(s, 0)) for s in range(5)
    ]
    assert len({verdict.path for verdict in verdicts}) == 1  # no draw takes part in it
    return bool(verdicts[0].path)


def test_flags() -> None:
    assert (TYPICAL.lossless, TYPICAL.needs_q, TYPICAL.supports_trees) == (False, False, False)
    assert TYPICAL.draw_mode is DrawMode.ARGMAX


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("p", "threshold"),
    [(P3, 0.09), (law("0.95", "0.05"), 0.09), (law("0.95", "0.05", 0), 0.09), (UNIFORM, 0.006)],
)
def test_known_thresholds(p: Law, threshold: float, sparse: bool) -> None:
    assert Typical().threshold(distribution(p, sparse=sparse)) == pytest.approx(threshold, rel=1e-6)
    for token, probability in enumerate(p):
        assert accepts(TYPICAL, p, token, sparse=sparse) == (probability > threshold)


def test_the_rule_is_strict() -> None:
    p = law("0.5", "0.25", "0.25")
    assert not accepts(Typical(epsilon=0.25, delta=1.0), p, 1)
    assert accepts(Typical(epsilon=0.2499, delta=1.0), p, 1)


def test_options() -> None:
    strategy = acceptance.create("typical:epsilon=0.4,delta=0.9")
    assert isinstance(strategy, Typical)
    assert (strategy.epsilon, strategy.delta) == (0.4, 0.9)
    assert [accepts(strategy, P3, token) for token in range(3)] == [True, False, False]
    for wrong in ("epsilon=0", "epsilon=1.5", "delta=-1", "delta=nan"):
        with pytest.raises(ConfigError, match=f"typical: {wrong.partition('=')[0]} must be"):
            acceptance.create(f"typical:{wrong}")


def test_a_rejected_token_is_replaced_by_a_draw_from_p() -> None:
    p = distribution(law("0.95", "0.05"))
    drawn = set()
    for seed in range(100):
        random = RoundRandom(seed, 4)
        verdict = TYPICAL.verify(Draft.chain([1, 0], [None, None]), [p, p, p], random)
        assert verdict == Verdict((), sample(p, random.uniform(0, Purpose.RESIDUAL)), 0)
        drawn.add(verdict.token)
    assert drawn == {0, 1}


def test_what_stands_is_followed_by_a_draw_from_the_last_row() -> None:
    p, last = distribution(P3), distribution(law("0.5", 0, "0.5"))
    random = RoundRandom(3, 4)
    verdict = TYPICAL.verify(Draft.chain([0, 2], [None, None]), [p, p, last], random)
    assert verdict == Verdict((0, 1), sample(last, random.uniform(2, Purpose.BONUS)), 2)


def test_temperature_zero_goes_by_the_law_behind_it() -> None:
    flat = law(*[5] * 20, 1)
    rows = CollapsedRows([distribution(P3), distribution(flat), distribution(law("0.95", "0.05"))])
    assert TYPICAL.verify(Draft.chain([2, 19], [None, None]), rows, RoundRandom(0, 0)) == Verdict(
        (0, 1), 0, 2
    )
    assert TYPICAL.verify(Draft.chain([2, 20], [None, None]), rows, RoundRandom(0, 0)) == Verdict((0,), 0, 1)
    likeliest = CollapsedRows([distribution(law(*[2] * 400, 3))] * 2)
    strict = Typical(epsilon=0.9, delta=1.0)
    assert strict.verify(Draft.chain([400], [None]), likeliest, RoundRandom(0, 0)).path == (0,)
