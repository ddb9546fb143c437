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
    UNITS, slice_of(UNITS), DEEP * H_ELEMENTS, H_ELEMENTS, 0, SLOTS, SLOTS * X_ELEMENTS, X_VECTORS, TOGETHER ? 0 : 1,
    H_END, true>
    h_part;
typedef rammer_rnn<UNITS, 2, ACROSS, VECTORS, MEETS, x_part, h_part> rnn;

extern "C" __global__ void rammer_run(
    const float *x, const float *input, const float *recurrent, const float *bias, const float *scale, float *states
) {
    float weights[SLOTS * (X_ELEMENTS + H_ELEMENTS)] = {};
    float *shared = (float *)rammer_scratch;
    const auto of_x = [&](uint32_t gate, uint32_t unit) {
        const float *row = input + (min(gate, 1u) * UNITS + unit) * LENGTH;
        return [=](uint32_t element, bool present) { return present ? row[element] : 0.0f; };
    };
    const auto of_h = [&](uint32_t gate, uint32_t unit) {
        const float *row = recurrent + unit * UNITS;
        return [=](uint32_t element, bool present) { return present && gate == 1 ? row[element] : 0.0f; };
    };
    rnn::load_weights(weights, of_x, of_h);
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
