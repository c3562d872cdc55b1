# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The entropy of a law, fast enough to be asked for after every drafted token. Twin:
lucebox/sampling/reference.py.

One pass in vector code, with a logarithm of its own: libm's would take longer than a small model's forward.
"""

cdef extern from *:
    """
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

    /* -p log(p) to about 1e-7 of log(p); 0 below the smallest normal float. The polynomial is Cephes'. */
    static inline float lb_information(float p) {
        uint32_t in_range = -(uint32_t)(p >= 1.17549435e-38f), bits, shifted;
        memcpy(&bits, &p, 4);
        shifted = bits - 0x3f3504f3u; /* mantissas lie between sqrt(1/2) and sqrt(2) */
        float exponent = (float)((int32_t)shifted >> 23);
        float x;
        bits = (shifted & 0x007fffffu) + 0x3f3504f3u;
        memcpy(&x, &bits, 4);
        x -= 1.0f;
        float y = 7.0376836292e-2f;
        y = y * x - 1.1514610310e-1f;
        y = y * x + 1.1676998740e-1f;
        y = y * x - 1.2420140846e-1f;
        y = y * x + 1.4249322787e-1f;
        y = y * x - 1.6668057665e-1f;
        y = y * x + 2.0000714765e-1f;
        y = y * x - 2.4999993993e-1f;
        y = y * x + 3.3333331174e-1f;
        float square = x * x;
        y = y * x * square - 0.5f * square + exponent * -2.12194440e-4f;
        y = (x + y) + exponent * 0.693359375f;
        float information = -p * y;
        memcpy(&bits, &information, 4);
        bits &= in_range;
        memcpy(&information, &bits, 4);
        return information;
    }

    /* Sums in blocks, whose rounding is far below the logarithm's. */
    LB_VERSIONS static double lb_entropy(const float *p, ptrdiff_t n) {
        double sum = 0;
        ptrdiff_t i = 0;
        while (i + LB_LANES <= n) {
            float lanes[LB_LANES] = {0};
            ptrdiff_t end = n - i < 64 * LB_LANES ? i + (n - i) / LB_LANES * LB_LANES : i + 64 * LB_LANES;
            for (; i < end; i += LB_LANES)
                for (int j = 0; j < LB_LANES; j++) lanes[j] += lb_information(p[i + j]);
            for (int j = 0; j < LB_LANES; j++) sum += (double)lanes[j];
        }
        for (; i < n; i++) sum += (double)lb_information(p[i]);
        return sum;
    }
    """
    double lb_entropy(const float *p, ptrdiff_t n) noexcept nogil


def entropy(const float[::1] probs not None):
    """The Shannon entropy, in nats, of a law with these probabilities, dense or sparse."""
    cdef double sum = 0
    if probs.shape[0]:
        with nogil:
            sum = lb_entropy(&probs[0], probs.shape[0])
    return max(0.0, sum)
