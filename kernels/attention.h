/* Attention of rows over the cells they see, on x86 with AVX-512. For attention.pyx only.

   What a row gets depends on its query, and on the keys and values of the cells it sees in their order, to the last
   bit: not on how many rows are computed with it, on cells that it does not see, on where among those its own lie, or
   on the number of threads. So a score is summed over the head's elements in their order, the largest score is known
   before any weight is taken, and weights and weighted values are summed from cell to cell. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define LB_CELLS 16          /* cells side by side in a vector */
#define LB_QUERIES 24        /* queries at a time, which share what was unpacked of keys and values */
#define LB_MAX_HEAD 256      /* elements of a head */
#define LB_SCORES (1 << 18)  /* of one thread, as long as one query has no more: they stay in its cache */

/* Heads in all and those of keys and values, their elements, whether these are float16; and where fields of
   ggml_tensor lie, in bytes. */
typedef struct {
    int64_t n_heads, n_heads_kv, dk, dv, is_half;
    double scale;
    int64_t data, ne, nb, src;
} lb_attention;

#define LB_FEATURES ""
#include "avx512.h"
#ifdef LB_HAS_AVX512
static int lb_is_supported(void) { return lb_has_avx512(); }

/* The queries of one key head that are computed together, and what is known of them. */
typedef struct {
    const char *keys, *values;        /* of the head's first cell */
    size_t key_bytes, value_bytes;    /* from cell to cell */
    int64_t n_cells, n_tiles, dk, dv;
    int is_half, n;
    const float *query[LB_QUERIES];
    float *out[LB_QUERIES];
    int row[LB_QUERIES];              /* which of the rows below each belongs to */
    int n_rows;
    const uint16_t *mask[LB_QUERIES]; /* of each row: 0 for a cell that it sees, as float16 */
    uint16_t *seen;                   /* [n_rows][n_tiles]: a bit for each cell that a row sees */
    float *weights;                   /* [n][n_tiles][LB_CELLS]: scores, and then what the softmax makes of them */
} lb_work;

LB_INLINE __m512 lb_load(const char *x, int is_half) {
    return is_half ? _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)x)) : _mm512_loadu_ps((const float *)x);
}

/* e to the x for x <= 0 within two units in the last place, 0 where it is less than floats can say; NaN for NaN. */
LB_INLINE __m512 lb_exp(__m512 x) {
    x = _mm512_max_ps(_mm512_set1_ps(-150.f), x); /* NaN stays: it is the second operand */
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 y = _mm512_set1_ps(1.f / 5040);
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.f / 720));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.f / 120));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.f / 24));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.f / 6));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(0.5f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.f));
    return _mm512_scalef_ps(y, n);
}

/* Sixteen vectors as the columns of what they were the rows of. */
LB_INLINE void lb_transpose(__m512 *v) {
    __m512 t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            const __m512d a = _mm512_castps_pd(t[i + j]), b = _mm512_castps_pd(t[i + j + 2]);
            v[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            v[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 8; j += 4) {
            const __m512 a = v[2 * j + i], b = v[2 * j + 4 + i];
            t[2 * j + i] = _mm512_shuffle_f32x4(a, b, 0x88);
            t[2 * j + 4 + i] = _mm512_shuffle_f32x4(a, b, 0xdd);
        }
    for (int i = 0; i < 8; i++) {
        v[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        v[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
    }
}

/* Which cells of a tile the rows see; returns those that any of them does. */
LB_TARGET static uint16_t lb_look(const lb_work *w, int64_t tile) {
    const int64_t first = tile * LB_CELLS, n_left = w->n_cells - first;
    const __mmask16 there = (__mmask16)(n_left < LB_CELLS ? (1u << n_left) - 1 : 0xffff);
    uint16_t any = 0;
    for (int r = 0; r < w->n_rows; r++) {
        const __m256i mask = _mm256_maskz_loadu_epi16(there, w->mask[r] + first);
        const uint16_t seen = _mm256_mask_cmpeq_epi16_mask(there, mask, _mm256_setzero_si256());
        w->seen[r * w->n_tiles + tile] = seen;
        any |= seen;
    }
    return any;
}

/* The keys of a tile, element by element: [dk][LB_CELLS]. A cell that nobody sees stands for zeros. */
LB_TARGET static void lb_unpack_keys(const lb_work *w, int64_t tile, uint16_t any, float *out) {
    for (int64_t d = 0; d < w->dk; d += 16) {
        __m512 v[16];
        for (int c = 0; c < LB_CELLS; c++) {
            const char *cell = w->keys + (tile * LB_CELLS + c) * w->key_bytes + d * (w->is_half ? 2 : 4);
            v[c] = any >> c & 1 ? lb_load(cell, w->is_half) : _mm512_setzero_ps();
        }
        lb_transpose(v);
        for (int i = 0; i < 16; i++) _mm512_storeu_ps(out + (d + i) * LB_CELLS, v[i]);
    }
}

/* The scores of n queries from q on with a tile's cells; n is a constant wherever this is inlined. */
LB_INLINE void lb_score(const lb_work *w, int64_t tile, int q, const float *keys, __m512 scale, float *largest, const int n) {
    __m512 sum[8];
    for (int i = 0; i < n; i++) sum[i] = _mm512_setzero_ps();
    for (int64_t d = 0; d < w->dk; d++) {
        const __m512 key = _mm512_loadu_ps(keys + d * LB_CELLS);
        for (int i = 0; i < n; i++) sum[i] = _mm512_fmadd_ps(_mm512_set1_ps(w->query[q + i][d]), key, sum[i]);
    }
    for (int i = 0; i < n; i++) {
        const __mmask16 seen = w->seen[w->row[q + i] * w->n_tiles + tile];
        const __m512 score = _mm512_mask_mul_ps(_mm512_set1_ps(-INFINITY), seen, sum[i], scale);
        _mm512_storeu_ps(w->weights + ((q + i) * w->n_tiles + tile) * LB_CELLS, score);
        float *l = largest + (q + i) * LB_CELLS;
        _mm512_storeu_ps(l, _mm512_max_ps(_mm512_loadu_ps(l), score));
    }
}

#define LB_SCORE(n) case n: lb_score(w, tile, q, keys, scale, largest, n); break;
/* Fills `weights` with scores, and `largest` [n][LB_CELLS] with the largest of each lane. */
LB_TARGET static void lb_scores(const lb_work *w, float scale_, float *largest, uint16_t *any) {
    float keys[LB_MAX_HEAD * LB_CELLS];
    const __m512 scale = _mm512_set1_ps(scale_);
    for (int64_t tile = 0; tile < w->n_tiles; tile++) {
        if (!(any[tile] = lb_look(w, tile))) continue;
        lb_unpack_keys(w, tile, any[tile], keys);
        for (int q = 0; q < w->n; q += 8)
            switch (w->n - q < 8 ? w->n - q : 8) {
                LB_SCORE(1) LB_SCORE(2) LB_SCORE(3) LB_SCORE(4) LB_SCORE(5) LB_SCORE(6) LB_SCORE(7) LB_SCORE(8)
            }
    }
}

/* Turns the scores of query q into weights, of which the largest is 1. */
LB_TARGET static void lb_softmax(const lb_work *w, int q, const float *largest, const uint16_t *any) {
    const __m512 most = _mm512_set1_ps(_mm512_reduce_max_ps(_mm512_loadu_ps(largest + q * LB_CELLS)));
    for (int64_t tile = 0; tile < w->n_tiles; tile++) {
        if (!any[tile]) continue;
        float *x = w->weights + (q * w->n_tiles + tile) * LB_CELLS;
        const __mmask16 seen = w->seen[w->row[q] * w->n_tiles + tile];
        _mm512_storeu_ps(x, _mm512_maskz_mov_ps(seen, lb_exp(_mm512_sub_ps(_mm512_loadu_ps(x), most))));
    }
}

/* Adds a tile's values, weighted, to n queries' sums of `width` vectors from element d on, and the weights to
   `total`; each of the cells that it sees alone, whatever others hold. n and width are constants wherever this is
   inlined. */
LB_INLINE void lb_mix(const lb_work *w, int64_t tile, uint16_t any, int q, int64_t d, const float *values, float (*sums)[LB_MAX_HEAD],
                      float (*total)[LB_CELLS], const int n, const int width) {
    __m512 sum[4][4], weight_sum[4];
    uint16_t seen[4];
    for (int i = 0; i < n; i++) {
        seen[i] = w->seen[w->row[q + i] * w->n_tiles + tile];
        for (int j = 0; j < width; j++) sum[i][j] = _mm512_loadu_ps(sums[q + i] + d + 16 * j);
        weight_sum[i] = _mm512_loadu_ps(total[q + i]);
    }
    const float *weights = w->weights + (q * w->n_tiles + tile) * LB_CELLS;
    for (unsigned left = any; left; left &= left - 1) {
        const int c = __builtin_ctz(left);
        __m512 value[4];
        for (int j = 0; j < width; j++) value[j] = _mm512_loadu_ps(values + c * w->dv + d + 16 * j);
        for (int i = 0; i < n; i++) {
            const __m512 weight = _mm512_set1_ps(weights[i * w->n_tiles * LB_CELLS + c]);
            const __mmask16 sees = (__mmask16)-(seen[i] >> c & 1);
            for (int j = 0; j < width; j++) sum[i][j] = _mm512_mask3_fmadd_ps(weight, value[j], sum[i][j], sees);
            weight_sum[i] = _mm512_add_ps(weight_sum[i], weight);
        }
    }
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < width; j++) _mm512_storeu_ps(sums[q + i] + d + 16 * j, sum[i][j]);
        if (d == 0) _mm512_storeu_ps(total[q + i], weight_sum[i]);
    }
}

#define LB_MIX(n, width) case n * 8 + width: lb_mix(w, tile, any[tile], q, d, values, sums, total, n, width); break;
LB_TARGET static void lb_values(const lb_work *w, const uint16_t *any) {
    float values[LB_CELLS * LB_MAX_HEAD], sums[LB_QUERIES][LB_MAX_HEAD], total[LB_QUERIES][LB_CELLS];
    for (int q = 0; q < w->n; q++) {
        for (int64_t d = 0; d < w->dv; d++) sums[q][d] = 0;
        for (int i = 0; i < LB_CELLS; i++) total[q][i] = 0;
    }
    for (int64_t tile = 0; tile < w->n_tiles; tile++) {
        for (unsigned left = any[tile]; left; left &= left - 1) {
            const int c = __builtin_ctz(left);
            const char *cell = w->values + (tile * LB_CELLS + c) * w->value_bytes;
            for (int64_t d = 0; d < w->dv; d += 16)
                _mm512_storeu_ps(values + c * w->dv + d, lb_load(cell + d * (w->is_half ? 2 : 4), w->is_half));
        }
        if (!any[tile]) continue;
        for (int64_t d = 0; d < w->dv; d += 64) {
            const int width = (int)(w->dv - d < 64 ? (w->dv - d) / 16 : 4);
            for (int q = 0; q < w->n; q += 4)
                switch ((w->n - q < 4 ? w->n - q : 4) * 8 + width) {
                    LB_MIX(1, 1) LB_MIX(1, 2) LB_MIX(1, 3) LB_MIX(1, 4) LB_MIX(2, 1) LB_MIX(2, 2) LB_MIX(2, 3) LB_MIX(2, 4)
                    LB_MIX(3, 1) LB_MIX(3, 2) LB_MIX(3, 3) LB_MIX(3, 4) LB_MIX(4, 1) LB_MIX(4, 2) LB_MIX(4, 3) LB_MIX(4, 4)
                }
        }
    }
    for (int q = 0; q < w->n; q++)
        for (int64_t d = 0; d < w->dv; d++) w->out[q][d] = total[q][0] == 0 ? 0 : sums[q][d] / total[q][0];
}

/* ggml_custom_op_t: float32 queries [rows][heads][dk], keys [kv heads][cells][dk], values and a mask [rows][cells] to
   float32[rows][heads * dv]. NaN where there is no memory for the scores. */
LB_TARGET static void lb_attend_op(void *tensor, int ith, int nth, void *attention) {
    const lb_attention *a = attention;
    void *const *src = &LB_AT(void *, tensor, a->src);
    const int64_t n_rows = LB_AT(int64_t, tensor, a->ne + 8), n_cells = LB_AT(int64_t, src[1], a->ne + 8);
    const int64_t n_group = a->n_heads / a->n_heads_kv, n_queries = n_rows * n_group;
    int64_t n_at_once = (n_queries * a->n_heads_kv + nth - 1) / nth; /* of one key head: work for every thread */
    if (n_at_once > LB_QUERIES) n_at_once = LB_QUERIES;
    if (n_at_once * n_cells > LB_SCORES) n_at_once = LB_SCORES / n_cells;
    if (n_at_once < 1) n_at_once = 1;
    const int64_t n_parts = (n_queries + n_at_once - 1) / n_at_once;

    lb_work w = {.n_cells = n_cells, .n_tiles = (n_cells + LB_CELLS - 1) / LB_CELLS, .dk = a->dk, .dv = a->dv};
    w.is_half = (int)a->is_half;
    w.key_bytes = LB_AT(size_t, src[1], a->nb + 8);
    w.value_bytes = LB_AT(size_t, src[2], a->nb + 8);
    w.weights = malloc((size_t)(n_at_once * w.n_tiles) * LB_CELLS * sizeof(float));
    w.seen = malloc((size_t)((n_at_once + 1) * w.n_tiles) * sizeof(uint16_t));
    uint16_t *any = w.seen + n_at_once * w.n_tiles;
    for (int64_t i = ith; i < a->n_heads_kv * n_parts; i += nth) {
        const int64_t head = i % a->n_heads_kv, first = i / a->n_heads_kv * n_at_once;
        w.keys = LB_AT(const char *, src[1], a->data) + head * LB_AT(size_t, src[1], a->nb + 16);
        w.values = LB_AT(const char *, src[2], a->data) + head * LB_AT(size_t, src[2], a->nb + 16);
        w.n = (int)(n_queries - first < n_at_once ? n_queries - first : n_at_once);
        w.n_rows = 0;
        for (int q = 0; q < w.n; q++) {
            const int64_t row = (first + q) / n_group, h = head * n_group + (first + q) % n_group;
            if (q == 0 || (first + q) % n_group == 0)
                w.mask[w.n_rows++] = (const uint16_t *)(LB_AT(const char *, src[3], a->data) + row * LB_AT(size_t, src[3], a->nb + 8));
            w.row[q] = w.n_rows - 1;
            w.query[q] = (const float *)(LB_AT(const char *, src[0], a->data) + row * LB_AT(size_t, src[0], a->nb + 16) +
                                         h * LB_AT(size_t, src[0], a->nb + 8));
            w.out[q] = LB_AT(float *, tensor, a->data) + (row * a->n_heads + h) * a->dv;
        }
        if (!w.weights || !w.seen) {
            for (int q = 0; q < w.n; q++)
                for (int64_t d = 0; d < a->dv; d++) w.out[q][d] = NAN;
            continue;
        }
        float largest[LB_QUERIES * LB_CELLS];
        for (int j = 0; j < w.n * LB_CELLS; j++) largest[j] = -INFINITY;
        lb_scores(&w, (float)a->scale, largest, any);
        for (int q = 0; q < w.n; q++) lb_softmax(&w, q, largest, any);
        lb_values(&w, any);
    }
    free(w.weights);
    free(w.seen);
}
#else
static int lb_is_supported(void) { return 0; }
static void lb_attend_op(void *tensor, int ith, int nth, void *attention) {}
#endif
