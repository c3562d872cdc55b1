# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The sampler chain on one row of logits, without sorting it. Twin: lucebox/sampling/reference.py.

Whoever is to survive a filter is found by block maxima: the k-th largest of them bounds the k-th largest logit from
below, so that one pass over the row and a look into a few blocks leave hardly more candidates than survivors.
Candidates are cut by radix selection, which is linear whatever the logits.
"""

from libc.float cimport FLT_MAX
from libc.math cimport INFINITY, log, nextafterf
from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

import numpy as np

from lucebox.errors import LogitsError

from law cimport Law, draw_excess, law_of
from scan cimport LB_BLOCK, lb_block_maxima, lb_exp_sum, lb_rank, lb_scale, lb_value, lb_weigh
from selection cimport keep_heaviest, select

cdef float COLDEST = 1e-30  # a temperature below would overflow float32, and is as good as zero

cdef struct Scratch:
    # Of one row: the highest rank of each block, then ids, ranks and weights of what survives, by ascending id.
    int32_t *highest
    int32_t *ids
    int32_t *ranks
    double *weights


cdef int reserve(Scratch *s, ptrdiff_t n) noexcept nogil:
    s.highest = <int32_t *> malloc(sizeof(int32_t) * (n // LB_BLOCK + 1))
    s.ids = <int32_t *> malloc(sizeof(int32_t) * (n + 1))
    s.ranks = <int32_t *> malloc(sizeof(int32_t) * (n + 1))
    s.weights = <double *> malloc(sizeof(double) * (n + 1))
    return s.highest != NULL and s.ids != NULL and s.ranks != NULL and s.weights != NULL


cdef void discard(Scratch *s) noexcept nogil:
    free(s.highest)
    free(s.ids)
    free(s.ranks)
    free(s.weights)


cdef float at_least(double floor) noexcept nogil:
    """The lowest finite float that is not below `floor`."""
    cdef float rounded = <float> floor
    if rounded < floor:
        rounded = nextafterf(rounded, INFINITY)
    return max(rounded, -FLT_MAX)


cdef ptrdiff_t gather(const float *x, ptrdiff_t n, float floor, Scratch *s) noexcept nogil:
    """The tokens whose logits are `floor` or higher, by ascending id. Returns their number."""
    cdef ptrdiff_t i, block, found = 0
    cdef int32_t lowest = lb_rank(floor)
    for block in range((n + LB_BLOCK - 1) // LB_BLOCK):
        if s.highest[block] < lowest:
            continue
        for i in range(block * LB_BLOCK, min(n, (block + 1) * LB_BLOCK)):
            s.ids[found] = <int32_t> i  # overwritten unless it counts: cheaper than a branch
            s.ranks[found] = lb_rank(x[i])
            found += x[i] >= floor
    return found


cdef double below_kth(Scratch *s, ptrdiff_t n_blocks, ptrdiff_t k) noexcept nogil:
    """A bound that at least `k` logits reach: the k-th largest maximum of groups of blocks, about 8k of them."""
    cdef ptrdiff_t size = max(1, n_blocks // (8 * k)), n_groups = n_blocks // size, group, i
    cdef int32_t highest
    cdef double above
    if n_groups < k:
        return -INFINITY
    for group in range(n_groups):
        highest = s.highest[group * size]
        for i in range(group * size + 1, (group + 1) * size):
            highest = max(highest, s.highest[i])
        s.ranks[group] = highest
    return lb_value(select(s.ranks, NULL, n_groups, <double> k, &above))


cdef ptrdiff_t survivors(const float *x, ptrdiff_t n, float top, double temperature, double log_min_p,
                         ptrdiff_t top_k, double top_p, Scratch *s) noexcept nogil:
    """Fills ids and weights with what min_p, top_k and top_p leave; s.highest is known. Returns their number."""
    cdef double floor = top + temperature * log_min_p, total = 0
    cdef ptrdiff_t i, kept
    cdef bint is_whole = top_k == 0 and log_min_p == -INFINITY
    if top_k > 0:
        floor = max(floor, below_kth(s, (n + LB_BLOCK - 1) // LB_BLOCK, top_k))
    if is_whole and top_p < 1:
        # All tokens below this floor together weigh less than the share that top_p drops.
        total = lb_exp_sum(x, n, top, <float> (1.0 / max(temperature, COLDEST)), NULL)
        floor = top + temperature * log(0.99 * (1 - top_p) * total / n)
    kept = gather(x, n, at_least(floor), s)
    if 0 < top_k < kept:
        kept = keep_heaviest(s.ids, s.ranks, NULL, kept, <double> top_k)
    lb_weigh(s.ranks, kept, top, temperature, s.weights)
    if top_p < 1:
        if not is_whole:
            for i in range(kept):
                total += s.weights[i]
        kept = keep_heaviest(s.ids, s.ranks, s.weights, kept, top_p * total)
    return kept


cdef object problem(bint has_nan, float top):
    if has_nan:
        return LogitsError("NaN")
    if top == INFINITY:
        return LogitsError("+infinity")
    if top == -INFINITY:
        return LogitsError("no token that is allowed")
    return None


def filtered(const float[::1] logits not None, double temperature, double min_p, ptrdiff_t top_k, double top_p):
    """The law that min_p, then top_k (0: off), then top_p (1: off) leave of the softmax at `temperature` > 0.

    Returns ascending int32 ids and float32 probabilities. Raises LogitsError. The twin states the exact law.
    """
    cdef ptrdiff_t i, n = logits.shape[0], kept = 0
    cdef bint has_nan = False
    cdef int32_t rank = lb_rank(-INFINITY)
    cdef float top = -INFINITY
    cdef double total = 0, log_min_p = log(min_p) if min_p > 0 else -INFINITY
    cdef Scratch s
    cdef int32_t[::1] ids
    cdef float[::1] probs
    if not temperature > 0:
        raise ValueError(f"temperature {temperature} is not positive")
    try:
        if not reserve(&s, n):
            raise MemoryError()
        with nogil:
            if n:
                has_nan = lb_block_maxima(&logits[0], n, s.highest, &rank)
                top = lb_value(rank)
            if not has_nan and -INFINITY < top < INFINITY:
                kept = survivors(&logits[0], n, top, temperature, log_min_p, top_k, top_p, &s)
        error = problem(has_nan, top)
        if error is not None:
            raise error
        out_ids, out_probs = np.empty(kept, np.int32), np.empty(kept, np.float32)
        ids, probs = out_ids, out_probs
        for i in range(kept):
            total += s.weights[i]
        for i in range(kept):
            ids[i] = s.ids[i]
            probs[i] = <float> (s.weights[i] / total)
        return out_ids, out_probs
    finally:
        discard(&s)


cdef float checked_top(const float[::1] logits, int32_t[::1] highest) except? -1:
    """The largest logit; `highest` becomes each block's rank. Raises LogitsError."""
    cdef int32_t rank = lb_rank(-INFINITY)
    cdef bint has_nan = False
    if logits.shape[0]:
        with nogil:
            has_nan = lb_block_maxima(&logits[0], logits.shape[0], &highest[0], &rank)
    error = problem(has_nan, lb_value(rank))
    if error is not None:
        raise error
    return lb_value(rank)


cdef object block_ranks(const float[::1] logits):
    return np.empty(logits.shape[0] // LB_BLOCK + 1, np.int32)


def argmax(const float[::1] logits not None):
    """The token of the largest logit, the lowest id among ties. Raises LogitsError."""
    cdef int32_t[::1] highest = block_ranks(logits)
    cdef float top = checked_top(logits, highest)
    cdef int32_t rank = lb_rank(top)
    cdef ptrdiff_t block = 0, i
    while highest[block] < rank:
        block += 1
    i = block * LB_BLOCK
    while logits[i] < top:
        i += 1
    return i


def softmax(const float[::1] logits not None, double temperature):
    """float32[n_vocab] probabilities, `temperature` > 0. Raises LogitsError.

    Relative error about 1e-7 for each unit of |log(p / max p)|, the rounding of a float32 exponent.
    """
    cdef ptrdiff_t n = logits.shape[0]
    cdef float top = checked_top(logits, block_ranks(logits))
    cdef double total
    cdef float[::1] probs
    if not temperature > 0:
        raise ValueError(f"temperature {temperature} is not positive")
    out = np.empty(n, np.float32)
    probs = out
    with nogil:
        total = lb_exp_sum(&logits[0], n, top, <float> (1.0 / max(temperature, COLDEST)), &probs[0])
        lb_scale(&probs[0], n, <float> (1.0 / total))
    return out


def log_sum_exp(const float[::1] logits not None):
    """log of the sum of exp(logits), to about 1e-7. Raises LogitsError."""
    cdef float top = checked_top(logits, block_ranks(logits))
    cdef double total
    with nogil:
        total = lb_exp_sum(&logits[0], logits.shape[0], top, 1.0, NULL)
    return top + log(total)


def top(const float[::1] logits not None, ptrdiff_t n):
    """The ids of the `n` largest finite logits, largest first, the lowest ids among ties. Raises LogitsError."""
    if n < 1:
        return np.empty(0, np.int32)
    ids, _ = filtered(logits, 1.0, 0.0, n, 1.0)
    return ids[np.argsort(-np.asarray(logits)[ids], kind="stable")]


def adjusted(const float[::1] logits not None, const int32_t[::1] bias_ids not None,
             const float[::1] bias_values not None, const int32_t[::1] seen_ids not None,
             const int32_t[::1] seen_counts not None, double repetition, double frequency, double presence):
    """A copy of `logits` with biases added (-100 bans) and penalties taken off. IndexError for an id out of range.

    `seen_counts` says how often each of `seen_ids` was generated; 0: it stands in the prompt only.
    """
    cdef ptrdiff_t i, n = logits.shape[0]
    cdef double value
    cdef int32_t token
    if bias_ids.shape[0] != bias_values.shape[0] or seen_ids.shape[0] != seen_counts.shape[0]:
        raise ValueError("ids and values differ in number")
    out = np.empty(n, np.float32)
    cdef float[::1] row = out
    if n:
        memcpy(&row[0], &logits[0], sizeof(float) * n)
    for i in range(bias_ids.shape[0]):
        token = bias_ids[i]
        if not 0 <= token < n:
            raise IndexError(f"token {token} is outside the vocabulary of {n}")
        row[token] = -INFINITY if bias_values[i] <= -100 else row[token] + <double> bias_values[i]
    for i in range(seen_ids.shape[0]):
        token = seen_ids[i]
        if not 0 <= token < n:
            raise IndexError(f"token {token} is outside the vocabulary of {n}")
        value = row[token]
        value = value / repetition if value > 0 else value * repetition
        row[token] = value - frequency * seen_counts[i] - (presence if seen_counts[i] > 0 else 0.0)
    return out


def sample(const int32_t[::1] ids, const float[::1] probs not None, double u):
    """The first token whose cumulated probability exceeds `u` times their sum; `ids` None: dense.

    Sums in float64; never a token of probability zero. ValueError if there is no positive one.
    """
    cdef Law law = law_of(ids, probs), nothing = Law(NULL, NULL, 0)
    cdef ptrdiff_t i
    with nogil:
        i = draw_excess(&law, &nothing, u)
    if i < 0:
        raise ValueError("a law without a positive probability")
    return i if ids is None else ids[i]
