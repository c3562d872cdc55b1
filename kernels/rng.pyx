# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Philox 4x32-10 (Salmon et al. 2011). Twin: lucebox/sampling/reference.py."""

from libc.stdint cimport uint32_t, uint64_t

from philox cimport philox4x32


cdef double uniform53(uint64_t seed, uint32_t position, uint32_t offset, uint32_t sibling,
                      uint32_t purpose) noexcept nogil:
    """A double in [0, 1) of 53 random bits."""
    cdef uint32_t[4] words
    words[0], words[1], words[2], words[3] = position, offset, sibling, purpose
    philox4x32(words, <uint32_t> seed, <uint32_t> (seed >> 32))
    return ((words[0] >> 5) * 67108864.0 + (words[1] >> 6)) * (1.0 / 9007199254740992.0)


def philox(tuple counter, tuple key):
    """Four 32-bit words of the counter and two of the key to four random words. OverflowError beyond 32 bits."""
    cdef uint32_t[4] words
    words[0], words[1], words[2], words[3] = counter
    cdef uint32_t key0 = key[0], key1 = key[1]
    philox4x32(words, key0, key1)
    return words[0], words[1], words[2], words[3]


def uniform(uint64_t seed, uint32_t position, uint32_t offset, uint32_t sibling, uint32_t purpose):
    """A float64 in [0, 1) of 53 random bits. `seed` has 64 bits, the other words 32; OverflowError beyond."""
    return uniform53(seed, position, offset, sibling, purpose)
