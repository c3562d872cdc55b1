/* What our kernels for x86 with AVX-512 have in common. For headers that have told what they need beside it:
   LB_FEATURES, as GCC's target attribute names them. */
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define LB_HAS_AVX512 1
#include <immintrin.h>

#define LB_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,f16c,fma" LB_FEATURES)))
#define LB_INLINE LB_TARGET static inline __attribute__((always_inline))
#define LB_AT(type, tensor, offset) (*(type *)((char *)(tensor) + (offset)))

static int lb_has_avx512(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma");
}
#endif
