/* Sums of products of operands in shared memory: how they get there, and what a warp multiplies.
 *
 * A staged operand lies point by point; what a point's sums run over lies side by side. Points are `pitch` elements
 * apart, so that what a warp reads together lies in different banks.
 */
#ifndef RAMMER_CONTRACT_CUH
#define RAMMER_CONTRACT_CUH

/* --- Copies into shared memory that run beside the arithmetic. ----------------------------------------------------- */

/* Starts to copy `bytes` (4, 8 or 16, both addresses multiples of it); zeros, and nothing is read, unless `present`. */
template <int bytes> RAMMER_INLINE void rammer_copy(void *into, const void *from, bool present) {
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

/* --- What a warp holds: `rows` by `lanes` sums, `ROWS` by `LANES` in each thread. ------------------------------------
 *
 * Loops over elements are unrolled as far as hides the loop, and no further: a program that outgrows the instruction
 * cache fetches its code from memory again in each run. */

/* Float32 multiply-adds; pitches are odd multiples of 4. Threads lie 4 rows by 8 lanes. */
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
#pragma unroll 1
        for (int element = 0; element < depth; element += 4) {
            float a[ROWS][4];
#pragma unroll
            for (int i = 0; i < ROWS; ++i)
                rammer_load_vector<4>(a[i], row_points + i * 4 * pitch + element);
#pragma unroll
            for (int j = 0; j < LANES; ++j) {
                float b[4];
                rammer_load_vector<4>(b, lane_points + j * 8 * pitch + element);
#pragma unroll
                for (int k = 0; k < 4; ++k)
#pragma unroll
                    for (int i = 0; i < ROWS; ++i)
                        sums[i][j] += a[i][k] * b[k];
            }
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

/* --- The same by tensor cores: products of 16 rows by 8 lanes, four threads to a row. ------------------------------- */

template <int rows, int lanes> struct rammer_tensor_sums {
    float sums[rows / 16][lanes / 8][4] = {};

    /* Writes the warp's sums, rows `pitch` elements apart. */
    template <int pitch> RAMMER_MEMBER void store(float *into) const {
        const uint32_t row = threadIdx.x % 32 / 4, lane = threadIdx.x % 4 * 2;
#pragma unroll
        for (int i = 0; i < rows / 16; ++i)
#pragma unroll
            for (int j = 0; j < lanes / 8; ++j)
#pragma unroll
                for (int k = 0; k < 4; ++k)
                    into[(i * 16 + k / 2 * 8 + row) * pitch + j * 8 + lane + k % 2] = sums[i][j][k];
    }
};

/* Reads four matrices of 8 points by 4 elements; thread 8 i + j names point j of matrix i. */
RAMMER_INLINE void rammer_load_tf32(uint32_t (&into)[4], const uint32_t *from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(into[0]), "=r"(into[1]), "=r"(into[2]), "=r"(into[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(from))
                 : "memory");
}

/* Likewise, and rounds them. */
RAMMER_INLINE void rammer_load_tf32(uint32_t (&into)[4], const float *from) {
    rammer_load_tf32(into, (const uint32_t *)from);
#pragma unroll
    for (int i = 0; i < 4; ++i)
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(into[i]) : "f"(__uint_as_float(into[i])));
}

/* TF32; pitches are odd multiples of 4. */
template <int rows, int lanes> struct rammer_tf32_products : rammer_tensor_sums<rows, lanes> {
    /* Adds the products of `depth` elements, a multiple of 8. Operands are float, or the bits of what is rounded already. */
    template <int depth, int pitch, typename Row, typename Lane>
    RAMMER_MEMBER void multiply(const Row *row_points, const Lane *lane_points) {
        const uint32_t thread = threadIdx.x % 32;
        row_points += thread % 16 * pitch + thread / 16 * 4;
        /* Of 8 lanes there are two matrices only, which are read twice. */
        lane_points += (thread % 8 + (lanes > 8 ? thread / 16 * 8 : 0)) * pitch + thread / 8 % 2 * 4;
#pragma unroll 1
        for (int element = 0; element < depth; element += 8) {
            uint32_t a[rows / 16][4], b[(lanes + 8) / 16][4];
#pragma unroll
            for (int i = 0; i < rows / 16; ++i)
                rammer_load_tf32(a[i], row_points + i * 16 * pitch + element);
#pragma unroll
            for (int j = 0; j < lanes; j += 16)
                rammer_load_tf32(b[j / 16], lane_points + j * pitch + element);
#pragma unroll
            for (int i = 0; i < rows / 16; ++i)
#pragma unroll
                for (int j = 0; j < lanes / 8; ++j) {
                    float (&to)[4] = this->sums[i][j];
                    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                                 : "+f"(to[0]), "+f"(to[1]), "+f"(to[2]), "+f"(to[3])
                                 : "r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]),
                                   "r"(b[j / 2][j % 2 * 2]), "r"(b[j / 2][j % 2 * 2 + 1]));
                }
        }
    }
};

/* Floats of 16 bits: how four neighbouring elements of a point are kept in registers, and products of 16 elements. Which
 * thread has which elements is the same for both operands, and the order of a sum is free: each has four neighbours. */
#define RAMMER_HALF_FORMAT(name, type)                                                                                \
    struct name {                                                                                                     \
        uint32_t bits[2];                                                                                             \
                                                                                                                      \
        RAMMER_MEMBER void load(const uint16_t *from) { rammer_load_vector<2>(bits, (const uint32_t *)from); }        \
        RAMMER_MEMBER void load(const float *from) {                                                                  \
            float elements[4];                                                                                        \
            rammer_load_vector<4>(elements, from);                                                                    \
            asm("cvt.rn." type "x2.f32 %0, %1, %2;" : "=r"(bits[0]) : "f"(elements[1]), "f"(elements[0]));            \
            asm("cvt.rn." type "x2.f32 %0, %1, %2;" : "=r"(bits[1]) : "f"(elements[3]), "f"(elements[2]));            \
        }                                                                                                             \
        static RAMMER_MEMBER void multiply(float *sums, const name &low, const name &high, const name &b) {           \
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                               \
                         "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                            \
                         : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                                 \
                         : "r"(low.bits[0]), "r"(high.bits[0]), "r"(low.bits[1]), "r"(high.bits[1]),                  \
                           "r"(b.bits[0]), "r"(b.bits[1]));                                                           \
        }                                                                                                             \
    };

RAMMER_HALF_FORMAT(rammer_f16, "f16")
RAMMER_HALF_FORMAT(rammer_bf16, "bf16")

/* Pitches are 16 more than a multiple of 32. */
template <typename Format, int rows, int lanes> struct rammer_half_products : rammer_tensor_sums<rows, lanes> {
    /* Adds the products of `depth` elements, a multiple of 16. Operands are float, or in the format already. */
    template <int depth, int pitch, typename Row, typename Lane>
    RAMMER_MEMBER void multiply(const Row *row_points, const Lane *lane_points) {
        const uint32_t place = threadIdx.x % 32 / 4 * pitch + threadIdx.x % 4 * 4;
        row_points += place;
        lane_points += place;
#pragma unroll 1
        for (int element = 0; element < depth; element += 16) {
            Format a[rows / 8], b[lanes / 8];
#pragma unroll
            for (int i = 0; i < rows / 8; ++i)
                a[i].load(row_points + i * 8 * pitch + element);
#pragma unroll
            for (int j = 0; j < lanes / 8; ++j)
                b[j].load(lane_points + j * 8 * pitch + element);
#pragma unroll
            for (int i = 0; i < rows / 16; ++i)
#pragma unroll
                for (int j = 0; j < lanes / 8; ++j)
                    Format::multiply(this->sums[i][j], a[2 * i], a[2 * i + 1], b[j]);
        }
    }
};

#endif
