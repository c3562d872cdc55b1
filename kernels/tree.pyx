# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What rejected candidates leave of a law, dense or sparse. Twin: lucebox/acceptance/tree_reference.py.

Nothing outside the support of p matters to a residual: q is laid beside p first, token by token.
"""

from libc.math cimport expm1, log1p
from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc

import numpy as np

from law cimport Law, check_lengths, draft_law, law_of
from scan cimport lb_excess, lb_excess_sum

cdef enum:
    MAX_STEPS = 64  # of bisection: more than float64 can tell apart


def residual(const int32_t[::1] p_ids, const float[::1] p_probs not None, const int32_t[::1] q_ids,
             const float[::1] q_probs, int32_t token, double scale):
    """(probs, mass): max(scale * p - q, 0) over p's tokens, normalised, and its sum; (p, 0.0) where nothing is left.

    `scale` is rounded to float32. q_probs None: one-hot at `token`. ValueError for laws over different vocabularies.
    """
    cdef Law p = law_of(p_ids, p_probs)
    cdef const float *q = NULL
    cdef float *beside = laid_beside(&p, q_ids, q_probs, token, &q)
    cdef float factor = <float> scale
    cdef double mass
    cdef ptrdiff_t i
    cdef float[::1] left
    try:
        with nogil:
            mass = lb_excess_sum(p.probs, q, factor, p.n)
        if mass <= 0:
            return np.asarray(p_probs), 0.0
        out = np.empty(p.n, np.float32)
        left = out
        with nogil:
            for i in range(p.n):
                left[i] = <float> (lb_excess(p.probs[i], q[i], factor) / mass)
        return out, mass
    finally:
        free(beside)


def spectr_ratio(const int32_t[::1] p_ids, const float[::1] p_probs not None, const int32_t[::1] q_ids,
                 const float[::1] q_probs not None, int k):
    """(rho, beta): the root of 1 - (1 - beta)^k = rho * beta in [1, k], its upper end, and beta there.

    beta(rho) is the sum of min(q, p / rho).
    """
    cdef Law p = law_of(p_ids, p_probs)
    cdef const float *q = NULL
    cdef float *beside = laid_beside(&p, q_ids, q_probs, 0, &q)
    cdef double *open_p = <double *> malloc(2 * sizeof(double) * p.n)
    cdef double rho, beta = 0
    try:
        if open_p == NULL:
            raise MemoryError
        with nogil:
            rho = upper_root(&p, q, k, open_p, open_p + p.n, &beta)
        return rho, beta
    finally:
        free(beside)
        free(open_p)


def spectr_residual(const int32_t[::1] p_ids, const float[::1] p_probs not None, const int32_t[::1] q_ids,
                    const float[::1] q_probs not None, double rho, double share):
    """p - share * min(q, p / rho) over p's tokens, normalised; p where nothing is left."""
    cdef Law p = law_of(p_ids, p_probs)
    cdef const float *q = NULL
    cdef float *beside = laid_beside(&p, q_ids, q_probs, 0, &q)
    cdef double mass = 0
    cdef ptrdiff_t i
    cdef float[::1] left
    try:
        with nogil:
            for i in range(p.n):
                mass += thinned(p.probs[i], q[i], rho, share)
        if mass <= 0:
            return np.asarray(p_probs)
        out = np.empty(p.n, np.float32)
        left = out
        with nogil:
            for i in range(p.n):
                left[i] = <float> (thinned(p.probs[i], q[i], rho, share) / mass)
        return out
    finally:
        free(beside)


cdef inline double lesser(double a, double b) noexcept nogil:
    return a if a < b else b


cdef inline double thinned(double p, double q, double rho, double share) noexcept nogil:
    """What k candidates of q leave of p at one token."""
    cdef double left = p - share * lesser(q, p / rho)
    return left if left > 0 else 0


cdef double upper_root(const Law *p, const float *q, int k, double *open_p, double *open_q,
                       double *beta) noexcept nogil:
    """Bisects. Tokens whose minimum is the same side all over the bracket are summed once and left out of
    the `open` ones, of which few are left after some steps."""
    cdef double low = 1, high = k, middle, sure_q = 0, sure_p = 0, sum
    cdef ptrdiff_t i, n = 0
    cdef int step
    for i in range(p.n):
        open_p[i] = p.probs[i]
        open_q[i] = q[i]
    n = narrowed(open_p, open_q, p.n, low, high, &sure_p, &sure_q)
    for step in range(MAX_STEPS):
        middle = 0.5 * (low + high)
        if middle <= low or middle >= high:
            break
        sum = sure_q + sure_p / middle
        for i in range(n):
            sum += lesser(open_q[i], open_p[i] / middle)
        if accepted_by_one_of(sum, k) > middle * sum:
            low = middle
        else:
            high = middle
        n = narrowed(open_p, open_q, n, low, high, &sure_p, &sure_q)
    sum = sure_q + sure_p / high
    for i in range(n):
        sum += lesser(open_q[i], open_p[i] / high)
    beta[0] = sum
    return high


cdef ptrdiff_t narrowed(double *open_p, double *open_q, ptrdiff_t n, double low, double high, double *sure_p,
                        double *sure_q) noexcept nogil:
    """How many stay open for rho in [low, high]; sums up the others."""
    cdef ptrdiff_t i, left = 0
    for i in range(n):
        if open_p[i] >= high * open_q[i]:
            sure_q[0] += open_q[i]
        elif open_p[i] <= low * open_q[i]:
            sure_p[0] += open_p[i]
        else:
            open_p[left] = open_p[i]
            open_q[left] = open_q[i]
            left += 1
    return left


cdef double accepted_by_one_of(double beta, int k) noexcept nogil:
    """1 - (1 - beta)^k, precisely for a small beta."""
    return 1.0 if beta >= 1 else -expm1(k * log1p(-beta))


cdef float *laid_beside(const Law *p, const int32_t[::1] q_ids, const float[::1] q_probs, int32_t token,
                        const float **at_p) except? NULL:
    """`at_p` becomes q at p's tokens. Returns what is to be freed: NULL where q lies so already, both dense."""
    cdef float one = 1.0
    cdef Law q = draft_law(q_ids, q_probs, &token, &one)
    cdef ptrdiff_t i, j = 0
    cdef float *beside
    if not (p.n and q.n):
        raise ValueError("p and q are laws over different vocabularies")
    check_lengths(p, &q)
    if p.ids == NULL and q.ids == NULL:
        at_p[0] = q.probs
        return NULL
    beside = <float *> malloc(sizeof(float) * p.n)
    if beside == NULL:
        raise MemoryError
    at_p[0] = beside
    with nogil:
        for i in range(p.n):
            beside[i] = q.probs[p.ids[i]] if q.ids == NULL else 0.0
        if q.ids != NULL and p.ids == NULL:
            for j in range(q.n):
                beside[q.ids[j]] = q.probs[j]
        elif q.ids != NULL:
            for i in range(p.n):
                while j < q.n and q.ids[j] < p.ids[i]:
                    j += 1
                if j < q.n and q.ids[j] == p.ids[i]:
                    beside[i] = q.probs[j]
    return beside
