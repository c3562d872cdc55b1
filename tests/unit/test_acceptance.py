"""What the package of strategies exports."""

from __future__ import annotations

import numpy as np
import pytest

from lucebox import acceptance
from lucebox.acceptance import AcceptanceStrategy
from lucebox.core import Distribution, Draft, Verdict
from lucebox.errors import ConfigError
from lucebox.sampling import SamplingParams
from lucebox.sampling.random import RoundRandom
from lucebox.sampling.sampler import Sampler
from tests.support.target_rows import CollapsedRows


def test_every_name_is_a_strategy() -> None:
    assert {"greedy", "match", "token"} <= set(acceptance.names())
    for name in acceptance.names():
        assert issubclass(acceptance.get(name), AcceptanceStrategy)
        assert isinstance(acceptance.create(name), AcceptanceStrategy)


@pytest.mark.parametrize(
    ("params", "name"),
    [
        (SamplingParams(), "block"),
        (SamplingParams(seed=0), "match"),
        (SamplingParams(temperature=0.0), "greedy"),
        (SamplingParams(temperature=0.0, seed=1), "greedy"),
    ],
)
def test_default(params: SamplingParams, name: str) -> None:
    assert acceptance.default(params) == name


@pytest.mark.parametrize("is_certain", [False, True], ids=["no q", "one-hot q"])
@pytest.mark.parametrize("name", acceptance.names())
def test_temperature_zero_keeps_what_the_target_would_say(name: str, is_certain: bool) -> None:
    """Both sides see tied logits, and both take the lowest id."""
    sampler = Sampler(SamplingParams(temperature=0.0), 8, [])
    logits = np.array(
        [[0, 2, 0, 2, 1, 2, 0, 0], [3, 0, 0, 0, 0, 0, 3, 3], [0, 0, 0, 0, 1, 1, 1, 0]], np.float32
    )
    rows = [sampler.law(row) for row in logits]
    tokens = [row.argmax() for row in rows[:2]]
    assert tokens == [1, 0]
    draft = Draft.chain(tokens, [row if is_certain else None for row in rows[:2]])
    strategy = acceptance.create(name)
    for seed in range(10):
        assert strategy.verify(draft, rows, RoundRandom(seed, 3)) == Verdict((0, 1), 4, 2)
        collapsed = CollapsedRows([Sampler(SamplingParams(), 8, []).law(row) for row in logits])
        assert strategy.verify(draft, collapsed, RoundRandom(seed, 3)) == Verdict((0, 1), 4, 2)


@pytest.mark.parametrize("name", [name for name in acceptance.names() if acceptance.get(name).lossless])
def test_lossless_strategies_are_greedy_at_temperature_zero(name: str) -> None:
    """A tied token that is not the lowest is none of the target's."""
    laws = [Distribution(4, np.array(row, np.float32)) for row in ([0, 0.5, 0.5, 0], [0.4, 0.3, 0.3, 0])]
    rows = CollapsedRows(laws)
    for token in range(4):
        for q in (None, Distribution.one_hot(4, token)):
            for seed in range(10):
                verdict = acceptance.create(name).verify(
                    Draft.chain([token], [q]), rows, RoundRandom(seed, 0)
                )
                assert verdict == (Verdict((0,), 0, 1) if token == 1 else Verdict((), 1, 0))


def test_unknown_names_and_options() -> None:
    with pytest.raises(ConfigError, match="did you mean token"):
        acceptance.create("tokens")
    with pytest.raises(ConfigError, match="no option 'epsilon'"):
        acceptance.create("token:epsilon=0.1")
