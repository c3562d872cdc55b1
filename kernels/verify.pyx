# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Rejection sampling of drafted tokens, on dense and sparse laws alike. Twin: lucebox/acceptance/reference.py.

No kernel here fills out a sparse law: two ascending lists of ids are walked side by side.
"""

from libc.math cimport INFINITY, log
from libc.stdint cimport int32_t

from law cimport Law, check_lengths, draft_law, draw_excess, draw_scaled_excess, excess, law_of, probability_of


cdef bint stands(const Law *p, const Law *q, int token, double u) noexcept nogil:
    """Whether u * q < p, strictly: with `<=`, a token of probability zero would stand at u = 0."""
    return u * probability_of(q, token) < probability_of(p, token)


def probability(const int32_t[::1] ids, const float[::1] probs not None, int32_t token):
    """The probability of `token`, zero outside the support."""
    cdef Law law = law_of(ids, probs)
    return probability_of(&law, token)


def accepts(const int32_t[::1] p_ids, const float[::1] p_probs not None, const int32_t[::1] q_ids,
            const float[::1] q_probs, int32_t token, double u):
    """Whether `token`, drawn from q, stands: u * q < p, so with probability min(1, p/q). Laws as in the twin."""
    cdef float one = 1.0
    cdef Law p = law_of(p_ids, p_probs), q = draft_law(q_ids, q_probs, &token, &one)
    return bool(stands(&p, &q, token, u))


def log_ratio(const int32_t[::1] p_ids, const float[::1] p_probs not None, const int32_t[::1] q_ids,
              const float[::1] q_probs, int32_t token):
    """log p(token) - log q(token), natural; minus infinity where p is zero, whatever q is."""
    cdef float one = 1.0
    cdef Law p = law_of(p_ids, p_probs), q = draft_law(q_ids, q_probs, &token, &one)
    cdef double p_token = probability_of(&p, token), q_token = probability_of(&q, token)
    if p_token <= 0:
        return -INFINITY
    return log(p_token) - log(q_token) if q_token > 0 else INFINITY


def excess_mass(const int32_t[::1] p_ids, const float[::1] p_probs not None, const int32_t[::1] q_ids,
                const float[::1] q_probs, int32_t token, float scale):
    """The sum of max(scale * p - q, 0). ValueError if both laws are dense and differ in length."""
    cdef float one = 1.0
    cdef Law p = law_of(p_ids, p_probs), q = draft_law(q_ids, q_probs, &token, &one)
    cdef double mass
    check_lengths(&p, &q)
    with nogil:
        mass = excess(&p, &q, scale, 0, p.n)
    return mass


def residual_sample(const int32_t[::1] p_ids, const float[::1] p_probs not None, const int32_t[::1] q_ids,
                    const float[::1] q_probs, int32_t token, double u, float scale=1.0):
    """A token drawn by `u` from max(scale * p - q, 0), renormalised; from p where nothing of it is left.

    ValueError if p has no positive probability, or both laws are dense and differ in length.
    """
    cdef float one = 1.0
    cdef Law p = law_of(p_ids, p_probs), q = draft_law(q_ids, q_probs, &token, &one), nothing = Law(NULL, NULL, 0)
    cdef ptrdiff_t i
    check_lengths(&p, &q)
    with nogil:
        i = draw_scaled_excess(&p, &q, scale, u)
        if i < 0:
            i = draw_excess(&p, &nothing, u)
    if i < 0:
        raise ValueError("a law without a positive probability")
    return i if p_ids is None else p_ids[i]
