/* Products of quantised matrices with few rows of activations, on x86 with AVX-512 VNNI. For packed.pyx only.

   Sixteen output rows lie side by side: a 512-bit vector holds four consecutive weights of each, and one vpdpbusd
   multiplies them with four activations that all lanes share. Weights are unpacked once for up to eight rows of
   activations, so checking eight tokens costs little more than reading the weights. The sums of one row are made in
   the same order whatever the number of rows: its result does not depend on what else is in the batch. */
#include <stddef.h>
#include <stdint.h>

#define LB_SUPER 256        /* weights of one super-block of GGML's K-quants */
#define LB_LANES 16         /* output rows side by side */
#define LB_ROWS 8           /* rows of activations at a time */
#define LB_FETCH_AHEAD 2    /* super-blocks; without it, memory is waited for */

enum { LB_Q4_K, LB_Q6_K };

/* One super-block of one row, as GGML has it. */
typedef struct { uint16_t d, dmin; uint8_t scales[12], qs[128]; } lb_q4_k;
typedef struct { uint8_t ql[128], qh[64]; int8_t scales[16]; uint16_t d; } lb_q6_k;

/* One super-block of sixteen rows, as we have it: the same numbers, in the order they are used.
   A byte of `q` at 4 * lane + c holds weights 8i+c (low nibble) and 8i+4+c (high nibble). */
typedef struct {
    uint16_t d[LB_LANES], dmin[LB_LANES];
    uint8_t scale[8][LB_LANES], min[8][LB_LANES];
    uint8_t q[8][4][4 * LB_LANES];  /* of 32 weights each */
} lb_q4_k_lanes;
typedef struct {
    uint16_t d[LB_LANES];
    int8_t scale[16][LB_LANES];
    uint8_t q[16][3][4 * LB_LANES]; /* of 16 weights each; the third holds two high bits of 4i+c at bit 2i */
} lb_q6_k_lanes;

/* What a product needs to know; the last four are where fields of ggml_tensor lie, in bytes. */
typedef struct { int64_t kind, k, n_out, data, ne, nb, src; } lb_matrix;

static size_t lb_super_bytes(int64_t kind) { return kind == LB_Q4_K ? sizeof(lb_q4_k_lanes) : sizeof(lb_q6_k_lanes); }

/* A quantised row of k activations: int8 values, then float scales of each 256, float sums of each 32 values, and
   int32 sums of each 16 values times -32, which is what Q6_K's offset of 32 takes away. */
static size_t lb_row_bytes(int64_t k) { return ((size_t)(k + k / 64 + k / 8 + k / 4) + 63) / 64 * 64; }
static const float *lb_scales(const char *row, int64_t k) { return (const float *)(row + k); }
static const float *lb_sums(const char *row, int64_t k) { return (const float *)(row + k + k / 64); }
static const int32_t *lb_offsets(const char *row, int64_t k) { return (const int32_t *)(row + k + k / 64 + k / 8); }

static void lb_pack_q4_k(const lb_q4_k *in, lb_q4_k_lanes *out, int lane) {
    out->d[lane] = in->d;
    out->dmin[lane] = in->dmin;
    for (int j = 0; j < 8; j++) {
        const uint8_t *s = in->scales, *q = in->qs + j / 2 * 32;
        const int shift = j % 2 * 4;
        out->scale[j][lane] = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6 << 4);
        out->min[j][lane] = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | (s[j] >> 6 << 4);
        for (int i = 0; i < 4; i++)
            for (int c = 0; c < 4; c++)
                out->q[j][i][lane * 4 + c] = (q[8 * i + c] >> shift & 15) | (q[8 * i + 4 + c] >> shift & 15) << 4;
    }
}

static void lb_pack_q6_k(const lb_q6_k *in, lb_q6_k_lanes *out, int lane) {
    uint8_t v[LB_SUPER];
    for (int h = 0; h < 2; h++)
        for (int l = 0; l < 32; l++) {
            const uint8_t *ql = in->ql + 64 * h + l, high = in->qh[32 * h + l];
            uint8_t *o = v + 128 * h + l;
            o[0] = (ql[0] & 15) | (high & 3) << 4;
            o[32] = (ql[32] & 15) | (high >> 2 & 3) << 4;
            o[64] = ql[0] >> 4 | (high >> 4 & 3) << 4;
            o[96] = ql[32] >> 4 | high >> 6 << 4;
        }
    out->d[lane] = in->d;
    for (int j = 0; j < 16; j++) {
        const uint8_t *w = v + 16 * j;
        out->scale[j][lane] = in->scales[j];
        for (int c = 0; c < 4; c++) {
            out->q[j][0][lane * 4 + c] = (w[c] & 15) | (w[4 + c] & 15) << 4;
            out->q[j][1][lane * 4 + c] = (w[8 + c] & 15) | (w[12 + c] & 15) << 4;
            out->q[j][2][lane * 4 + c] = w[c] >> 4 | w[4 + c] >> 4 << 2 | w[8 + c] >> 4 << 4 | w[12 + c] >> 4 << 6;
        }
    }
}

/* Packs groups [first, last) of sixteen rows of k weights. */
static void lb_pack(int64_t kind, const char *rows, char *packed, int64_t k, int64_t first, int64_t last) {
    const int64_t n = k / LB_SUPER;
    for (int64_t g = first; g < last; g++)
        for (int lane = 0; lane < LB_LANES; lane++)
            for (int64_t b = 0; b < n; b++) {
                const int64_t from = (g * LB_LANES + lane) * n + b, to = g * n + b;
                if (kind == LB_Q4_K) lb_pack_q4_k((const lb_q4_k *)rows + from, (lb_q4_k_lanes *)packed + to, lane);
                else lb_pack_q6_k((const lb_q6_k *)rows + from, (lb_q6_k_lanes *)packed + to, lane);
            }
}

#define LB_FEATURES ",avx512vnni"
#include "avx512.h"
#ifdef LB_HAS_AVX512
static int lb_is_supported(void) { return lb_has_avx512() && __builtin_cpu_supports("avx512vnni"); }

/* Quantises super-blocks [first, last) of a row, to the nearest of 127 steps of each one's largest magnitude.
   Magnitudes are compared as integers, among which NaN is the largest: it becomes the scale, and spoils the row. */
LB_TARGET static void lb_quantise(const float *x, char *row, int64_t k, int64_t first, int64_t last) {
    float *scales = (float *)lb_scales(row, k), *sums = (float *)lb_sums(row, k);
    int32_t *offsets = (int32_t *)lb_offsets(row, k);
    for (int64_t b = first; b < last; b++) {
        __m512i largest = _mm512_setzero_si512();
        for (int i = 0; i < 16; i++) {
            const __m512 v = _mm512_abs_ps(_mm512_loadu_ps(x + b * LB_SUPER + 16 * i));
            largest = _mm512_max_epi32(largest, _mm512_castps_si512(v));
        }
        const int32_t bits = _mm512_reduce_max_epi32(largest);
        const float magnitude = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
        const __m512 inverse = _mm512_set1_ps(magnitude > 0 ? 127.f / magnitude : 0.f);
        scales[b] = magnitude / 127.f;
        for (int j = 0; j < 8; j++) {
            int sum = 0;
            for (int i = 2 * j; i < 2 * j + 2; i++) {
                const __m512i v =
                    _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + b * LB_SUPER + 16 * i), inverse));
                const int part = _mm512_reduce_add_epi32(v);
                _mm_storeu_si128((__m128i *)(row + b * LB_SUPER + 16 * i), _mm512_cvtsepi32_epi8(v));
                offsets[b * 16 + i] = -32 * part;
                sum += part;
            }
            sums[b * 8 + j] = (float)sum;
        }
    }
}

LB_INLINE __m512 lb_half(const uint16_t *h) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)h)); }
LB_INLINE __m512 lb_u8(const uint8_t *b) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)b)));
}
LB_INLINE __m512 lb_s8(const int8_t *b) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)b)));
}
LB_INLINE __m512i lb_low(__m512i v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
LB_INLINE __m512i lb_high_bits(__m512i v) { return _mm512_and_si512(v, _mm512_set1_epi8(0x30)); }

/* Adds d * part to the outputs of row t; `part` is in units of the row's scale. */
LB_INLINE void lb_add(float *y, __m512 part, const char *row, int64_t k, int64_t b) {
    const __m512 scale = _mm512_set1_ps(lb_scales(row, k)[b]);
    _mm512_storeu_ps(y, _mm512_fmadd_ps(part, scale, _mm512_loadu_ps(y)));
}

/* One super-block of sixteen output rows with n rows of activations; n is a constant wherever this is inlined. */
LB_INLINE void lb_q4_k_super(const lb_q4_k_lanes *w, const char *const *row, int64_t k, int64_t b, float *const *y, const int n) {
    const __m512 d = lb_half(w->d), dmin = lb_half(w->dmin);
    __m512 part[LB_ROWS];
    for (int t = 0; t < n; t++) part[t] = _mm512_setzero_ps();
    for (int j = 0; j < 8; j++) {
        __m512i v[8];
        for (int i = 0; i < 4; i++) {
            const __m512i q = _mm512_loadu_si512(w->q[j][i]);
            v[2 * i] = lb_low(q);
            v[2 * i + 1] = lb_low(_mm512_srli_epi16(q, 4));
        }
        const __m512 scale = _mm512_mul_ps(d, lb_u8(w->scale[j])), min = _mm512_mul_ps(dmin, lb_u8(w->min[j]));
        for (int t = 0; t < n; t++) {
            const int32_t *x = (const int32_t *)(row[t] + b * LB_SUPER + j * 32);
            __m512i even = _mm512_setzero_si512(), odd = _mm512_setzero_si512();
            for (int i = 0; i < 8; i += 2) {
                even = _mm512_dpbusd_epi32(even, v[i], _mm512_set1_epi32(x[i]));
                odd = _mm512_dpbusd_epi32(odd, v[i + 1], _mm512_set1_epi32(x[i + 1]));
            }
            part[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(even, odd)), scale, part[t]);
            part[t] = _mm512_fnmadd_ps(_mm512_set1_ps(lb_sums(row[t], k)[b * 8 + j]), min, part[t]);
        }
    }
    for (int t = 0; t < n; t++) lb_add(y[t], part[t], row[t], k, b);
}

LB_INLINE void lb_q6_k_super(const lb_q6_k_lanes *w, const char *const *row, int64_t k, int64_t b, float *const *y, const int n) {
    const __m512 d = lb_half(w->d);
    __m512 part[LB_ROWS];
    for (int t = 0; t < n; t++) part[t] = _mm512_setzero_ps();
    for (int j = 0; j < 16; j++) {
        const __m512i a = _mm512_loadu_si512(w->q[j][0]), c = _mm512_loadu_si512(w->q[j][1]);
        const __m512i h = _mm512_loadu_si512(w->q[j][2]);
        const __m512i v[4] = {
            _mm512_or_si512(lb_low(a), lb_high_bits(_mm512_slli_epi16(h, 4))),
            _mm512_or_si512(lb_low(_mm512_srli_epi16(a, 4)), lb_high_bits(_mm512_slli_epi16(h, 2))),
            _mm512_or_si512(lb_low(c), lb_high_bits(h)),
            _mm512_or_si512(lb_low(_mm512_srli_epi16(c, 4)), lb_high_bits(_mm512_srli_epi16(h, 2))),
        };
        const __m512 scale = lb_s8(w->scale[j]);
        for (int t = 0; t < n; t++) {
            const int32_t *x = (const int32_t *)(row[t] + b * LB_SUPER + j * 16);
            __m512i even = _mm512_set1_epi32(lb_offsets(row[t], k)[b * 16 + j]), odd = _mm512_setzero_si512();
            for (int i = 0; i < 4; i += 2) {
                even = _mm512_dpbusd_epi32(even, v[i], _mm512_set1_epi32(x[i]));
                odd = _mm512_dpbusd_epi32(odd, v[i + 1], _mm512_set1_epi32(x[i + 1]));
            }
            part[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(even, odd)), scale, part[t]);
        }
    }
    for (int t = 0; t < n; t++) lb_add(y[t], _mm512_mul_ps(part[t], d), row[t], k, b);
}

/* One group of sixteen output rows with n rows of activations; `fetch` when it is met for the first time. */
LB_INLINE void lb_group(int64_t kind, const char *group, const char *const *row, int64_t k, float *const *y, int fetch, const int n) {
    const size_t n_bytes = lb_super_bytes(kind);
    for (int t = 0; t < n; t++) _mm512_storeu_ps(y[t], _mm512_setzero_ps());
    for (int64_t b = 0; b < k / LB_SUPER; b++, group += n_bytes) {
        if (fetch)
            for (size_t i = 0; i < n_bytes; i += 64) _mm_prefetch(group + LB_FETCH_AHEAD * n_bytes + i, _MM_HINT_T0);
        if (kind == LB_Q4_K) lb_q4_k_super((const lb_q4_k_lanes *)group, row, k, b, y, n);
        else lb_q6_k_super((const lb_q6_k_lanes *)group, row, k, b, y, n);
    }
}

#define LB_CASE(n)                                                                   \
    case n:                                                                          \
        if (kind == LB_Q4_K) lb_group(LB_Q4_K, group, row, k, y, fetch, n);          \
        else lb_group(LB_Q6_K, group, row, k, y, fetch, n);                          \
        break;
/* Compiled for each number of rows, so that their sums stay in registers. */
LB_TARGET static void lb_rows(int64_t kind, const char *group, const char *const *row, int64_t k, float *const *y, int fetch, int n) {
    switch (n) {
        LB_CASE(1) LB_CASE(2) LB_CASE(3) LB_CASE(4) LB_CASE(5) LB_CASE(6) LB_CASE(7) LB_CASE(8)
    }
}

/* Output groups [first, last) of n_rows quantised rows of activations; y is [n_rows][n_out]. */
static void lb_multiply(const lb_matrix *m, const char *packed, const char *rows, float *y, int64_t n_rows, int64_t first,
                        int64_t last) {
    const size_t group_bytes = (size_t)(m->k / LB_SUPER) * lb_super_bytes(m->kind), row_bytes = lb_row_bytes(m->k);
    for (int64_t g = first; g < last; g++)
        for (int64_t t = 0; t < n_rows; t += LB_ROWS) {
            const char *row[LB_ROWS];
            float *out[LB_ROWS];
            const int n = (int)(n_rows - t < LB_ROWS ? n_rows - t : LB_ROWS);
            for (int i = 0; i < n; i++) {
                row[i] = rows + (t + i) * row_bytes;
                out[i] = y + (t + i) * m->n_out + g * LB_LANES;
            }
            lb_rows(m->kind, packed + g * group_bytes, row, m->k, out, t == 0, n);
        }
}

/* ggml_custom_op_t: float32[n_rows][k] to quantised rows, thread `ith` of `nth`. */
static void lb_quantise_op(void *tensor, int ith, int nth, void *matrix) {
    const lb_matrix *m = matrix;
    const void *x = LB_AT(void *, tensor, m->src);
    const int64_t n = m->k / LB_SUPER, n_rows = LB_AT(int64_t, tensor, m->ne + 8), n_all = n * n_rows;
    for (int64_t i = n_all * ith / nth; i < n_all * (ith + 1) / nth; i++) {
        const char *row = LB_AT(char *, x, m->data) + i / n * LB_AT(size_t, x, m->nb + 8);
        lb_quantise((const float *)row, LB_AT(char *, tensor, m->data) + i / n * lb_row_bytes(m->k), m->k, i % n, i % n + 1);
    }
}

/* ggml_custom_op_t: a packed matrix and quantised rows to float32[n_rows][n_out]. */
static void lb_multiply_op(void *tensor, int ith, int nth, void *matrix) {
    const lb_matrix *m = matrix;
    const void *packed = LB_AT(void *, tensor, m->src), *rows = LB_AT(void *, tensor, m->src + 8);
    const int64_t n = m->n_out / LB_LANES;
    lb_multiply(m, LB_AT(char *, packed, m->data), LB_AT(char *, rows, m->data), LB_AT(float *, tensor, m->data),
                LB_AT(int64_t, tensor, m->ne + 8), n * ith / nth, n * (ith + 1) / nth);
}
#else
static int lb_is_supported(void) { return 0; }
static void lb_quantise_op(void *tensor, int ith, int nth, void *matrix) {}
static void lb_multiply_op(void *tensor, int ith, int nth, void *matrix) {}
#endif
