/* What the generated rKernels for processors are written in: element types, conversions, vectors, scalar functions.
 *
 * C11 with GNU extensions (gcc 9 or newer, clang). Functions are named rammer_<function>_<type>, the function as in
 * `rammer.ir.expr.ScalarFn`, and mean what NumPy means by it. They are free of branches where that lets loops over
 * lanes become vector code. Compile with -fno-math-errno -fno-trapping-math; never with -ffast-math: NaN, infinities
 * and the order of the roundings in exp matter.
 */
#ifndef RAMMER_KERNEL_H
#define RAMMER_KERNEL_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#define RAMMER_INLINE static inline __attribute__((always_inline, unused))

/* Before a loop whose iterations do not depend on each other. */
#if defined(__clang__)
#define RAMMER_LANES
#else
#define RAMMER_LANES _Pragma("GCC ivdep")
#endif

/* --- Vectors: rammer_f32x16 and so on. Loads and stores need the alignment of one element only. ------------------ */

#define RAMMER_VECTOR(element, lanes, name)                                                                           \
    typedef element name __attribute__((vector_size(lanes * sizeof(element))));                                       \
    typedef element name##_at __attribute__((vector_size(lanes * sizeof(element)), aligned(sizeof(element)), may_alias));

RAMMER_VECTOR(float, 4, rammer_f32x4)
RAMMER_VECTOR(float, 8, rammer_f32x8)
RAMMER_VECTOR(float, 16, rammer_f32x16)
RAMMER_VECTOR(double, 2, rammer_f64x2)
RAMMER_VECTOR(double, 4, rammer_f64x4)
RAMMER_VECTOR(double, 8, rammer_f64x8)

/* Macros, for a function that returns a vector has an ABI that depends on the instruction set. */
#define RAMMER_LOAD(vector, address) (*(const vector##_at *)(address))
#define RAMMER_STORE(vector, address, value) (*(vector##_at *)(address) = (value))

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

/* --- 16-bit floats: storage is uint16_t, values are float. Rounding is to nearest, ties to even. ------------------ */

RAMMER_INLINE float rammer_widen_bf16(uint16_t stored) { return rammer_from_bits((uint32_t)stored << 16); }

RAMMER_INLINE uint16_t rammer_narrow_bf16(float x) {
    const uint32_t bits = rammer_bits(x);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t quiet_nan = (bits >> 16) | 0x40u;
    return (uint16_t)rammer_choose_bits((bits & 0x7fffffffu) > 0x7f800000u, quiet_nan, rounded);
}

RAMMER_INLINE float rammer_widen_f16(uint16_t stored) {
    const uint32_t sign = (uint32_t)(stored & 0x8000u) << 16;
    const uint32_t shifted = (uint32_t)(stored & 0x7fffu) << 13;
    /* The product moves the exponent from bias 15 to bias 127, and normalises subnormal numbers. */
    const uint32_t finite = rammer_bits(rammer_from_bits(shifted) * 0x1p112f);
    return rammer_from_bits(sign | rammer_choose_bits(shifted >= 0x0f800000u, shifted | 0x7f800000u, finite));
}

RAMMER_INLINE uint16_t rammer_narrow_f16(float x) {
    const uint32_t bits = rammer_bits(x);
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t rebiased = magnitude - (112u << 23);
    const uint32_t normal = (rebiased + 0xfffu + ((rebiased >> 13) & 1u)) >> 13;
    /* Adding 0.5 leaves a multiple of the least subnormal, 2^-24, in the last bits of the mantissa. */
    const uint32_t subnormal = rammer_bits(rammer_from_bits(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t special = rammer_choose_bits(magnitude > 0x7f800000u, 0x7e00u, 0x7c00u);
    const uint32_t finite = rammer_choose_bits(magnitude < 0x38800000u, subnormal, normal);
    const uint32_t narrow = rammer_choose_bits(magnitude >= 0x477ff000u, special, finite);
    return (uint16_t)(((bits >> 16) & 0x8000u) | narrow);
}

/* --- Floats of both widths ---------------------------------------------------------------------------------------- */

#define RAMMER_FLOAT(type, t, f)                                                                                      \
    RAMMER_INLINE type rammer_abs_##t(type a) { return fabs##f(a); }                                                  \
    RAMMER_INLINE type rammer_floor_##t(type a) { return floor##f(a); }                                               \
    RAMMER_INLINE type rammer_ceil_##t(type a) { return ceil##f(a); }                                                 \
    RAMMER_INLINE type rammer_round_##t(type a) { return rint##f(a); }                                                \
    RAMMER_INLINE type rammer_sqrt_##t(type a) { return sqrt##f(a); }                                                 \
    RAMMER_INLINE type rammer_log_##t(type a) { return log##f(a); }                                                   \
    RAMMER_INLINE type rammer_sin_##t(type a) { return sin##f(a); }                                                   \
    RAMMER_INLINE type rammer_cos_##t(type a) { return cos##f(a); }                                                   \
    RAMMER_INLINE type rammer_tan_##t(type a) { return tan##f(a); }                                                   \
    RAMMER_INLINE type rammer_asin_##t(type a) { return asin##f(a); }                                                 \
    RAMMER_INLINE type rammer_acos_##t(type a) { return acos##f(a); }                                                 \
    RAMMER_INLINE type rammer_atan_##t(type a) { return atan##f(a); }                                                 \
    RAMMER_INLINE type rammer_sinh_##t(type a) { return sinh##f(a); }                                                 \
    RAMMER_INLINE type rammer_cosh_##t(type a) { return cosh##f(a); }                                                 \
    RAMMER_INLINE type rammer_asinh_##t(type a) { return asinh##f(a); }                                               \
    RAMMER_INLINE type rammer_acosh_##t(type a) { return acosh##f(a); }                                               \
    RAMMER_INLINE type rammer_atanh_##t(type a) { return atanh##f(a); }                                               \
    RAMMER_INLINE type rammer_pow_##t(type a, type b) { return pow##f(a, b); }                                        \
    RAMMER_INLINE type rammer_fmod_##t(type a, type b) { return fmod##f(a, b); }                                      \
    RAMMER_INLINE type rammer_mod_##t(type a, type b) {                                                               \
        const type rest = fmod##f(a, b);                                                                              \
        return rest == 0 ? copysign##f(0, b) : (rest < 0) != (b < 0) ? rest + b : rest;                               \
    }                                                                                                                 \
    RAMMER_INLINE bool rammer_isnan_##t(type a) { return a != a; }                                                    \
    RAMMER_INLINE bool rammer_isinf_##t(type a) { return fabs##f(a) == (type)INFINITY; }                              \
    RAMMER_INLINE type rammer_sign_##t(type a) { return a != a ? a : (type)((a > 0) - (a < 0)); }                     \
    RAMMER_INLINE type rammer_min_##t(type a, type b) { return rammer_nan_if_##t(a != a, a < b ? a : b); }            \
    RAMMER_INLINE type rammer_max_##t(type a, type b) { return rammer_nan_if_##t(a != a, a > b ? a : b); }            \
    RAMMER_INLINE type rammer_sigmoid_##t(type a) {                                                                   \
        const type small = rammer_exp_##t(-fabs##f(a));                                                               \
        return (a < 0 ? small : (type)1) / (1 + small);                                                               \
    }

/* The float functions below reduce their argument and evaluate minimax polynomials, fitted for this file; each is
 * within 2 units in the last place or so. */

/* e^x = 2^n e^r with |r| <= ln(2)/2. NaN passes through the clamps. */
RAMMER_INLINE float rammer_exp_f32(float a) {
    const float below = a > 89.0f ? 89.0f : a;
    const float x = below < -104.0f ? -104.0f : below;
    /* In the sum with 1.5 * 2^23 the last bits of the mantissa are the nearest integer. */
    const float shifted = x * 1.44269504f + 0x1.8p23f;
    const float n = shifted - 0x1.8p23f;
    const float r = (x - n * 0x1.62e4p-1f) - n * 1.42860677e-6f;
    float p = 1.38145999e-3f;
    p = p * r + 8.36871564e-3f;
    p = p * r + 4.16683890e-2f;
    p = p * r + 1.66665211e-1f;
    p = p * r + 4.99999940e-1f;
    p = p * (r * r) + r + 1.0f;
    /* Two factors, so that results beyond the normal range overflow and underflow as they should. */
    const int32_t exponent = (int32_t)(rammer_bits(shifted) - 0x4b400000u);
    const int32_t half = exponent >> 1;
    const float first = rammer_from_bits((uint32_t)(half + 127) << 23);
    const float second = rammer_from_bits((uint32_t)(exponent - half + 127) << 23);
    return p * first * second;
}

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

/* NaN if the condition holds, else the number. Minima and maxima use it for a first operand that is NaN; a second one
 * is chosen by the comparison anyway. Done on bits, for compilers make jumps of chained conditions. */
RAMMER_INLINE float rammer_nan_if_f32(bool condition, float number) {
    return rammer_from_bits(rammer_bits(number) | (-(uint32_t)condition & 0x7fc00000u));
}

RAMMER_INLINE double rammer_nan_if_f64(bool condition, double number) {
    uint64_t bits;
    __builtin_memcpy(&bits, &number, sizeof bits);
    bits |= -(uint64_t)condition & 0x7ff8000000000000u;
    __builtin_memcpy(&number, &bits, sizeof bits);
    return number;
}

RAMMER_INLINE double rammer_exp_f64(double a) { return exp(a); }
RAMMER_INLINE double rammer_tanh_f64(double a) { return tanh(a); }
RAMMER_INLINE double rammer_erf_f64(double a) { return erf(a); }

RAMMER_FLOAT(float, f32, f)
RAMMER_FLOAT(double, f64, )

/* --- Integers: sums and products wrap around, nothing is undefined. `wide` is unsigned and at least 32 bits. ------ */

#define RAMMER_INTEGER(type, t, wide)                                                                                 \
    RAMMER_INLINE type rammer_add_##t(type a, type b) { return (type)((wide)a + (wide)b); }                           \
    RAMMER_INLINE type rammer_sub_##t(type a, type b) { return (type)((wide)a - (wide)b); }                           \
    RAMMER_INLINE type rammer_mul_##t(type a, type b) { return (type)((wide)a * (wide)b); }                           \
    RAMMER_INLINE type rammer_neg_##t(type a) { return (type)(0 - (wide)a); }                                         \
    RAMMER_INLINE type rammer_min_##t(type a, type b) { return a < b ? a : b; }                                       \
    RAMMER_INLINE type rammer_max_##t(type a, type b) { return a > b ? a : b; }                                       \
    RAMMER_INLINE type rammer_shift_left_##t(type a, type b) {                                                        \
        return (uint64_t)b < 8 * sizeof(type) ? (type)((wide)a << b) : 0;                                             \
    }

#define RAMMER_SIGNED(type, t, wide)                                                                                  \
    RAMMER_INTEGER(type, t, wide)                                                                                     \
    RAMMER_INLINE type rammer_abs_##t(type a) { return a < 0 ? rammer_neg_##t(a) : a; }                               \
    RAMMER_INLINE type rammer_sign_##t(type a) { return (type)((a > 0) - (a < 0)); }                                  \
    RAMMER_INLINE type rammer_div_##t(type a, type b) {                                                               \
        return b == 0 ? 0 : b == -1 ? rammer_neg_##t(a) : (type)(a / b);                                              \
    }                                                                                                                 \
    RAMMER_INLINE type rammer_fmod_##t(type a, type b) { return b == 0 || b == -1 ? 0 : (type)(a % b); }              \
    RAMMER_INLINE type rammer_mod_##t(type a, type b) {                                                               \
        const type rest = rammer_fmod_##t(a, b);                                                                      \
        return rest != 0 && (rest < 0) != (b < 0) ? (type)(rest + b) : rest;                                          \
    }                                                                                                                 \
    RAMMER_INLINE type rammer_floordiv_##t(type a, type b) {                                                          \
        return (type)(rammer_div_##t(a, b) - (rammer_fmod_##t(a, b) != 0 && (a < 0) != (b < 0)));                     \
    }                                                                                                                 \
    RAMMER_INLINE type rammer_shift_right_##t(type a, type b) {                                                       \
        return (uint64_t)b < 8 * sizeof(type) ? (type)(a >> b) : (type)(a < 0 ? -1 : 0);                              \
    }                                                                                                                 \
    RAMMER_INLINE type rammer_pow_##t(type a, type b) {                                                               \
        if (b < 0) return a == 1 || (a == -1 && b % 2 == 0) ? 1 : a == -1 ? -1 : 0;                                   \
        type power = 1;                                                                                               \
        for (; b > 0; b /= 2, a = rammer_mul_##t(a, a)) power = b % 2 ? rammer_mul_##t(power, a) : power;             \
        return power;                                                                                                 \
    }

#define RAMMER_UNSIGNED(type, t, wide)                                                                                \
    RAMMER_INTEGER(type, t, wide)                                                                                     \
    RAMMER_INLINE type rammer_abs_##t(type a) { return a; }                                                           \
    RAMMER_INLINE type rammer_sign_##t(type a) { return a != 0; }                                                     \
    RAMMER_INLINE type rammer_div_##t(type a, type b) { return b == 0 ? 0 : (type)(a / b); }                          \
    RAMMER_INLINE type rammer_fmod_##t(type a, type b) { return b == 0 ? 0 : (type)(a % b); }                         \
    RAMMER_INLINE type rammer_mod_##t(type a, type b) { return rammer_fmod_##t(a, b); }                               \
    RAMMER_INLINE type rammer_floordiv_##t(type a, type b) { return rammer_div_##t(a, b); }                           \
    RAMMER_INLINE type rammer_shift_right_##t(type a, type b) { return b < 8 * sizeof(type) ? (type)(a >> b) : 0; }   \
    RAMMER_INLINE type rammer_pow_##t(type a, type b) {                                                               \
        type power = 1;                                                                                               \
        for (; b > 0; b /= 2, a = rammer_mul_##t(a, a)) power = b % 2 ? rammer_mul_##t(power, a) : power;             \
        return power;                                                                                                 \
    }

RAMMER_SIGNED(int8_t, i8, uint32_t)
RAMMER_SIGNED(int16_t, i16, uint32_t)
RAMMER_SIGNED(int32_t, i32, uint32_t)
RAMMER_SIGNED(int64_t, i64, uint64_t)
RAMMER_UNSIGNED(uint8_t, u8, uint32_t)
RAMMER_UNSIGNED(uint16_t, u16, uint32_t)
RAMMER_UNSIGNED(uint32_t, u32, uint32_t)
RAMMER_UNSIGNED(uint64_t, u64, uint64_t)

#endif
