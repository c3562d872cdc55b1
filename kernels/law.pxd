# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A law as kernels see it, and inverse-CDF draws from it or from what another law leaves of it."""

from libc.math cimport INFINITY
from libc.stdint cimport int32_t

from scan cimport lb_excess, lb_excess_sum, lb_sum

cdef extern from *:
    """
    #define LB_SKIPPED 1024 /* probabilities summed at a time before the one drawn is looked for */
    """
    const ptrdiff_t LB_SKIPPED


cdef struct Law:
    # probs[n]; ids[n] ascending, or NULL for a dense law, where a token is its own index.
    const int32_t *ids
    const float *probs
    ptrdiff_t n


cdef inline Law law_of(const int32_t[::1] ids, const float[::1] probs) except *:
    """ValueError if ids and probabilities differ in number."""
    cdef Law law = Law(NULL, NULL, probs.shape[0])
    if ids is not None and ids.shape[0] != law.n:
        raise ValueError("ids and probabilities differ in number")
    if law.n:
        law.probs = &probs[0]
        if ids is not None:
            law.ids = &ids[0]
    return law


cdef inline Law draft_law(const int32_t[::1] q_ids, const float[::1] q_probs, const int32_t *token,
                          const float *one) except *:
    """q, or one-hot at `token` where the proposal was deterministic."""
    if q_probs is None:
        return Law(token, one, 1)
    return law_of(q_ids, q_probs)


cdef inline int check_lengths(const Law *p, const Law *q) except -1:
    """Every id of one law must lie within the other where that is dense."""
    cdef bint fits = True
    if p.ids == NULL and q.ids == NULL:
        fits = p.n == q.n
    elif p.ids == NULL and q.n:
        fits = q.ids[0] >= 0 and q.ids[q.n - 1] < p.n
    elif q.ids == NULL and p.n:
        fits = p.ids[0] >= 0 and p.ids[p.n - 1] < q.n
    if not fits:
        raise ValueError("p and q are laws over different vocabularies")
    return 0


cdef inline ptrdiff_t first_at_or_above(const Law *law, int32_t token) noexcept nogil:
    """The index in a sparse law of the first id >= token; n if there is none."""
    cdef ptrdiff_t low = 0, high = law.n, middle
    while low < high:
        middle = (low + high) // 2
        if law.ids[middle] < token:
            low = middle + 1
        else:
            high = middle
    return low


cdef inline double probability_of(const Law *law, int32_t token) noexcept nogil:
    cdef ptrdiff_t i
    if law.ids == NULL:
        return law.probs[token] if 0 <= token < law.n else 0.0
    i = first_at_or_above(law, token)
    return law.probs[i] if i < law.n and law.ids[i] == token else 0.0


cdef inline double excess_dense(const Law *p, const Law *q, float scale, ptrdiff_t begin,
                                ptrdiff_t end) noexcept nogil:
    """Of a dense p: sums the runs between the ids of q whole."""
    cdef ptrdiff_t j
    cdef double sum = 0
    if q.ids == NULL and q.n:
        return lb_excess_sum(p.probs + begin, q.probs + begin, scale, end - begin)
    j = first_at_or_above(q, <int32_t> begin) if q.n else 0
    while j < q.n and q.ids[j] < end:
        sum += scale * lb_sum(p.probs + begin, q.ids[j] - begin)
        sum += lb_excess(p.probs[q.ids[j]], q.probs[j], scale)
        begin = q.ids[j] + 1
        j += 1
    return sum + scale * lb_sum(p.probs + begin, end - begin)


cdef inline double excess(const Law *p, const Law *q, float scale, ptrdiff_t begin, ptrdiff_t end) noexcept nogil:
    """Sum of max(scale * p - q, 0) over the tokens at indices begin to end of p. An empty q is zero everywhere."""
    cdef ptrdiff_t i, j
    cdef double sum = 0
    if begin >= end:
        return 0
    if p.ids == NULL:
        return excess_dense(p, q, scale, begin, end)
    if q.ids == NULL:
        for i in range(begin, end):
            sum += lb_excess(p.probs[i], q.probs[p.ids[i]] if q.n else <float> 0.0, scale)
        return sum
    j = first_at_or_above(q, p.ids[begin])
    for i in range(begin, end):
        while j < q.n and q.ids[j] < p.ids[i]:
            j += 1
        sum += lb_excess(p.probs[i], q.probs[j] if j < q.n and q.ids[j] == p.ids[i] else <float> 0.0, scale)
    return sum


cdef inline ptrdiff_t draw_excess(const Law *p, const Law *q, double u) noexcept nogil:
    """The index in p that `u` falls on among max(p - q, 0); -1 where nothing is left."""
    return draw_scaled_excess(p, q, 1.0, u)


cdef inline ptrdiff_t draw_scaled_excess(const Law *p, const Law *q, float scale, double u) noexcept nogil:
    """The index in p that `u` falls on among max(scale * p - q, 0); -1 where nothing is left.

    Sums in float64 by ascending id. Rounding may leave `u` behind the last sum: the last positive one, then.
    """
    cdef ptrdiff_t start = 0, end, i, last = -1
    cdef double below = 0, wanted = 0, mass = 0
    while start < p.n:
        wanted += excess(p, q, scale, start, min(p.n, start + LB_SKIPPED))
        start += LB_SKIPPED
    wanted *= u
    start = 0
    while start < p.n:
        mass = excess(p, q, scale, start, min(p.n, start + LB_SKIPPED))
        if mass > 0:
            last = start
            if below + mass > wanted:
                break
            below += mass
        start += LB_SKIPPED
    if last < 0:
        return -1
    if start >= p.n:
        wanted = INFINITY
    start, end = last, min(p.n, last + LB_SKIPPED)
    for i in range(start, end):
        mass = excess(p, q, scale, i, i + 1)
        if mass > 0:
            last = i
            below += mass
            if below > wanted:
                break
    return last
