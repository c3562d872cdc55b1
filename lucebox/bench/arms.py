"""What is compared: ways to guess, written `DRAFTER/LENGTH/ACCEPTANCE`, and plain decoding."""

from __future__ import annotations

from dataclasses import dataclass

from lucebox import acceptance, draft_length, drafters
from lucebox.config import AUTO
from lucebox.errors import ConfigError
from lucebox.plugins import parse_spec
from lucebox.sampling.params import SpeculativeParams


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to decode, asked for with every request. `name` is what the user wrote."""

    name: str
    speculative: SpeculativeParams

    @property
    def is_fixed(self) -> bool:
        """Whether nothing is decided on the way: plain decoding, and drafts of a fixed length."""
        length = self.speculative.draft_length
        return self.speculative.enabled is False or (length is not None and parse_spec(length)[0] == "fixed")


PLAIN = Arm("plain", SpeculativeParams(enabled=False))


def parse(spec: str) -> Arm:
    """`LENGTH`, `DRAFTER/LENGTH` or `DRAFTER/LENGTH/ACCEPTANCE`; `auto` leaves a choice to the engine.

    Raises ConfigError for what no plug-in knows.
    """
    parts = [part.strip() for part in spec.split("/")]
    if len(parts) > 3 or not all(parts):
        raise ConfigError(
            f"--arm {spec!r} is no way to guess",
            remedy="write LENGTH, DRAFTER/LENGTH or DRAFTER/LENGTH/ACCEPTANCE",
        )
    if len(parts) == 1:
        parts.insert(0, AUTO)
    drafter, length, judge = (*parts, AUTO)[:3]
    draft_length.create(length)
    if drafter != AUTO:
        drafters.check(drafter)
    if judge != AUTO:
        acceptance.create(judge)
    speculative = SpeculativeParams(
        enabled=True,
        draft_length=length,
        drafter=None if drafter == AUTO else drafter,
        acceptance=None if judge == AUTO else judge,
    )
    return Arm(spec, speculative)


def parse_all(specs: list[str]) -> tuple[Arm, ...]:
    """Plain decoding, then each of `specs`. Raises ConfigError, for one given twice too."""
    twice = next((spec for i, spec in enumerate(specs) if spec in specs[:i]), None)
    if twice is not None:
        raise ConfigError(f"--arm {twice} is given twice")
    return (PLAIN, *(parse(spec) for spec in specs))
