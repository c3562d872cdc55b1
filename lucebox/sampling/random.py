"""Counter-based random numbers: a draw depends on its key alone, never on batching or on other requests.

Philox 4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"). The seed is the 64-bit
key; the counter is (position, offset, sibling, purpose).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import IntEnum

from lucebox.sampling.kernels import rng

SEED_MASK = 2**64 - 1
AT_POSITION = 1 << 31  # tells the draws of `at_position` from those of a round


class Purpose(IntEnum):
    """What a draw is for. Part of the key, so that no two uses ever see the same number."""

    DRAFT = 0
    ACCEPT = 1
    RESIDUAL = 2
    BONUS = 3
    TARGET = 4
    PLAIN = 5
    NOISE = 6
    XTC = 7


@dataclass(frozen=True, slots=True)
class RoundRandom:
    """The random numbers of one round of one request.

    `seed` is taken modulo 2^64. `position` is where the round starts: the index in the sequence of the
    first token that it will emit. Keying by the round keeps draws that looked at discarded rows from ever
    being met again.
    """

    seed: int
    position: int

    def uniform(self, offset: int, purpose: Purpose, sibling: int = 0) -> float:
        """A float64 in [0, 1), of 53 random bits, for the token `offset` places behind the round's start."""
        return rng.uniform(self.seed & SEED_MASK, self.position, offset, sibling, purpose)

    def at_position(self, position: int, purpose: Purpose) -> float:
        """A float64 in [0, 1) keyed by (seed, position, purpose): the same whatever round meets it."""
        return rng.uniform(self.seed & SEED_MASK, position, 0, 0, purpose | AT_POSITION)


def fresh_seed() -> int:
    """64 bits from the operating system."""
    return int.from_bytes(os.urandom(8), "little")
