/* The skeleton `gemm` on Hopper: sums of products of two matrices, both K-innermost, by `wgmma` from shared memory.
 *
 * A is what gives wgmma its rows, B its columns; one of them has the rows of the result, the other its columns (swapped AB: few
 * rows are few columns of wgmma, of which it takes any multiple of 8). One warp asks for copies by tensor map into a ring of
 * stages, of constants before the rTask waits; `groups` warpgroups multiply.
 *
 * The compiler keeps products of a warpgroup in flight only in a kernel itself, not in functions that it calls, so this is
 * inlined into the interpreter; rKernels of equal tiles share it.
 */
#ifndef RAMMER_GEMM_SM90_CUH
#define RAMMER_GEMM_SM90_CUH

enum {
    RAMMER_SLAB_BYTES = 128,  /* of a row: as much as a swizzle reaches over */
    RAMMER_GROUP_ROWS = 64,
    RAMMER_GROUP_THREADS = 128,
    RAMMER_MOST_STAGES = 8,
    RAMMER_MOST_SUMS = 64,    /* of a thread: of 128 columns */
    RAMMER_MOST_ROWS = 192,   /* of a result's tile */
    RAMMER_ROW_VALUES = 4,
    RAMMER_SUMS_BARRIER = 1,  /* of the threads that hold sums */
    RAMMER_RESULTS_BARRIER,   /* of these and those that make results of them, where others do */
    RAMMER_WARP_BARRIER,      /* of a warp, whichever comes */
    RAMMER_PRODUCER = RAMMER_THREADS / 32 - 2 /* the warp that asks for copies: the last one has the Signals to give */
};

/* An operand of an rTask: its tensor map, over elements of a row, rows, slabs of a row, and batches, and where its tile begins.
 * Of an image (tiling/image.py) the map is over channels and three dimensions of pixels. A step further on are `elements`
 * of a row, or `slabs`; a tap further on are so many pixels `across` or `down`. A stage has so many `bytes` of it. */
struct rammer_matrix_tile {
    const void *map;
    int32_t element, row, line, batch;
    int32_t elements, slabs, across, down;
    uint32_t bytes;
};

/* What an rTask multiplies. Its K is `count` stages: of each tap of an image's windows, of which there are `taps` across, so
 * many of its `channels`. */
struct rammer_product {
    rammer_matrix_tile a, b;
    bool a_is_constant, b_is_constant; /* may be read before the Waits */
    int32_t count;
    int32_t channels, taps;
};

static __shared__ uint64_t rammer_gemm_barriers[2 * RAMMER_MOST_STAGES];
static __shared__ float rammer_row_values[RAMMER_MOST_ROWS][RAMMER_ROW_VALUES]; /* what an epilogue has for each row */

/* Registers for the sums of any loop: `compute` computes in them. The compiler gives each warpgroup's product registers of
 * its own in which it stays, and cannot keep it in flight where those of all loops are too many; these are the same. They
 * begin and end here: were they not written first, they would keep what the rTask before left in them, and all functions
 * would have to do without these registers. */
template <typename Compute> RAMMER_INLINE bool rammer_with_sums(Compute compute) {
    float held[RAMMER_MOST_SUMS];
#pragma unroll
    for (int i = 0; i < RAMMER_MOST_SUMS; ++i)
        held[i] = rammer_zero();
    const bool result = compute(held);
#pragma unroll
    for (int i = 0; i < RAMMER_MOST_SUMS; ++i)
        rammer_used(held[i]);
    return result;
}

/* Behind it, threads that make results while others multiply find all sums in scratch. */
RAMMER_INLINE void rammer_await_sums(void) { rammer_barrier_sync_named<RAMMER_THREADS>(RAMMER_RESULTS_BARRIER); }

/* A stage has `slabs` of 128 bytes of each row of both operands. Of the result, the columns are A's rows if `swapped`. The last
 * `finishers` threads of a block make results of the sums: all, or those that do not multiply. */
template <rammer_format format, int groups, int columns, int slabs, int stages, bool swapped, int finishers>
struct rammer_gemm_sm90 {
    static constexpr int ROWS = groups * RAMMER_GROUP_ROWS, THREADS = groups * RAMMER_GROUP_THREADS;
    static constexpr int A_BYTES = slabs * ROWS * RAMMER_SLAB_BYTES, B_BYTES = slabs * columns * RAMMER_SLAB_BYTES;
    static constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
    /* Elements from a row of the sums in shared memory to the next: what a warp stores together lies in different banks. */
    static constexpr int PITCH = swapped ? ROWS + 4 : columns + 8;
    static constexpr bool BESIDE = finishers < RAMMER_THREADS;
    static_assert(!BESIDE || finishers == RAMMER_THREADS - THREADS, "those that multiply make no results, or all do");
    static_assert(stages <= RAMMER_MOST_STAGES && THREADS <= RAMMER_PRODUCER * 32 && columns % 8 == 0 && columns / 2 <= RAMMER_MOST_SUMS, "a tile that there is");

    /* The sums of an rTask at the beginning of scratch, row by row of the result, PITCH elements apart. `begin` waits as its
     * record says, and is a barrier of the block. `beside` is what warps do that neither copy nor multiply; it is told a thread's
     * number among them, and how many they are. Returns whether this warp is to make results: none does if the run is given up.
     * Sums are there then, or behind `rammer_await_sums` if others are still multiplying. `held` are the registers for sums. */
    template <typename Begin, typename Beside>
    static RAMMER_MEMBER bool run(
        float (&held)[RAMMER_MOST_SUMS], const rammer_product &product, char *scratch, Begin begin, Beside beside
    ) {
        const uint32_t ring = rammer_shared_address(scratch), full = rammer_shared_address(rammer_gemm_barriers);
        const uint32_t empty = full + stages * sizeof(uint64_t);
        const uint32_t warp = __reduce_max_sync(RAMMER_ALL, threadIdx.x / 32); /* the compiler sees that it is a warp's */
        const int32_t early = min(product.count, stages);
        const bool is_early = product.a_is_constant || product.b_is_constant;
        if (warp == RAMMER_PRODUCER)
            open(product, ring, full, empty, early);
        if (!begin()) {
            if (warp == RAMMER_PRODUCER && is_early && rammer_elect())
                drain(full, early);
            __syncthreads();
            return false;
        }
        if (warp == RAMMER_PRODUCER && rammer_elect())
            produce(product, ring, full, empty, early);
        __syncwarp();
        if (warp < THREADS / 32) {
            float(&sums)[columns / 2] = *(float(*)[columns / 2])held;
            multiply(sums, __reduce_max_sync(RAMMER_ALL, (uint32_t)product.count), ring, full, empty, warp);
            rammer_barrier_sync_named<THREADS>(RAMMER_SUMS_BARRIER); /* all have read the ring */
            store(sums, (float *)scratch, warp);
            if constexpr (BESIDE)
                rammer_barrier_arrive_named<RAMMER_THREADS>(RAMMER_RESULTS_BARRIER);
        } else if (warp < RAMMER_PRODUCER)
            beside(threadIdx.x - THREADS, (uint32_t)(RAMMER_PRODUCER * 32 - THREADS));
        if constexpr (BESIDE) {
            rammer_barrier_sync_named<32>(RAMMER_WARP_BARRIER); /* without any, the compiler takes no warp for whole */
            return warp >= THREADS / 32;
        }
        __syncthreads();
        return true;
    }

  private:
    /* Where a stage begins along K. */
    struct place {
        int32_t step = 0, channel = 0, across = 0, down = 0;

        RAMMER_MEMBER void next(const rammer_product &product) {
            ++step;
            if (++channel == product.channels) {
                channel = 0;
                if (++across == product.taps)
                    across = 0, ++down;
            }
        }
    };

    static RAMMER_MEMBER void copy(
        const rammer_product &product, bool is_a, uint32_t stage, const place &k, uint32_t barrier, uint64_t policy
    ) {
        const rammer_matrix_tile &tile = is_a ? product.a : product.b;
        const int32_t at[4] = {
            tile.element + k.channel * tile.elements, tile.row + k.across * tile.across,
            tile.line + k.step * tile.slabs + k.down * tile.down, tile.batch
        };
        rammer_mbarrier_expect(barrier, tile.bytes);
        rammer_tensor_copy(is_a ? stage : stage + A_BYTES, tile.map, at, barrier, policy);
    }

    /* Barriers, and the first copies of what is constant. */
    static RAMMER_MEMBER void open(const rammer_product &product, uint32_t ring, uint32_t full, uint32_t empty, int32_t early) {
        const uint32_t lane = threadIdx.x % 32;
        if (lane < stages) {
            rammer_mbarrier_init(full + lane * sizeof(uint64_t), 1);
            rammer_mbarrier_init(empty + lane * sizeof(uint64_t), THREADS / 32);
        }
        rammer_mbarrier_init_fence();
        __syncwarp();
        if (!rammer_elect())
            return;
        rammer_fence_shared_copies(); /* what the rTask before left there is written over */
        const uint64_t policy = rammer_evict_first();
#pragma unroll
        for (int is_a = 0; is_a < 2; ++is_a)
            if (is_a ? product.a_is_constant : product.b_is_constant) {
                place k;
#pragma unroll 1
                for (int32_t i = 0; i < early; ++i, k.next(product))
                    copy(product, is_a, ring + i * STAGE_BYTES, k, full + i * sizeof(uint64_t), policy);
            }
        if (!product.a_is_constant)
            rammer_prefetch_tensor_map(product.a.map);
        if (!product.b_is_constant)
            rammer_prefetch_tensor_map(product.b.map);
    }

    /* Waits for copies that nobody will use. */
    static RAMMER_MEMBER void drain(uint32_t full, int32_t early) {
#pragma unroll 1
        for (int32_t i = 0; i < early; ++i) {
            rammer_mbarrier_arrive(full + i * sizeof(uint64_t));
            rammer_mbarrier_wait(full + i * sizeof(uint64_t), 0);
        }
    }

    /* All other copies. */
    static RAMMER_MEMBER void produce(
        const rammer_product &product, uint32_t ring, uint32_t full, uint32_t empty, int32_t early
    ) {
        const uint64_t once = rammer_evict_first(), again = rammer_evict_last();
        rammer_fence_global_copies(); /* what others wrote is read by copies */
        uint32_t slot = 0, parity = 1;
        place k;
#pragma unroll 1
        for (int32_t i = 0; i < product.count; ++i, k.next(product)) {
            const uint32_t barrier = full + slot * sizeof(uint64_t), stage = ring + slot * STAGE_BYTES;
            if (i >= early)
                rammer_mbarrier_wait(empty + slot * sizeof(uint64_t), parity);
#pragma unroll
            for (int is_a = 0; is_a < 2; ++is_a) {
                const bool is_constant = is_a ? product.a_is_constant : product.b_is_constant;
                if (is_constant && i < early)
                    continue;
                copy(product, is_a, stage, k, barrier, is_constant ? once : again);
            }
            rammer_mbarrier_arrive(barrier);
            if (++slot == stages)
                slot = 0, parity ^= 1;
        }
    }

    /* This warpgroup's sums. */
    static RAMMER_MEMBER void multiply(
        float (&sums)[columns / 2], uint32_t count, uint32_t ring, uint32_t full, uint32_t empty, uint32_t warp
    ) {
        const uint32_t a = rammer_matrix(ring + warp / 4 * (RAMMER_GROUP_ROWS * RAMMER_SLAB_BYTES));
        const uint32_t b = rammer_matrix(ring + A_BYTES);
        uint32_t slot = 0, parity = 0, at = 0, released = empty;
#pragma unroll 1
        for (uint32_t i = 0; i < count; ++i) {
            rammer_mbarrier_wait(full + slot * sizeof(uint64_t), parity);
            rammer_wgmma_fence();
#pragma unroll
            for (int k = 0; k < 4 * slabs; ++k)
                rammer_wgmma<format>(
                    sums,
                    a + at + k / 4 * (ROWS * RAMMER_SLAB_BYTES / 16) + k % 4 * 2,
                    b + at + k / 4 * (columns * RAMMER_SLAB_BYTES / 16) + k % 4 * 2,
                    k > 0 ? 1 : i
                );
            rammer_wgmma_commit();
            if (count > stages) {
                rammer_wgmma_wait<1>(); /* the stage before is free */
                if (i > 0 && threadIdx.x % 32 == 0)
                    rammer_mbarrier_arrive(released);
                released = empty + slot * sizeof(uint64_t);
            }
            at += STAGE_BYTES / 16;
            if (++slot == stages)
                slot = 0, parity ^= 1, at = 0;
        }
        rammer_wgmma_wait<0>();
    }

    static RAMMER_MEMBER void store(const float (&sums)[columns / 2], float *into, uint32_t warp) {
        const uint32_t row = warp * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
#pragma unroll
        for (int j = 0; j < columns / 8; ++j)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float *pair = sums + j * 4 + half * 2;
                const uint32_t x = row + half * 8, y = column + j * 8;
                if constexpr (swapped) {
                    into[y * PITCH + x] = pair[0];
                    into[(y + 1) * PITCH + x] = pair[1];
                } else {
                    rammer_vector<float, 2> both;
                    both.lane[0] = pair[0], both.lane[1] = pair[1];
                    *(rammer_vector<float, 2> *)(into + x * PITCH + y) = both;
                }
            }
    }
};

#endif
