/* What tensor cores multiply in the skeleton `persistent_rnn_batch`: products of 16 rows by 8 columns.
 *
 * A lane has STEP neighbouring elements of a vector, and as many weights of two rows, two words of each. Which lanes have which
 * elements is the same for both, and the order of a sum is free. A format has
 *
 *     put<pitch>(element *to, float value): writes an element of a vector into shared memory, where columns lie `pitch` apart
 *     keep(float *words, const float *weights): two words of STEP weights
 *     rows, columns: what is multiplied, from two rows' words and from an element on
 *     multiply(sums, lesser, rows, columns): adds the products to sums of which some may be kept apart
 *     gather(sums): what is to be done with the sums of all
 */
#ifndef RAMMER_PERSISTENT_RNN_FORMATS_CUH
#define RAMMER_PERSISTENT_RNN_FORMATS_CUH

/* TF32. */
struct rammer_rnn_tf32 {
    typedef float element; /* of a vector, in shared memory */
    enum { STEP = 2 };
    struct rows {
        uint32_t words[4];
        RAMMER_MEMBER void load(const float *first, const float *second) {
            words[0] = __float_as_uint(first[0]), words[1] = __float_as_uint(second[0]);
            words[2] = __float_as_uint(first[1]), words[3] = __float_as_uint(second[1]);
        }
    };
    struct columns {
        uint32_t words[2];
        RAMMER_MEMBER void load(const element *from) { rammer_load_vector<2>(words, (const uint32_t *)from); }
    };

    template <int pitch> static RAMMER_MEMBER void put(element *to, float value) { *to = narrowed(value); }
    static RAMMER_MEMBER void keep(float *words, const float *weights) {
        words[0] = narrowed(weights[0]);
        words[1] = narrowed(weights[1]);
    }
    static RAMMER_MEMBER void multiply(float (&sums)[4], float (&)[4], const rows &a, const columns &b) {
        rammer_mma_tf32(sums, a.words[0], a.words[1], a.words[2], a.words[3], b.words[0], b.words[1]);
    }
    static RAMMER_MEMBER void gather(float (&)[4]) {}

  private:
    static RAMMER_MEMBER float narrowed(float value) { return __uint_as_float(rammer_round_tf32(value)); }
};

/* Float32: of the 22 leading bits of a number the first 11 and what is left of it, in TF32. The products of two that are left
 * are left out, those of one have a sum of their own. An infinite element gives NaN. */
struct rammer_rnn_f32 {
    struct __align__(8) element {
        float high, low;
    };
    enum { STEP = 2 };
    struct rows {
        uint32_t high[4], low[4];
        RAMMER_MEMBER void load(const float *first, const float *second) {
            const float weights[4] = {first[0], second[0], first[1], second[1]};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                high[i] = rammer_leading_bits(weights[i]);
                low[i] = __float_as_uint(weights[i] - __uint_as_float(high[i]));
            }
        }
    };
    struct columns {
        uint32_t words[4];
        RAMMER_MEMBER void load(const element *from) { rammer_load_vector<4>(words, (const uint32_t *)from); }
    };

    template <int pitch> static RAMMER_MEMBER void put(element *to, float value) {
        const float high = __uint_as_float(rammer_round_tf32(value));
        *to = {high, __uint_as_float(rammer_round_tf32(value - high))};
    }
    static RAMMER_MEMBER void keep(float *words, const float *weights) {
#pragma unroll
        for (int i = 0; i < STEP; ++i)
            words[i] = __uint_as_float((__float_as_uint(weights[i]) + 2u) & 0xfffffffcu);
    }
    static RAMMER_MEMBER void multiply(float (&sums)[4], float (&lesser)[4], const rows &a, const columns &b) {
        rammer_mma_tf32(sums, a.high[0], a.high[1], a.high[2], a.high[3], b.words[0], b.words[2]);
        rammer_mma_tf32(lesser, a.high[0], a.high[1], a.high[2], a.high[3], b.words[1], b.words[3]);
        rammer_mma_tf32(lesser, a.low[0], a.low[1], a.low[2], a.low[3], b.words[0], b.words[2]);
    }
    static RAMMER_MEMBER void gather(float (&)[4]) {}
};

/* Float32 of at most HALF columns: what is left of a number stands HALF columns beside it. Two products are enough then, and all
 * columns are in use. */
struct rammer_rnn_f32_beside {
    typedef float element;
    enum { STEP = 2, HALF = 4 };
    typedef rammer_rnn_f32::rows rows;
    typedef rammer_rnn_tf32::columns columns;

    template <int pitch> static RAMMER_MEMBER void put(element *to, float value) {
        const float high = __uint_as_float(rammer_round_tf32(value));
        to[0] = high;
        to[HALF * pitch] = __uint_as_float(rammer_round_tf32(value - high));
    }
    static RAMMER_MEMBER void keep(float *words, const float *weights) { rammer_rnn_f32::keep(words, weights); }
    static RAMMER_MEMBER void multiply(float (&sums)[4], float (&lesser)[4], const rows &a, const columns &b) {
        rammer_mma_tf32(sums, a.high[0], a.high[1], a.high[2], a.high[3], b.words[0], b.words[1]);
        rammer_mma_tf32(lesser, a.low[0], a.low[1], a.low[2], a.low[3], b.words[0], b.words[1]);
    }
    static RAMMER_MEMBER void gather(float (&sums)[4]) {
#pragma unroll
        for (int k = 0; k < 4; ++k)
            sums[k] += __shfl_xor_sync(0xffffffffu, sums[k], HALF / 2); /* a lane has two columns */
    }
};

/* Floats of 16 bits, two in a word. */
#define RAMMER_RNN_HALVES(name)                                                                                           \
    struct rammer_rnn_##name {                                                                                            \
        typedef uint16_t element;                                                                                         \
        enum { STEP = 4 };                                                                                                \
        typedef rammer_rnn_tf32::rows rows;                                                                               \
        struct columns {                                                                                                  \
            uint32_t words[2];                                                                                            \
            RAMMER_MEMBER void load(const element *from) { rammer_load_vector<2>(words, (const uint32_t *)from); }        \
        };                                                                                                                \
        template <int pitch> static RAMMER_MEMBER void put(element *to, float value) {                                    \
            *to = rammer_narrow_##name(value);                                                                            \
        }                                                                                                                 \
        static RAMMER_MEMBER void keep(float *words, const float *weights) {                                              \
            words[0] = __uint_as_float(rammer_narrow_##name##x2(weights[0], weights[1]));                                 \
            words[1] = __uint_as_float(rammer_narrow_##name##x2(weights[2], weights[3]));                                 \
        }                                                                                                                 \
        static RAMMER_MEMBER void multiply(float (&sums)[4], float (&)[4], const rows &a, const columns &b) {             \
            rammer_mma_##name(sums, a.words[0], a.words[1], a.words[2], a.words[3], b.words[0], b.words[1]);              \
        }                                                                                                                 \
        static RAMMER_MEMBER void gather(float (&)[4]) {}                                                                 \
    };

RAMMER_RNN_HALVES(f16)
RAMMER_RNN_HALVES(bf16)

#endif
