/* The instructions that C++ has no words for, a function for each, named after it where others know it by that name.
 *
 * All PTX is here, but for the jump of the dispatch (emit/dispatch.py), which is a switch where RAMMER_PTX is not defined.
 * A build for another machine brings functions of the same names and defines RAMMER_INTRINSICS_CUH, as the host build of
 * the tests does (tests/support/host_cuda). What CUDA C++ has (votes, shuffles, atomics, clock64) is called by its name.
 *
 * "memory" keeps the compiler from moving loads and stores past an instruction; where it is missing, it may.
 */
#ifndef RAMMER_INTRINSICS_CUH
#define RAMMER_INTRINSICS_CUH

#define RAMMER_PTX
#define RAMMER_INLINE static __device__ __forceinline__
#define RAMMER_MEMBER __device__ __forceinline__

/* Where something lies in shared memory, as instructions take it. */
RAMMER_INLINE uint32_t rammer_shared_address(const void *at) { return (uint32_t)__cvta_generic_to_shared(at); }

/* --- Conversions. To nearest, ties to even, but for TF32: ties away from zero. ------------------------------------- */

#define RAMMER_CONVERTS_HALF /* rammer_scalars.h need not */

RAMMER_INLINE float rammer_widen_bf16(uint16_t stored) { return __uint_as_float((uint32_t)stored << 16); }
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

/* Two in a register, `low` in its lower half. */
RAMMER_INLINE uint32_t rammer_narrow_bf16x2(float low, float high) {
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}
RAMMER_INLINE uint32_t rammer_narrow_f16x2(float low, float high) {
    uint32_t both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

/* The bits of a float, rounded to TF32. */
RAMMER_INLINE uint32_t rammer_round_tf32(float x) {
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

/* The same number, of which the compiler does not know that it is: what is computed from it is not kept from before a loop. */
RAMMER_INLINE uint32_t rammer_opaque(uint32_t number) {
    asm volatile("" : "+r"(number));
    return number;
}

/* 1 / x within one unit in the last place. */
RAMMER_INLINE float rammer_rcp_approx(float x) {
    float reciprocal;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(x));
    return reciprocal;
}

/* 2 to the power of x, within two units in the last place; 0 below the normal numbers. */
RAMMER_INLINE float rammer_exp2_approx(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

/* --- Loads and stores of global memory that other blocks see and are seen by. -------------------------------------- */

RAMMER_INLINE uint32_t rammer_load_acquire(const uint32_t *address) {
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
}
RAMMER_INLINE uint32_t rammer_load_relaxed(const uint32_t *address) {
    uint32_t value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
}
RAMMER_INLINE uint64_t rammer_load_relaxed(const uint64_t *address) {
    uint64_t value;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
    return value;
}
/* Neighbours by one load, each of which is whole by itself. */
RAMMER_INLINE void rammer_load_relaxed(uint32_t (&values)[2], const uint32_t *address) {
    asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];"
                 : "=r"(values[0]), "=r"(values[1]) : "l"(address) : "memory");
}
RAMMER_INLINE void rammer_load_relaxed(uint32_t (&values)[4], const uint32_t *address) {
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3]) : "l"(address) : "memory");
}
RAMMER_INLINE void rammer_load_relaxed(uint64_t (&values)[2], const uint64_t *address) {
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(values[0]), "=l"(values[1]) : "l"(address) : "memory");
}
RAMMER_INLINE void rammer_store_relaxed(uint32_t *address, uint32_t value) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" : : "l"(address), "r"(value) : "memory");
}
RAMMER_INLINE void rammer_store_relaxed(uint64_t *address, uint64_t value) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(address), "l"(value) : "memory");
}
RAMMER_INLINE void rammer_add_release(uint32_t *address, uint32_t value) {
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" : : "l"(address), "r"(value) : "memory");
}

/* One store of 1, 2 or 4 words. What compilers make of a vector in C++ is at times a store for each element. */
template <int words> RAMMER_INLINE void rammer_store_words(void *to, const uint32_t (&from)[words]) {
    static_assert(words == 4 || words == 2 || words == 1, "as much as a store takes");
    if constexpr (words == 4)
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                     : : "l"(to), "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3]) : "memory");
    else if constexpr (words == 2)
        asm volatile("st.global.v2.u32 [%0], {%1, %2};" : : "l"(to), "r"(from[0]), "r"(from[1]) : "memory");
    else
        asm volatile("st.global.u32 [%0], %1;" : : "l"(to), "r"(from[0]) : "memory");
}

/* --- Caches. -------------------------------------------------------------------------------------------------------- */

/* Loads of what nobody will read again soon: in L2 it makes room before others do. `words` is 1, 2 or 4. */
RAMMER_INLINE uint64_t rammer_evict_first(void) {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
RAMMER_INLINE float rammer_load_evict_first(const float *from) {
    float value;
    asm("ld.global.L1::no_allocate.L2::cache_hint.f32 %0, [%1], %2;"
        : "=f"(value) : "l"(from), "l"(rammer_evict_first()));
    return value;
}
RAMMER_INLINE uint16_t rammer_load_evict_first(const uint16_t *from) {
    uint16_t value;
    asm("ld.global.L1::no_allocate.L2::cache_hint.u16 %0, [%1], %2;"
        : "=h"(value) : "l"(from), "l"(rammer_evict_first()));
    return value;
}
template <int words> RAMMER_INLINE void rammer_load_evict_first(uint32_t (&into)[words], const void *from) {
    static_assert(words == 4 || words == 2 || words == 1, "as much as a load brings");
    if constexpr (words == 4)
        asm("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
            : "=r"(into[0]), "=r"(into[1]), "=r"(into[2]), "=r"(into[3])
            : "l"(from), "l"(rammer_evict_first()));
    else if constexpr (words == 2)
        asm("ld.global.L1::no_allocate.L2::cache_hint.v2.u32 {%0, %1}, [%2], %3;"
            : "=r"(into[0]), "=r"(into[1])
            : "l"(from), "l"(rammer_evict_first()));
    else
        asm("ld.global.L1::no_allocate.L2::cache_hint.u32 %0, [%1], %2;"
            : "=r"(into[0])
            : "l"(from), "l"(rammer_evict_first()));
}

/* Loads 16 bytes where it stands: before a Wait that follows, though nothing uses them until later. Leaves `into` as it is
 * unless `there`. Without a branch: loads in branches of their own wait for each other. */
template <bool evict_first> RAMMER_INLINE void rammer_load_now(uint32_t (&into)[4], const void *from, bool there) {
    if constexpr (evict_first)
        asm volatile("{\n\t.reg .pred there;\n\tsetp.ne.u32 there, %6, 0;\n\t"
                     "@there ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;\n\t}"
                     : "+r"(into[0]), "+r"(into[1]), "+r"(into[2]), "+r"(into[3])
                     : "l"(from), "l"(rammer_evict_first()), "r"((uint32_t)there));
    else
        asm volatile("{\n\t.reg .pred there;\n\tsetp.ne.u32 there, %5, 0;\n\t"
                     "@there ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n\t}"
                     : "+r"(into[0]), "+r"(into[1]), "+r"(into[2]), "+r"(into[3]) : "l"(from), "r"((uint32_t)there));
}

/* Loads 8, 16 or 32 bits where it stands, or zeros unless `there`; several such loads are on their way together, as above. */
RAMMER_INLINE uint8_t rammer_load_where(const uint8_t *from, bool there) {
    uint16_t value;
    asm volatile("{\n\t.reg .pred there;\n\tsetp.ne.u32 there, %2, 0;\n\tmov.u16 %0, 0;\n\t"
                 "@there ld.global.u8 %0, [%1];\n\t}"
                 : "=&h"(value) : "l"(from), "r"((uint32_t)there));
    return (uint8_t)value;
}
RAMMER_INLINE int8_t rammer_load_where(const int8_t *from, bool there) {
    return (int8_t)rammer_load_where((const uint8_t *)from, there);
}
RAMMER_INLINE float rammer_load_where(const float *from, bool there) {
    float value;
    asm volatile("{\n\t.reg .pred there;\n\tsetp.ne.u32 there, %2, 0;\n\tmov.f32 %0, 0f00000000;\n\t"
                 "@there ld.global.f32 %0, [%1];\n\t}"
                 : "=&f"(value) : "l"(from), "r"((uint32_t)there));
    return value;
}
RAMMER_INLINE uint16_t rammer_load_where(const uint16_t *from, bool there) {
    uint16_t value;
    asm volatile("{\n\t.reg .pred there;\n\tsetp.ne.u32 there, %2, 0;\n\tmov.u16 %0, 0;\n\t"
                 "@there ld.global.u16 %0, [%1];\n\t}"
                 : "=&h"(value) : "l"(from), "r"((uint32_t)there));
    return value;
}

/* Asks for a line of global memory to be brought into L2. */
RAMMER_INLINE void rammer_prefetch_l2(const void *from) {
    asm volatile("prefetch.global.L2 [%0];" : : "l"(from));
}
#if __CUDA_ARCH__ >= 900
/* Likewise for `bytes`; they and the address are multiples of 16. */
RAMMER_INLINE void rammer_prefetch_l2_bulk(const void *from, uint32_t bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" : : "l"(from), "r"(bytes) : "memory");
}
#endif

/* --- Shared memory. ------------------------------------------------------------------------------------------------- */

/* One load of four words, which does not wait for what else is looked at first. */
RAMMER_INLINE void rammer_load_shared(uint32_t (&into)[4], const void *from) {
    asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(into[0]), "=r"(into[1]), "=r"(into[2]), "=r"(into[3])
                 : "r"(rammer_shared_address(from)) : "memory");
}

/* Starts to copy `bytes` (4, 8 or 16, both addresses multiples of it) from global into shared memory. */
template <int bytes> RAMMER_INLINE void rammer_cp_async(uint32_t into, const void *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" : : "r"(into), "l"(from), "n"(bytes) : "memory");
}

/* Likewise; zeros, and nothing is read, unless `present`. */
template <int bytes> RAMMER_INLINE void rammer_cp_async(void *into, const void *from, bool present) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 : : "r"(rammer_shared_address(into)), "l"(from), "n"(bytes), "r"(present ? bytes : 0) : "memory");
}

/* Ends a group of this thread's copies. */
RAMMER_INLINE void rammer_cp_async_commit(void) { asm volatile("cp.async.commit_group;" : : : "memory"); }

/* Waits for this thread's copies but for the last `pending` groups. Other threads see them behind a barrier. */
template <int pending> RAMMER_INLINE void rammer_cp_async_wait(void) {
    asm volatile("cp.async.wait_group %0;" : : "n"(pending) : "memory");
}
RAMMER_INLINE void rammer_cp_async_wait_all(void) { asm volatile("cp.async.wait_all;" : : : "memory"); }

/* --- Tensor cores: a warp together. Of a 16 x 8 matrix of sums, lane 4 i + j has columns 2 j and 2 j + 1 of row i,
 *     then of row i + 8. ------------------------------------------------------------------------------------------------ */

/* Reads four matrices of 8 rows of 16 bytes. Lane 8 i + j says where row j of matrix i is; lane 4 i + j gets word j of row i
 * of each. */
RAMMER_INLINE void rammer_ldmatrix_x4(uint32_t (&into)[4], const void *from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(into[0]), "=r"(into[1]), "=r"(into[2]), "=r"(into[3])
                 : "r"(rammer_shared_address(from)) : "memory");
}

/* Likewise; lane 4 i + j gets column i of each matrix, rows 2 j and 2 j + 1, of elements of 16 bits. */
RAMMER_INLINE void rammer_ldmatrix_x4_transposed(uint32_t (&into)[4], const void *from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(into[0]), "=r"(into[1]), "=r"(into[2]), "=r"(into[3])
                 : "r"(rammer_shared_address(from)) : "memory");
}

/* sums += a b, a of 16 rows and b of 8 columns: mma.sync.m16n8k8 of TF32, m16n8k16 of floats of 16 bits, two in a register. */
#define RAMMER_MMA(name, shape, type)                                                                                 \
    RAMMER_INLINE void name(float (&sums)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,        \
                            uint32_t b1) {                                                                            \
        asm volatile("mma.sync.aligned." shape ".row.col.f32." type "." type ".f32 "                                  \
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                \
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                                     \
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));                                         \
    }

RAMMER_MMA(rammer_mma_tf32, "m16n8k8", "tf32")
RAMMER_MMA(rammer_mma_f16, "m16n8k16", "f16")
RAMMER_MMA(rammer_mma_bf16, "m16n8k16", "bf16")

/* Likewise mma.sync.m16n8k32 of bytes, four in a register: the last two say of which types they are. */
#define RAMMER_MMA_BYTES(a_type, b_type, a_name, b_name)                                                              \
    RAMMER_INLINE void rammer_mma_bytes(int32_t (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, a_type, \
                                        b_type) {                                                                     \
        asm volatile("mma.sync.aligned.m16n8k32.row.col.s32." a_name "." b_name ".s32 "                               \
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                \
                     : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])                                     \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                 \
    }

RAMMER_MMA_BYTES(uint8_t, uint8_t, "u8", "u8")
RAMMER_MMA_BYTES(uint8_t, int8_t, "u8", "s8")
RAMMER_MMA_BYTES(int8_t, uint8_t, "s8", "u8")
RAMMER_MMA_BYTES(int8_t, int8_t, "s8", "s8")

/* Likewise mma.sync.m16n8k8 of float64, on GPUs of compute capability 9.0 and later. */
RAMMER_INLINE void rammer_mma_f64(double (&sums)[4], double a0, double a1, double a2, double a3, double b0, double b1) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+d"(sums[0]), "+d"(sums[1]), "+d"(sums[2]), "+d"(sums[3])
                 : "d"(a0), "d"(a1), "d"(a2), "d"(a3), "d"(b0), "d"(b1));
}

/* --- Barriers and time. --------------------------------------------------------------------------------------------- */

/* The barrier of __syncthreads(), without the promise that warps come to it whole: it gathers their lanes first. */
RAMMER_INLINE void rammer_barrier_sync(void) { asm volatile("barrier.sync 0;" : : : "memory"); }
/* The same; returns whether `holds` of any thread. */
RAMMER_INLINE bool rammer_barrier_or(bool holds) {
    uint32_t any;
    asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; barrier.red.or.pred q, 0, p; selp.u32 %0, 1, 0, q; }"
                 : "=r"(any) : "r"((uint32_t)holds) : "memory");
    return any != 0;
}

/* A barrier of `threads` threads, whole warps, that come to the one of this number (1 to 15), each whole if `aligned`. */
template <int threads, bool aligned = true> RAMMER_INLINE void rammer_barrier_sync_named(uint32_t number) {
    if constexpr (aligned)
        asm volatile("barrier.sync.aligned %0, %1;" : : "r"(number), "n"(threads) : "memory");
    else
        asm volatile("barrier.sync %0, %1;" : : "r"(number), "n"(threads) : "memory");
}
/* Comes to it without waiting for the others. */
template <int threads, bool aligned = true> RAMMER_INLINE void rammer_barrier_arrive_named(uint32_t number) {
    if constexpr (aligned)
        asm volatile("barrier.arrive.aligned %0, %1;" : : "r"(number), "n"(threads) : "memory");
    else
        asm volatile("barrier.arrive %0, %1;" : : "r"(number), "n"(threads) : "memory");
}
/* rammer_barrier_sync_named(), which returns whether `holds` of any of them. */
template <int threads, bool aligned = true> RAMMER_INLINE bool rammer_barrier_or_named(uint32_t number, bool holds) {
    uint32_t any;
    if constexpr (aligned)
        asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; barrier.red.or.pred.aligned q, %2, %3, p; selp.u32 %0, 1, 0, q; }"
                     : "=r"(any) : "r"((uint32_t)holds), "r"(number), "n"(threads) : "memory");
    else
        asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; barrier.red.or.pred q, %2, %3, p; selp.u32 %0, 1, 0, q; }"
                     : "=r"(any) : "r"((uint32_t)holds), "r"(number), "n"(threads) : "memory");
    return any != 0;
}

/* The number of the multiprocessor, which may be another one later on, and how many numbers there are. */
RAMMER_INLINE uint32_t rammer_multiprocessor(void) {
    uint32_t number;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
    return number;
}
RAMMER_INLINE uint32_t rammer_multiprocessors(void) {
    uint32_t count;
    asm("mov.u32 %0, %%nsmid;" : "=r"(count));
    return count;
}

RAMMER_INLINE uint64_t rammer_globaltimer_ns(void) {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

#endif
