/* What the generated rKernels for processors are written in: vectors, and scalar functions (with rammer_scalars.h).
 *
 * C11 with GNU extensions (gcc 9 or newer, clang). Functions are free of branches where that lets loops over lanes
 * become vector code. Compile with -fno-math-errno -fno-trapping-math; never with -ffast-math: NaN, infinities and the
 * order of the roundings in exp matter.
 */
#ifndef RAMMER_KERNEL_H
#define RAMMER_KERNEL_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#define RAMMER_JOIN(a, b) RAMMER_JOIN_OF(a, b)
#define RAMMER_JOIN_OF(a, b) a##b

/* For arrays that vectors are loaded from. */
#define RAMMER_ALIGNED __attribute__((aligned(64)))

#define RAMMER_INLINE static inline __attribute__((always_inline, unused))

/* For what hardly ever runs. */
#define RAMMER_RARE __attribute__((noinline, cold, unused))

/* Before a loop over lanes, whose iterations do not depend on each other; and first in any other loop, which is then left
 * as it is. Else gcc makes two kinds of mistakes there: releases up to 13 get groups of conditional loads wrong (bug
 * 114375), and stores that later iterations may overwrite are put off to after the loop together with elements that it
 * does not store at all, though they may be another thread's (-fpredictive-commoning).
 *
 * RAMMER_ONE_VECTOR goes before a loop over just the lanes of a vector, which gcc would else unroll before it looks for
 * vector code, and then finds none.
 */
#if defined(__clang__)
#define RAMMER_LANES _Pragma("clang loop vectorize(assume_safety)")
#define RAMMER_ONE_VECTOR
#define RAMMER_IN_ORDER (void)0
#else
#define RAMMER_LANES _Pragma("GCC ivdep")
#define RAMMER_ONE_VECTOR _Pragma("GCC unroll 1")
#define RAMMER_IN_ORDER __asm__ volatile("")
#endif

/* Between stretches of code that read the same numbers: each reads them anew. Else what neighbouring points of a window
 * share stays in vector registers that sums then lack. */
#define RAMMER_APART __asm__ volatile("" ::: "memory")

/* --- Vectors: rammer_f32x16 and so on. Loads and stores need the alignment of one element only. ------------------ */

#define RAMMER_VECTOR(element, lanes, name)                                                                           \
    typedef element name __attribute__((vector_size(lanes * sizeof(element))));                                       \
    typedef element name##_at __attribute__((vector_size(lanes * sizeof(element)), aligned(sizeof(element)), may_alias));

RAMMER_VECTOR(int32_t, 4, rammer_i32x4)
RAMMER_VECTOR(int32_t, 8, rammer_i32x8)
RAMMER_VECTOR(int32_t, 16, rammer_i32x16)
RAMMER_VECTOR(float, 4, rammer_f32x4)
RAMMER_VECTOR(float, 8, rammer_f32x8)
RAMMER_VECTOR(float, 16, rammer_f32x16)
RAMMER_VECTOR(double, 2, rammer_f64x2)
RAMMER_VECTOR(double, 4, rammer_f64x4)
RAMMER_VECTOR(double, 8, rammer_f64x8)

RAMMER_VECTOR(uint8_t, 4, rammer_u8x4)
RAMMER_VECTOR(uint8_t, 8, rammer_u8x8)
RAMMER_VECTOR(uint8_t, 16, rammer_u8x16)
RAMMER_VECTOR(int8_t, 4, rammer_i8x4)
RAMMER_VECTOR(int8_t, 8, rammer_i8x8)
RAMMER_VECTOR(int8_t, 16, rammer_i8x16)

/* Macros, for a function that returns a vector has an ABI that depends on the instruction set. */
#define RAMMER_LOAD(vector, address) (*(const RAMMER_JOIN(vector, _at) *)(address))
/* For what several products share: else gcc loads it again for each, since that is no instruction of its own. */
#define RAMMER_LOAD_ONCE(vector, address) (*(const volatile vector##_at *)(address))
/* A vector that a loop over its lanes reads as name[i]. clang makes no vector code of that, but of reading memory, which it
 * then keeps in a register. */
#if defined(__clang__)
#define RAMMER_BY_LANE(vector, name, value)                                                                            \
    const vector name##_vector = (value);                                                                              \
    const __typeof__((value)[0]) *const name = (const __typeof__((value)[0]) *)&name##_vector
#else
#define RAMMER_BY_LANE(vector, name, value) const vector name = (value)
#endif
#define RAMMER_STORE(vector, address, value) (*(RAMMER_JOIN(vector, _at) *)(address) = (value))

/* Bytes (u8 or i8) of all lanes as int32, and back. gcc would take vectors apart where it converts them. */
#define RAMMER_WIDEN(lanes, bytes, address) RAMMER_WIDEN_##lanes(bytes, address)
#define RAMMER_NARROW(lanes, bytes, address, value) RAMMER_NARROW_##lanes(bytes, address, value)
#define RAMMER_WIDEN_BY_LANE(lanes, bytes, address)                                                                   \
    __builtin_convertvector(RAMMER_LOAD(rammer_##bytes##x##lanes, address), rammer_i32x##lanes)
#define RAMMER_NARROW_BY_LANE(lanes, bytes, address, value)                                                           \
    RAMMER_STORE(rammer_##bytes##x##lanes, address, __builtin_convertvector(value, rammer_##bytes##x##lanes))
#define RAMMER_WIDEN_4(bytes, address) RAMMER_WIDEN_BY_LANE(4, bytes, address)
#define RAMMER_NARROW_4(bytes, address, value) RAMMER_NARROW_BY_LANE(4, bytes, address, value)
#if defined(__AVX512F__) && defined(__AVX512VL__) && !defined(__clang__)
RAMMER_VECTOR(int64_t, 2, rammer_i64x2)
RAMMER_VECTOR(char, 16, rammer_c8x16)
#define RAMMER_EXTEND_u8 pmovzxbd
#define RAMMER_EXTEND_i8 pmovsxbd
#define RAMMER_WIDEN_8(bytes, address)                                                                                \
    RAMMER_BUILTIN(RAMMER_EXTEND_##bytes, 256)((rammer_c8x16)(rammer_i64x2){RAMMER_EIGHT(address), 0},               \
                                               (rammer_i32x8){0}, (char)-1)
#define RAMMER_WIDEN_16(bytes, address)                                                                               \
    RAMMER_BUILTIN(RAMMER_EXTEND_##bytes, 512)(RAMMER_LOAD(rammer_c8x16, address), (rammer_i32x16){0}, (short)-1)
#define RAMMER_NARROW_8(bytes, address, value)                                                                        \
    (RAMMER_EIGHT(address) =                                                                                          \
         ((rammer_i64x2)RAMMER_BUILTIN(pmovdb, 256)(value, (rammer_c8x16){0}, (char)-1))[0])
#define RAMMER_NARROW_16(bytes, address, value)                                                                       \
    RAMMER_STORE(rammer_c8x16, address, RAMMER_BUILTIN(pmovdb, 512)(value, (rammer_c8x16){0}, (short)-1))
#define RAMMER_BUILTIN(name, bits) RAMMER_BUILTIN_OF(name, bits)
#define RAMMER_BUILTIN_OF(name, bits) __builtin_ia32_##name##bits##_mask
typedef int64_t rammer_eight __attribute__((aligned(1), may_alias));
#define RAMMER_EIGHT(address) (*(rammer_eight *)(address))
#else
#define RAMMER_WIDEN_8(bytes, address) RAMMER_WIDEN_BY_LANE(8, bytes, address)
#define RAMMER_NARROW_8(bytes, address, value) RAMMER_NARROW_BY_LANE(8, bytes, address, value)
#define RAMMER_WIDEN_16(bytes, address) RAMMER_WIDEN_BY_LANE(16, bytes, address)
#define RAMMER_NARROW_16(bytes, address, value) RAMMER_NARROW_BY_LANE(16, bytes, address, value)
#endif
/* Bytes of all lanes as float32. */
#define RAMMER_BYTES(lanes, bytes, address)                                                                           \
    __builtin_convertvector(RAMMER_WIDEN(lanes, bytes, address), rammer_f32x##lanes)

/* A vector whose first `count` lanes come from memory and whose others are zero; nothing behind those lanes is read. */
#define RAMMER_LOAD_FIRST(vector, count, address) RAMMER_JOIN(RAMMER_LOAD_FIRST_, vector)(vector, count, address)
#define RAMMER_LOAD_EACH(vector, count, address)                                                                      \
    ({                                                                                                                \
        vector first_ = {0};                                                                                          \
        for (int lane_ = 0; lane_ < (count); lane_++)                                                                 \
            first_[lane_] = (address)[lane_];                                                                         \
        first_;                                                                                                       \
    })
#define RAMMER_LOAD_FIRST_rammer_i32x16 RAMMER_LOAD_EACH
#define RAMMER_LOAD_FIRST_rammer_i32x8 RAMMER_LOAD_EACH
#define RAMMER_LOAD_FIRST_rammer_i32x4 RAMMER_LOAD_EACH
#if defined(__AVX512F__) && defined(__AVX512VL__) && !defined(__clang__)
#define RAMMER_LOAD_MASKED(name, bits, mask, vector, count, address)                                                  \
    ((vector)__builtin_ia32_##name##bits##_mask(address, (vector){0}, (mask)((1 << (count)) - 1)))
#define RAMMER_LOAD_FIRST_rammer_f32x16(...) RAMMER_LOAD_MASKED(loadups, 512, short, __VA_ARGS__)
#define RAMMER_LOAD_FIRST_rammer_f32x8(...) RAMMER_LOAD_MASKED(loadups, 256, char, __VA_ARGS__)
#define RAMMER_LOAD_FIRST_rammer_f32x4(...) RAMMER_LOAD_MASKED(loadups, 128, char, __VA_ARGS__)
#define RAMMER_LOAD_FIRST_rammer_f64x8(...) RAMMER_LOAD_MASKED(loadupd, 512, char, __VA_ARGS__)
#define RAMMER_LOAD_FIRST_rammer_f64x4(...) RAMMER_LOAD_MASKED(loadupd, 256, char, __VA_ARGS__)
#define RAMMER_LOAD_FIRST_rammer_f64x2(...) RAMMER_LOAD_MASKED(loadupd, 128, char, __VA_ARGS__)
#else
#define RAMMER_LOAD_FIRST_rammer_f32x16 RAMMER_LOAD_EACH
#define RAMMER_LOAD_FIRST_rammer_f32x8 RAMMER_LOAD_EACH
#define RAMMER_LOAD_FIRST_rammer_f32x4 RAMMER_LOAD_EACH
#define RAMMER_LOAD_FIRST_rammer_f64x8 RAMMER_LOAD_EACH
#define RAMMER_LOAD_FIRST_rammer_f64x4 RAMMER_LOAD_EACH
#define RAMMER_LOAD_FIRST_rammer_f64x2 RAMMER_LOAD_EACH
#endif

/* Any address will do, outside of an operand too. */
#define RAMMER_PREFETCH(address) __builtin_prefetch(address)

/* --- Sums of four products of bytes: in each lane sum + a[0] * b[0] + ... + a[3] * b[3], a being uint8 and b int8. ---- */

/* Four bytes, of an operand or one by one, as an int32; the first one lowest. */
RAMMER_INLINE int32_t rammer_quad(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    return (int32_t)((a & 255) | (b & 255) << 8 | (c & 255) << 16 | (d & 255) << 24);
}
typedef int32_t rammer_quad_at __attribute__((aligned(1), may_alias));
#define RAMMER_QUAD(address) (*(const rammer_quad_at *)(address))

/* `a` is a quad for all lanes, `b` a vector of quads. Exact without the instruction, too, but several times slower. */
#define RAMMER_DOT_BY_SHIFTS(sum, a, b)                                                                               \
    ((sum) + ((a) & 255) * ((b) << 24 >> 24) + ((a) >> 8 & 255) * ((b) << 16 >> 24) +                                 \
     ((a) >> 16 & 255) * ((b) << 8 >> 24) + ((a) >> 24 & 255) * ((b) >> 24))
#define RAMMER_DOT_4 RAMMER_DOT_BY_SHIFTS
#define RAMMER_DOT_8 RAMMER_DOT_BY_SHIFTS
#define RAMMER_DOT_16 RAMMER_DOT_BY_SHIFTS
#if defined(__AVX512VNNI__)
#undef RAMMER_DOT_16
#define RAMMER_DOT_16(sum, a, b) RAMMER_DPBUSD_512((sum), (rammer_i32x16){0} + (a), (b))
#endif
#if defined(__AVXVNNI__) || (defined(__AVX512VNNI__) && defined(__AVX512VL__))
#undef RAMMER_DOT_8
#define RAMMER_DOT_8(sum, a, b) RAMMER_DPBUSD_256((sum), (rammer_i32x8){0} + (a), (b))
#endif
#if defined(__clang__)
#define RAMMER_DPBUSD_512 __builtin_ia32_vpdpbusd512
#define RAMMER_DPBUSD_256 __builtin_ia32_vpdpbusd256
#else
#define RAMMER_DPBUSD_512 __builtin_ia32_vpdpbusd_v16si
#define RAMMER_DPBUSD_256 __builtin_ia32_vpdpbusd_v8si
#endif

/* --- Transposition: to[c * to_step + r] = from[r * from_step + c]. Whole squares take few operations an element. ---- */

#if defined(__clang__)
#define RAMMER_SHUFFLE(n, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define RAMMER_SHUFFLE(n, a, b, ...) __builtin_shuffle(a, b, (rammer_i32x##n){__VA_ARGS__})
#endif

/* Squares of s by s beside the diagonal change places: which of the lanes of two rows, in a vector of n, then lie at l. */
#define RAMMER_UPPER(n, s, l) (((l) & (s)) ? (n) + (l) - (s) : (l))
#define RAMMER_LOWER(n, s, l) (((l) & (s)) ? (n) + (l) : (l) + (s))
#define RAMMER_FOUR(which, n, s, l) which(n, s, l), which(n, s, l + 1), which(n, s, l + 2), which(n, s, l + 3)
#define RAMMER_LANES_4(which, s) RAMMER_FOUR(which, 4, s, 0)
#define RAMMER_LANES_8(which, s) RAMMER_FOUR(which, 8, s, 0), RAMMER_FOUR(which, 8, s, 4)
#define RAMMER_LANES_16(which, s)                                                                                     \
    RAMMER_FOUR(which, 16, s, 0), RAMMER_FOUR(which, 16, s, 4), RAMMER_FOUR(which, 16, s, 8), RAMMER_FOUR(which, 16, s, 12)

#define RAMMER_EXCHANGE(n, s)                                                                                         \
    _Pragma("GCC unroll 16") for (int i = 0; i < n; i++) {                                                            \
        if ((i & s) == 0) {                                                                                           \
            const rammer_f32x##n upper = v[i], lower = v[i + s];                                                      \
            v[i] = RAMMER_SHUFFLE(n, upper, lower, RAMMER_LANES_##n(RAMMER_UPPER, s));                                   \
            v[i + s] = RAMMER_SHUFFLE(n, upper, lower, RAMMER_LANES_##n(RAMMER_LOWER, s));                               \
        }                                                                                                             \
    }

#define RAMMER_TRANSPOSE(n, exchanges)                                                                                \
    RAMMER_INLINE void rammer_transpose_f32x##n(const float *from, int64_t from_step, int64_t rows, int64_t columns,  \
                                                float *to, int64_t to_step) {                                         \
        const int64_t whole_rows = rows / n * n, whole_columns = columns / n * n;                                     \
        for (int64_t r = 0; r < whole_rows; r += n) {                                                                 \
            for (int64_t c = 0; c < whole_columns; c += n) {                                                          \
                rammer_f32x##n v[n];                                                                                  \
                _Pragma("GCC unroll 16") for (int i = 0; i < n; i++)                                                  \
                    v[i] = RAMMER_LOAD(rammer_f32x##n, from + (r + i) * from_step + c);                               \
                exchanges                                                                                             \
                _Pragma("GCC unroll 16") for (int i = 0; i < n; i++)                                                  \
                    RAMMER_STORE(rammer_f32x##n, to + (c + i) * to_step + r, v[i]);                                   \
            }                                                                                                         \
        }                                                                                                             \
        for (int64_t r = 0; r < rows; r++) {                                                                          \
            RAMMER_IN_ORDER;                                                                                          \
            for (int64_t c = r < whole_rows ? whole_columns : 0; c < columns; c++) {                                  \
                RAMMER_IN_ORDER;                                                                                      \
                to[c * to_step + r] = from[r * from_step + c];                                                        \
            }                                                                                                         \
        }                                                                                                             \
    }

RAMMER_TRANSPOSE(4, RAMMER_EXCHANGE(4, 1) RAMMER_EXCHANGE(4, 2))
RAMMER_TRANSPOSE(8, RAMMER_EXCHANGE(8, 1) RAMMER_EXCHANGE(8, 2) RAMMER_EXCHANGE(8, 4))
RAMMER_TRANSPOSE(16, RAMMER_EXCHANGE(16, 1) RAMMER_EXCHANGE(16, 2) RAMMER_EXCHANGE(16, 4) RAMMER_EXCHANGE(16, 8))

/* --- Bits --------------------------------------------------------------------------------------------------------- */

RAMMER_INLINE uint32_t rammer_bits(float x) {
    uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}

RAMMER_INLINE float rammer_from_bits(uint32_t bits) {
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

RAMMER_INLINE uint32_t rammer_choose_bits(bool condition, uint32_t if_true, uint32_t if_false) {
    return condition ? if_true : if_false;
}

/* --- Functions that loops over lanes turn into vector code -------------------------------------------------------- */

/* They reduce their argument and evaluate minimax polynomials, fitted for this file; each is within 2.5 units in the
 * last place. */

/* e^x = 2^n e^r with |r| <= ln(2)/2. NaN passes through the clamps. */
RAMMER_INLINE float rammer_exp_f32(float a) {
    const float below = a > 89.0f ? 89.0f : a;
    const float x = below < -104.0f ? -104.0f : below;
    /* In the sum with 1.5 * 2^23 the last bits of the mantissa are the nearest integer. */
    const float shifted = x * 1.44269504f + (0x1.8p23f + 254.0f);
    const float n = shifted - (0x1.8p23f + 254.0f);
    const float r = (x - n * 0x1.62e4p-1f) - n * 1.42860677e-6f;
    float p = 1.38145999e-3f;
    p = p * r + 8.36871564e-3f;
    p = p * r + 4.16683890e-2f;
    p = p * r + 1.66665211e-1f;
    p = p * r + 4.99999940e-1f;
    p = p * (r * r) + r + 1.0f;
    /* Two factors, so that results beyond the normal range overflow and underflow as they should. The last bits of the
     * sum are n + 254; halves of that are the factors' exponents. */
    const uint32_t both = rammer_bits(shifted), half = both >> 1;
    const float first = rammer_from_bits(half << 23);
    const float second = rammer_from_bits((both - half) << 23);
    return p * first * second;
}

/* 2^t for t <= 0, within the same bound; 0 where that is below the normal range. One factor is enough there: the last
 * bits of the sum are n + 127, its exponent. At -127 they are 0, and so is the factor. */
RAMMER_INLINE float rammer_exp2_of_negative_f32(float t) {
    const float x = t < -127.0f ? -127.0f : t;
    const float shifted = x + (0x1.8p23f + 127.0f);
    const float r = x - (shifted - (0x1.8p23f + 127.0f));
    float p = 1.32647274e-3f;
    p = p * r + 9.67151292e-3f;
    p = p * r + 5.55073375e-2f;
    p = p * r + 2.40222421e-1f;
    p = p * r + 6.93146978e-1f;
    p = p * r + 1.0f;
    return p * rammer_from_bits(rammer_bits(shifted) << 23);
}

/* e^x for x <= 0. Rounding x log2(e) adds an error of x / 2^24, as rounding x did. */
RAMMER_INLINE float rammer_decay_f32(float x) { return rammer_exp2_of_negative_f32(x * 1.44269504f); }

RAMMER_INLINE float rammer_tanh_f32(float a) {
    const float x = fabsf(a);
    const float z = a * a;
    float p = -5.70497848e-3f;
    p = p * z + 2.06390787e-2f;
    p = p * z - 5.37397117e-2f;
    p = p * z + 1.33314416e-1f;
    p = p * z - 3.33332807e-1f;
    const float near_zero = a + a * (z * p);
    const float far = copysignf(1.0f - 2.0f / (rammer_exp_f32(2.0f * x) + 1.0f), a);
    return x < 0.625f ? near_zero : far;
}

RAMMER_INLINE float rammer_erf_f32(float a) {
    const float x = fabsf(a);
    const float z = a * a;
    float p = 7.85385762e-5f;
    p = p * z - 8.01019254e-4f;
    p = p * z + 5.18832775e-3f;
    p = p * z - 2.68538110e-2f;
    p = p * z + 1.12835854e-1f;
    p = p * z - 3.76126260e-1f;
    p = p * z + 1.12837911f;
    /* log(1 - erf(x)) as a polynomial of x - 1; beyond 4 the result rounds to 1. NaN passes through the clamp. */
    const float t = (x > 4.0f ? 4.0f : x) - 1.0f;
    float q = 1.86380086e-4f;
    q = q * t - 1.82938634e-3f;
    q = q * t + 9.89546441e-3f;
    q = q * t - 4.15035002e-2f;
    q = q * t - 8.43117595e-1f;
    q = q * t - 2.63896680f;
    q = q * t - 1.84960556f;
    return x < 1.0f ? a * p : copysignf(1.0f - rammer_exp_f32(q), a);
}

/* 1 + erf(a), within 2 units: log2(1 - erf(|a|)) is a polynomial, off by at most 2^-24 / 3 in what it is the logarithm of.
 * Beyond 7.06 it is below -127, which gives 0. NaN passes through the clamp. */
RAMMER_INLINE float rammer_erf_plus_one_f32(float a) {
    const float whole = fabsf(a);
    const float x = whole > 7.06f ? 7.06f : whole;
    float q = -4.53586035e-5f;
    q = q * x + 4.45507700e-4f;
    q = q * x - 1.48944184e-3f;
    q = q * x - 7.74629123e-4f;
    q = q * x + 2.82536801e-2f;
    q = q * x - 1.48481607e-1f;
    q = q * x - 9.18416381e-1f;
    q = q * x - 1.62790859f;
    const float rest = rammer_exp2_of_negative_f32(q * x);
    return a < 0.0f ? rest : 2.0f - rest;
}

RAMMER_INLINE float rammer_ratio_f32(float a, float b) { return a / b; }
RAMMER_INLINE float rammer_quotient_f32(float a, float b) { return a / b; }
RAMMER_INLINE double rammer_ratio_f64(double a, double b) { return a / b; }
RAMMER_INLINE double rammer_exp_f64(double a) { return exp(a); }
RAMMER_INLINE double rammer_tanh_f64(double a) { return tanh(a); }
RAMMER_INLINE double rammer_erf_f64(double a) { return erf(a); }

#include "rammer_scalars.h"

#endif
