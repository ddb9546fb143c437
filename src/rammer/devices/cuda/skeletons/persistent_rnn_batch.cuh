/* The skeleton `persistent_rnn_batch`: a cell of a recurrent layer for some elements of a batch, the `columns` of what tensor
 * cores multiply; see persistent_rnn.cuh, whose functions it has. Its weights are the rows, and stay in registers.
 *
 *     step: for each record
 *       for each part: bring its vectors into shared memory, one for each column; each warp multiplies its slice of them by its
 *       rows
 *       put the sums of all slices together; for each point: its gates and the epilogue, a point to a thread
 *
 * Neighbouring warps have other rows of the same slice. Where registers do not hold the sums of all columns, those of some
 * lie in shared memory while others are multiplied.
 */
#ifndef RAMMER_PERSISTENT_RNN_BATCH_CUH
#define RAMMER_PERSISTENT_RNN_BATCH_CUH

/* --- Formats: products of 16 rows by 8 columns. A lane has STEP neighbouring elements of a vector, and as many weights of two
 * rows, two words of each. Which lanes have which elements is the same for both, and the order of a sum is free. --------- */

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

    static RAMMER_MEMBER element narrowed(float value) { return __uint_as_float(rammer_round_tf32(value)); }
    static RAMMER_MEMBER void keep(float *words, const float *weights) {
        words[0] = narrowed(weights[0]);
        words[1] = narrowed(weights[1]);
    }
    static RAMMER_MEMBER void multiply(float (&sums)[4], float (&)[4], const rows &a, const columns &b) {
        rammer_mma_tf32(sums, a.words[0], a.words[1], a.words[2], a.words[3], b.words[0], b.words[1]);
    }
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

    static RAMMER_MEMBER element narrowed(float value) {
        const float high = __uint_as_float(rammer_round_tf32(value));
        return {high, __uint_as_float(rammer_round_tf32(value - high))};
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
        static RAMMER_MEMBER element narrowed(float value) { return rammer_narrow_##name(value); }                        \
        static RAMMER_MEMBER void keep(float *words, const float *weights) {                                              \
            words[0] = __uint_as_float(rammer_narrow_##name##x2(weights[0], weights[1]));                                 \
            words[1] = __uint_as_float(rammer_narrow_##name##x2(weights[2], weights[3]));                                 \
        }                                                                                                                 \
        static RAMMER_MEMBER void multiply(float (&sums)[4], float (&)[4], const rows &a, const columns &b) {             \
            rammer_mma_##name(sums, a.words[0], a.words[1], a.words[2], a.words[3], b.words[0], b.words[1]);              \
        }                                                                                                                 \
    };

RAMMER_RNN_HALVES(f16)
RAMMER_RNN_HALVES(bf16)

/* --- The cell. ----------------------------------------------------------------------------------------------------------- */

/* Vectors of `length` elements, one for each column, and the weights that they are multiplied with. A slice has `pitch`
 * elements, of which a lane has `elements`; they begin at element `vector_at` of a column's shared memory. A lane's weights
 * begin at `weights_at` among its registers. */
template <int length, int pitch, int elements, int weights_at, int vector_at> struct rammer_rnn_batch_part {
    enum { LENGTH = length, PITCH = pitch, ELEMENTS = elements, WEIGHTS_AT = weights_at, VECTOR_AT = vector_at };
};

/* How elements of a part's vectors are brought: look(column, element) asks for one, is_there(looked) says whether it came,
 * take(column, element, looked) is what it is. poll(are_there, again) is to call again() until are_there(). */
template <typename Look, typename IsThere, typename Poll, typename Take> struct rammer_batch_vectors {
    Look look;
    IsThere is_there;
    Poll poll;
    Take take;
};
template <typename Look, typename IsThere, typename Poll, typename Take>
rammer_batch_vectors(Look, IsThere, Poll, Take) -> rammer_batch_vectors<Look, IsThere, Poll, Take>;

/* Where all elements are there. */
struct rammer_no_poll {
    template <typename AreThere, typename Again> RAMMER_MEMBER void operator()(AreThere, Again) const {}
};

/* A cell. A column's vectors take `pitch` elements of shared memory. Behind those of all columns lie the sums of `slices`, those
 * of a column `row_pitch` apart, and the constants of the epilogue. A lane has `slots` rows, and the sums of `at_once` columns
 * in registers; where it `has_room` in them, it looks at more of the vectors together, and sooner. Where threads may wait one by one for elements, `meets`. */
template <
    int units, int columns, int gates, int slices, int slots, int at_once, bool has_room, int pitch, int row_pitch, bool meets,
    typename Format, typename... Parts>
struct rammer_rnn_batch {
    typedef typename Format::element element;
    enum {
        WARPS = RAMMER_THREADS / 32,
        GROUPS = WARPS / slices,
        PADDED = (columns + 7) / 8 * 8,
        PASSES = PADDED / at_once,
        POINTS = units * columns,
        TURNS = (POINTS + RAMMER_THREADS - 1) / RAMMER_THREADS,
        ROWS = units * gates,
        LOOK_BYTES = has_room ? 64 : 32, /* of a thread together */
        SUMS = row_pitch * PADDED,
        SUMS_AT = pitch * PADDED * (int)sizeof(element) / (int)sizeof(float),
        BIASES_AT = SUMS_AT + slices * SUMS,
        KEPT_AT = BIASES_AT + ROWS
    };
    typedef float totals[gates];
    typedef float sums[slots / 2][at_once / 8][4];

    /* weight(gate, unit)(element, present), one functor for each part, is a weight, 0 unless it is `present`. */
    template <typename... Weights>
    static RAMMER_MEMBER void load_weights(float *weights, Weights... weight) {
        (load_weights_of<Parts>(weights, weight), ...);
    }

    /* constants(gate, point, float *kept) returns the bias of a gate, and has `count` other constants of a point, the same in
     * all columns. */
    template <int count, typename Constants> static RAMMER_MEMBER void keep_constants(float *shared, Constants constants) {
        __syncthreads(); /* others may still read those of another rKernel */
        for (uint32_t row = threadIdx.x; row < ROWS; row += RAMMER_THREADS) {
            float kept[count + 1];
            shared[BIASES_AT + row] = constants(row / units, row % units, kept);
            if (count != 0 && row < units)
                for (uint32_t point = row; point < POINTS; point += units)
#pragma unroll
                    for (int i = 0; i < count; ++i)
                        shared[KEPT_AT + i * POINTS + point] = kept[i];
        }
    }

    /* The work for one record, as that of one vector; there are batch vectors for each part. */
    template <typename Early, typename Load, typename Activate, typename Finish, typename... Vectors>
    static RAMMER_MEMBER void step(
        bool fresh, float *shared, const float *weights, Load load, Activate activate, Finish finish, Vectors... vectors
    ) {
        if (fresh)
            __syncthreads();
        Early early[TURNS];
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn)
            load(point(turn), early[turn]);
        sums own = {};
        go_on<void, Parts...>(own, shared, weights, vectors...);
        if (PASSES == 1)
            store(own, shared, 0);
        __syncthreads();
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn)
            if (threadIdx.x / 32 * 32 + turn * RAMMER_THREADS < POINTS) {
                totals all;
                const uint32_t row = point(turn) % units;
                const float *from = shared + SUMS_AT + point(turn) / units * row_pitch + row;
#pragma unroll
                for (int gate = 0; gate < gates; ++gate) {
                    float sum = shared[BIASES_AT + gate * units + row];
#pragma unroll
                    for (int i = 0; i < slices; ++i)
                        sum += from[i * SUMS + gate * units];
                    all[gate] = activate(gate, sum);
                }
                const bool is_first = threadIdx.x + turn * RAMMER_THREADS < POINTS;
                finish(point(turn), is_first, all, shared + KEPT_AT, early[turn]);
            }
    }

  private:
    static RAMMER_MEMBER uint32_t lane(void) { return threadIdx.x % 32; }
    static RAMMER_MEMBER uint32_t slice(void) { return threadIdx.x / 32 / GROUPS; }
    static RAMMER_MEMBER bool is_idle(void) { return GROUPS * slices != WARPS && slice() >= slices; }
    static RAMMER_MEMBER uint32_t row(int slot) { return (threadIdx.x / 32 % GROUPS * slots + slot) * 8 + lane() / 4; }
    static RAMMER_MEMBER uint32_t point(int turn) { return min(threadIdx.x + turn * RAMMER_THREADS, POINTS - 1u); }

    static RAMMER_MEMBER void meet(void) {
        if constexpr (meets) {
            rammer_meet();
        } else {
            __syncthreads();
        }
    }

    template <typename Part, typename Weight> static RAMMER_MEMBER void load_weights_of(float *weights, Weight weight) {
        constexpr int WORDS = Part::ELEMENTS / Format::STEP * 2;
#pragma unroll
        for (int i = 0; i < slots; ++i) {
            const auto of_row = weight(row(i) / units, row(i) % units);
#pragma unroll
            for (int j = 0; j < Part::ELEMENTS; j += Format::STEP) {
                float of_lane[Format::STEP];
#pragma unroll
                for (int k = 0; k < Format::STEP; ++k) {
                    const uint32_t element = slice() * Part::PITCH + j * 4 + lane() % 4 * Format::STEP + k;
                    of_lane[k] = of_row(min(element, Part::LENGTH - 1u), element < Part::LENGTH && !is_idle());
                }
                Format::keep(weights + Part::WEIGHTS_AT + i * WORDS + j / Format::STEP * 2, of_lane);
            }
        }
    }

    /* What a thread brings of a part's vectors, in turns. Whole warps look, those behind the end at the last element once more. */
    template <typename Part> struct share {
        static constexpr uint32_t COUNT = Part::LENGTH * columns, LOOKING = (COUNT + 31) / 32 * 32;
        static constexpr int TURNS = (LOOKING + RAMMER_THREADS - 1) / RAMMER_THREADS;
        /* Whether a thread has the same element of several columns. */
        static constexpr bool HAS_ONE_ELEMENT = RAMMER_THREADS % Part::LENGTH == 0 && COUNT == LOOKING;

        static RAMMER_MEMBER uint32_t number(int turn) { return threadIdx.x + turn * RAMMER_THREADS; }
        static RAMMER_MEMBER bool has(int turn) { return LOOKING % RAMMER_THREADS == 0 || number(turn) < LOOKING; }
        static RAMMER_MEMBER bool is_own(int turn) { return COUNT % RAMMER_THREADS == 0 || number(turn) < COUNT; }
        static RAMMER_MEMBER uint32_t inside(int turn) { return is_own(turn) ? number(turn) : COUNT - 1; }
        static RAMMER_MEMBER uint32_t column(int turn) {
            return HAS_ONE_ELEMENT ? threadIdx.x / Part::LENGTH + turn * (RAMMER_THREADS / Part::LENGTH)
                                   : inside(turn) / Part::LENGTH;
        }
        static RAMMER_MEMBER uint32_t element(int turn) {
            return (HAS_ONE_ELEMENT ? threadIdx.x : inside(turn)) % Part::LENGTH;
        }
    };

    /* What a thread has looked at together. */
    template <typename Part, typename Vectors> struct looks {
        typedef share<Part> mine;
        typedef decltype(((Vectors *)nullptr)->look(0u, 0u)) word;
        enum {
            MOST = (int)sizeof(word) < LOOK_BYTES ? LOOK_BYTES / (int)sizeof(word) : 1,
            COUNT = (int)mine::TURNS < MOST ? (int)mine::TURNS : MOST
        };
        word looked[COUNT];

        /* visit(turn, word) for those of some turns. */
        template <typename Visit> RAMMER_MEMBER void each(int first, Visit visit) {
#pragma unroll
            for (int i = 0; i < COUNT; ++i)
                if (first + i < mine::TURNS && mine::has(first + i))
                    visit(first + i, looked[i]);
        }
        RAMMER_MEMBER void ask(Vectors &vectors, int first) {
            each(first, [&](int turn, word &one) { one = vectors.look(mine::column(turn), mine::element(turn)); });
        }
        /* Asks again for what did not come, and takes it. */
        RAMMER_MEMBER void bring(Vectors &vectors, int first, element *into) {
            const auto are_there = [&] {
                bool all = true;
                each(first, [&](int, word &one) { all = vectors.is_there(one) && all; });
                return all;
            };
            const auto again = [&] {
                each(first, [&](int turn, word &one) {
                    if (!vectors.is_there(one))
                        one = vectors.look(mine::column(turn), mine::element(turn));
                });
            };
            vectors.poll(are_there, again);
            each(first, [&](int turn, word &one) {
                const float value = vectors.take(mine::column(turn), mine::element(turn), one);
                if (mine::is_own(turn))
                    into[mine::column(turn) * pitch + Part::VECTOR_AT + mine::element(turn)] = Format::narrowed(value);
            });
        }
    };

    /* Multiplies a part and those behind it. Where there is room, the part before it is multiplied while the first of its own
     * vectors are on their way. */
    template <typename Before, typename Part, typename... More, typename Vectors, typename... Others>
    static RAMMER_MEMBER void go_on(sums &own, float *shared, const float *weights, Vectors vectors, Others... others) {
        looks<Part, Vectors> some;
        if (has_room)
            some.ask(vectors, 0);
        add((Before *)nullptr, own, shared, weights);
        if (!has_room)
            some.ask(vectors, 0);
        some.bring(vectors, 0, (element *)shared);
#pragma unroll
        for (int first = some.COUNT; first < share<Part>::TURNS; first += some.COUNT) {
            some.ask(vectors, first);
            some.bring(vectors, first, (element *)shared);
        }
        meet();
        if constexpr (sizeof...(More) == 0)
            add((Part *)nullptr, own, shared, weights);
        else
            go_on<Part, More...>(own, shared, weights, others...);
    }

    /* Adds a part's products, if there is one, to the sums of all columns. */
    static RAMMER_MEMBER void add(void *, sums &, float *, const float *) {}
    template <typename Part> static RAMMER_MEMBER void add(Part *, sums &own, float *shared, const float *weights) {
        if constexpr (PASSES == 1) {
            multiply<Part>(own, (const element *)shared, weights, 0);
        } else {
#pragma unroll 1
            for (int first = 0; first < PADDED; first += at_once) {
                sums some = {};
                if (Part::VECTOR_AT != 0)
                    load(some, shared, first);
                multiply<Part>(some, (const element *)shared, weights, first);
                store(some, shared, first);
            }
        }
    }

    /* The same to those of some columns. */
    template <typename Part>
    static RAMMER_MEMBER void multiply(sums &own, const element *vectors, const float *weights, int first) {
        constexpr int WORDS = Part::ELEMENTS / Format::STEP * 2;
        if (is_idle())
            return;
        sums lesser = {};
        vectors += (first + lane() / 4) * pitch + Part::VECTOR_AT + slice() * Part::PITCH + lane() % 4 * Format::STEP;
#pragma unroll
        for (int j = 0; j < Part::ELEMENTS; j += Format::STEP) {
            const float *of_lane = weights + Part::WEIGHTS_AT + j / Format::STEP * 2;
            typename Format::rows a[slots / 2];
#pragma unroll
            for (int i = 0; i < slots / 2; ++i)
                a[i].load(of_lane + 2 * i * WORDS, of_lane + (2 * i + 1) * WORDS);
#pragma unroll
            for (int n = 0; n < at_once / 8; ++n) {
                typename Format::columns b;
                b.load(vectors + n * 8 * pitch + j * 4);
#pragma unroll
                for (int i = 0; i < slots / 2; ++i)
                    Format::multiply(own[i][n], lesser[i][n], a[i], b);
            }
        }
#pragma unroll
        for (int i = 0; i < slots / 2; ++i)
#pragma unroll
            for (int n = 0; n < at_once / 8; ++n)
#pragma unroll
                for (int k = 0; k < 4; ++k)
                    own[i][n][k] += lesser[i][n][k];
    }

    /* visit(sum, place) for each sum of a lane and its place among those of its slice. */
    template <typename Visit> static RAMMER_MEMBER void each(sums &own, int first, Visit visit) {
        if (is_idle())
            return;
        const uint32_t at = (first + lane() % 4 * 2) * row_pitch + row(0);
#pragma unroll
        for (int i = 0; i < slots; ++i)
#pragma unroll
            for (int n = 0; n < at_once; n += 8)
#pragma unroll
                for (int k = 0; k < 2; ++k) {
                    const bool has_row = ROWS % (GROUPS * slots * 8) == 0 || row(i) < ROWS;
                    if (has_row && (columns % 8 == 0 || first + n + lane() % 4 * 2 + k < columns))
                        visit(&own[i / 2][n / 8][i % 2 * 2 + k], at + (n + k) * row_pitch + i * 8);
                }
    }

    static RAMMER_MEMBER void store(sums &own, float *shared, int first) {
        float *const into = shared + SUMS_AT + slice() * SUMS;
        each(own, first, [=](const float *sum, uint32_t at) { into[at] = *sum; });
    }

    static RAMMER_MEMBER void load(sums &own, const float *shared, int first) {
        const float *const from = shared + SUMS_AT + slice() * SUMS;
        each(own, first, [=](float *sum, uint32_t at) { *sum = from[at]; });
    }
};

#endif
