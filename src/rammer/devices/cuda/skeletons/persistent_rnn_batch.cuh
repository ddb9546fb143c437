/* The skeleton `persistent_rnn_batch`: a cell of a recurrent layer for some elements of a batch, the `columns` of what tensor
 * cores multiply (persistent_rnn_formats.cuh), in parts (persistent_rnn_parts.cuh); see persistent_rnn.cuh, whose functions it
 * has. Its weights are the rows, and stay in registers, some of them in shared memory.
 *
 *     step: for each record
 *       for each part: bring its vectors into shared memory, one for each column; each warp multiplies its slice of them by its
 *       rows
 *       put the sums of all slices together; for each point: its gates and the epilogue, a point to a thread, of few points a
 *       gate to a thread
 *
 * Neighbouring warps have other rows of the same slice. Where registers do not hold the sums of all columns, those of some
 * lie in shared memory while others are multiplied.
 */
#ifndef RAMMER_PERSISTENT_RNN_BATCH_CUH
#define RAMMER_PERSISTENT_RNN_BATCH_CUH

/* A cell. A column's vectors take `pitch` elements of shared memory; parts at the same place take it one after the other. Behind
 * those of all columns lie the sums of `slices`, those of a column `row_pitch` apart, the stored weights, and the constants of the
 * epilogue. A lane has `slots` rows, and the sums of `at_once` columns in registers; where it `has_room` in them, it looks at more
 * of the vectors together, and sooner. Where threads may wait one by one for elements, `meets`. */
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
        LANES = POINTS <= 32 / gates * WARPS ? gates : 1, /* of a point */
        WARP_POINTS = 32 / LANES,
        TURNS = (POINTS + WARP_POINTS * WARPS - 1) / (WARP_POINTS * WARPS),
        ROWS = units * gates,
        LOOK_BYTES = has_room ? 64 : 32, /* of a thread together */
        SUMS = row_pitch * PADDED,
        PLANE = Format::IS_BESIDE ? PADDED / 2 * pitch : PADDED * pitch,
        SUMS_AT = pitch * PADDED * Format::PLANES * (int)sizeof(element) / (int)sizeof(float),
        STORED_AT = SUMS_AT + slices * SUMS,
        STORED_STEP = slots * Format::WORDS * RAMMER_THREADS, /* of one step of a lane */
        IS_SHORT = (0 + ... + (int)Parts::STORED) != 0, /* of registers */
        SCALE_AT = STORED_AT + (0 + ... + (int)Parts::STORED) / Format::STEP * STORED_STEP,
        BIASES_AT = SCALE_AT + Format::IS_SCALED,
        KEPT_AT = BIASES_AT + ROWS
    };
    typedef float totals[gates];
    typedef float sums[slots / 2][at_once / 8][4];

    /* weight(gate, unit)(element, present), one functor for each part, is a weight, 0 unless it is `present`. */
    template <typename... Weights>
    static RAMMER_MEMBER void load_weights(float *shared, float *weights, Weights... weight) {
        float scale = 1.0f;
        if constexpr (Format::IS_SCALED)
            scale = scale_of(shared, weight...);
        (load_weights_of<Parts>(shared, weights, scale, weight), ...);
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
        go_on<void, Parts...>(own, shared, weights, false, vectors...);
        if (PASSES == 1)
            store(own, shared, 0);
        __syncthreads();
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn)
            if (first_point(turn) < POINTS) {
                totals all;
                if constexpr (LANES == 1) {
#pragma unroll
                    for (int gate = 0; gate < gates; ++gate)
                        all[gate] = activate(gate, total(shared, gate, point(turn)));
                } else {
                    const float mine = activate(lane() % LANES, total(shared, lane() % LANES, point(turn)));
#pragma unroll
                    for (int gate = 0; gate < gates; ++gate)
                        all[gate] = __shfl_sync(0xffffffffu, mine, place() * LANES + gate);
                }
                const bool is_first = lane() < WARP_POINTS * LANES && lane() % LANES == 0 && first_point(turn) + place() < POINTS;
                finish(point(turn), is_first, all, shared + KEPT_AT, early[turn]);
            }
    }

  private:
    static RAMMER_MEMBER uint32_t lane(void) { return threadIdx.x % 32; }
    static RAMMER_MEMBER uint32_t slice(void) { return threadIdx.x / 32 / GROUPS; }
    static RAMMER_MEMBER bool is_idle(void) { return GROUPS * slices != WARPS && slice() >= slices; }
    static RAMMER_MEMBER uint32_t row(int slot) { return (threadIdx.x / 32 % GROUPS * slots + slot) * 8 + lane() / 4; }

    /* A warp's points of a turn lie side by side; a lane has a gate of the one with number `place`, or all gates. */
    static RAMMER_MEMBER uint32_t first_point(int turn) { return (threadIdx.x / 32 + turn * WARPS) * WARP_POINTS; }
    static RAMMER_MEMBER uint32_t place(void) { return min(lane() / LANES, WARP_POINTS - 1u); }
    static RAMMER_MEMBER uint32_t point(int turn) { return min(first_point(turn) + place(), POINTS - 1u); }

    /* What goes into a gate of a point. */
    static RAMMER_MEMBER float total(const float *shared, uint32_t gate, uint32_t point) {
        const uint32_t row = gate * units + point % units;
        const float *from = shared + SUMS_AT + point / units * row_pitch + row;
        float sum = Format::IS_SCALED ? 0.0f : shared[BIASES_AT + row];
#pragma unroll
        for (int i = 0; i < slices; ++i)
            sum += from[i * SUMS];
        return Format::IS_SCALED ? fmaf(sum, shared[SCALE_AT], shared[BIASES_AT + row]) : sum;
    }

    static RAMMER_MEMBER void meet(void) {
        if constexpr (meets) {
            rammer_meet();
        } else {
            __syncthreads();
        }
    }
    /* Returns whether `holds` of any thread. */
    static RAMMER_MEMBER bool meet_or(bool holds) {
        if constexpr (!Format::IS_SCALED) {
            meet();
            return false;
        } else if constexpr (meets) {
            return rammer_meet_or(holds);
        } else {
            return __syncthreads_or(holds) != 0;
        }
    }

    /* Where a lane's weights of an element lie: four words, those of a row or of two. */
    template <typename Part> static RAMMER_MEMBER uint32_t stored_at(int element, int slot) {
        const int place = slot * Format::WORDS / 4, word = slot * Format::WORDS % 4;
        const uint32_t step = (Part::STORED_AT + element) / Format::STEP * STORED_STEP;
        return STORED_AT + step + (place * RAMMER_THREADS + threadIdx.x) * 4 + word;
    }

    /* The power of two that weights are multiplied with, by the largest of the rTask. What undoes it is kept. */
    template <typename... Weights> static RAMMER_MEMBER float scale_of(float *shared, Weights... weight) {
        float largest = 0.0f;
        ((largest = fmaxf(largest, largest_of<Parts>(weight))), ...);
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2)
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
        float *const of_warps = shared + SUMS_AT; /* there are no sums yet */
        if (lane() == 0)
            of_warps[threadIdx.x / 32] = largest;
        __syncthreads();
#pragma unroll
        for (int warp = 0; warp < WARPS; ++warp)
            largest = fmaxf(largest, of_warps[warp]);
        const float scale = Format::scale_of(largest);
        if (threadIdx.x == 0)
            shared[SCALE_AT] = Format::undone(scale);
        return scale;
    }
    template <typename Part, typename Weight> static RAMMER_MEMBER float largest_of(Weight weight) {
        float largest = 0.0f;
#pragma unroll 8
        for (uint32_t i = threadIdx.x; i < ROWS * (uint32_t)Part::LENGTH; i += RAMMER_THREADS) {
            const uint32_t row = i / Part::LENGTH;
            largest = fmaxf(largest, fabsf(weight(row / units, row % units)(i % Part::LENGTH, true)));
        }
        return largest;
    }

    template <typename Part, typename Weight>
    static RAMMER_MEMBER void load_weights_of(float *shared, float *weights, float scale, Weight weight) {
        constexpr int WORDS = (Part::ELEMENTS - Part::STORED) / Format::STEP * Format::WORDS;
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
                    if constexpr (Format::IS_SCALED)
                        of_lane[k] *= scale;
                }
                const int step = (j - Part::STORED) / Format::STEP;
                if (j < Part::STORED)
                    Format::keep(shared + stored_at<Part>(j, i), of_lane);
                else
                    Format::keep(weights + Part::WEIGHTS_AT + i * WORDS + step * Format::WORDS, of_lane);
            }
        }
    }

    /* What each of those that bring a part's vectors brings, `width` neighbours in a turn. Whole warps look, those behind the end at
     * the last elements once more. */
    template <typename Part, int width> struct share {
        static constexpr uint32_t THREADS = Part::BRINGERS, OF_COLUMN = Part::LENGTH / width, COUNT = OF_COLUMN * columns;
        static constexpr uint32_t LOOKING = (COUNT + 31) / 32 * 32;
        static constexpr int TURNS = (LOOKING + THREADS - 1) / THREADS;
        /* Whether a thread has the same elements of several columns. */
        static constexpr bool HAS_ONE_PLACE = THREADS % OF_COLUMN == 0 && COUNT == LOOKING;
        static_assert(Part::LENGTH % width == 0 && RAMMER_THREADS % Part::BRINGERS == 0, "neighbours of one column");

        /* Where there are no registers for addresses from record to record, they are computed each time. */
        uint32_t thread;
        RAMMER_MEMBER share(void) : thread((IS_SHORT ? rammer_opaque(threadIdx.x) : threadIdx.x) % THREADS) {}

        RAMMER_MEMBER uint32_t number(int turn) const { return thread + turn * THREADS; }
        RAMMER_MEMBER bool has(int turn) const { return LOOKING % THREADS == 0 || number(turn) < LOOKING; }
        RAMMER_MEMBER bool is_own(int turn) const { return COUNT % THREADS == 0 || number(turn) < COUNT; }
        RAMMER_MEMBER uint32_t inside(int turn) const { return is_own(turn) ? number(turn) : COUNT - 1; }
        RAMMER_MEMBER uint32_t column(int turn) const {
            return HAS_ONE_PLACE ? thread / OF_COLUMN + turn * (THREADS / OF_COLUMN) : inside(turn) / OF_COLUMN;
        }
        RAMMER_MEMBER uint32_t element(int turn) const {
            return (HAS_ONE_PLACE ? thread : inside(turn)) % OF_COLUMN * width;
        }
    };

    /* What a thread has looked at together. */
    template <typename Part, typename Vectors> struct looks {
        typedef decltype(((Vectors *)nullptr)->look(0u, 0u)) word;
        enum {
            WIDTH = word::WIDTH,
            MOST = (int)sizeof(word) < LOOK_BYTES ? LOOK_BYTES / (int)sizeof(word) : 1
        };
        typedef share<Part, WIDTH> own;
        enum { TURNS = own::TURNS, COUNT = (int)TURNS < (int)MOST ? (int)TURNS : (int)MOST };
        word looked[COUNT];

        static RAMMER_MEMBER bool has_any(void) {
            return Part::BRINGERS == RAMMER_THREADS || threadIdx.x >= (uint32_t)(RAMMER_THREADS - Part::BRINGERS);
        }

        /* visit(mine, turn, word) for those of some turns. */
        template <typename Visit> RAMMER_MEMBER void each(int first, Visit visit) {
            const own mine;
#pragma unroll
            for (int i = 0; i < COUNT; ++i)
                if (first + i < (int)TURNS && mine.has(first + i))
                    visit(mine, first + i, looked[i]);
        }
        RAMMER_MEMBER void ask(Vectors &vectors, int first) {
            each(first, [&](const own &mine, int turn, word &one) {
                one = vectors.look(mine.column(turn), mine.element(turn));
            });
        }
        RAMMER_MEMBER bool are_there(Vectors &vectors, int first) {
            bool all = true;
            each(first, [&](const own &, int, word &one) { all = vectors.is_there(one) && all; });
            return all;
        }
        /* Asks again for what did not come, and takes it. Returns whether some of it is beyond what the format has. */
        RAMMER_MEMBER bool bring(Vectors &vectors, int first, element *into) {
            const auto again = [&] {
                each(first, [&](const own &mine, int turn, word &one) {
                    if (!vectors.is_there(one))
                        one = vectors.look(mine.column(turn), mine.element(turn));
                });
            };
            vectors.poll([&] { return are_there(vectors, first); }, again);
            return take(vectors, first, into);
        }
        RAMMER_MEMBER bool take(Vectors &vectors, int first, element *into) {
            bool beyond = false;
            each(first, [&](const own &mine, int turn, word &one) {
                float values[WIDTH];
#pragma unroll
                for (int i = 0; i < WIDTH; ++i) {
                    values[i] = vectors.take(mine.column(turn), mine.element(turn), one, i);
                    if constexpr (Format::IS_SCALED) {
                        const bool fits = Format::fits(values[i]);
                        beyond |= !fits;
                        values[i] = fits ? values[i] * Format::unit(0) : 0.0f;
                    }
                }
                put(mine, turn, into, values);
            });
            return beyond;
        }
        static RAMMER_MEMBER void put(const own &mine, int turn, element *into, const float (&values)[WIDTH]) {
            if (mine.is_own(turn))
                Format::template put<PLANE>(
                    into + mine.column(turn) * pitch + Part::VECTOR_AT + mine.element(turn), values
                );
        }
    };

    /* Multiplies a part and those behind it. Where there is room, the part before it is multiplied while the first of its own
     * vectors are on their way. */
    template <typename Before, typename Part, typename... More, typename Vectors, typename... Others>
    static RAMMER_MEMBER void go_on(
        sums &own, float *shared, const float *weights, bool begun, Vectors vectors, Others... others
    ) {
        looks<Part, Vectors> some;
        const bool brings = some.has_any();
        if (has_room && brings)
            some.ask(vectors, 0);
        add((Before *)nullptr, own, shared, weights, begun, 0);
        if (!Part::IS_FIRST && Part::VECTOR_AT == 0)
            __syncthreads();
        bool beyond = false;
        if (brings) {
            if (!has_room)
                some.ask(vectors, 0);
            beyond = some.bring(vectors, 0, (element *)shared);
#pragma unroll
            for (int first = some.COUNT; first < (int)some.TURNS; first += some.COUNT) {
                some.ask(vectors, first);
                beyond |= some.bring(vectors, first, (element *)shared);
            }
        }
        beyond = meet_or(beyond);
        if constexpr (Format::IS_SCALED)
            if (beyond)
                add_beyond<Part>(own, shared, weights, vectors);
        if constexpr (sizeof...(More) == 0)
            add((Part *)nullptr, own, shared, weights, beyond, 0);
        else
            go_on<Part, More...>(own, shared, weights, beyond, others...);
    }

    /* Adds a part's products with elements that are too large for the format, band by band of their exponents, and leaves the
     * others in shared memory. It is seldom, and need not be fast. */
    template <typename Part, typename Vectors>
    static RAMMER_MEMBER void add_beyond(sums &own, float *shared, const float *weights, Vectors vectors) {
        typedef looks<Part, Vectors> some;
        const typename some::own mine;
#pragma unroll 1
        for (int band = Format::BANDS - 1; band >= 0; --band) {
#pragma unroll 1
            for (int turn = 0; turn < (int)some::TURNS; ++turn)
                if (some::has_any() && mine.has(turn)) {
                    const uint32_t column = mine.column(turn), number = mine.element(turn);
                    const auto looked = vectors.look(column, number);
                    float values[some::WIDTH];
#pragma unroll
                    for (int i = 0; i < some::WIDTH; ++i) {
                        const float value = vectors.take(column, number, looked, i);
                        values[i] = Format::band_of(value) == band ? value * Format::unit(band) : 0.0f;
                    }
                    some::put(mine, turn, (element *)shared, values);
                }
            meet();
            if (band > 0)
                add((Part *)nullptr, own, shared, weights, band < Format::BANDS - 1, band);
            __syncthreads();
        }
    }

    /* Adds a part's products, if there is one, to the sums of all columns, those of the first part if it has `begun` them. */
    static RAMMER_MEMBER void add(void *, sums &, float *, const float *, bool, int) {}
    template <typename Part>
    static RAMMER_MEMBER void add(Part *, sums &own, float *shared, const float *weights, bool begun, int band) {
        if constexpr (PASSES == 1) {
            multiply_band<Part>(own, shared, weights, 0, band);
        } else {
#pragma unroll 1
            for (int first = 0; first < PADDED; first += at_once) {
                sums some = {};
                if (!Part::IS_FIRST || begun)
                    load(some, shared, first);
                multiply_band<Part>(some, shared, weights, first, band);
                store(some, shared, first);
            }
        }
    }
    template <typename Part>
    static RAMMER_MEMBER void multiply_band(sums &own, const float *shared, const float *weights, int first, int band) {
        if constexpr (Format::IS_SCALED)
            if (band != 0)
                scale(own, Format::unit(band) / Format::unit(0));
        multiply<Part>(own, shared, weights, first);
        if constexpr (Format::IS_SCALED)
            if (band != 0)
                scale(own, Format::unit(0) / Format::unit(band));
    }
    static RAMMER_MEMBER void scale(sums &own, float by) {
#pragma unroll
        for (int i = 0; i < slots / 2; ++i)
#pragma unroll
            for (int n = 0; n < at_once / 8; ++n)
#pragma unroll
                for (int k = 0; k < 4; ++k)
                    own[i][n][k] *= by;
    }

    /* The same to those of some columns. What is multiplied next is on its way from shared memory meanwhile. */
    template <typename Part>
    static RAMMER_MEMBER void multiply(sums &own, const float *shared, const float *weights, int first) {
        constexpr int TILES = at_once / 8, COUNT = Part::ELEMENTS / Format::STEP * TILES, AHEAD = COUNT < 4 ? COUNT : 4;
        if (is_idle())
            return;
        sums lesser = {};
        const element *vectors = (const element *)shared;
        vectors += (first + lane() / 4) * pitch + Part::VECTOR_AT + slice() * Part::PITCH + lane() % 4 * Format::STEP;
        const auto at = [=](int number) { return vectors + number % TILES * 8 * pitch + number / TILES * Format::STEP * 4; };
        typename Format::columns b[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; ++i)
            b[i].template load<PLANE>(at(i));
        typename Format::rows a[2][slots / 2];
        load_rows<Part>(a[0], shared, weights, 0);
#pragma unroll
        for (int number = 0; number < COUNT; ++number) {
            const int step = number / TILES, n = number % TILES;
            if (n == 0 && number + TILES < COUNT)
                load_rows<Part>(a[(step + 1) % 2], shared, weights, (step + 1) * Format::STEP);
#pragma unroll
            for (int i = 0; i < slots / 2; ++i)
                Format::multiply(own[i][n], lesser[i][n], a[step % 2][i], b[number % AHEAD]);
            if (number + AHEAD < COUNT)
                b[number % AHEAD].template load<PLANE>(at(number + AHEAD));
        }
#pragma unroll
        for (int i = 0; i < slots / 2; ++i)
#pragma unroll
            for (int n = 0; n < at_once / 8; ++n)
#pragma unroll
                for (int k = 0; k < 4; ++k)
                    own[i][n][k] += lesser[i][n][k] * Format::LESSER;
    }

    /* A lane's weights from an element on. */
    template <typename Part>
    static RAMMER_MEMBER void load_rows(
        typename Format::rows (&rows)[slots / 2], const float *shared, const float *weights, int element
    ) {
        constexpr int WORDS = (Part::ELEMENTS - Part::STORED) / Format::STEP * Format::WORDS;
        const float *of_lane = weights + Part::WEIGHTS_AT + (element - Part::STORED) / Format::STEP * Format::WORDS;
#pragma unroll
        for (int i = 0; i < slots / 2; ++i) {
            if (element < Part::STORED) {
                float stored[2 * Format::WORDS];
#pragma unroll
                for (int word = 0; word < 2 * Format::WORDS; word += 4)
                    rammer_load_vector<4>(stored + word, shared + stored_at<Part>(element, 2 * i + word / Format::WORDS));
                rows[i].load(stored, stored + Format::WORDS);
            } else {
                rows[i].load(of_lane + 2 * i * WORDS, of_lane + (2 * i + 1) * WORDS);
            }
        }
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
#pragma unroll
        for (int i = 0; i < slots / 2; ++i)
#pragma unroll
            for (int n = 0; n < at_once / 8; ++n)
                Format::gather(own[i][n]);
        float *const into = shared + SUMS_AT + slice() * SUMS;
        each(own, first, [=](const float *sum, uint32_t at) { into[at] = *sum; });
    }

    static RAMMER_MEMBER void load(sums &own, const float *shared, int first) {
        const float *const from = shared + SUMS_AT + slice() * SUMS;
        each(own, first, [=](float *sum, uint32_t at) { *sum = from[at]; });
    }
};

#endif
