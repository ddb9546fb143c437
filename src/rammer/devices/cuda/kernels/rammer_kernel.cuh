/* What the generated rKernels for GPUs are written in: bits, scalar functions, vectors, reductions over a team.
 *
 * The functions of both float types are CUDA's; all else about scalars is in rammer_scalars.h, which follows.
 */
#ifndef RAMMER_KERNEL_CUH
#define RAMMER_KERNEL_CUH

#define RAMMER_ALL 0xffffffffu /* lanes of a warp */

#ifndef NAN
#define NAN __int_as_float(0x7fc00000)
#endif
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef INT64_MIN
#define INT64_MIN (-9223372036854775807ll - 1)
#endif

/* Compilers for GPUs find independent iterations by themselves. */
#define RAMMER_LANES

RAMMER_INLINE uint32_t rammer_bits(float x) { return __float_as_uint(x); }
RAMMER_INLINE float rammer_from_bits(uint32_t bits) { return __uint_as_float(bits); }
RAMMER_INLINE uint32_t rammer_choose_bits(bool condition, uint32_t if_true, uint32_t if_false) {
    return condition ? if_true : if_false;
}

/* Within two units in the last place: a division that is right for all operands has a branch. */
RAMMER_INLINE float rammer_ratio_f32(float a, float b) { return a * rammer_rcp_approx(b); }
RAMMER_INLINE double rammer_ratio_f64(double a, double b) { return a / b; }

/* a / b, without the branch that the compiler takes for extreme operands: the product with 1 / b, and what is left of a then
 * makes it the nearest. Nothing is left of zeros and infinities. Below 2^-100, the last place may differ. */
RAMMER_INLINE float rammer_quotient_f32(float a, float b) {
    const float quotient = a * (1.0f / b), rest = fmaf(-quotient, b, a);
    return fabsf(rest) > 0.0f ? fmaf(rest, 1.0f / b, quotient) : quotient;
}

RAMMER_INLINE float rammer_exp_f32(float a) { return expf(a); }
RAMMER_INLINE float rammer_tanh_f32(float a) { return tanhf(a); }
RAMMER_INLINE float rammer_erf_f32(float a) { return erff(a); }

/* erf(a) + 1 within 6e-7, for results of 16 bits: a polynomial of 1 / (1 + 0.48 |a|) times exp(-a a), as Hastings has it. */
RAMMER_INLINE float rammer_erf_plus_one_f32(float a) {
    const float x = fabsf(a), t = rammer_rcp_approx(fmaf(0.48f, x, 1.0f));
    float p = -0.207295657f;
    p = fmaf(p, t, 0.648191809f);
    p = fmaf(p, t, -0.0636786716f);
    p = fmaf(p, t, 0.362695225f);
    p = fmaf(p, t, 0.260086989f);
    const float beyond = p * t * rammer_exp2_approx(x * x * -1.44269504f); /* 1 - erf(x) */
    return a >= 0.0f ? 2.0f - beyond : beyond;
}
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

/* Into global memory. A bool is stored as a byte. */
template <int lanes, typename T, typename From> RAMMER_INLINE void rammer_store_vector(T *into, const From *from) {
    constexpr int bytes = sizeof(T) * lanes, most = bytes < 16 ? bytes : 16, many = most < 4 ? 1 : most / 4;
#pragma unroll
    for (int first = 0; first < lanes; first += most / (int)sizeof(T)) {
        union {
            rammer_vector<T, most / sizeof(T)> vector;
            uint32_t words[many];
        } part;
#pragma unroll
        for (int i = 0; i < most / (int)sizeof(T); ++i)
            part.vector.lane[i] = from[first + i];
        if constexpr (bytes < 4)
            *(rammer_vector<T, lanes> *)into = part.vector;
        else
            rammer_store_words(into + first, part.words);
    }
}

/* Into shared memory. */
template <int lanes, typename T> RAMMER_INLINE void rammer_stage_vector(T *into, const T *from) {
    rammer_vector<T, lanes> vector;
#pragma unroll
    for (int i = 0; i < lanes; ++i)
        vector.lane[i] = from[i];
    *(rammer_vector<T, lanes> *)into = vector;
}

template <int lanes, typename T> RAMMER_INLINE void rammer_fill(T *into, T value) {
#pragma unroll
    for (int i = 0; i < lanes; ++i)
        into[i] = value;
}

/* Reads an element, or a vector of 4, 8 or 16 bytes, that nobody will read again soon. */
RAMMER_INLINE float rammer_load_streaming(const float *from) { return rammer_load_evict_first(from); }
RAMMER_INLINE uint16_t rammer_load_streaming(const uint16_t *from) { return rammer_load_evict_first(from); }
template <typename T> RAMMER_INLINE T rammer_load_streaming(const T *from) { return *from; }
template <typename T, int lanes> RAMMER_INLINE rammer_vector<T, lanes> rammer_load_streaming(const rammer_vector<T, lanes> *from) {
    union {
        rammer_vector<T, lanes> vector;
        uint32_t words[sizeof(*from) / 4];
    } value;
    rammer_load_evict_first(value.words, from);
    return value.vector;
}

/* --- Barriers. ----------------------------------------------------------------------------------------------------- */

/* A barrier of the block behind code in which lanes may have waited one by one. __syncthreads() takes a warp for whole that
 * the compiler believes to be: lanes that poll do not hold back those that wait for them where their paths join, and the
 * part of a warp that comes first counts as all of it. This one gathers the lanes first, as PTX has it for barriers that
 * are not `.aligned`. */
RAMMER_INLINE void rammer_meet(void) { rammer_barrier_sync(); }
/* The same; returns whether `holds` of any thread. */
RAMMER_INLINE bool rammer_meet_or(bool holds) { return rammer_barrier_or(holds); }

/* --- What shuffles exchange values of a type as. ------------------------------------------------------------------- */

template <typename T> struct rammer_exchange { typedef T type; };
template <> struct rammer_exchange<bool> { typedef int type; };
template <> struct rammer_exchange<int8_t> { typedef int type; };
template <> struct rammer_exchange<uint8_t> { typedef int type; };
template <> struct rammer_exchange<int16_t> { typedef int type; };
template <> struct rammer_exchange<uint16_t> { typedef int type; };

#endif
