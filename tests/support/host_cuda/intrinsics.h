/* What CUDA C++ has beyond C++, and the functions of rammer_intrinsics.cuh, for the host: it comes before a translation
 * unit of devices/cuda, whose own intrinsics then stay out (RAMMER_INTRINSICS_CUH).
 *
 * What the compiler for GPUs is only told (this is shared memory, this vector is aligned) is checked here.
 */
#ifndef RAMMER_INTRINSICS_CUH
#define RAMMER_INTRINSICS_CUH

#include "scheduler.h"

#include <math.h>
#include <string.h>

/* --- The language. -------------------------------------------------------------------------------------------------- */

#define __device__
#define __global__
#define __host__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __align__(size) __attribute__((aligned(size)))
#define __shared__ __attribute__((section("host_shared")))
#define __builtin_assume(holds) ((holds) ? (void)0 : host_fail("line %d: what the compiler is told does not hold", __LINE__))
#define RAMMER_INLINE static inline
#define RAMMER_MEMBER inline

#define threadIdx (host_here->thread)
#define blockIdx (host_here->block)
#define blockDim host_threads
#define gridDim host_blocks

/* The kernel of a library, once, behind the translation unit. Its parameters are values. */
template <typename... Types> struct host_types {};
template <typename Kernel, typename... Values>
static void host_call(Kernel kernel, void **, host_types<>, const Values &...values) {
    kernel(values...);
}
template <typename Kernel, typename First, typename... Rest, typename... Values>
static void host_call(Kernel kernel, void **parameters, host_types<First, Rest...>, const Values &...values) {
    host_call(kernel, parameters + 1, host_types<Rest...>(), values..., *(const First *)*parameters);
}
template <typename... Types> static void host_call(void (*kernel)(Types...), void **parameters) {
    host_call(kernel, parameters, host_types<Types...>());
}
#define HOST_CUDA_KERNEL(kernel)                                                                                      \
    void host_kernel(void **parameters) { host_call(kernel, parameters); }
extern "C" void host_kernel(void **parameters);

/* --- Functions of CUDA C++. ----------------------------------------------------------------------------------------- */

template <typename To, typename From> static inline To host_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline uint32_t __float_as_uint(float x) { return host_bits<uint32_t>(x); }
static inline int32_t __float_as_int(float x) { return host_bits<int32_t>(x); }
static inline float __uint_as_float(uint32_t bits) { return host_bits<float>(bits); }
static inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t chosen) {
    const uint64_t both = low | (uint64_t)high << 32;
    uint32_t bytes = 0;
    for (int i = 0; i < 4; ++i)
        bytes |= (uint32_t)(both >> (chosen >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return bytes;
}
static inline float __int_as_float(int32_t bits) { return host_bits<float>(bits); }
static inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
static inline int __clz(int bits) { return bits ? __builtin_clz((unsigned)bits) : 32; }
static inline int __ffs(int bits) { return __builtin_ffs(bits); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }

template <typename A, typename B> static inline auto min(A a, B b) { return b < a ? b : a; }
template <typename A, typename B> static inline auto max(A a, B b) { return a < b ? b : a; }

static inline bool __isShared(const void *address) { return host_is_shared(address); }
static inline bool __isGlobal(const void *address) { return !host_is_shared(address); }

static inline long long clock64(void) { return (long long)host_time_ns(); }
static inline void __nanosleep(unsigned ns) { host_sleep(ns); }

static inline void __syncthreads(void) { host_barrier("__syncthreads()", 0, 0, false); }
static inline int __syncthreads_or(int vote) { return host_barrier("__syncthreads_or()", 0, 0, vote != 0) != 0; }
static inline int __syncthreads_and(int vote) { return host_barrier("__syncthreads_and()", 0, 0, vote == 0) == 0; }
static inline int __syncthreads_count(int vote) { return host_barrier("__syncthreads_count()", 0, 0, vote != 0); }

/* Writes are seen in the order in which they are made: a fence says no more. */
static inline void __threadfence(void) { host_point(); }
static inline void __threadfence_block(void) { host_point(); }

template <typename T, typename Fn> static inline T host_atomic(T *address, Fn next) {
    host_point();
    const T before = *address;
    *address = next(before);
    host_changed(address);
    return before;
}
template <typename T> static inline T atomicAdd(T *at, T by) { return host_atomic(at, [=](T x) { return x + by; }); }
template <typename T> static inline T atomicMin(T *at, T by) { return host_atomic(at, [=](T x) { return x < by ? x : by; }); }
template <typename T> static inline T atomicMax(T *at, T by) { return host_atomic(at, [=](T x) { return x > by ? x : by; }); }
template <typename T> static inline T atomicExch(T *at, T to) { return host_atomic(at, [=](T) { return to; }); }
template <typename T> static inline T atomicCAS(T *at, T from, T to) {
    return host_atomic(at, [=](T x) { return x == from ? to : x; });
}

/* --- Lanes together. ------------------------------------------------------------------------------------------------ */

template <typename T> struct host_exchange {
    T value;
    unsigned source;
    T received;
};
template <typename T> static inline T host_shuffle(const char *purpose, unsigned mask, T value, unsigned source) {
    host_exchange<T> mine = {value, source, value};
    host_together(purpose, mask, &mine, [](void *const *lanes, unsigned all) {
        for (unsigned lane = 0; lane < HOST_WARP; ++lane)
            if (all >> lane & 1) {
                host_exchange<T> *own = (host_exchange<T> *)lanes[lane];
                if (!(all >> own->source & 1))
                    host_fail("lane %u shuffles with lane %u, which does not take part", lane, own->source);
                own->received = ((const host_exchange<T> *)lanes[own->source])->value;
            }
    });
    return mine.received;
}
#define HOST_LANE (threadIdx.x % HOST_WARP)
template <typename T> static inline T __shfl_sync(unsigned mask, T value, unsigned source, unsigned width = HOST_WARP) {
    return host_shuffle("__shfl_sync()", mask, value, HOST_LANE / width * width + source % width);
}
template <typename T> static inline T __shfl_xor_sync(unsigned mask, T value, unsigned distance) {
    return host_shuffle("__shfl_xor_sync()", mask, value, HOST_LANE ^ distance);
}
template <typename T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned distance) {
    const unsigned source = HOST_LANE + distance;
    return host_shuffle("__shfl_down_sync()", mask, value, source < HOST_WARP ? source : HOST_LANE);
}
template <typename T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned distance) {
    return host_shuffle("__shfl_up_sync()", mask, value, HOST_LANE < distance ? HOST_LANE : HOST_LANE - distance);
}

/* What all lanes of a mask make of their values, the first one's first. */
template <typename T, typename Fn> static inline T host_fold(const char *purpose, unsigned mask, T value, Fn) {
    host_together(purpose, mask, &value, [](void *const *lanes, unsigned all) {
        T whole = *(const T *)lanes[__builtin_ctz(all)];
        for (unsigned lane = __builtin_ctz(all) + 1; lane < HOST_WARP; ++lane)
            if (all >> lane & 1)
                whole = Fn::of(whole, *(const T *)lanes[lane]);
        for (unsigned lane = 0; lane < HOST_WARP; ++lane)
            if (all >> lane & 1)
                *(T *)lanes[lane] = whole;
    });
    return value;
}
struct host_or { template <typename T> static T of(T a, T b) { return a | b; } };
struct host_and { template <typename T> static T of(T a, T b) { return a & b; } };
struct host_sum { template <typename T> static T of(T a, T b) { return a + b; } };
struct host_least { template <typename T> static T of(T a, T b) { return a < b ? a : b; } };
struct host_greatest { template <typename T> static T of(T a, T b) { return a > b ? a : b; } };
static inline unsigned __ballot_sync(unsigned mask, int vote) {
    return host_fold("__ballot_sync()", mask, vote ? 1u << HOST_LANE : 0u, host_or());
}
static inline int __all_sync(unsigned mask, int vote) { return host_fold("__all_sync()", mask, vote != 0, host_and()); }
static inline int __any_sync(unsigned mask, int vote) { return host_fold("__any_sync()", mask, vote != 0, host_or()); }
template <typename T> static inline T __reduce_add_sync(unsigned mask, T value) {
    return host_fold("__reduce_add_sync()", mask, value, host_sum());
}
template <typename T> static inline T __reduce_min_sync(unsigned mask, T value) {
    return host_fold("__reduce_min_sync()", mask, value, host_least());
}
template <typename T> static inline T __reduce_max_sync(unsigned mask, T value) {
    return host_fold("__reduce_max_sync()", mask, value, host_greatest());
}
static inline void __syncwarp(unsigned mask = 0xffffffffu) { host_fold("__syncwarp()", mask, 0, host_or()); }

/* --- The functions of rammer_intrinsics.cuh, in its order. ---------------------------------------------------------- */

RAMMER_INLINE uint32_t rammer_shared_address(const void *at) { return host_shared_address(at); }

/* The conversions are those of rammer_scalars.h, which comes later. */
RAMMER_INLINE float rammer_widen_bf16(uint16_t stored);
RAMMER_INLINE float rammer_widen_f16(uint16_t stored);
RAMMER_INLINE uint16_t rammer_narrow_bf16(float x);
RAMMER_INLINE uint16_t rammer_narrow_f16(float x);
RAMMER_INLINE uint32_t rammer_narrow_tf32(float x);
RAMMER_INLINE uint32_t rammer_narrow_bf16x2(float low, float high) {
    return rammer_narrow_bf16(low) | (uint32_t)rammer_narrow_bf16(high) << 16;
}
RAMMER_INLINE uint32_t rammer_narrow_f16x2(float low, float high) {
    return rammer_narrow_f16(low) | (uint32_t)rammer_narrow_f16(high) << 16;
}
RAMMER_INLINE uint32_t rammer_round_tf32(float x) { return rammer_narrow_tf32(x); }
RAMMER_INLINE uint32_t rammer_opaque(uint32_t number) { return number; }
RAMMER_INLINE float rammer_rcp_approx(float x) { return 1.0f / x; }
RAMMER_INLINE float rammer_exp2_approx(float x) { return exp2f(x); }

template <typename T> static inline T host_load(const T *address) {
    host_look(address, *address, sizeof(T));
    return *(const volatile T *)address;
}
RAMMER_INLINE uint32_t rammer_load_acquire(const uint32_t *address) { return host_load(address); }
RAMMER_INLINE uint32_t rammer_load_relaxed(const uint32_t *address) { return host_load(address); }
RAMMER_INLINE uint64_t rammer_load_relaxed(const uint64_t *address) { return host_load(address); }
static inline void host_check_aligned(const void *address, unsigned bytes) {
    if ((uintptr_t)address % bytes)
        host_fail("%p is not a multiple of %u bytes", address, bytes);
}
template <typename T, int count> RAMMER_INLINE void rammer_load_relaxed(T (&values)[count], const T *address) {
    host_check_aligned(address, sizeof(values));
    for (int i = 0; i < count; ++i)
        values[i] = host_load(address + i);
}
RAMMER_INLINE void rammer_store_relaxed(uint32_t *address, uint32_t value) {
    host_atomic(address, [=](uint32_t) { return value; });
}
RAMMER_INLINE void rammer_store_relaxed(uint64_t *address, uint64_t value) {
    host_atomic(address, [=](uint64_t) { return value; });
}
RAMMER_INLINE void rammer_add_release(uint32_t *address, uint32_t value) { atomicAdd(address, value); }

RAMMER_INLINE uint64_t rammer_evict_first(void) { return 0; }
RAMMER_INLINE float rammer_load_evict_first(const float *from) { return *from; }
RAMMER_INLINE uint16_t rammer_load_evict_first(const uint16_t *from) { return *from; }
template <int words> RAMMER_INLINE void rammer_store_words(void *to, const uint32_t (&from)[words]) {
    host_check_aligned(to, sizeof from);
    if (host_is_shared(to))
        host_fail("%p is in shared memory, a store is for global memory", to);
    memcpy(to, from, sizeof from);
}
template <int words> RAMMER_INLINE void rammer_load_evict_first(uint32_t (&into)[words], const void *from) {
    host_check_aligned(from, sizeof into);
    memcpy(into, from, sizeof into);
}
template <bool evict_first> RAMMER_INLINE void rammer_load_now(uint32_t (&into)[4], const void *from, bool there) {
    if (there)
        rammer_load_evict_first(into, from);
}
template <typename T> RAMMER_INLINE T rammer_load_where(const T *from, bool there) { return there ? *from : T(0); }
RAMMER_INLINE void rammer_prefetch_l2(const void *) {}
RAMMER_INLINE void rammer_prefetch_l2_bulk(const void *from, uint32_t bytes) {
    host_check_aligned(from, 16);
    if (bytes % 16)
        host_fail("a prefetch of %u bytes", bytes);
}

RAMMER_INLINE void rammer_load_shared(uint32_t (&into)[4], const void *from) {
    host_check_aligned(from, sizeof into);
    if (!host_is_shared(from))
        host_fail("%p is not in shared memory", from);
    memcpy(into, from, sizeof into);
}
template <int bytes> RAMMER_INLINE void rammer_cp_async(uint32_t into, const void *from) {
    host_copy(host_in_shared(into), from, bytes);
}
template <int bytes> RAMMER_INLINE void rammer_cp_async(void *into, const void *from, bool present) {
    host_copy(into, present ? from : nullptr, bytes);
}
RAMMER_INLINE void rammer_cp_async_commit(void) { host_copies_end(); }
template <int pending> RAMMER_INLINE void rammer_cp_async_wait(void) { host_copies_wait(pending); }
RAMMER_INLINE void rammer_cp_async_wait_all(void) {
    host_copies_end();
    host_copies_wait(0);
}

struct host_matrices {
    const void *row;
    uint32_t *into;
};
RAMMER_INLINE void rammer_ldmatrix_x4(uint32_t (&into)[4], const void *from) {
    host_check_aligned(from, 16);
    if (!host_is_shared(from))
        host_fail("%p is not in shared memory", from);
    host_matrices mine = {from, into};
    host_together("ldmatrix", 0xffffffffu, &mine, [](void *const *lanes, unsigned) {
        for (unsigned lane = 0; lane < HOST_WARP; ++lane)
            for (unsigned matrix = 0; matrix < 4; ++matrix) {
                const host_matrices *row = (const host_matrices *)lanes[matrix * 8 + lane / 4];
                ((const host_matrices *)lanes[lane])->into[matrix] = ((const uint32_t *)row->row)[lane % 4];
            }
    });
}

RAMMER_INLINE void rammer_ldmatrix_x4_transposed(uint32_t (&into)[4], const void *from) {
    host_check_aligned(from, 16);
    if (!host_is_shared(from))
        host_fail("%p is not in shared memory", from);
    host_matrices mine = {from, into};
    host_together("ldmatrix.trans", 0xffffffffu, &mine, [](void *const *lanes, unsigned) {
        for (unsigned lane = 0; lane < HOST_WARP; ++lane)
            for (unsigned matrix = 0; matrix < 4; ++matrix) {
                uint32_t word = 0;
                for (unsigned place = 0; place < 2; ++place) {
                    const host_matrices *row = (const host_matrices *)lanes[matrix * 8 + lane % 4 * 2 + place];
                    word |= (uint32_t)((const uint16_t *)row->row)[lane / 4] << 16 * place;
                }
                ((const host_matrices *)lanes[lane])->into[matrix] = word;
            }
    });
}

/* A warp's operands of mma.sync: register `word` of lane 4 i + j has, of 32 bits each, row i (+ 8 if word is odd) and
 * element j (+ 4 in the upper registers) of a; column i and the same elements of b. Of 16 bits there are two of each. */
struct host_fragments {
    float *sums;
    uint32_t a[4], b[2];
};
template <int elements, typename Widen> static inline void host_multiply(void *const *lanes, Widen widen) {
    constexpr unsigned depth = 4 * 2 * elements;
    float a[16][depth], b[8][depth];
    for (unsigned lane = 0; lane < HOST_WARP; ++lane) {
        const host_fragments *own = (const host_fragments *)lanes[lane];
        for (unsigned upper = 0; upper < 2; ++upper)
            for (unsigned place = 0; place < elements; ++place) {
                const unsigned k = (upper * 4 + lane % 4) * elements + place;
                a[lane / 4][k] = widen(own->a[2 * upper], place);
                a[lane / 4 + 8][k] = widen(own->a[2 * upper + 1], place);
                b[lane / 4][k] = widen(own->b[upper], place);
            }
    }
    for (unsigned row = 0; row < 16; ++row)
        for (unsigned column = 0; column < 8; ++column) {
            float total = 0;
            for (unsigned k = 0; k < depth; ++k)
                total += a[row][k] * b[column][k];
            ((host_fragments *)lanes[row % 8 * 4 + column / 2])->sums[row / 8 * 2 + column % 2] += total;
        }
}
#define HOST_MMA(name, elements, widened)                                                                             \
    RAMMER_INLINE void name(float (&sums)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,        \
                            uint32_t b1) {                                                                            \
        host_fragments mine = {sums, {a0, a1, a2, a3}, {b0, b1}};                                                     \
        host_together(#name, 0xffffffffu, &mine, [](void *const *lanes, unsigned) {                                   \
            host_multiply<elements>(lanes, [](uint32_t word, unsigned place) { (void)place; return widened; });       \
        });                                                                                                           \
    }
HOST_MMA(rammer_mma_tf32, 1, __uint_as_float(word & 0xffffe000u)) /* the machine looks at no more bits */
HOST_MMA(rammer_mma_f16, 2, rammer_widen_f16((uint16_t)(word >> 16 * place)))
HOST_MMA(rammer_mma_bf16, 2, rammer_widen_bf16((uint16_t)(word >> 16 * place)))

/* Likewise of bytes, four of each. */
struct host_bytes {
    int32_t *sums;
    uint32_t a[4], b[2];
};
template <typename A, typename B>
RAMMER_INLINE void rammer_mma_bytes(int32_t (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, A, B) {
    host_bytes mine = {sums, {a[0], a[1], a[2], a[3]}, {b0, b1}};
    host_together("rammer_mma_bytes", 0xffffffffu, &mine, [](void *const *lanes, unsigned) {
        for (unsigned row = 0; row < 16; ++row)
            for (unsigned column = 0; column < 8; ++column) {
                uint32_t total = 0;
                for (unsigned k = 0; k < 32; ++k) {
                    const unsigned word = k / 4 % 4, place = k % 4 * 8, upper = k / 16;
                    const host_bytes *left = (const host_bytes *)lanes[row % 8 * 4 + word];
                    const host_bytes *right = (const host_bytes *)lanes[column * 4 + word];
                    total += (uint32_t)((A)(left->a[row / 8 + upper * 2] >> place) * (B)(right->b[upper] >> place));
                }
                int32_t &sum = ((host_bytes *)lanes[row % 8 * 4 + column / 2])->sums[row / 8 * 2 + column % 2];
                sum = (int32_t)((uint32_t)sum + total);
            }
    });
}

/* Likewise of float64: element j of a row, and j + 4 in the upper ones. */
struct host_doubles {
    double *sums, a[4], b[2];
};
RAMMER_INLINE void rammer_mma_f64(double (&sums)[4], double a0, double a1, double a2, double a3, double b0, double b1) {
    host_doubles mine = {sums, {a0, a1, a2, a3}, {b0, b1}};
    host_together("rammer_mma_f64", 0xffffffffu, &mine, [](void *const *lanes, unsigned) {
        double a[16][8], b[8][8];
        for (unsigned lane = 0; lane < HOST_WARP; ++lane) {
            const host_doubles *own = (const host_doubles *)lanes[lane];
            for (unsigned upper = 0; upper < 2; ++upper) {
                a[lane / 4][upper * 4 + lane % 4] = own->a[2 * upper];
                a[lane / 4 + 8][upper * 4 + lane % 4] = own->a[2 * upper + 1];
                b[lane / 4][upper * 4 + lane % 4] = own->b[upper];
            }
        }
        for (unsigned row = 0; row < 16; ++row)
            for (unsigned column = 0; column < 8; ++column) {
                double total = 0;
                for (unsigned k = 0; k < 8; ++k)
                    total += a[row][k] * b[column][k];
                ((host_doubles *)lanes[row % 8 * 4 + column / 2])->sums[row / 8 * 2 + column % 2] += total;
            }
    });
}

RAMMER_INLINE void rammer_barrier_sync(void) { host_barrier("__syncthreads()", 0, 0, false); }
RAMMER_INLINE bool rammer_barrier_or(bool holds) { return host_barrier("__syncthreads_or()", 0, 0, holds) != 0; }
template <int threads, bool aligned = true> RAMMER_INLINE void rammer_barrier_sync_named(uint32_t number) {
    host_barrier("rammer_barrier_sync_named()", number, threads, false);
}
template <int threads, bool aligned = true> RAMMER_INLINE void rammer_barrier_arrive_named(uint32_t number) {
    host_arrive("rammer_barrier_sync_named()", number, threads);
}
template <int threads, bool aligned = true> RAMMER_INLINE bool rammer_barrier_or_named(uint32_t number, bool holds) {
    return host_barrier("rammer_barrier_or_named()", number, threads, holds) != 0;
}
RAMMER_INLINE uint32_t rammer_multiprocessor(void) { return host_multiprocessor(); }
RAMMER_INLINE uint32_t rammer_multiprocessors(void) { return host_multiprocessors(); }
RAMMER_INLINE uint64_t rammer_globaltimer_ns(void) { return host_time_ns(); }

#include "intrinsics_sm90.h"

#endif
