/* What a warp multiplies of operands in shared memory, and the sums that it holds.
 *
 * A staged operand lies point by point; what a point's sums run over lies side by side. Points are `pitch` elements
 * apart, so that what a warp reads together lies in different banks.
 */
#ifndef RAMMER_MMA_CUH
#define RAMMER_MMA_CUH

/* --- What a warp holds: `rows` by `columns` sums, `ROWS` by `COLUMNS` in each thread. ------------------------------
 *
 * Loops over elements are unrolled as far as hides the loop, and no further: a program that outgrows the instruction
 * cache fetches its code from memory again in each run. */

/* Float32 multiply-adds; pitches are odd multiples of 4. Threads lie 4 rows by 8 columns. */
template <int rows, int columns> struct rammer_multiply_adds {
    typedef float Stored;
    enum { M = rows, N = columns, ROWS = rows / 4, COLUMNS = columns / 8 };
    float sums[ROWS][COLUMNS] = {};

    RAMMER_INLINE uint32_t row(uint32_t i) {
        return i * 4 + (threadIdx.x >> 1 & 1) + (threadIdx.x >> 2 & 2);
    }
    RAMMER_INLINE uint32_t column(uint32_t j) {
        return j * 8 + (threadIdx.x & 1) + (threadIdx.x >> 1 & 2) + (threadIdx.x >> 2 & 4);
    }

    /* Adds the products of `depth` elements, a multiple of 4. */
    template <int depth, int pitch> RAMMER_MEMBER void multiply(const float *a_points, const float *b_points) {
        a_points += row(0) * pitch;
        b_points += column(0) * pitch;
#pragma unroll 1
        for (int element = 0; element < depth; element += 4) {
            float a[ROWS][4];
#pragma unroll
            for (int i = 0; i < ROWS; ++i)
                rammer_load_vector<4>(a[i], a_points + i * 4 * pitch + element);
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j) {
                float b[4];
                rammer_load_vector<4>(b, b_points + j * 8 * pitch + element);
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
            for (int j = 0; j < COLUMNS; ++j)
                into[row(i) * pitch + column(j)] = sums[i][j];
    }
};

/* --- The same by tensor cores: products of 16 rows by 8 columns, four threads to a row. ------------------------------- */

template <int rows, int columns, typename Sum = float, typename Stored_ = float> struct rammer_tensor_sums {
    typedef Stored_ Stored;
    enum { M = rows, N = columns };
    Sum sums[rows / 16][columns / 8][4] = {};

    /* Writes the warp's sums, rows `pitch` elements apart. */
    template <int pitch> RAMMER_MEMBER void store(Stored *into) const {
        const uint32_t row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
#pragma unroll
        for (int i = 0; i < rows / 16; ++i)
#pragma unroll
            for (int j = 0; j < columns / 8; ++j)
#pragma unroll
                for (int k = 0; k < 4; ++k)
                    into[(i * 16 + k / 2 * 8 + row) * pitch + j * 8 + column + k % 2] = (Stored)sums[i][j][k];
    }
};

RAMMER_INLINE void rammer_load_widened(double (&into)[2], const float *from) {
    float pair[2];
    rammer_load_vector<2>(pair, from);
    into[0] = (double)pair[0];
    into[1] = (double)pair[1];
}

/* Float32 in float64: products are exact, and a sum is rounded once it is there. Pitches are 8 more than a multiple of 16. */
template <int rows, int columns> struct rammer_double_products : rammer_tensor_sums<rows, columns, double> {
    /* Adds the products of `depth` elements, a multiple of 8. The order of a sum is free: a thread has two neighbours. */
    template <int depth, int pitch> RAMMER_MEMBER void multiply(const float *a_points, const float *b_points) {
        const uint32_t place = threadIdx.x % 32 / 4 * pitch + threadIdx.x % 4 * 2;
        a_points += place;
        b_points += place;
#pragma unroll 1
        for (int element = 0; element < depth; element += 8) {
            double a[rows / 8][2];
#pragma unroll
            for (int i = 0; i < rows / 8; ++i)
                rammer_load_widened(a[i], a_points + i * 8 * pitch + element);
#pragma unroll
            for (int j = 0; j < columns / 8; ++j) {
                double b[2];
                rammer_load_widened(b, b_points + j * 8 * pitch + element);
#pragma unroll
                for (int i = 0; i < rows / 16; ++i)
                    rammer_mma_f64(this->sums[i][j], a[2 * i][0], a[2 * i + 1][0], a[2 * i][1], a[2 * i + 1][1], b[0], b[1]);
            }
        }
    }
};

/* Four matrices of 8 points by 4 elements (see rammer_ldmatrix_x4). */
RAMMER_INLINE void rammer_load_tf32(uint32_t (&into)[4], const uint32_t *from) { rammer_ldmatrix_x4(into, from); }

/* Likewise, and rounds them. */
RAMMER_INLINE void rammer_load_tf32(uint32_t (&into)[4], const float *from) {
    rammer_ldmatrix_x4(into, from);
#pragma unroll
    for (int i = 0; i < 4; ++i)
        into[i] = rammer_round_tf32(__uint_as_float(into[i]));
}

/* TF32; pitches are odd multiples of 4. */
template <int rows, int columns> struct rammer_tf32_products : rammer_tensor_sums<rows, columns> {
    /* Adds the products of `depth` elements, a multiple of 8. Operands are float, or the bits of what is rounded already. */
    template <int depth, int pitch, typename A, typename B>
    RAMMER_MEMBER void multiply(const A *a_points, const B *b_points) {
        const uint32_t thread = threadIdx.x % 32;
        a_points += thread % 16 * pitch + thread / 16 * 4;
        /* Of 8 columns there are two matrices only, which are read twice. */
        b_points += (thread % 8 + (columns > 8 ? thread / 16 * 8 : 0)) * pitch + thread / 8 % 2 * 4;
#pragma unroll 1
        for (int element = 0; element < depth; element += 8) {
            uint32_t a[rows / 16][4], b[(columns + 8) / 16][4];
#pragma unroll
            for (int i = 0; i < rows / 16; ++i)
                rammer_load_tf32(a[i], a_points + i * 16 * pitch + element);
#pragma unroll
            for (int j = 0; j < columns; j += 16)
                rammer_load_tf32(b[j / 16], b_points + j * pitch + element);
#pragma unroll
            for (int i = 0; i < rows / 16; ++i)
#pragma unroll
                for (int j = 0; j < columns / 8; ++j)
                    rammer_mma_tf32(this->sums[i][j], a[i][0], a[i][1], a[i][2], a[i][3], b[j / 2][j % 2 * 2],
                                    b[j / 2][j % 2 * 2 + 1]);
        }
    }
};

/* Bytes, exactly; pitches are odd multiples of 16. A matrix of 8 points has 16 bytes of each, which are moved as 4 words. */
template <int rows, int columns> struct rammer_byte_products : rammer_tensor_sums<rows, columns, int32_t, int32_t> {
    /* Adds the products of `depth` elements, a multiple of 32. Operands are of either sign. */
    template <int depth, int pitch, typename A, typename B>
    RAMMER_MEMBER void multiply(const A *a_points, const B *b_points) {
        const uint32_t thread = threadIdx.x % 32;
        a_points += thread % 16 * pitch + thread / 16 * 16;
        /* Of 8 columns there are two matrices only, which are read twice. */
        b_points += (thread % 8 + (columns > 8 ? thread / 16 * 8 : 0)) * pitch + thread / 8 % 2 * 16;
#pragma unroll 1
        for (int element = 0; element < depth; element += 32) {
            uint32_t a[rows / 16][4], b[(columns + 8) / 16][4];
#pragma unroll
            for (int i = 0; i < rows / 16; ++i)
                rammer_ldmatrix_x4(a[i], a_points + i * 16 * pitch + element);
#pragma unroll
            for (int j = 0; j < columns; j += 16)
                rammer_ldmatrix_x4(b[j / 16], b_points + j * pitch + element);
#pragma unroll
            for (int i = 0; i < rows / 16; ++i)
#pragma unroll
                for (int j = 0; j < columns / 8; ++j)
                    rammer_mma_bytes(this->sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1], A(), B());
        }
    }
};

/* Floats of 16 bits: how four neighbouring elements of a point are kept in registers, and products of 16 elements. Which
 * thread has which elements is the same for both operands, and the order of a sum is free: each has four neighbours. */
#define RAMMER_HALF_FORMAT(name)                                                                                      \
    struct rammer_##name {                                                                                            \
        uint32_t bits[2];                                                                                             \
                                                                                                                      \
        RAMMER_MEMBER void load(const uint16_t *from) { rammer_load_vector<2>(bits, (const uint32_t *)from); }        \
        RAMMER_MEMBER void load(const float *from) {                                                                  \
            float elements[4];                                                                                        \
            rammer_load_vector<4>(elements, from);                                                                    \
            bits[0] = rammer_narrow_##name##x2(elements[0], elements[1]);                                             \
            bits[1] = rammer_narrow_##name##x2(elements[2], elements[3]);                                             \
        }                                                                                                             \
        static RAMMER_MEMBER uint32_t narrow(float low, float high) { return rammer_narrow_##name##x2(low, high); }   \
        static RAMMER_MEMBER void product(float (&sums)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,       \
                                          uint32_t b0, uint32_t b1) {                                                 \
            rammer_mma_##name(sums, a0, a1, a2, a3, b0, b1);                                                          \
        }                                                                                                             \
        static RAMMER_MEMBER void multiply(float (&sums)[4], const rammer_##name &low, const rammer_##name &high,     \
                                           const rammer_##name &b) {                                                  \
            rammer_mma_##name(sums, low.bits[0], high.bits[0], low.bits[1], high.bits[1], b.bits[0], b.bits[1]);      \
        }                                                                                                             \
    };

RAMMER_HALF_FORMAT(f16)
RAMMER_HALF_FORMAT(bf16)

/* Pitches are 16 more than a multiple of 32. */
template <typename Format, int rows, int columns> struct rammer_half_products : rammer_tensor_sums<rows, columns> {
    /* Adds the products of `depth` elements, a multiple of 16. Operands are float, or in the format already. */
    template <int depth, int pitch, typename A, typename B>
    RAMMER_MEMBER void multiply(const A *a_points, const B *b_points) {
        const uint32_t place = threadIdx.x % 32 / 4 * pitch + threadIdx.x % 4 * 4;
        a_points += place;
        b_points += place;
#pragma unroll 1
        for (int element = 0; element < depth; element += 16) {
            Format a[rows / 8], b[columns / 8];
#pragma unroll
            for (int i = 0; i < rows / 8; ++i)
                a[i].load(a_points + i * 8 * pitch + element);
#pragma unroll
            for (int j = 0; j < columns / 8; ++j)
                b[j].load(b_points + j * 8 * pitch + element);
#pragma unroll
            for (int i = 0; i < rows / 16; ++i)
#pragma unroll
                for (int j = 0; j < columns / 8; ++j)
                    Format::multiply(this->sums[i][j], a[2 * i], a[2 * i + 1], b[j]);
        }
    }

    /* Likewise of rows that lie apart: row(number) is where one begins, `walk` where elements are from there on. */
    template <int depth, int pitch, typename Row, typename Walk, typename B>
    RAMMER_MEMBER void multiply_windows(Row row, Walk walk, const B *b_points) {
        const uint32_t point = threadIdx.x % 32 / 4, part = threadIdx.x % 4 * 4;
        decltype(row(0)) a_points[rows / 8];
#pragma unroll
        for (int i = 0; i < rows / 8; ++i)
            a_points[i] = row(i * 8 + point) + part;
        b_points += point * pitch + part;
#pragma unroll 2
        for (int element = 0; element < depth; element += 16) {
            Format a[rows / 8], b[columns / 8];
#pragma unroll
            for (int i = 0; i < rows / 8; ++i)
                a[i].load(a_points[i] + walk.at);
#pragma unroll
            for (int j = 0; j < columns / 8; ++j)
                b[j].load(b_points + j * 8 * pitch + element);
            walk.template next<16>();
#pragma unroll
            for (int i = 0; i < rows / 16; ++i)
#pragma unroll
                for (int j = 0; j < columns / 8; ++j)
                    Format::multiply(this->sums[i][j], a[2 * i], a[2 * i + 1], b[j]);
        }
    }
};

#endif
