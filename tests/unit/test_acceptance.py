"""What the package of strategies exports."""

from __future__ import annotations

import pytest

from lucebox import acceptance
from lucebox.acceptance import AcceptanceStrategy
from lucebox.errors import ConfigError
from lucebox.sampling import SamplingParams


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


def test_unknown_names_and_options() -> None:
    with pytest.raises(ConfigError, match="did you mean token"):
        acceptance.create("tokens")
    with pytest.raises(ConfigError, match="no option 'epsilon'"):
        acceptance.create("token:epsilon=0.1")
