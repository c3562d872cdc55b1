# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Philox 4x32-10 (Salmon et al. 2011). Twin: lucebox/sampling/reference.py."""

from libc.stdint cimport uint32_t, uint64_t


cdef void philox4x32(uint32_t *counter, uint32_t key0, uint32_t key1) noexcept nogil:
    """Replaces the four words of `counter` by four random ones."""
    cdef uint64_t a, b
    cdef uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3]
    cdef int i
    for i in range(10):
        a = <uint64_t> 0xD2511F53 * c0
        b = <uint64_t> 0xCD9E8D57 * c2
        c0 = <uint32_t> (b >> 32) ^ c1 ^ key0
        c1 = <uint32_t> b
        c2 = <uint32_t> (a >> 32) ^ c3 ^ key1
        c3 = <uint32_t> a
        key0 += <uint32_t> 0x9E3779B9
        key1 += <uint32_t> 0xBB67AE85
    counter[0], counter[1], counter[2], counter[3] = c0, c1, c2, c3


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
