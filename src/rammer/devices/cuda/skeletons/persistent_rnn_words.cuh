/* How the skeleton `persistent_rnn` loads weights into registers, each a float32 there.
 *
 *     together<elements>(): how many of a lane's elements of a row are loaded together
 *     load(values, of_row, element, left): the weights of so many, from an element on, of which `left` are there
 */
#ifndef RAMMER_PERSISTENT_RNN_WORDS_CUH
#define RAMMER_PERSISTENT_RNN_WORDS_CUH

/* of_row(element, present) is a weight, 0 unless it is `present`. */
struct rammer_rnn_floats {
    template <int elements> static RAMMER_MEMBER constexpr int together(void) { return 1; }
    template <typename OfRow>
    static RAMMER_MEMBER void load(float (&values)[1], OfRow of_row, uint32_t element, int left) {
        values[0] = of_row(element, left > 0);
    }
};

/* Weights that are 16 bits in memory: of_row(element, left, pairs) has those of neighbours, two in a word. */
#define RAMMER_RNN_WIDENED(name)                                                                                          \
    struct rammer_rnn_widened_##name {                                                                                    \
        template <int elements> static RAMMER_MEMBER constexpr int together(void) {                                       \
            return elements % 8 == 0 ? 8 : elements % 4 == 0 ? 4 : elements % 2 == 0 ? 2 : 1;                             \
        }                                                                                                                 \
        template <int count, typename OfRow>                                                                              \
        static RAMMER_MEMBER void load(float (&values)[count], OfRow of_row, uint32_t element, int left) {                \
            uint32_t pairs[(count + 1) / 2];                                                                              \
            of_row(element, left, pairs);                                                                                 \
            _Pragma("unroll") for (int i = 0; i < count; ++i)                                                             \
                values[i] = rammer_widen_##name((uint16_t)(pairs[i / 2] >> (i % 2 * 16)));                                \
        }                                                                                                                 \
    };

RAMMER_RNN_WIDENED(f16)
RAMMER_RNN_WIDENED(bf16)

#endif
