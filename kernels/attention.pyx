# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Attention whose result for a row depends on what the row sees alone; see attention.h. Used from ggml's graphs, as an
operation of its own kind (ggml_custom_4d). No twin: without it, ggml's own attention serves."""

from libc.stdint cimport uintptr_t

cdef extern from "attention.h":
    int LB_MAX_HEAD
    int lb_is_supported()
    void lb_attend_op(void *tensor, int ith, int nth, void *attention) noexcept nogil

MAX_HEAD = LB_MAX_HEAD  # elements of a head, a multiple of 16
ATTEND_ADDRESS = <uintptr_t> &lb_attend_op


def is_supported():
    """Whether this processor can compute it."""
    return bool(lb_is_supported())
