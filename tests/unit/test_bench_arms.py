"""How arms are written."""

from __future__ import annotations

import pytest

from lucebox.bench import arms
from lucebox.errors import ConfigError
from lucebox.sampling.params import SpeculativeParams


@pytest.mark.parametrize(
    ("spec", "speculative"),
    [
        ("auto", SpeculativeParams(enabled=True, draft_length="auto")),
        ("fixed:n=3", SpeculativeParams(enabled=True, draft_length="fixed:n=3")),
        (
            "model/fixed:n=3",
            SpeculativeParams(enabled=True, drafter="model", draft_length="fixed:n=3"),
        ),
        (
            "suffix,model/auto",
            SpeculativeParams(enabled=True, drafter="suffix,model", draft_length="auto"),
        ),
        (
            "auto/fixed:n=2/token",
            SpeculativeParams(enabled=True, draft_length="fixed:n=2", acceptance="token"),
        ),
    ],
)
def test_arms(spec: str, speculative: SpeculativeParams) -> None:
    arm = arms.parse(spec)
    assert (arm.name, arm.speculative) == (spec, speculative)
    assert arm.is_fixed == ("fixed" in spec)


def test_plain_decoding_is_always_there() -> None:
    found = arms.parse_all(["auto", "fixed:n=1"])
    assert [arm.name for arm in found] == ["plain", "auto", "fixed:n=1"]
    assert found[0].is_fixed
    assert found[0].speculative.enabled is False


@pytest.mark.parametrize(
    ("specs", "words"),
    [
        (["fixd:n=3"], "fixed"),
        (["fixed:m=3"], "'m'"),
        (["modle/auto"], "model"),
        (["model/auto/tokn"], "token"),
        (["suffix,modle/auto"], "model"),
        (["model//token"], "DRAFTER/LENGTH/ACCEPTANCE"),
        (["model/auto/token/1"], "DRAFTER/LENGTH/ACCEPTANCE"),
        (["auto", "auto"], "twice"),
    ],
)
def test_mistakes_are_told(specs: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        arms.parse_all(specs)
