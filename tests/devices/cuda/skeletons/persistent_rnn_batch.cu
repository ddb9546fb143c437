/* STEPS cells of one layer in a block: h' = sigmoid(W x + b) * tanh(U x + V h + c) * scale, of UNITS units and COLUMNS columns.
 *
 * x is STEPS x COLUMNS x LENGTH; W and U are the rows of `input`, V is `recurrent`; b and c are the rows of `bias`; states is
 * (STEPS + 1) x COLUMNS x UNITS, of which the first is given. Vectors come when they are looked at for the second time. */
typedef FORMAT format;
constexpr int X_SLICES = APART ? APART : SLICES, H_SLICES = APART ? SLICES - APART : SLICES;
constexpr int ROWS = 2 * UNITS, GROUPS = RAMMER_THREADS / 32 / SLICES, PADDED = (COLUMNS + 7) / 8 * 8;
constexpr int SLOTS = (ROWS + 16 * GROUPS - 1) / (16 * GROUPS) * 2, STEP = format::STEP;
RAMMER_MEMBER constexpr int elements_of(int length, int slices) { return (length + slices * 4 * STEP - 1) / (slices * 4 * STEP) * STEP; }
constexpr int X_ELEMENTS = elements_of(LENGTH, X_SLICES), H_ELEMENTS = elements_of(UNITS, H_SLICES);
constexpr int PADDING = STEP * 4, H_AT = OVERLAID ? 0 : X_SLICES * 4 * X_ELEMENTS, VECTORS = H_AT + H_SLICES * 4 * H_ELEMENTS;
constexpr int PITCH = (VECTORS + 2 * PADDING - 1) / (2 * PADDING) * 2 * PADDING + PADDING;
constexpr int X_STORED = STORED < X_ELEMENTS ? STORED : X_ELEMENTS, H_STORED = STORED - X_STORED;
constexpr int X_WORDS = (X_ELEMENTS - X_STORED) / STEP * format::WORDS;
constexpr int H_WORDS = (H_ELEMENTS - H_STORED) / STEP * format::WORDS, PLANES = PADDED * format::PLANES;
constexpr int ROW_PITCH = (ROWS + 11) / 16 * 16 + 4;
constexpr int H_END = APART ? H_SLICES * GROUPS * 32 : RAMMER_THREADS, X_FIRST = APART ? H_END : 0;
constexpr int H_WEIGHTS_AT = APART ? 0 : SLOTS * X_WORDS, WEIGHTS = SLOTS * (X_WORDS + H_WORDS);
constexpr int H_STORED_AT = X_STORED / STEP * SLOTS * format::WORDS * (RAMMER_THREADS - X_FIRST);
constexpr int X_BRINGERS = APART ? BRINGERS / 2 : BRINGERS, H_BRINGERS = APART ? BRINGERS / 2 : RAMMER_THREADS;

typedef rammer_rnn_batch_part<
    LENGTH, X_SLICES, 4 * X_ELEMENTS, X_ELEMENTS, 0, 0, X_STORED, 0, X_FIRST, RAMMER_THREADS, X_BRINGERS>
    x_part;
typedef rammer_rnn_batch_part<
    UNITS, H_SLICES, 4 * H_ELEMENTS, H_ELEMENTS, H_WEIGHTS_AT, H_AT, H_STORED, H_STORED_AT, 0, H_END, H_BRINGERS>
    h_part;
typedef rammer_rnn_batch<UNITS, COLUMNS, 2, SLICES, SLOTS, AT_ONCE, HAS_ROOM, PITCH, ROW_PITCH, MEETS, format, x_part, h_part> rnn;

struct looked {
    enum { WIDTH = NEIGHBOURS };
    float values[WIDTH];
    bool again;
};
RAMMER_MEMBER looked look(const float *from, bool again) {
    looked found;
    rammer_load_vector<NEIGHBOURS>(found.values, from);
    found.again = again;
    return found;
}

struct poll_twice {
    bool *again;
    template <typename AreThere, typename Again> RAMMER_MEMBER void operator()(AreThere are_there, Again look) const {
        *again = true;
        if (!are_there())
            look();
        *again = false;
    }
};

/* A row of weights; where they come in pairs, those of the next row, too. */
struct weight_row {
    const float *row;
    uint32_t length;
    bool is_there;
    RAMMER_MEMBER float at(uint32_t element, bool present, uint32_t next) const {
        return present && is_there && element < length ? row[next * length + element] : 0.0f;
    }
    RAMMER_MEMBER void operator()(uint32_t element, bool present, float (&values)[STEP]) const {
        for (uint32_t i = 0; i < STEP; ++i)
            values[i] = at(element + i, present, 0);
    }
    RAMMER_MEMBER void operator()(uint32_t element, bool present, uint32_t (&pairs)[STEP]) const {
        for (uint32_t i = 0; i < STEP; ++i) {
            uint16_t both[2];
            for (uint32_t next = 0; next < 2; ++next) {
                const float value[1] = {at(element + i, present, next)};
                format::template put<0>(&both[next], value);
            }
            pairs[i] = both[0] | (uint32_t)both[1] << 16;
        }
    }
};

enum { STATES = 15 }; /* a barrier */
struct early {};

/* All steps of a team. */
template <int team, typename Load, typename Activate>
RAMMER_MEMBER void walk(
    const float *x, float *states, float *shared, const float *weights, Load load, Activate activate
) {
    for (uint32_t position = 0; position < STEPS; ++position) {
        const float *const inputs = x + position * COLUMNS * LENGTH;
        float *const last = states + position * COLUMNS * UNITS;
        bool again = false;
        const auto look_at_x = [&](uint32_t column, uint32_t element) { return look(inputs + column * LENGTH + element, again); };
        const auto look_at_h = [&](uint32_t column, uint32_t element) { return look(last + column * UNITS + element, again); };
        const auto is_there = [&](const looked &one) { return one.again; };
        const auto take = [&](uint32_t, uint32_t, const looked &one, uint32_t number) { return one.values[number]; };
        const auto finish = [&](uint32_t point, bool is_first, const rnn::totals &totals, const float *kept, const early &) {
            const float next = totals[0] * totals[1] * kept[point];
            if (is_first)
                last[COLUMNS * UNITS + point] = next;
        };
        const poll_twice poll{&again};
        const rammer_batch_vectors of_inputs{look_at_x, is_there, poll, take};
        const rammer_batch_vectors of_states{look_at_h, is_there, poll, take};
        rnn::step<team, early>(!APART, shared, weights, load, activate, finish, of_inputs, of_states);
        if (APART && team == 0)
            rammer_barrier_sync_named<H_END>(STATES); /* are there for the next step */
    }
}

extern "C" __global__ void rammer_run(
    const float *x, const float *input, const float *recurrent, const float *bias, const float *scale, float *states
) {
    float weights[WEIGHTS] = {};
    float *shared = (float *)rammer_scratch;
    const auto of_x = [&](uint32_t gate, uint32_t unit) {
        return weight_row{input + (min(gate, 1u) * UNITS + unit) * LENGTH, LENGTH, true};
    };
    const auto of_h = [&](uint32_t gate, uint32_t unit) { return weight_row{recurrent + unit * UNITS, UNITS, gate == 1}; };
    rnn::load_weights(shared, weights, of_x, of_h);
    for (uint32_t i = threadIdx.x; i < PITCH * PLANES * sizeof(format::element) / sizeof(float); i += RAMMER_THREADS)
        shared[i] = 0.0f;
    __syncthreads();
    rnn::keep_constants<1>(shared, [&](uint32_t gate, uint32_t point, float *kept) {
        kept[0] = scale[point];
        return bias[gate * UNITS + point];
    });
    const auto load = [&](uint32_t, early &) {};
    const auto activate = [&](uint32_t gate, float sum) {
        const float sigmoid = 1.0f / (1.0f + expf(-sum)), tanh = tanhf(sum);
        return gate == 0 ? sigmoid : tanh;
    };
    if (threadIdx.x < H_END)
        walk<0>(x, states, shared, weights, load, activate);
    else
        walk<1>(x, states, shared, weights, load, activate);
}
