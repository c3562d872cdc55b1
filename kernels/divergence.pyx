# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""How far two laws lie apart, and how far one may move towards the other. Twin: lucebox/acceptance/reference.py.

Both laws are walked side by side by ascending id, so that dense and sparse ones mix freely. In nats.
"""

from libc.math cimport INFINITY, exp, fabs, log
from libc.stdint cimport int32_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from law cimport Law, draft_law, law_of

cdef enum:
    KL = 0
    JS = 1
    TV = 2
    N_BINS = 2048
    N_HALVINGS = 48

cdef double LEAST_LOG_LENIENCY = -69.0  # e^-69 = 1e-30: a draft may hardly be likelier than that allows


cdef struct Walk:
    # Where two laws are read: indices into them, and both probabilities of the token read last.
    ptrdiff_t i
    ptrdiff_t j
    double p
    double q


cdef inline bint advance(const Law *p, const Law *q, Walk *walk) noexcept nogil:
    """Reads the next token that either law lists; 0 behind the last."""
    cdef ptrdiff_t in_p = -1, in_q = -1
    if walk.i < p.n:
        in_p = walk.i if p.ids == NULL else p.ids[walk.i]
    if walk.j < q.n:
        in_q = walk.j if q.ids == NULL else q.ids[walk.j]
    if in_p < 0 and in_q < 0:
        return 0
    walk.p = walk.q = 0.0
    if in_p >= 0 and (in_q < 0 or in_p <= in_q):
        walk.p = p.probs[walk.i]
        walk.i += 1
    if in_q >= 0 and (in_p < 0 or in_q <= in_p):
        walk.q = q.probs[walk.j]
        walk.j += 1
    return 1


cdef inline double relative(double p, double q) noexcept nogil:
    """p * log(p / q), the part of one token in a Kullback-Leibler divergence."""
    if p <= 0:
        return 0.0
    return p * log(p / q) if q > 0 else INFINITY


cdef double divergence_of(const Law *p, const Law *q, int kind) noexcept nogil:
    cdef Walk walk = Walk(0, 0, 0.0, 0.0)
    cdef double sum = 0, middle
    while advance(p, q, &walk):
        if kind == KL:
            sum += relative(walk.p, walk.q)
        elif kind == TV:
            sum += 0.5 * fabs(walk.p - walk.q)
        else:
            middle = 0.5 * (walk.p + walk.q)
            sum += 0.5 * (relative(walk.p, middle) + relative(walk.q, middle))
    return max(sum, 0.0)


def divergence(const int32_t[::1] p_ids, const float[::1] p_probs not None, const int32_t[::1] q_ids,
               const float[::1] q_probs, int32_t token, str kind not None):
    """KL(p || q), infinite where q lacks what p has; Jensen-Shannon; total variation. `kind`: kl, js, tv."""
    cdef float one = 1.0
    cdef Law p = law_of(p_ids, p_probs), q = draft_law(q_ids, q_probs, &token, &one)
    cdef int which = {"kl": KL, "js": JS, "tv": TV}[kind]
    cdef double found
    with nogil:
        found = divergence_of(&p, &q, which)
    return found


cdef struct Ranking:
    # Tokens that either law holds by ascending p / q; sums over the first i of them of p, q and p log(p / q), and
    # over the others of p and q. Laws are renormalised: what one side frees the other must use up to the last bit.
    ptrdiff_t n
    double *ratio
    double *p
    double *q
    double *kl
    double *p_left
    double *q_left


cdef int rank_ratios(const Law *p, const Law *q, Ranking *r) noexcept nogil:
    """Fills a ranking, to be freed by the caller; 0 without memory. Ratios are ordered as float32."""
    cdef Walk walk = Walk(0, 0, 0.0, 0.0)
    cdef ptrdiff_t i, n = 0, room = p.n + q.n + 1
    cdef float *pairs = <float *> malloc(2 * sizeof(float) * room)
    cdef uint32_t *keys = <uint32_t *> malloc(4 * sizeof(uint32_t) * room)
    cdef double *sums = <double *> malloc(6 * sizeof(double) * room)
    cdef double p_total = 0, q_total = 0
    cdef uint32_t *order
    cdef float ratio
    if pairs == NULL or keys == NULL or sums == NULL:
        free(pairs)
        free(keys)
        free(sums)
        return 0
    while advance(p, q, &walk):
        if walk.p > 0 or walk.q > 0:
            ratio = <float> (walk.p / walk.q) if walk.q > 0 else <float> INFINITY
            pairs[2 * n] = <float> walk.p
            pairs[2 * n + 1] = <float> walk.q
            memcpy(&keys[2 * n], &ratio, sizeof(float))
            keys[2 * n + 1] = <uint32_t> n
            p_total += walk.p
            q_total += walk.q
            n += 1
    order = sort_pairs(keys, keys + 2 * room, n)
    r.n, r.ratio, r.p, r.q, r.kl = n, sums, sums + room, sums + 2 * room, sums + 3 * room
    r.p_left, r.q_left = sums + 4 * room, sums + 5 * room
    r.p[0] = r.q[0] = r.kl[0] = r.p_left[n] = r.q_left[n] = 0.0
    for i in range(n - 1, -1, -1):
        r.p_left[i] = r.p_left[i + 1] + pairs[2 * order[2 * i + 1]] / p_total
        r.q_left[i] = r.q_left[i + 1] + pairs[2 * order[2 * i + 1] + 1] / q_total
    for i in range(n):
        walk.p, walk.q = pairs[2 * order[2 * i + 1]] / p_total, pairs[2 * order[2 * i + 1] + 1] / q_total
        r.ratio[i] = walk.p / walk.q if walk.q > 0 else INFINITY
        r.p[i + 1] = r.p[i] + walk.p
        r.q[i + 1] = r.q[i] + walk.q
        r.kl[i + 1] = r.kl[i] + (relative(walk.p, walk.q) if walk.q > 0 else 0.0)
    free(pairs)
    free(keys)
    return 1


cdef uint32_t *sort_pairs(uint32_t *pairs, uint32_t *spare, ptrdiff_t n) noexcept nogil:
    """Radix sort of n (key, value) pairs by key, stable; the result lies in either buffer."""
    cdef ptrdiff_t[N_BINS] starts
    cdef ptrdiff_t i, at, begin
    cdef int digit
    cdef uint32_t bin
    for digit in range(3):
        memset(starts, 0, sizeof(starts))
        for i in range(n):
            starts[(pairs[2 * i] >> (11 * digit)) & (N_BINS - 1)] += 1
        begin = 0
        for i in range(N_BINS):
            at = starts[i]
            starts[i] = begin
            begin += at
        for i in range(n):
            bin = (pairs[2 * i] >> (11 * digit)) & (N_BINS - 1)
            at = starts[bin]
            starts[bin] += 1
            spare[2 * at] = pairs[2 * i]
            spare[2 * at + 1] = pairs[2 * i + 1]
        pairs, spare = spare, pairs
    return pairs


cdef double balance(const Ranking *r, double leniency, double *b) noexcept nogil:
    """KL(p || pi) at this leniency; `b` becomes what p is divided by where q is too small."""
    cdef ptrdiff_t low = 0, high = r.n, middle, n_capped
    cdef double freed
    while low < high:
        middle = (low + high) // 2
        if r.ratio[middle] < leniency:
            low = middle + 1
        else:
            high = middle
    n_capped = low
    freed = max(0.0, r.q[low] - r.p[low] / leniency)
    high = r.n - 1
    while low < high:  # the first whose raising to its own ratio's level asks for no more than what was freed
        middle = (low + high) // 2
        if r.p_left[middle] / r.ratio[middle] - r.q_left[middle] > freed:
            low = middle + 1
        else:
            high = middle
    b[0] = 1.0
    if r.p_left[low] > 0:
        b[0] = max(1.0, r.p_left[low] / (freed + r.q_left[low])) if freed + r.q_left[low] > 0 else INFINITY
    return r.p[n_capped] * log(leniency) + r.p_left[low] * log(b[0]) + r.kl[low] - r.kl[n_capped]


def mentor(const int32_t[::1] p_ids, const float[::1] p_probs not None, const int32_t[::1] q_ids,
           const float[::1] q_probs, int32_t token, double bound):
    """(l, b) of the law pi that accepts most of q under KL(p || pi) <= `bound`: p/l where q is above that, p/b
    where q is below that, else q. No leniency l below 1e-30 is tried."""
    cdef float one = 1.0
    cdef Law p = law_of(p_ids, p_probs), q = draft_law(q_ids, q_probs, &token, &one)
    cdef Ranking r
    cdef double low = LEAST_LOG_LENIENCY, high = 0.0, middle, b
    cdef int i
    if not rank_ratios(&p, &q, &r):
        raise MemoryError
    try:
        if balance(&r, exp(low), &b) <= bound:
            return exp(low), b
        for i in range(N_HALVINGS):
            middle = 0.5 * (low + high)
            if balance(&r, exp(middle), &b) <= bound:
                high = middle
            else:
                low = middle
        if high == 0.0:
            return 1.0, 1.0
        balance(&r, exp(high), &b)
        return exp(high), b
    finally:
        free(r.ratio)
