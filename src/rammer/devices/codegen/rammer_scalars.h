/* What scalar functions mean on every device: functions are named rammer_<function>_<type>, the function as in
 * `rammer.ir.functions.ScalarFn`, and mean what NumPy means by it.
 *
 * C11 and C++17 alike. A device's header comes before it and defines RAMMER_INLINE, bool and the integer types, the C
 * library's functions, rammer_bits, rammer_from_bits, rammer_choose_bits, and for both float types rammer_exp,
 * rammer_tanh, rammer_erf and rammer_ratio (a / b where 1 <= b <= 2), and rammer_quotient_f32 (a / b where the compiler knows b, and
 * 2^-30 <= |b| <= 2^30). Never compile with fast mathematics: NaN, infinities and the order of roundings matter.
 */
#ifndef RAMMER_SCALARS_H
#define RAMMER_SCALARS_H

/* --- 16-bit floats: storage is uint16_t, values are float. Rounding is to nearest, ties to even. ------------------ */

#ifndef RAMMER_CONVERTS_HALF /* defined by a device's header that brings these functions itself */

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

#endif

/* --- TF32: storage is uint32_t, values are float. 10 bits of mantissa, rounded to nearest, ties away from zero. ---- */

RAMMER_INLINE float rammer_widen_tf32(uint32_t stored) { return rammer_from_bits(stored); }

RAMMER_INLINE uint32_t rammer_narrow_tf32(float x) {
    const uint32_t rounded = (rammer_bits(x) + 0x1000u) & 0xffffe000u;
    return rammer_choose_bits(x != x, rammer_bits(x) | 0x400000u, rounded);
}

/* --- Floats of both widths ---------------------------------------------------------------------------------------- */

/* Minima and maxima: the comparison keeps an `a` that is NaN, the test after it a `b`. Where maxima are folded, `b` is
 * what comes in, so its test does not wait for the one before. */

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
        return rest == 0 ? copysign##f((type)0, b) : (rest < 0) != (b < 0) ? rest + b : rest;                               \
    }                                                                                                                 \
    RAMMER_INLINE bool rammer_isnan_##t(type a) { return a != a; }                                                    \
    RAMMER_INLINE bool rammer_isinf_##t(type a) { return fabs##f(a) == (type)INFINITY; }                              \
    RAMMER_INLINE type rammer_sign_##t(type a) { return a != a ? a : (type)((a > 0) - (a < 0)); }                     \
    RAMMER_INLINE type rammer_min_##t(type a, type b) {                                                               \
        const type least = b < a ? b : a;                                                                             \
        return b == b ? least : b;                                                                                    \
    }                                                                                                                 \
    RAMMER_INLINE type rammer_max_##t(type a, type b) {                                                               \
        const type most = b > a ? b : a;                                                                              \
        return b == b ? most : b;                                                                                     \
    }                                                                                                                 \
    RAMMER_INLINE type rammer_sigmoid_##t(type a) {                                                                   \
        const type small = rammer_exp_##t(-fabs##f(a));                                                               \
        return rammer_ratio_##t(a < 0 ? small : (type)1, 1 + small);                                                  \
    }

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
