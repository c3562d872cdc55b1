"""Draws by shared noise: whoever knows seed and place adds the same Gumbel numbers to the same tokens."""

from __future__ import annotations

from lucebox.core import Distribution
from lucebox.sampling.kernels import gumbel
from lucebox.sampling.random import AT_POSITION, SEED_MASK, Purpose

NOISE = Purpose.NOISE | AT_POSITION


def gumbel_argmax(distribution: Distribution, seed: int, position: int) -> int:
    """The argmax of log p(x) + G(seed, position, x), a draw from `distribution`.

    `position` is the index in the sequence that the token is to take, `seed` is taken modulo 2^64, and G is
    standard Gumbel noise, -log(-log u) of a u of 52 random bits. Tokens of probability zero are skipped; the
    lowest id wins a tie. Two laws meet the same noise, so like laws mostly draw the same token.
    """
    return gumbel.gumbel_argmax(distribution.ids, distribution.probs, seed & SEED_MASK, position, NOISE)
