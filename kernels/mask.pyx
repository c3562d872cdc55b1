# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What a grammar's bits leave of a vocabulary. Twin: lucebox/sampling/reference.py.

Bit i % 32 of word i // 32 says whether token i is allowed; bits behind the vocabulary are not looked at, and
tokens behind the bits are not allowed.
"""

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, uint32_t
from libc.string cimport memcpy

import numpy as np

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define lb_popcount __builtin_popcount
    #define lb_lowest __builtin_ctz
    #else
    static inline int lb_popcount(unsigned int x) { int n = 0; for (; x; x &= x - 1) n++; return n; }
    static inline int lb_lowest(unsigned int x) { int n = 0; while (!((x >> n) & 1)) n++; return n; }
    #endif
    """
    int lb_popcount(uint32_t word) nogil
    int lb_lowest(uint32_t word) nogil


cdef inline uint32_t word_at(const uint32_t[::1] words, ptrdiff_t i, ptrdiff_t n_vocab) noexcept nogil:
    """Word i, with the bits behind the vocabulary cleared."""
    cdef ptrdiff_t n = n_vocab - 32 * i
    return words[i] if n >= 32 else words[i] & ((<uint32_t> 1 << n) - 1)


cdef inline ptrdiff_t n_words(const uint32_t[::1] words, ptrdiff_t n_vocab) noexcept nogil:
    return min(words.shape[0], (n_vocab + 31) // 32)


def count(const uint32_t[::1] words not None, ptrdiff_t n_vocab):
    """How many of `n_vocab` tokens are allowed."""
    cdef ptrdiff_t i, n = 0
    with nogil:
        for i in range(n_words(words, n_vocab)):
            n += lb_popcount(word_at(words, i, n_vocab))
    return n


def allowed(const uint32_t[::1] words not None, ptrdiff_t n_vocab):
    """int32 ids of the tokens that are allowed, ascending."""
    cdef ptrdiff_t i, n = 0
    cdef uint32_t word
    out = np.empty(count(words, n_vocab), np.int32)
    cdef int32_t[::1] ids = out
    with nogil:
        for i in range(n_words(words, n_vocab)):
            word = word_at(words, i, n_vocab)
            while word:
                ids[n] = <int32_t> (32 * i + lb_lowest(word))
                n += 1
                word &= word - 1
    return out


def masked(const float[::1] logits not None, const uint32_t[::1] words not None):
    """A copy of `logits` (float32[n_vocab]) with -infinity for every token that is not allowed."""
    cdef ptrdiff_t i, j, n, n_vocab = logits.shape[0], end = n_words(words, n_vocab)
    cdef uint32_t word
    out = np.empty(n_vocab, np.float32)
    cdef float[::1] row = out
    with nogil:
        for i in range(end):
            word = word_at(words, i, n_vocab)
            n = min(32, n_vocab - 32 * i)
            if word == <uint32_t> 0xFFFFFFFF:
                memcpy(&row[32 * i], &logits[32 * i], 32 * sizeof(float))
                continue
            for j in range(n):
                row[32 * i + j] = logits[32 * i + j] if (word >> j) & 1 else -INFINITY
        for i in range(32 * end, n_vocab):
            row[i] = -INFINITY
    return out
