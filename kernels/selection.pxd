# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Radix selection: who of many weighs most, without sorting them. Linear whatever the ranks."""

from libc.stdint cimport int32_t, uint32_t
from libc.string cimport memset


cdef inline int32_t select(const int32_t *ranks, const double *weights, ptrdiff_t n, double needed,
                           double *above) noexcept nogil:
    """The highest rank at which the weights (NULL: 1 each), summed from above, reach `needed` > 0.

    `above` becomes the sum strictly above it. If rounding keeps all of them below `needed`, the lowest rank.
    """
    cdef double[256] bins
    cdef uint32_t prefix = 0, mask = 0, key
    cdef ptrdiff_t i
    cdef int shift, b, last
    above[0] = 0
    for shift in range(24, -1, -8):
        memset(bins, 0, sizeof(bins))
        for i in range(n):
            key = <uint32_t> ranks[i] ^ <uint32_t> 0x80000000
            if key & mask == prefix:
                bins[(key >> shift) & 255] += weights[i] if weights else 1.0
        last = -1
        for b in range(255, -1, -1):
            if bins[b] > 0:
                if last >= 0:
                    above[0] += bins[last]
                last = b
                if above[0] + bins[b] >= needed:
                    break
        prefix |= <uint32_t> last << shift
        mask |= <uint32_t> 255 << shift
    return <int32_t> (prefix ^ <uint32_t> 0x80000000)


cdef inline ptrdiff_t keep_heaviest(int32_t *ids, int32_t *ranks, double *weights, ptrdiff_t n,
                                    double needed) noexcept nogil:
    """Keeps, in place and order, the fewest elements of highest rank whose weights (NULL: 1 each) reach `needed`;
    the first ones among those of equal rank. Returns their number."""
    cdef double sum
    cdef int32_t lowest = select(ranks, weights, n, needed, &sum)
    cdef ptrdiff_t i, kept = 0
    for i in range(n):
        if ranks[i] > lowest or (ranks[i] == lowest and sum < needed):
            if ranks[i] == lowest:
                sum += weights[i] if weights else 1.0
            ids[kept] = ids[i]
            ranks[kept] = ranks[i]
            if weights:
                weights[kept] = weights[i]
            kept += 1
    return kept
