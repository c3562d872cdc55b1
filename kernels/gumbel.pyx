# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Argmax under Gumbel noise that each token carries in itself. Twin: lucebox/sampling/reference.py.

The argmax of log p - log(-log u) is the argmin of -log(u) / p, and -log(u) >= 1 - u: a token whose 1 - u is too
large already needs no logarithm, which leaves a handful of a whole vocabulary.
"""

from libc.math cimport INFINITY, log
from libc.stdint cimport int32_t, uint32_t, uint64_t

from law cimport Law, law_of
from philox cimport philox4x32


cdef inline double open_unit(uint32_t high, uint32_t low) noexcept nogil:
    """52 random bits in the middle of their cell: never 0, never 1."""
    return ((high >> 6) * 67108864.0 + (low >> 6) + 0.5) * (1.0 / 4503599627370496.0)


cdef inline void race(double u, double p, ptrdiff_t i, double *best, ptrdiff_t *winner) noexcept nogil:
    cdef double arrival
    if 1.0 - u < best[0] * p:
        arrival = -log(u) / p
        if arrival < best[0]:
            best[0] = arrival
            winner[0] = i


cdef ptrdiff_t winner_of(const Law *law, uint64_t seed, uint32_t position, uint32_t purpose) noexcept nogil:
    """The index in the law of the first to arrive; -1 where no probability is positive."""
    cdef uint32_t[4] words
    cdef uint32_t key0 = <uint32_t> seed, key1 = <uint32_t> (seed >> 32)
    cdef ptrdiff_t i = 0, step, winner = -1
    cdef uint32_t token
    cdef double best = INFINITY
    while i < law.n:
        token = <uint32_t> (i if law.ids == NULL else law.ids[i])
        step = 2 if law.ids == NULL else 1
        if law.probs[i] > 0 or (step == 2 and i + 1 < law.n and law.probs[i + 1] > 0):
            words[0], words[1], words[2], words[3] = position, token >> 1, 0, purpose
            philox4x32(words, key0, key1)
            if step == 1 and token & 1:
                race(open_unit(words[2], words[3]), law.probs[i], i, &best, &winner)
            else:
                race(open_unit(words[0], words[1]), law.probs[i], i, &best, &winner)
                if step == 2 and i + 1 < law.n:
                    race(open_unit(words[2], words[3]), law.probs[i + 1], i + 1, &best, &winner)
        i += step
    return winner


def gumbel_argmax(const int32_t[::1] ids, const float[::1] probs not None, uint64_t seed, uint32_t position,
                  uint32_t purpose):
    """The token of the largest log-probability plus noise keyed by (seed, position, purpose, token).

    `ids` None: dense. Never a token of probability zero; ValueError if there is no positive one.
    """
    cdef Law law = law_of(ids, probs)
    cdef ptrdiff_t i
    with nogil:
        i = winner_of(&law, seed, position, purpose)
    if i < 0:
        raise ValueError("a law without a positive probability")
    return i if ids is None else ids[i]
