/* What tensor cores multiply in the skeleton `persistent_rnn_batch`: products of 16 rows by 8 columns of floats of 16 bits.
 *
 * A lane has STEP neighbouring elements of a vector, and as many weights of two rows, WORDS words of each. Which lanes have
 * which elements is the same for both, and the order of a sum is free. A format has
 *
 *     put<plane>(element *to, const float (&values)[lanes]): writes elements of a vector into shared memory, what is left of them
 *         `plane` behind
 *     keep(float *words, const float *weights): the words of STEP weights
 *     IS_PAIRED: whether the rows of a lane are pairs of neighbours
 *     rows, columns: what is multiplied, from two rows' words and from an element on
 *     multiply(sums, lesser, rows, columns): adds the products to sums, of which some may be kept apart in units of LESSER
 *     gather(sums): what is to be done with the sums of all
 *
 * What is left of elements lies in PLANES of their own, or where a plane is half empty in the other half (`IS_BESIDE`).
 */
#ifndef RAMMER_PERSISTENT_RNN_FORMATS_CUH
#define RAMMER_PERSISTENT_RNN_FORMATS_CUH

/* Two words of a row and of the next one, and those of a column. */
struct rammer_rnn_rows {
    uint32_t words[4];
    RAMMER_MEMBER void load(const float *first, const float *second) {
        words[0] = __float_as_uint(first[0]), words[1] = __float_as_uint(second[0]);
        words[2] = __float_as_uint(first[1]), words[3] = __float_as_uint(second[1]);
    }
    RAMMER_MEMBER void load(const float *in_order) {
        for (int i = 0; i < 4; ++i)
            words[i] = __float_as_uint(in_order[i]);
    }
};
struct rammer_rnn_columns {
    uint32_t words[2];
    template <int plane> RAMMER_MEMBER void load(const uint16_t *from) {
        rammer_load_vector<2>(words, (const uint32_t *)from);
    }
};

/* Floats of 16 bits, two in a word. */
#define RAMMER_RNN_HALVES(name)                                                                                           \
    struct rammer_rnn_##name {                                                                                            \
        typedef uint16_t element;                                                                                         \
        enum { STEP = 4, WORDS = 2, PLANES = 1, IS_BESIDE = false, IS_SCALED = false, IS_PAIRED = false };                \
        static constexpr float LESSER = 1.0f;                                                                             \
        typedef rammer_rnn_rows rows;                                                                                     \
        typedef rammer_rnn_columns columns;                                                                               \
        template <int plane, int lanes> static RAMMER_MEMBER void put(element *to, const float (&values)[lanes]) {        \
            if constexpr (lanes == 1) {                                                                                   \
                *to = rammer_narrow_##name(values[0]);                                                                    \
            } else {                                                                                                      \
                uint32_t words[lanes / 2];                                                                                \
                for (int i = 0; i < lanes / 2; ++i)                                                                       \
                    words[i] = rammer_narrow_##name##x2(values[2 * i], values[2 * i + 1]);                                \
                rammer_stage_vector<lanes / 2>((uint32_t *)to, words);                                                    \
            }                                                                                                             \
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

/* The same, of weights that come as they are, those of two neighbouring rows together. */
struct rammer_rnn_f16_pairs : rammer_rnn_f16 {
    enum { IS_PAIRED = true };
};
struct rammer_rnn_bf16_pairs : rammer_rnn_bf16 {
    enum { IS_PAIRED = true };
};

/* Numbers of a larger range as float16, whose 11 bits are those of TF32: weights are scaled so that the largest of an rTask is
 * just below 2^14, elements in units that depend on the band of their exponents. Band 0 is all below 2^7, and nearly always
 * all there is: in units of 2^-8 all bits of an element are there from 2^-22 on, of one and what is left of it likewise,
 * and what smaller ones lose is less than 2^-33, or 2^-44. Elements of the last band may be infinite, or NaN. Sums that are beyond
 * float32 in these units are, too. */
struct rammer_rnn_scaled {
    enum { IS_SCALED = true, BANDS = 6, BAND_BITS = 25, FIRST_BITS = 7, UNIT_BITS = 8, WEIGHT_BITS = 14 };

    static RAMMER_MEMBER bool fits(float value) { return fabsf(value) < power(FIRST_BITS); } /* band 0 */
    static RAMMER_MEMBER int band_of(float value) {
        if (fits(value))
            return 0;
        const int exponent = (int)(__float_as_uint(value) >> 23 & 0xffu) - 127;
        return min((exponent - FIRST_BITS) / BAND_BITS + 1, BANDS - 1);
    }
    static RAMMER_MEMBER float unit(int band) { return power(UNIT_BITS - BAND_BITS * band); }
    /* From the unit of band 0 to that of another one, and back. */
    static RAMMER_MEMBER float less(int band) { return power(-BAND_BITS * band); }
    static RAMMER_MEMBER float more(int band) { return power(BAND_BITS * band); }
    /* Of weights whose largest is given. */
    static RAMMER_MEMBER float scale_of(float largest) {
        const int exponent = (int)(__float_as_uint(largest) >> 23) - 127;
        return power(WEIGHT_BITS - 1 - max(exponent, -95));
    }
    static RAMMER_MEMBER float undone(float scale) { return power(-UNIT_BITS) / scale; }

  private:
    static RAMMER_MEMBER float power(int exponent) { return __uint_as_float((uint32_t)(exponent + 127) << 23); }
};

/* TF32. */
struct rammer_rnn_tf32 : rammer_rnn_f16, rammer_rnn_scaled {
    enum { IS_SCALED = true };
};

/* Float32: of the 22 leading bits of a number the first 11 and what is left of it, in units of LESSER. */
struct rammer_rnn_split : rammer_rnn_scaled {
    typedef uint16_t element;
    enum { STEP = 4, WORDS = 4, IS_PAIRED = false };
    static constexpr float LESSER = 1.0f / 2048;
    struct rows {
        rammer_rnn_rows high, low;
        RAMMER_MEMBER void load(const float *first, const float *second) {
            high.load(first, second);
            low.load(first + 2, second + 2);
        }
        RAMMER_MEMBER void load(const float *in_order) {
            high.load(in_order);
            low.load(in_order + 4);
        }
    };

    template <int plane, int lanes> static RAMMER_MEMBER void put(element *to, const float (&values)[lanes]) {
        float rest[lanes];
#pragma unroll
        for (int i = 0; i < lanes; ++i)
            rest[i] = left(values[i]);
        rammer_rnn_f16::put<0>(to, values);
        rammer_rnn_f16::put<0>(to + plane, rest);
    }
    static RAMMER_MEMBER void keep(float *words, const float *weights) {
        rammer_rnn_f16::keep(words, weights);
        const float rest[STEP] = {left(weights[0]), left(weights[1]), left(weights[2]), left(weights[3])};
        rammer_rnn_f16::keep(words + 2, rest);
    }
    static RAMMER_MEMBER void product(float (&sums)[4], const rammer_rnn_rows &a, const uint32_t *b) {
        rammer_mma_f16(sums, a.words[0], a.words[1], a.words[2], a.words[3], b[0], b[1]);
    }

  private:
    static RAMMER_MEMBER float left(float value) {
        return (value - rammer_widen_f16(rammer_narrow_f16(value))) * (1.0f / LESSER);
    }
};

/* The products of two that are left are left out, those of one have a sum of their own. */
struct rammer_rnn_f32 : rammer_rnn_split {
    enum { PLANES = 2, IS_BESIDE = false };
    struct columns {
        uint32_t words[4];
        template <int plane> RAMMER_MEMBER void load(const element *from) {
            rammer_load_vector<2>(words, (const uint32_t *)from);
            rammer_load_vector<2>(words + 2, (const uint32_t *)(from + plane));
        }
    };
    static RAMMER_MEMBER void multiply(float (&sums)[4], float (&lesser)[4], const rows &a, const columns &b) {
        product(sums, a.high, b.words);
        product(lesser, a.high, b.words + 2);
        product(lesser, a.low, b.words);
    }
    static RAMMER_MEMBER void gather(float (&)[4]) {}
};

/* Of at most half as many columns as an instruction has. Two products are enough then, and all columns are in use. */
struct rammer_rnn_f32_beside : rammer_rnn_split {
    enum { PLANES = 1, IS_BESIDE = true };
    typedef rammer_rnn_columns columns;
    static RAMMER_MEMBER void multiply(float (&sums)[4], float (&lesser)[4], const rows &a, const columns &b) {
        product(sums, a.high, b.words);
        product(lesser, a.low, b.words);
    }
    static RAMMER_MEMBER void gather(float (&sums)[4]) {
#pragma unroll
        for (int k = 0; k < 4; ++k) /* a lane has two columns */
            sums[k] += __shfl_xor_sync(0xffffffffu, sums[k], 2) * LESSER;
    }
};

#endif
