/* The instructions of Hopper's own (sm_90a), as rammer_intrinsics.cuh has those of all GPUs: barriers in shared memory, copies by
 * tensor map, products of warpgroups. Addresses are those of `rammer_shared_address`.
 */
#ifndef RAMMER_INTRINSICS_SM90_CUH
#define RAMMER_INTRINSICS_SM90_CUH

/* One lane of a warp that is whole: the same one each time. */
RAMMER_INLINE bool rammer_elect(void) {
    uint32_t is_elected;
    asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p;}" : "=r"(is_elected));
    return is_elected != 0;
}

/* A zero that the compiler does not know to be one, and the use of a register: between them it is the same on all paths. */
RAMMER_INLINE float rammer_zero(void) {
    float zero;
    asm volatile("mov.f32 %0, 0f00000000;" : "=f"(zero));
    return zero;
}
RAMMER_INLINE void rammer_used(const float &x) { asm volatile("" : : "f"(x)); }

/* --- Barriers in shared memory (mbarrier). A phase ends once `count` have arrived and all bytes that are expected are there. */

RAMMER_INLINE void rammer_mbarrier_init(uint32_t barrier, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(barrier), "r"(count) : "memory");
}
/* Behind it, copies find the barriers that this thread has made. */
RAMMER_INLINE void rammer_mbarrier_init_fence(void) { asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory"); }
RAMMER_INLINE void rammer_mbarrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(barrier) : "memory");
}
RAMMER_INLINE void rammer_mbarrier_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" : : "r"(barrier), "r"(bytes) : "memory");
}
/* Whether the phase of a parity has ended: asked for a while. */
RAMMER_INLINE bool rammer_mbarrier_try_wait(uint32_t barrier, uint32_t parity) {
    uint32_t has_ended;
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(has_ended) : "r"(barrier), "r"(parity) : "memory");
    return has_ended != 0;
}
RAMMER_INLINE void rammer_mbarrier_wait(uint32_t barrier, uint32_t parity) {
    while (!rammer_mbarrier_try_wait(barrier, parity)) {
    }
}

/* --- Copies by tensor map. What threads did to memory comes before what copies and products do behind a fence. One of both
 * kinds of memory would wait for all that the thread has written, as a release does. ---------------------------------------- */

RAMMER_INLINE void rammer_fence_global_copies(void) { asm volatile("fence.proxy.async.global;" : : : "memory"); }
RAMMER_INLINE void rammer_fence_shared_copies(void) { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }
RAMMER_INLINE void rammer_prefetch_tensor_map(const void *map) {
    asm volatile("prefetch.tensormap [%0];" : : "l"(map) : "memory");
}
RAMMER_INLINE uint64_t rammer_evict_last(void) {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
/* Copies the box of a map of four dimensions that begins at `at`, the fastest first, and says so to a barrier. */
RAMMER_INLINE void rammer_tensor_copy(uint32_t into, const void *map, const int32_t (&at)[4], uint32_t barrier, uint64_t policy) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6], %7;"
                 : : "r"(into), "l"(map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(barrier), "l"(policy) : "memory");
}

/* --- Products of a warpgroup (wgmma). ------------------------------------------------------------------------------------- */

enum rammer_format { RAMMER_F16, RAMMER_BF16, RAMMER_TF32 };

RAMMER_INLINE void rammer_wgmma_fence(void) { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
RAMMER_INLINE void rammer_wgmma_commit(void) { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }
template <int pending> RAMMER_INLINE void rammer_wgmma_wait(void) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(pending) : "memory");
}

/* The lower half of the descriptor of an operand whose rows are 128 bytes in shared memory, swizzled, 8 of them 1,024 bytes
 * from the next 8. The upper half is the same for all. A step of `bytes` within a row adds bytes / 16. */
RAMMER_INLINE uint32_t rammer_matrix(uint32_t at) { return (at >> 4 & 0x3fff) | 1u << 16; }

/* sums (+)= a b^T: 32 bytes of each of 64 rows of a, and of as many rows of b as there are columns. Of the sums, warp w has rows
 * 16 w and on, of which lane 4 i + j has columns 2 j and 2 j + 1 of row i, then of row i + 8, then of columns 8 further on.
 * Where `add` is 0 they begin anew. Whole warpgroups call it; the sums are there behind rammer_wgmma_wait. */
#define RAMMER_WGMMA_PTX(columns, shape, tail, a, b, add)                                                               \
    asm volatile("{.reg .pred p; .reg .b64 x, y; mov.b64 x, {" a ", 0x40000040}; mov.b64 y, {" b ", 0x40000040}; "         \
                 "setp.ne.b32 p, " add ", 0; wgmma.mma_async.sync.aligned.m64n" #columns shape " {"                     \
                 RAMMER_NAMES_##columns "}, x, y, p, 1, 1" tail ";}"                                                    \
                 : RAMMER_SUMS_##columns : "r"(matrix_a), "r"(matrix_b), "r"(is_added))
#define RAMMER_WGMMA(columns, a, b, add)                                                                                \
    template <rammer_format format>                                                                                     \
    RAMMER_INLINE void rammer_wgmma(float (&d)[columns / 2], uint32_t matrix_a, uint32_t matrix_b, uint32_t is_added) { \
        if constexpr (format == RAMMER_F16)                                                                             \
            RAMMER_WGMMA_PTX(columns, "k16.f32.f16.f16", ", 0, 0", a, b, add);                                          \
        else if constexpr (format == RAMMER_BF16)                                                                       \
            RAMMER_WGMMA_PTX(columns, "k16.f32.bf16.bf16", ", 0, 0", a, b, add);                                        \
        else                                                                                                            \
            RAMMER_WGMMA_PTX(columns, "k8.f32.tf32.tf32", "", a, b, add);                                               \
    }

#define RAMMER_SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define RAMMER_NAMES_8 "%0, %1, %2, %3"
#define RAMMER_SUMS_8 RAMMER_SUMS_4(0)
#define RAMMER_NAMES_16 RAMMER_NAMES_8 ", %4, %5, %6, %7"
#define RAMMER_SUMS_16 RAMMER_SUMS_8, RAMMER_SUMS_4(4)
#define RAMMER_NAMES_24 RAMMER_NAMES_16 ", %8, %9, %10, %11"
#define RAMMER_SUMS_24 RAMMER_SUMS_16, RAMMER_SUMS_4(8)
#define RAMMER_NAMES_32 RAMMER_NAMES_24 ", %12, %13, %14, %15"
#define RAMMER_SUMS_32 RAMMER_SUMS_24, RAMMER_SUMS_4(12)
#define RAMMER_NAMES_40 RAMMER_NAMES_32 ", %16, %17, %18, %19"
#define RAMMER_SUMS_40 RAMMER_SUMS_32, RAMMER_SUMS_4(16)
#define RAMMER_NAMES_48 RAMMER_NAMES_40 ", %20, %21, %22, %23"
#define RAMMER_SUMS_48 RAMMER_SUMS_40, RAMMER_SUMS_4(20)
#define RAMMER_NAMES_56 RAMMER_NAMES_48 ", %24, %25, %26, %27"
#define RAMMER_SUMS_56 RAMMER_SUMS_48, RAMMER_SUMS_4(24)
#define RAMMER_NAMES_64 RAMMER_NAMES_56 ", %28, %29, %30, %31"
#define RAMMER_SUMS_64 RAMMER_SUMS_56, RAMMER_SUMS_4(28)
#define RAMMER_NAMES_72 RAMMER_NAMES_64 ", %32, %33, %34, %35"
#define RAMMER_SUMS_72 RAMMER_SUMS_64, RAMMER_SUMS_4(32)
#define RAMMER_NAMES_80 RAMMER_NAMES_72 ", %36, %37, %38, %39"
#define RAMMER_SUMS_80 RAMMER_SUMS_72, RAMMER_SUMS_4(36)
#define RAMMER_NAMES_88 RAMMER_NAMES_80 ", %40, %41, %42, %43"
#define RAMMER_SUMS_88 RAMMER_SUMS_80, RAMMER_SUMS_4(40)
#define RAMMER_NAMES_96 RAMMER_NAMES_88 ", %44, %45, %46, %47"
#define RAMMER_SUMS_96 RAMMER_SUMS_88, RAMMER_SUMS_4(44)
#define RAMMER_NAMES_104 RAMMER_NAMES_96 ", %48, %49, %50, %51"
#define RAMMER_SUMS_104 RAMMER_SUMS_96, RAMMER_SUMS_4(48)
#define RAMMER_NAMES_112 RAMMER_NAMES_104 ", %52, %53, %54, %55"
#define RAMMER_SUMS_112 RAMMER_SUMS_104, RAMMER_SUMS_4(52)
#define RAMMER_NAMES_120 RAMMER_NAMES_112 ", %56, %57, %58, %59"
#define RAMMER_SUMS_120 RAMMER_SUMS_112, RAMMER_SUMS_4(56)
#define RAMMER_NAMES_128 RAMMER_NAMES_120 ", %60, %61, %62, %63"
#define RAMMER_SUMS_128 RAMMER_SUMS_120, RAMMER_SUMS_4(60)

RAMMER_WGMMA(8, "%4", "%5", "%6")
RAMMER_WGMMA(16, "%8", "%9", "%10")
RAMMER_WGMMA(24, "%12", "%13", "%14")
RAMMER_WGMMA(32, "%16", "%17", "%18")
RAMMER_WGMMA(40, "%20", "%21", "%22")
RAMMER_WGMMA(48, "%24", "%25", "%26")
RAMMER_WGMMA(56, "%28", "%29", "%30")
RAMMER_WGMMA(64, "%32", "%33", "%34")
RAMMER_WGMMA(72, "%36", "%37", "%38")
RAMMER_WGMMA(80, "%40", "%41", "%42")
RAMMER_WGMMA(88, "%44", "%45", "%46")
RAMMER_WGMMA(96, "%48", "%49", "%50")
RAMMER_WGMMA(104, "%52", "%53", "%54")
RAMMER_WGMMA(112, "%56", "%57", "%58")
RAMMER_WGMMA(120, "%60", "%61", "%62")
RAMMER_WGMMA(128, "%64", "%65", "%66")

#endif
