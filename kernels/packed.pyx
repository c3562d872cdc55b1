# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Quantised matrices packed for products with few rows of activations; see packed.h. Used from ggml's graphs, as
operations of its own kind (ggml_custom_4d), on memory that ggml owns. No twin: without it, ggml's kernels serve."""

from libc.stdint cimport int64_t, uintptr_t

cdef extern from "packed.h":
    ctypedef struct lb_matrix:
        pass
    int LB_Q4_K, LB_Q6_K, LB_LANES, LB_SUPER
    size_t lb_super_bytes(int64_t kind)
    size_t lb_row_bytes(int64_t k)
    void lb_pack(int64_t kind, const char *rows, char *packed, int64_t k, int64_t first, int64_t last) nogil
    int lb_is_supported()
    void lb_quantise_op(void *tensor, int ith, int nth, void *matrix) noexcept nogil
    void lb_multiply_op(void *tensor, int ith, int nth, void *matrix) noexcept nogil

Q4_K = LB_Q4_K
Q6_K = LB_Q6_K
N_LANES = LB_LANES  # output rows are packed in groups of so many
N_SUPER = LB_SUPER  # and each is a multiple of so many weights
QUANTISE_ADDRESS = <uintptr_t> &lb_quantise_op
MULTIPLY_ADDRESS = <uintptr_t> &lb_multiply_op


def is_supported():
    """Whether this processor can compute with packed matrices."""
    return bool(lb_is_supported())


def packed_bytes(int64_t kind, int64_t k, int64_t n_out):
    """The size of a packed matrix of `n_out` rows of `k` weights."""
    return n_out // LB_LANES * (k // LB_SUPER) * lb_super_bytes(kind)


def row_bytes(int64_t k):
    """The size of a quantised row of `k` activations."""
    return lb_row_bytes(k)


def pack(int64_t kind, uintptr_t rows, uintptr_t packed, int64_t k, int64_t first, int64_t last):
    """Packs groups `first` to `last` of a matrix at address `rows`, GGML's layout, to address `packed`."""
    with nogil:
        lb_pack(kind, <const char *> rows, <char *> packed, k, first, last)
