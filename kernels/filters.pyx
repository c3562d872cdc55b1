# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Filters that look at a whole law, and repetitions in a text. Twin: lucebox/sampling/reference.py."""

from libc.math cimport INFINITY, fabs, log
from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc

import numpy as np

from scan cimport lb_rank
from selection cimport keep_heaviest

cdef struct Candidates:
    # By ascending id; `ranks` order them for the filter at hand.
    int32_t *ids
    int32_t *ranks
    double *weights
    ptrdiff_t n


cdef double total_of(const Candidates *c) noexcept nogil:
    cdef double total = 0
    cdef ptrdiff_t i
    for i in range(c.n):
        total += c.weights[i]
    return total


cdef void keep_typical(Candidates *c, double share) noexcept nogil:
    """Ranked by how near -log p is to the entropy."""
    cdef double total = total_of(c), entropy = 0, p
    cdef ptrdiff_t i
    for i in range(c.n):
        p = c.weights[i] / total
        if p > 0:
            entropy -= p * log(p)
    for i in range(c.n):
        p = c.weights[i] / total
        c.ranks[i] = lb_rank(<float> -fabs(-log(p) - entropy) if p > 0 else <float> -INFINITY)
    c.n = keep_heaviest(c.ids, c.ranks, c.weights, c.n, share * total)


cdef void keep_nucleus(Candidates *c, double share) noexcept nogil:
    cdef ptrdiff_t i
    for i in range(c.n):
        c.ranks[i] = lb_rank(<float> c.weights[i])
    c.n = keep_heaviest(c.ids, c.ranks, c.weights, c.n, share * total_of(c))


cdef void exclude_top_choices(Candidates *c, double threshold) noexcept nogil:
    """Of the tokens at or above the threshold only the least likely stays, the last one among ties."""
    cdef double needed = threshold * total_of(c)
    cdef ptrdiff_t i, least = -1, kept = 0
    for i in range(c.n):
        if c.weights[i] >= needed and c.weights[i] > 0 and (least < 0 or c.weights[i] <= c.weights[least]):
            least = i
    for i in range(c.n):
        if c.weights[i] < needed or i == least:
            c.ids[kept] = c.ids[i]
            c.weights[kept] = c.weights[i]
            kept += 1
    c.n = kept


def narrowed(const int32_t[::1] ids not None, const float[::1] probs not None, double typical_p, double top_p,
             double xtc_threshold):
    """The law that typical_p (1: off), then top_p (1: off), then XTC (threshold over 1: off) leave, renormalised.

    Returns ascending int32 ids and float32 probabilities. ValueError where no token has a probability. The twin
    states the exact law.
    """
    cdef ptrdiff_t i, n = ids.shape[0]
    cdef double total
    cdef Candidates c
    cdef int32_t[::1] left_ids
    cdef float[::1] left
    if n != probs.shape[0]:
        raise ValueError("ids and probabilities differ in number")
    c.ids = <int32_t *> malloc(sizeof(int32_t) * (n + 1))
    c.ranks = <int32_t *> malloc(sizeof(int32_t) * (n + 1))
    c.weights = <double *> malloc(sizeof(double) * (n + 1))
    try:
        if c.ids == NULL or c.ranks == NULL or c.weights == NULL:
            raise MemoryError()
        c.n = n
        for i in range(n):
            c.ids[i] = ids[i]
            c.weights[i] = probs[i]
        if not total_of(&c) > 0:
            raise ValueError("a law without a positive probability")
        with nogil:
            if typical_p < 1:
                keep_typical(&c, typical_p)
            if top_p < 1:
                keep_nucleus(&c, top_p)
            if xtc_threshold <= 1:
                exclude_top_choices(&c, xtc_threshold)
            total = total_of(&c)
        out_ids, out = np.empty(c.n, np.int32), np.empty(c.n, np.float32)
        left_ids, left = out_ids, out
        for i in range(c.n):
            left_ids[i] = c.ids[i]
            left[i] = <float> (c.weights[i] / total)
        return out_ids, out
    finally:
        free(c.ids)
        free(c.ranks)
        free(c.weights)


def repetitions(const int32_t[::1] tokens not None, ptrdiff_t longest):
    """How much of the end of `tokens` stands in front of each of them: int32[n], at most `longest`.

    Element i is the length of the longest common suffix of tokens[:i] and tokens. Linear (Z algorithm, from the end).
    """
    cdef ptrdiff_t n = tokens.shape[0], k, left = 0, right = 0, length
    cdef int32_t *z
    cdef int32_t[::1] lengths
    out = np.zeros(n, np.int32)
    lengths = out
    z = <int32_t *> malloc(sizeof(int32_t) * (n + 1))
    if z == NULL:
        raise MemoryError()
    with nogil:
        for k in range(1, n):  # z[k]: how far the reversed text agrees with itself, moved by k
            length = min(<ptrdiff_t> z[k - left], right - k) if k < right else 0
            while k + length < n and tokens[n - 1 - length] == tokens[n - 1 - k - length]:
                length += 1
            z[k] = <int32_t> length
            if k + length > right:
                left, right = k, k + length
            lengths[n - k] = <int32_t> min(length, longest)
    free(z)
    return out
