/* STEPS cells of one layer in a block: h' = sigmoid(W x + b) * tanh(U x + V h + c) * scale, of UNITS units.
 *
 * x is STEPS x LENGTH; W and U are the rows of `input`, V is `recurrent`; b and c are the rows of `bias`; states is
 * (STEPS + 1) x UNITS, of which the first is given. */
constexpr int DEEP = 32 / ACROSS, WARPS = RAMMER_THREADS / 32, SLOTS = (2 * UNITS + ACROSS - 1) / ACROSS;
RAMMER_MEMBER constexpr int slice_of(int length) { return (length + WARPS - 1) / WARPS; }
RAMMER_MEMBER constexpr int elements_of(int length) { return (slice_of(length) + DEEP - 1) / DEEP; }
constexpr int X_ELEMENTS = elements_of(LENGTH), H_ELEMENTS = elements_of(UNITS);
constexpr int X_VECTORS = WARPS * DEEP * X_ELEMENTS, VECTORS = X_VECTORS + WARPS * DEEP * H_ELEMENTS;
constexpr int H_END = TOGETHER ? RAMMER_THREADS - (LENGTH + 31) / 32 * 32 : RAMMER_THREADS;

typedef rammer_rnn_part<
    LENGTH, slice_of(LENGTH), DEEP * X_ELEMENTS, X_ELEMENTS, 0, SLOTS, 0, 0, 0, RAMMER_THREADS, !TOGETHER>
    x_part;
typedef rammer_rnn_part<
    UNITS, slice_of(UNITS), DEEP * H_ELEMENTS, H_ELEMENTS, 0, SLOTS, SLOTS * X_ELEMENTS, X_VECTORS, TOGETHER ? 0 : 1, H_END,
    true>
    h_part;
typedef rammer_rnn<UNITS, 2, ACROSS, VECTORS, MEETS, WORDS, x_part, h_part> rnn;

/* Where weights are floats, and where they are of 16 bits, some neighbours in pairs. */
struct float_row {
    const float *row;
    bool is_there;
    RAMMER_MEMBER float operator()(uint32_t element, bool present) const { return present && is_there ? row[element] : 0.0f; }
};
struct half_row {
    const uint16_t *row;
    uint32_t length;
    bool is_there;
    template <int count> RAMMER_MEMBER void operator()(uint32_t element, int left, uint32_t (&pairs)[count]) const {
        for (int i = 0; i < 2 * count; ++i) {
            const uint32_t half = i < left && is_there ? row[min(element + i, length - 1)] : 0;
            pairs[i / 2] = i % 2 == 0 ? half : pairs[i / 2] | half << 16;
        }
    }
};
RAMMER_MEMBER float_row row_of(const float *row, uint32_t, bool is_there) { return {row, is_there}; }
RAMMER_MEMBER half_row row_of(const uint16_t *row, uint32_t length, bool is_there) { return {row, length, is_there}; }

extern "C" __global__ void rammer_run(
    const float *x, const WEIGHT *input, const WEIGHT *recurrent, const float *bias, const float *scale, float *states
) {
    float weights[SLOTS * (X_ELEMENTS + H_ELEMENTS)] = {};
    float *shared = (float *)rammer_scratch;
    const auto of_x = [&](uint32_t gate, uint32_t unit) {
        return row_of(input + (min(gate, 1u) * UNITS + unit) * LENGTH, LENGTH, true);
    };
    const auto of_h = [&](uint32_t gate, uint32_t unit) { return row_of(recurrent + unit * UNITS, UNITS, gate == 1); };
    rnn::load_weights(shared, weights, of_x, of_h);
    for (uint32_t i = threadIdx.x; i < VECTORS; i += RAMMER_THREADS)
        shared[i] = 0.0f;
    __syncthreads();
    rnn::keep_constants<1>(shared, [&](uint32_t gate, uint32_t point, float *kept) {
        kept[0] = scale[point];
        return bias[gate * UNITS + point];
    });
    struct early {};
    const auto load = [&](uint32_t, early &) {};
    const auto activate = [&](uint32_t gate, float sum) {
        const float sigmoid = 1.0f / (1.0f + expf(-sum)), tanh = tanhf(sum);
        return gate == 0 ? sigmoid : tanh;
    };
    for (uint32_t position = 0; position < STEPS; ++position) {
        const float *const inputs = x + position * LENGTH;
        float *const last = states + position * UNITS;
        const auto look_at_x = [&](uint32_t number) { return inputs[number]; };
        const auto look_at_h = [&](uint32_t number) { return last[number]; };
        const auto take = [&](uint32_t, float looked) { return looked; };
        const auto finish = [&](uint32_t point, bool is_first, const rnn::totals &totals, const float *kept, const early &) {
            const float next = totals[0] * totals[1] * kept[point];
            if (is_first)
                last[UNITS + point] = next;
        };
        const rammer_vectors of_inputs{look_at_x, take};
        const rammer_vectors of_states{look_at_h, take};
        rnn::step<0, early>(true, shared, weights, load, activate, finish, of_inputs, of_states);
    }
}
