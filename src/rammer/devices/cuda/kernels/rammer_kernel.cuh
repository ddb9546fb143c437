/* What the generated rKernels for GPUs are written in: bits, scalar functions, vectors, reductions over a team.
 *
 * The functions of both float types are CUDA's; all else about scalars is in rammer_scalars.h, which follows.
 */
#ifndef RAMMER_KERNEL_CUH
#define RAMMER_KERNEL_CUH

#define RAMMER_INLINE static __device__ __forceinline__
#define RAMMER_MEMBER __device__ __forceinline__

#ifndef NAN
#define NAN __int_as_float(0x7fc00000)
#endif
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#define INT64_MIN (-9223372036854775807ll - 1)

/* Compilers for GPUs find independent iterations by themselves. */
#define RAMMER_LANES

RAMMER_INLINE uint32_t rammer_bits(float x) { return __float_as_uint(x); }
RAMMER_INLINE float rammer_from_bits(uint32_t bits) { return __uint_as_float(bits); }
RAMMER_INLINE uint32_t rammer_choose_bits(bool condition, uint32_t if_true, uint32_t if_false) {
    return condition ? if_true : if_false;
}

/* 16-bit floats by the conversions of the machine. */
#define RAMMER_CONVERTS_HALF
RAMMER_INLINE float rammer_widen_bf16(uint16_t stored) { return rammer_from_bits((uint32_t)stored << 16); }
RAMMER_INLINE uint16_t rammer_narrow_bf16(float x) {
    uint16_t stored;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(stored) : "f"(x));
    return stored;
}
RAMMER_INLINE float rammer_widen_f16(uint16_t stored) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(stored));
    return x;
}
RAMMER_INLINE uint16_t rammer_narrow_f16(float x) {
    uint16_t stored;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(stored) : "f"(x));
    return stored;
}

/* Within two units in the last place: a division that is right for all operands has a branch. */
RAMMER_INLINE float rammer_ratio_f32(float a, float b) {
    float reciprocal;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(b));
    return a * reciprocal;
}
RAMMER_INLINE double rammer_ratio_f64(double a, double b) { return a / b; }

RAMMER_INLINE float rammer_exp_f32(float a) { return expf(a); }
RAMMER_INLINE float rammer_tanh_f32(float a) { return tanhf(a); }
RAMMER_INLINE float rammer_erf_f32(float a) { return erff(a); }
RAMMER_INLINE double rammer_exp_f64(double a) { return exp(a); }
RAMMER_INLINE double rammer_tanh_f64(double a) { return tanh(a); }
RAMMER_INLINE double rammer_erf_f64(double a) { return erf(a); }

/* --- Vectors: `lanes` elements that lie side by side, at an address that is a multiple of their size. ------------- */

template <typename T, int lanes> struct __align__(sizeof(T) * lanes) rammer_vector {
    T lane[lanes];
};

template <int lanes, typename T> RAMMER_INLINE void rammer_load_vector(T *into, const T *from) {
    const rammer_vector<T, lanes> vector = *(const rammer_vector<T, lanes> *)from;
#pragma unroll
    for (int i = 0; i < lanes; ++i)
        into[i] = vector.lane[i];
}

/* Reads an element that nobody will read again soon: in L2 it makes room before others do. */
RAMMER_INLINE uint64_t rammer_evict_first(void) {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
RAMMER_INLINE float rammer_stream(const float *from) {
    float value;
    asm("ld.global.L1::no_allocate.L2::cache_hint.f32 %0, [%1], %2;"
        : "=f"(value) : "l"(from), "l"(rammer_evict_first()));
    return value;
}
RAMMER_INLINE uint16_t rammer_stream(const uint16_t *from) {
    uint16_t value;
    asm("ld.global.L1::no_allocate.L2::cache_hint.u16 %0, [%1], %2;"
        : "=h"(value) : "l"(from), "l"(rammer_evict_first()));
    return value;
}
template <typename T> RAMMER_INLINE T rammer_stream(const T *from) { return *from; }
template <typename T, int lanes> RAMMER_INLINE rammer_vector<T, lanes> rammer_stream(const rammer_vector<T, lanes> *from) {
    static_assert(sizeof(*from) == 16 || sizeof(*from) == 8 || sizeof(*from) == 4, "as much as a load brings");
    union {
        rammer_vector<T, lanes> vector;
        uint32_t words[sizeof(*from) / 4];
    } value;
    if constexpr (sizeof(*from) == 16)
        asm("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
            : "=r"(value.words[0]), "=r"(value.words[1]), "=r"(value.words[2]), "=r"(value.words[3])
            : "l"(from), "l"(rammer_evict_first()));
    else if constexpr (sizeof(*from) == 8)
        asm("ld.global.L1::no_allocate.L2::cache_hint.v2.u32 {%0, %1}, [%2], %3;"
            : "=r"(value.words[0]), "=r"(value.words[1])
            : "l"(from), "l"(rammer_evict_first()));
    else
        asm("ld.global.L1::no_allocate.L2::cache_hint.u32 %0, [%1], %2;"
            : "=r"(value.words[0])
            : "l"(from), "l"(rammer_evict_first()));
    return value.vector;
}

/* --- Reductions over threads that all take part. Every thread gets the result, each the same bits. ---------------- */

template <typename T> struct rammer_exchange { typedef T type; };
template <> struct rammer_exchange<bool> { typedef int type; };
template <> struct rammer_exchange<int8_t> { typedef int type; };
template <> struct rammer_exchange<uint8_t> { typedef int type; };
template <> struct rammer_exchange<int16_t> { typedef int type; };
template <> struct rammer_exchange<uint16_t> { typedef int type; };

/* Over a warp, lane with lane. */
template <typename T, typename Fn> RAMMER_INLINE T rammer_over_warp(T value, Fn fn) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        value = fn(value, (T)__shfl_xor_sync(0xffffffffu, (typename rammer_exchange<T>::type)value, distance));
    return value;
}

/* Over the block. `scratch` has room for an element of each warp; what was there before is no longer needed. */
template <typename T, typename Fn> RAMMER_INLINE T rammer_over_block(T value, char *scratch, Fn fn) {
    T *partial = (T *)scratch;
    value = rammer_over_warp(value, fn);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        partial[threadIdx.x / 32] = value;
    __syncthreads();
    value = partial[0];
#pragma unroll
    for (int warp = 1; warp < RAMMER_THREADS / 32; ++warp)
        value = fn(value, partial[warp]);
    return value;
}

#endif
