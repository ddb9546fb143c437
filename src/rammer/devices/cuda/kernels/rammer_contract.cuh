/* Sums of products of operands in shared memory: how they get there, and what a warp multiplies.
 *
 * A staged operand lies point by point; what a point's sums run over lies side by side. Points are `pitch` elements
 * apart, an odd multiple of 4, so that neighbours begin in different banks.
 */
#ifndef RAMMER_CONTRACT_CUH
#define RAMMER_CONTRACT_CUH

/* --- Copies into shared memory that run beside the arithmetic. ----------------------------------------------------- */

/* Starts to copy `bytes` (4 or 16, both addresses multiples of it); zeros, and nothing is read, unless `present`. */
template <int bytes> RAMMER_INLINE void rammer_copy(float *into, const float *from, bool present) {
    const uint32_t target = (uint32_t)__cvta_generic_to_shared(into);
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 :
                 : "r"(target), "l"(from), "n"(bytes), "r"(present ? bytes : 0)
                 : "memory");
}

/* Ends a group of copies. */
RAMMER_INLINE void rammer_copies_end(void) { asm volatile("cp.async.commit_group;" : : : "memory"); }

/* Waits for this thread's copies but for the last `pending` groups. */
template <int pending> RAMMER_INLINE void rammer_copies_wait(void) {
    asm volatile("cp.async.wait_group %0;" : : "n"(pending) : "memory");
}

/* --- What a warp holds: `rows` by `lanes` sums, `ROWS` by `LANES` in each thread. ---------------------------------- */

/* Float32 multiply-adds. Threads lie 4 rows by 8 lanes, in an order in which reads of equal addresses are merged. */
template <int rows, int lanes> struct rammer_multiply_adds {
    enum { ROWS = rows / 4, LANES = lanes / 8 };
    float sums[ROWS][LANES] = {};

    RAMMER_INLINE uint32_t row(uint32_t i) {
        return i * 4 + (threadIdx.x >> 1 & 1) + (threadIdx.x >> 2 & 2);
    }
    RAMMER_INLINE uint32_t lane(uint32_t j) {
        return j * 8 + (threadIdx.x & 1) + (threadIdx.x >> 1 & 2) + (threadIdx.x >> 2 & 4);
    }

    /* Adds the products of `depth` elements, a multiple of 4. */
    template <int depth, int pitch> RAMMER_MEMBER void multiply(const float *row_points, const float *lane_points) {
        row_points += row(0) * pitch;
        lane_points += lane(0) * pitch;
#pragma unroll
        for (int element = 0; element < depth; element += 4) {
            float a[ROWS][4], b[LANES][4];
#pragma unroll
            for (int i = 0; i < ROWS; ++i)
                rammer_load_vector<4>(a[i], row_points + i * 4 * pitch + element);
#pragma unroll
            for (int j = 0; j < LANES; ++j)
                rammer_load_vector<4>(b[j], lane_points + j * 8 * pitch + element);
#pragma unroll
            for (int k = 0; k < 4; ++k)
#pragma unroll
                for (int i = 0; i < ROWS; ++i)
#pragma unroll
                    for (int j = 0; j < LANES; ++j)
                        sums[i][j] += a[i][k] * b[j][k];
        }
    }

    /* Writes the warp's sums, rows `pitch` elements apart. */
    template <int pitch> RAMMER_MEMBER void store(float *into) const {
#pragma unroll
        for (int i = 0; i < ROWS; ++i)
#pragma unroll
            for (int j = 0; j < LANES; ++j)
                into[row(i) * pitch + lane(j)] = sums[i][j];
    }
};

#endif
