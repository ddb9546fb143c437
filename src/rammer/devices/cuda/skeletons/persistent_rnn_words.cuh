/* What a register of the skeleton `persistent_rnn` holds: WEIGHTS neighbouring weights of a row.
 *
 *     together<elements>(): how many of a lane's elements of a row are loaded together
 *     load(words, of_row, element, left): the words of so many, from an element on, of which `left` are there
 *     weight<number>(word): one of them
 */
#ifndef RAMMER_PERSISTENT_RNN_WORDS_CUH
#define RAMMER_PERSISTENT_RNN_WORDS_CUH

/* of_row(element, present) is a weight, 0 unless it is `present`. */
struct rammer_rnn_floats {
    enum { WEIGHTS = 1 };
    template <int elements> static RAMMER_MEMBER constexpr int together(void) { return 1; }
    template <typename OfRow>
    static RAMMER_MEMBER void load(float (&words)[1], OfRow of_row, uint32_t element, int left) {
        words[0] = of_row(element, left > 0);
    }
    template <int> static RAMMER_MEMBER float weight(float word) { return word; }
};

/* Weights that are 16 bits in memory: of_row(element, left, pairs) has those of neighbours, two in a word. */
struct rammer_rnn_halves {
    template <int elements> static RAMMER_MEMBER constexpr int together(void) {
        return elements % 8 == 0 ? 8 : elements % 4 == 0 ? 4 : elements % 2 == 0 ? 2 : 1;
    }
};

/* Kept as float32, or as they are, the first one in the lower half of a register. */
#define RAMMER_RNN_WORDS(name)                                                                                            \
    struct rammer_rnn_widened_##name : rammer_rnn_halves {                                                                \
        enum { WEIGHTS = 1 };                                                                                             \
        template <int count, typename OfRow>                                                                              \
        static RAMMER_MEMBER void load(float (&words)[count], OfRow of_row, uint32_t element, int left) {                 \
            uint32_t pairs[(count + 1) / 2];                                                                              \
            of_row(element, left, pairs);                                                                                 \
            _Pragma("unroll") for (int i = 0; i < count; ++i)                                                             \
                words[i] = rammer_widen_##name((uint16_t)(pairs[i / 2] >> (i % 2 * 16)));                                 \
        }                                                                                                                 \
        template <int> static RAMMER_MEMBER float weight(float word) { return word; }                                     \
    };                                                                                                                    \
    struct rammer_rnn_pairs_##name : rammer_rnn_halves {                                                                  \
        enum { WEIGHTS = 2 };                                                                                             \
        template <int count, typename OfRow>                                                                              \
        static RAMMER_MEMBER void load(float (&words)[count], OfRow of_row, uint32_t element, int left) {                 \
            uint32_t pairs[count];                                                                                        \
            of_row(element, left, pairs);                                                                                 \
            _Pragma("unroll") for (int i = 0; i < count; ++i)                                                             \
                words[i] = __uint_as_float(pairs[i]);                                                                     \
        }                                                                                                                 \
        template <int number> static RAMMER_MEMBER float weight(float word) {                                             \
            return rammer_widen_##name##_here<number>(__float_as_uint(word));                                             \
        }                                                                                                                 \
    };

RAMMER_RNN_WORDS(f16)
RAMMER_RNN_WORDS(bf16)

#endif
