"""Philox 4x32-10 (Salmon et al. 2011): four words of counter and two of key to four random words."""

from libc.stdint cimport uint32_t, uint64_t


cdef inline void philox4x32(uint32_t *counter, uint32_t key0, uint32_t key1) noexcept nogil:
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
