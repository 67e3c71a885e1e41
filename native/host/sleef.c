/* Sleef_*: the vector mathematics that inductor's CPU kernels call, forwarded to glibc's libmvec.
 *
 * Both libraries take and return vectors by the platform's calling convention, so a function is one indirect
 * jump. libmvec is opened at the first call (its functions came with glibc 2.22 and 2.35; on AArch64 with
 * 2.38 and later); a function that it lacks runs lane by lane through libm. libmvec is within 4 ulp, Sleef's
 * u10 functions within 1.
 */
#include <dlfcn.h>
#include <math.h>

#include "internal.h"

static void *find_vector_function(const char *name, void *lanewise) {
    static _Atomic(void *) library;
    static char absent;
    void *handle = atomic_load(&library);
    if (handle == NULL) {
        handle = dlopen("libmvec.so.1", RTLD_LAZY | RTLD_LOCAL);
        handle = handle != NULL ? handle : &absent;
        atomic_store(&library, handle); /* two threads may both open it: one more reference does no harm */
    }
    void *found = handle != &absent ? dlsym(handle, name) : NULL;
    return found != NULL ? found : lanewise;
}

/* lgamma writes the global signgam. */
static inline double lgamma_quiet(double x) {
    int sign;
    return lgamma_r(x, &sign);
}
static inline float lgamma_quietf(float x) {
    int sign;
    return lgammaf_r(x, &sign);
}

/* ISA: attributes of a function on such vectors. VARIANT: libmvec's letter and lane count. */
#define VECTOR_1(sleef, mvec, scalar, VECTOR, ISA)                           \
    ISA static VECTOR lanewise_##sleef(VECTOR x) {                           \
        for (unsigned lane = 0; lane < sizeof x / sizeof x[0]; lane++) {     \
            x[lane] = scalar(x[lane]);                                       \
        }                                                                    \
        return x;                                                            \
    }                                                                        \
    ISA AOTI_SHIM_EXPORT VECTOR Sleef_##sleef(VECTOR x);                     \
    ISA VECTOR Sleef_##sleef(VECTOR x) {                                     \
        static _Atomic(void *) slot;                                         \
        void *function = atomic_load_explicit(&slot, memory_order_relaxed);  \
        if (__builtin_expect(function == NULL, 0)) {                         \
            function = find_vector_function(mvec, (void *)lanewise_##sleef); \
            atomic_store_explicit(&slot, function, memory_order_relaxed);    \
        }                                                                    \
        return ((__typeof__(&lanewise_##sleef))function)(x);                 \
    }
#define VECTOR_2(sleef, mvec, scalar, VECTOR, ISA)                           \
    ISA static VECTOR lanewise_##sleef(VECTOR x, VECTOR y) {                 \
        for (unsigned lane = 0; lane < sizeof x / sizeof x[0]; lane++) {     \
            x[lane] = scalar(x[lane], y[lane]);                              \
        }                                                                    \
        return x;                                                            \
    }                                                                        \
    ISA AOTI_SHIM_EXPORT VECTOR Sleef_##sleef(VECTOR x, VECTOR y);           \
    ISA VECTOR Sleef_##sleef(VECTOR x, VECTOR y) {                           \
        static _Atomic(void *) slot;                                         \
        void *function = atomic_load_explicit(&slot, memory_order_relaxed);  \
        if (__builtin_expect(function == NULL, 0)) {                         \
            function = find_vector_function(mvec, (void *)lanewise_##sleef); \
            atomic_store_explicit(&slot, function, memory_order_relaxed);    \
        }                                                                    \
        return ((__typeof__(&lanewise_##sleef))function)(x, y);              \
    }

/* What inductor's vector headers (ATen/cpu/vec) call, for one vector type. T: f or d with the lane count, V:
 * libmvec's variant, S: the suffix of libm's functions. */
#define EVERY_FUNCTION(T, V, S, LGAMMA, VECTOR, ISA)                              \
    VECTOR_1(acos##T##_u10, "_ZGV" V "v_acos" #S, acos##S, VECTOR, ISA)           \
    VECTOR_1(acosh##T##_u10, "_ZGV" V "v_acosh" #S, acosh##S, VECTOR, ISA)        \
    VECTOR_1(asin##T##_u10, "_ZGV" V "v_asin" #S, asin##S, VECTOR, ISA)           \
    VECTOR_1(asinh##T##_u10, "_ZGV" V "v_asinh" #S, asinh##S, VECTOR, ISA)        \
    VECTOR_1(atan##T##_u10, "_ZGV" V "v_atan" #S, atan##S, VECTOR, ISA)           \
    VECTOR_1(atanh##T##_u10, "_ZGV" V "v_atanh" #S, atanh##S, VECTOR, ISA)        \
    VECTOR_1(cos##T##_u10, "_ZGV" V "v_cos" #S, cos##S, VECTOR, ISA)              \
    VECTOR_1(cosh##T##_u10, "_ZGV" V "v_cosh" #S, cosh##S, VECTOR, ISA)           \
    VECTOR_1(erf##T##_u10, "_ZGV" V "v_erf" #S, erf##S, VECTOR, ISA)              \
    VECTOR_1(erfc##T##_u15, "_ZGV" V "v_erfc" #S, erfc##S, VECTOR, ISA)           \
    VECTOR_1(exp##T##_u10, "_ZGV" V "v_exp" #S, exp##S, VECTOR, ISA)              \
    VECTOR_1(exp2##T##_u10, "_ZGV" V "v_exp2" #S, exp2##S, VECTOR, ISA)           \
    VECTOR_1(expm1##T##_u10, "_ZGV" V "v_expm1" #S, expm1##S, VECTOR, ISA)        \
    VECTOR_1(lgamma##T##_u10, "_ZGV" V "v_lgamma" #S, LGAMMA, VECTOR, ISA)        \
    VECTOR_1(log##T##_u10, "_ZGV" V "v_log" #S, log##S, VECTOR, ISA)              \
    VECTOR_1(log10##T##_u10, "_ZGV" V "v_log10" #S, log10##S, VECTOR, ISA)        \
    VECTOR_1(log1p##T##_u10, "_ZGV" V "v_log1p" #S, log1p##S, VECTOR, ISA)        \
    VECTOR_1(log2##T##_u10, "_ZGV" V "v_log2" #S, log2##S, VECTOR, ISA)           \
    VECTOR_1(sin##T##_u10, "_ZGV" V "v_sin" #S, sin##S, VECTOR, ISA)              \
    VECTOR_1(sinh##T##_u10, "_ZGV" V "v_sinh" #S, sinh##S, VECTOR, ISA)           \
    VECTOR_1(tan##T##_u10, "_ZGV" V "v_tan" #S, tan##S, VECTOR, ISA)              \
    VECTOR_1(tanh##T##_u10, "_ZGV" V "v_tanh" #S, tanh##S, VECTOR, ISA)           \
    VECTOR_2(atan2##T##_u10, "_ZGV" V "vv_atan2" #S, atan2##S, VECTOR, ISA)       \
    VECTOR_2(copysign##T, "_ZGV" V "vv_copysign" #S, copysign##S, VECTOR, ISA)    \
    VECTOR_2(fmod##T, "_ZGV" V "vv_fmod" #S, fmod##S, VECTOR, ISA)                \
    VECTOR_2(hypot##T##_u05, "_ZGV" V "vv_hypot" #S, hypot##S, VECTOR, ISA)       \
    VECTOR_2(nextafter##T, "_ZGV" V "vv_nextafter" #S, nextafter##S, VECTOR, ISA) \
    VECTOR_2(pow##T##_u10, "_ZGV" V "vv_pow" #S, pow##S, VECTOR, ISA)

/* AVX-512 and AVX2 code takes the quicker sine and cosine in single precision. */
#define QUICK_SINES(T, V, VECTOR, ISA)                           \
    VECTOR_1(sin##T##_u35, "_ZGV" V "v_sinf", sinf, VECTOR, ISA) \
    VECTOR_1(cos##T##_u35, "_ZGV" V "v_cosf", cosf, VECTOR, ISA)

typedef float float4 __attribute__((vector_size(16)));
typedef double double2 __attribute__((vector_size(16)));

#if defined(__x86_64__)
typedef float float8 __attribute__((vector_size(32)));
typedef double double4 __attribute__((vector_size(32)));
typedef float float16 __attribute__((vector_size(64)));
typedef double double8 __attribute__((vector_size(64)));

#define ISA_SSE
#define ISA_AVX2 __attribute__((target("avx2,fma")))
#define ISA_AVX512 __attribute__((target("avx512f")))

EVERY_FUNCTION(f4, "bN4", f, lgamma_quietf, float4, ISA_SSE)
EVERY_FUNCTION(d2, "bN2", , lgamma_quiet, double2, ISA_SSE)
EVERY_FUNCTION(f8, "dN8", f, lgamma_quietf, float8, ISA_AVX2)
EVERY_FUNCTION(d4, "dN4", , lgamma_quiet, double4, ISA_AVX2)
EVERY_FUNCTION(f16, "eN16", f, lgamma_quietf, float16, ISA_AVX512)
EVERY_FUNCTION(d8, "eN8", , lgamma_quiet, double8, ISA_AVX512)
QUICK_SINES(f8, "dN8", float8, ISA_AVX2)
QUICK_SINES(f16, "eN16", float16, ISA_AVX512)
#elif defined(__aarch64__)
#define ISA_NEON __attribute__((aarch64_vector_pcs))

EVERY_FUNCTION(f4, "nN4", f, lgamma_quietf, float4, ISA_NEON)
EVERY_FUNCTION(d2, "nN2", , lgamma_quiet, double2, ISA_NEON)
#endif
