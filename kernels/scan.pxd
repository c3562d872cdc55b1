"""Loops over whole rows that compilers turn into vector code, one version per instruction set where they can.

Rows are walked in blocks, by independent lanes, since IEEE sums may not be reordered. The tail of a row goes
through the same code, padded, so that equal logits get equal weights wherever they stand.
"""

from libc.stdint cimport int32_t

cdef extern from *:
    """
    #include <math.h>
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    #if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
    #define LB_VERSIONS __attribute__((unused, target_clones("default", "avx2", "avx512f")))
    #elif defined(__GNUC__)
    #define LB_VERSIONS __attribute__((unused))
    #else
    #define LB_VERSIONS
    #endif
    #define LB_LANES 16
    #define LB_BLOCK 64

    /* An integer that orders as x does; both zeros are one, and NaN lies beyond the infinities. */
    static inline int32_t lb_rank(float x) {
        int32_t bits;
        x += 0.0f;
        memcpy(&bits, &x, 4);
        return bits ^ ((bits >> 31) & 0x7FFFFFFF);
    }

    static inline float lb_value(int32_t rank) {
        float x;
        rank ^= (rank >> 31) & 0x7FFFFFFF;
        memcpy(&x, &rank, 4);
        return x;
    }

    /* The block at i, copied and padded where the row ends within it. */
    static inline const float *lb_block(const float *x, ptrdiff_t n, ptrdiff_t i, float *padded) {
        if (n - i >= LB_BLOCK) return x + i;
        for (int j = 0; j < LB_BLOCK; j++) padded[j] = i + j < n ? x[i + j] : -INFINITY;
        return padded;
    }

    /* The highest rank of each block, into highest[ceil(n/64)], and of all, into *top; returns 1 if x has a NaN. */
    LB_VERSIONS static int lb_block_maxima(const float *x, ptrdiff_t n, int32_t *highest, int32_t *top) {
        float padded[LB_BLOCK];
        int32_t most = INT32_MIN, nan = 0;
        for (ptrdiff_t i = 0; i < n; i += LB_BLOCK) {
            const float *block = lb_block(x, n, i, padded);
            int32_t in_block = INT32_MIN;
            for (int j = 0; j < LB_BLOCK; j++) {
                int32_t rank = lb_rank(block[j]);
                in_block = rank > in_block ? rank : in_block;
                nan |= block[j] != block[j];
            }
            highest[i / LB_BLOCK] = in_block;
            most = in_block > most ? in_block : most;
        }
        *top = most;
        return nan;
    }

    /* exp(t) for t <= 0 to about 1e-7, relative; 0 below -87. The polynomial is Cephes'. */
    static inline float lb_exp(float t) {
        uint32_t in_range = -(uint32_t)(t >= -87.0f), bits, exponent; /* a mask: branches would not vectorise */
        float clamped;
        memcpy(&bits, &t, 4);
        bits &= in_range;
        memcpy(&clamped, &bits, 4);
        float shifted = clamped * 1.44269504f + 12582912.0f; /* the integer part lands in the low bits */
        float whole = shifted - 12582912.0f;
        float r = clamped - whole * 0.693359375f;
        r = r - whole * -2.12194440e-4f;
        float y = 1.9875691500e-4f;
        y = y * r + 1.3981999507e-3f;
        y = y * r + 8.3334519073e-3f;
        y = y * r + 4.1665795894e-2f;
        y = y * r + 1.6666665459e-1f;
        y = y * r + 5.0000001201e-1f;
        y = y * (r * r) + (r + 1.0f);
        memcpy(&bits, &y, 4);
        memcpy(&exponent, &shifted, 4);
        bits = (bits + (exponent << 23)) & in_range;
        memcpy(&y, &bits, 4);
        return y;
    }

    /* exp(t) for t <= 0 to about 1e-15, relative; 0 below -708. Taylor's series to the 13th power. */
    static inline double lb_exp_double(double t) {
        uint64_t in_range = -(uint64_t)(t >= -708.0), bits, exponent;
        double clamped;
        memcpy(&bits, &t, 8);
        bits &= in_range;
        memcpy(&clamped, &bits, 8);
        double shifted = clamped * 1.4426950408889634 + 6755399441055744.0;
        double whole = shifted - 6755399441055744.0;
        double r = clamped - whole * 0.693147180369123816490;
        r = r - whole * 1.90821492927058770002e-10;
        double y = 1.0 / 6227020800.0;
        y = y * r + 1.0 / 479001600.0;
        y = y * r + 1.0 / 39916800.0;
        y = y * r + 1.0 / 3628800.0;
        y = y * r + 1.0 / 362880.0;
        y = y * r + 1.0 / 40320.0;
        y = y * r + 1.0 / 5040.0;
        y = y * r + 1.0 / 720.0;
        y = y * r + 1.0 / 120.0;
        y = y * r + 1.0 / 24.0;
        y = y * r + 1.0 / 6.0;
        y = y * r + 0.5;
        y = y * r + 1.0;
        y = y * r + 1.0;
        memcpy(&bits, &y, 8);
        memcpy(&exponent, &shifted, 8);
        bits = (bits + (exponent << 52)) & in_range;
        memcpy(&y, &bits, 8);
        return y;
    }

    /* Sum of exp((x - top) * rate); each weight goes to out[n] unless out is NULL. */
    LB_VERSIONS static double lb_exp_sum(const float *x, ptrdiff_t n, float top, float rate, float *out) {
        float padded[LB_BLOCK], weights[LB_BLOCK];
        double total[LB_LANES] = {0}, sum = 0;
        for (ptrdiff_t i = 0; i < n; i += LB_BLOCK) {
            const float *block = lb_block(x, n, i, padded);
            for (int j = 0; j < LB_BLOCK; j++) weights[j] = lb_exp((block[j] - top) * rate);
            for (int j = 0; j < LB_LANES; j++)
                total[j] += (double)((weights[j] + weights[j + 16]) + (weights[j + 32] + weights[j + 48]));
            if (out) memcpy(out + i, weights, sizeof(float) * (size_t)(n - i < LB_BLOCK ? n - i : LB_BLOCK));
        }
        for (int j = 0; j < LB_LANES; j++) sum += total[j];
        return sum;
    }

    /* weights[n] of the logits that have these ranks: exp((logit - top) / temperature). */
    LB_VERSIONS static void lb_weigh(const int32_t *ranks, ptrdiff_t n, double top, double temperature,
                                     double *weights) {
        for (ptrdiff_t i = 0; i < n; i++)
            weights[i] = lb_exp_double(((double)lb_value(ranks[i]) - top) / temperature);
    }

    LB_VERSIONS static void lb_scale(float *x, ptrdiff_t n, float factor) {
        for (ptrdiff_t i = 0; i < n; i++) x[i] *= factor;
    }

    LB_VERSIONS static double lb_sum(const float *p, ptrdiff_t n) {
        double total[LB_LANES] = {0}, sum = 0;
        ptrdiff_t i = 0;
        for (; i + LB_LANES <= n; i += LB_LANES)
            for (int j = 0; j < LB_LANES; j++) total[j] += (double)p[i + j];
        for (; i < n; i++) sum += (double)p[i];
        for (int j = 0; j < LB_LANES; j++) sum += total[j];
        return sum;
    }

    /* max(scale * p - q, 0), rounded once, for a float times a float is exact in a double; |d| + d is 2d or 0. */
    static inline double lb_excess(float p, float q, float scale) {
        double d = (double)scale * (double)p - (double)q;
        return 0.5 * (fabs(d) + d);
    }

    LB_VERSIONS static double lb_excess_sum(const float *p, const float *q, float scale, ptrdiff_t n) {
        double total[LB_LANES] = {0}, sum = 0;
        ptrdiff_t i = 0;
        for (; i + LB_LANES <= n; i += LB_LANES)
            for (int j = 0; j < LB_LANES; j++) total[j] += lb_excess(p[i + j], q[i + j], scale);
        for (; i < n; i++) sum += lb_excess(p[i], q[i], scale);
        for (int j = 0; j < LB_LANES; j++) sum += total[j];
        return sum;
    }
    """
    int LB_BLOCK
    int32_t lb_rank(float x) noexcept nogil
    float lb_value(int32_t rank) noexcept nogil
    int lb_block_maxima(const float *x, ptrdiff_t n, int32_t *highest, int32_t *top) noexcept nogil
    double lb_exp_sum(const float *x, ptrdiff_t n, float top, float rate, float *out) noexcept nogil
    void lb_weigh(const int32_t *ranks, ptrdiff_t n, double top, double temperature,
                  double *weights) noexcept nogil
    void lb_scale(float *x, ptrdiff_t n, float factor) noexcept nogil
    double lb_sum(const float *p, ptrdiff_t n) noexcept nogil
    double lb_excess(float p, float q, float scale) noexcept nogil
    double lb_excess_sum(const float *p, const float *q, float scale, ptrdiff_t n) noexcept nogil
