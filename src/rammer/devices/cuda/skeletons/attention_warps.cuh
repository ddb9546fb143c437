/* What a warp of the skeleton `attention` (attention.cuh) computes: scores, by exact products, in float64 by tensor cores or
 * of 16 bits by `mma`, and values weighted with what becomes of them. */
#ifndef RAMMER_ATTENTION_WARPS_CUH
#define RAMMER_ATTENTION_WARPS_CUH

/* --- Of a warp: 16 rows' scores by `keys`, sums by `columns`, of which the first `KEPT` rows count; of a thread `ROWS`, `HELD`
 * scores; same rows `across`. ------------------------------------------------------------------------------------------- */

/* Float32: exact products. Threads lie 4 rows by 8 columns, as in rammer_multiply_adds, which has the scores. */
template <int depth, int keys, int columns> struct rammer_float_attention {
    typedef float Element;
    enum { M = 16, KEPT = M, KEYS = keys, N = columns, ROWS = 4, HELD = keys / 8, PADDING = 4, PITCH = keys + 4 };
    enum { WEIGHT_BYTES = M * PITCH * sizeof(float) };
    struct Scores {
        rammer_multiply_adds<M, keys> warp;
        RAMMER_MEMBER float &at(int i, int j) { return warp.sums[i][j]; }
    };
    float sums[ROWS][columns / 8] = {};

    static RAMMER_MEMBER uint32_t row(uint32_t i) { return i * 4 + (threadIdx.x >> 1 & 1) + (threadIdx.x >> 2 & 2); }
    static RAMMER_MEMBER uint32_t key(uint32_t j) { return j * 8 + lane(); }
    static RAMMER_MEMBER float decay(float x) { return rammer_exp_f32(x); }
    template <typename Fn> static RAMMER_MEMBER float across(float x, Fn fn) {
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 4)
            x = fn(x, __shfl_xor_sync(0xffffffffu, x, distance));
        return x;
    }
    static RAMMER_MEMBER void multiply(Scores &scores, const float *queries, const float *from) {
        scores = {};
        scores.warp.template multiply<depth, depth + PADDING>(queries, from);
    }

    /* The weights pass through `room`, for each thread needs those of its rows at all keys. */
    template <int pitch> RAMMER_MEMBER void add_values(Scores &scores, const float *values, char *room) {
        float *weights = (float *)room;
#pragma unroll
        for (int i = 0; i < ROWS; ++i)
#pragma unroll
            for (int j = 0; j < HELD; ++j)
                weights[row(i) * PITCH + key(j)] = scores.at(i, j);
        __syncwarp();
        values += lane() * 4;
#pragma unroll 1
        for (int at = 0; at < keys; at += 4) {
            float weight[ROWS][4];
#pragma unroll
            for (int i = 0; i < ROWS; ++i)
                rammer_load_vector<4>(weight[i], weights + row(i) * PITCH + at);
#pragma unroll
            for (int k = 0; k < 4; ++k)
#pragma unroll
                for (int j = 0; j < columns / 8; j += 4) {
                    float value[4];
                    rammer_load_vector<4>(value, values + (at + k) * pitch + j * 8);
#pragma unroll
                    for (int i = 0; i < ROWS; ++i)
#pragma unroll
                        for (int n = 0; n < 4; ++n)
                            sums[i][j + n] += weight[i][k] * value[n];
                }
        }
        __syncwarp();
    }

    RAMMER_MEMBER void rescale(int i, float factor) {
#pragma unroll
        for (int j = 0; j < columns / 8; ++j)
            sums[i][j] *= factor;
    }

    template <int pitch> RAMMER_MEMBER void store(float *into) const {
#pragma unroll
        for (int i = 0; i < ROWS; ++i)
#pragma unroll
            for (int j = 0; j < columns / 8; j += 4)
                rammer_stage_vector<4>(into + row(i) * pitch + j * 8 + lane() * 4, sums[i] + j);
    }

  private:
    static RAMMER_MEMBER uint32_t lane(void) {
        return (threadIdx.x & 1) + (threadIdx.x >> 1 & 2) + (threadIdx.x >> 2 & 4);
    }
};

/* Float32 in float64 by tensor cores: products are exact, scores and weights are rounded once. Of each 8 keys a thread has
 * two; which, is such that neither rows of keys nor of values that a warp reads together lie in the same banks. */
template <int depth, int keys, int columns> struct rammer_double_attention {
    typedef float Element;
    enum { M = 16, KEPT = M, KEYS = keys, N = columns, ROWS = 2, HELD = keys / 4, PADDING = 8, WEIGHT_BYTES = 0 };
    struct Scores {
        float warp[keys / 8][4];
        RAMMER_MEMBER float &at(int i, int j) { return warp[j / 2][i * 2 + j % 2]; }
    };
    double sums[columns / 8][4] = {};

    static RAMMER_MEMBER uint32_t row(uint32_t i) { return i * 8 + threadIdx.x % 32 / 4; }
    static RAMMER_MEMBER uint32_t key(uint32_t j) { return j / 2 * 8 + key_of(threadIdx.x % 4, j % 2); }
    static RAMMER_MEMBER float decay(float x) { return rammer_exp_f32(x); }
    template <typename Fn> static RAMMER_MEMBER float across(float x, Fn fn) {
        x = fn(x, __shfl_xor_sync(0xffffffffu, x, 1));
        return fn(x, __shfl_xor_sync(0xffffffffu, x, 2));
    }
    static RAMMER_MEMBER void multiply(Scores &scores, const float *queries, const float *from) {
        constexpr int pitch = depth + PADDING;
        const uint32_t lane = threadIdx.x % 32, place = lane % 4 * 2;
        queries += lane / 4 * pitch + place;
        from += key_of(lane / 8, lane / 4 % 2) * pitch + place;
        double products[keys / 8][4] = {};
#pragma unroll 1
        for (int element = 0; element < depth; element += 8) {
            double a[2][2];
            rammer_load_widened(a[0], queries + element);
            rammer_load_widened(a[1], queries + 8 * pitch + element);
#pragma unroll
            for (int j = 0; j < keys / 8; ++j) {
                double b[2];
                rammer_load_widened(b, from + j * 8 * pitch + element);
                rammer_mma_f64(products[j], a[0][0], a[1][0], a[0][1], a[1][1], b[0], b[1]);
            }
        }
#pragma unroll
        for (int j = 0; j < keys / 8; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                scores.warp[j][i] = (float)products[j][i];
    }

    /* Which thread has which weights is the same for sums as for operands. */
    template <int pitch> RAMMER_MEMBER void add_values(Scores &scores, const float *values, char *) {
        const uint32_t lane = threadIdx.x % 32;
        const float *const even = values + key_of(lane % 4, 0) * pitch + lane / 4;
        const float *const odd = values + key_of(lane % 4, 1) * pitch + lane / 4;
#pragma unroll
        for (int j = 0; j < keys / 8; ++j) {
            double a[4];
#pragma unroll
            for (int i = 0; i < 4; ++i)
                a[i] = (double)scores.warp[j][i];
#pragma unroll
            for (int n = 0; n < columns / 8; ++n) {
                const double b[2] = {(double)even[j * 8 * pitch + n * 8], (double)odd[j * 8 * pitch + n * 8]};
                rammer_mma_f64(sums[n], a[0], a[2], a[1], a[3], b[0], b[1]);
            }
        }
    }

    RAMMER_MEMBER void rescale(int i, float factor) {
#pragma unroll
        for (int n = 0; n < columns / 8; ++n) {
            sums[n][i * 2] *= (double)factor;
            sums[n][i * 2 + 1] *= (double)factor;
        }
    }

    template <int pitch> RAMMER_MEMBER void store(float *into) const {
#pragma unroll
        for (int n = 0; n < columns / 8; ++n)
#pragma unroll
            for (int i = 0; i < ROWS; ++i) {
                const float pair[2] = {(float)sums[n][i * 2], (float)sums[n][i * 2 + 1]};
                rammer_stage_vector<2>(into + row(i) * pitch + n * 8 + threadIdx.x % 4 * 2, pair);
            }
    }

  private:
    /* The keys 0, 2, 1, 3 and 5, 7, 4, 6 of four threads. */
    static RAMMER_MEMBER uint32_t key_of(uint32_t thread, uint32_t second) {
        const uint32_t first = thread % 2 * 2 + thread / 2;
        return second ? (first ^ 1) + 4 : first;
    }
};

/* Floats of 16 bits by tensor cores; sums are float32, and weights are rounded before they are multiplied. Where there are no
 * more than 8 `rows`, as in a step of a language model, a thread has one, and weights of others are 0. */
template <typename Format, int depth, int keys, int columns, int rows = 16> struct rammer_half_attention {
    typedef uint16_t Element;
    enum { M = 16, KEYS = keys, N = columns, HELD = keys / 4, PADDING = 8, WEIGHT_BYTES = 0 };
    enum { ROWS = rows > 8 ? 2 : 1, KEPT = ROWS * 8 };
    struct Scores {
        float warp[keys / 8][4];
        RAMMER_MEMBER float &at(int i, int j) { return warp[j / 2][i * 2 + j % 2]; }
    };
    float sums[columns / 8][4] = {};

    static RAMMER_MEMBER uint32_t row(uint32_t i) { return i * 8 + threadIdx.x % 32 / 4; }
    static RAMMER_MEMBER uint32_t key(uint32_t j) { return j / 2 * 8 + threadIdx.x % 4 * 2 + j % 2; }
    static RAMMER_MEMBER float decay(float x) { return rammer_exp2_approx(x * 1.44269504f); }
    template <typename Fn> static RAMMER_MEMBER float across(float x, Fn fn) {
        x = fn(x, __shfl_xor_sync(0xffffffffu, x, 1));
        return fn(x, __shfl_xor_sync(0xffffffffu, x, 2));
    }
    static RAMMER_MEMBER void multiply(Scores &scores, const uint16_t *queries, const uint16_t *from) {
        constexpr int pitch = depth + PADDING;
        const uint32_t lane = threadIdx.x % 32;
        queries += lane % 16 * pitch + lane / 16 * 8;
        from += (lane % 8 + lane / 16 * 8) * pitch + lane / 8 % 2 * 8;
        scores = {};
#pragma unroll 4
        for (int element = 0; element < depth; element += 16) {
            uint32_t a[4];
            rammer_ldmatrix_x4(a, queries + element);
#pragma unroll
            for (int j = 0; j < keys / 8; j += 2) {
                uint32_t b[4];
                rammer_ldmatrix_x4(b, from + j * 8 * pitch + element);
                Format::product(scores.warp[j], a[0], a[1], a[2], a[3], b[0], b[1]);
                Format::product(scores.warp[j + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
            }
        }
    }

    /* Which thread has which weights is the same for sums as for operands. */
    template <int pitch> RAMMER_MEMBER void add_values(Scores &scores, const uint16_t *values, char *) {
        const uint32_t lane = threadIdx.x % 32;
        values += lane % 16 * pitch + lane / 16 * 8;
#pragma unroll
        for (int j = 0; j < keys / 8; j += 2) {
            uint32_t a[4];
#pragma unroll
            for (int i = 0; i < 4; ++i)
                a[i] = i % 2 < ROWS ? Format::narrow(scores.warp[j + i / 2][i % 2 * 2], scores.warp[j + i / 2][i % 2 * 2 + 1]) : 0;
#pragma unroll
            for (int n = 0; n < columns / 8; n += 2) {
                uint32_t b[4];
                rammer_ldmatrix_x4_transposed(b, values + j * 8 * pitch + n * 8);
                Format::product(sums[n], a[0], a[1], a[2], a[3], b[0], b[1]);
                Format::product(sums[n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
            }
        }
    }

    RAMMER_MEMBER void rescale(int i, float factor) {
#pragma unroll
        for (int n = 0; n < columns / 8; ++n) {
            sums[n][i * 2] *= factor;
            sums[n][i * 2 + 1] *= factor;
        }
    }

    template <int pitch> RAMMER_MEMBER void store(float *into) const {
#pragma unroll
        for (int n = 0; n < columns / 8; ++n)
#pragma unroll
            for (int i = 0; i < ROWS; ++i)
                rammer_stage_vector<2>(into + row(i) * pitch + n * 8 + threadIdx.x % 4 * 2, sums[n] + i * 2);
    }
};

#endif
