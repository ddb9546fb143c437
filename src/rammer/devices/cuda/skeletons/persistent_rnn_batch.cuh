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
 * or, of few columns, a team of warps for each part, with a loop of its own. The one that has the last part, which comes from the
 * step before, has the points, too, and meanwhile the other one brings what the next step has:
 *
 *     team with points                                      the other one
 *     bring a part                                          bring a part, multiply it
 *     say that the sums of the step before have been read   wait for that
 *     multiply the part, write sums                         write sums
 *     wait for all sums                                     wait for all sums
 *     points
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
    typedef Format format;
    typedef typename Format::element element;
    /* As many lanes for a point as gates are shared out among evenly, if all points have their lanes at once. */
    static RAMMER_MEMBER constexpr int lanes_of(int points, int warps) {
        int lanes = gates;
        while (lanes > 1 && (gates % lanes != 0 || points > 32 / lanes * warps))
            --lanes;
        return lanes;
    }
    enum {
        UNITS = units,
        SLOTS = slots,
        COLUMNS = columns,
        PITCH = pitch,
        WARPS = RAMMER_THREADS / 32,
        GROUPS = WARPS / slices,
        PADDED = (columns + 7) / 8 * 8,
        PASSES = PADDED / at_once,
        POINTS = units * columns,
        IS_APART = (false || ... || (bool)Parts::IS_APART), /* each part has threads of its own */
        POINT_THREADS = IS_APART ? (0 + ... + (Parts::TEAM == 0 ? (int)Parts::THREADS : 0)) : RAMMER_THREADS,
        POINT_WARPS = POINT_THREADS / 32,
        TEAMS = IS_APART ? sizeof...(Parts) : 1,
        LANES = lanes_of(POINTS, POINT_WARPS), /* of a point, for some of the gates each */
        WARP_POINTS = 32 / LANES,
        TURNS = (POINTS + WARP_POINTS * POINT_WARPS - 1) / (WARP_POINTS * POINT_WARPS),
        ROWS = units * gates,
        LOOK_BYTES = has_room ? 64 : 32, /* of a thread together */
        SUMS = row_pitch * PADDED,
        PLANE = Format::IS_BESIDE ? PADDED / 2 * pitch : PADDED * pitch,
        SUMS_AT = pitch * PADDED * Format::PLANES * (int)sizeof(element) / (int)sizeof(float),
        STORED_AT = SUMS_AT + slices * SUMS,
        IS_SHORT = (0 + ... + (int)Parts::STORED) != 0, /* of registers */
        SCALE_AT = STORED_AT + (0 + ... + ((int)Parts::STORED * (int)Parts::THREADS)) / Format::STEP * slots * Format::WORDS,
        BIASES_AT = SCALE_AT + Format::IS_SCALED,
        KEPT_AT = BIASES_AT + ROWS
    };
    typedef float totals[gates];
    typedef float sums[slots / 2][at_once / 8][4];

    /* weight(gate, unit)(element, present, values), one functor for each part, has some neighbouring weights from an element on: 0
     * unless they are `present`. */
    template <typename... Weights>
    static RAMMER_MEMBER void load_weights(float *shared, float *weights, Weights... weight) {
        rammer_rnn_weights<rammer_rnn_batch>::template load<Parts...>(shared, weights, weight...);
    }

    static RAMMER_MEMBER uint32_t lane(void) { return threadIdx.x % 32; }
    static RAMMER_MEMBER uint32_t slice(void) { return threadIdx.x / 32 / GROUPS; }
    template <typename Part> static RAMMER_MEMBER uint32_t slice_of(void) { return slice() - Part::FIRST / 32 / GROUPS; }
    template <typename Part> static RAMMER_MEMBER bool has(void) {
        return !Part::IS_APART || threadIdx.x - Part::FIRST < (uint32_t)Part::THREADS;
    }
    /* Whether a warp, one of those before number `end`, has no rows: in some teams the compiler sees that each has. */
    template <int end = WARPS> static RAMMER_MEMBER bool is_idle(void) { return GROUPS * slices < end && slice() >= slices; }
    static RAMMER_MEMBER uint32_t row(int slot) {
        const uint32_t first = threadIdx.x / 32 % GROUPS * slots;
        return format::IS_PAIRED ? first * 8 + behind(slot) + lane() / 4 * 2 : (first + slot) * 8 + lane() / 4;
    }
    /* How far the row of a slot is from that of the first one. */
    static RAMMER_MEMBER constexpr int behind(int slot) { return format::IS_PAIRED ? slot / 2 * 16 + slot % 2 : slot * 8; }

    /* Where a lane's weights of an element lie: the words of two rows, four together as they are multiplied. */
    template <typename Part> static RAMMER_MEMBER uint32_t stored_at(int element, int pair, int word) {
        const uint32_t step = Part::STORED_AT + element / Format::STEP * (slots * Format::WORDS * Part::THREADS);
        const int place = pair * Format::WORDS / 2 + word / 2;
        return STORED_AT + step + (place * Part::THREADS + threadIdx.x - Part::FIRST) * 4;
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

    /* The work of a team for one record, as that of one vector; there are batch vectors for each part. */
    template <int team, typename Early, typename Load, typename Activate, typename Finish, typename... Vectors>
    static RAMMER_MEMBER void step(
        bool fresh, float *shared, const float *weights, Load load, Activate activate, Finish finish, Vectors... vectors
    ) {
        if (fresh)
            __syncthreads();
        if constexpr (IS_APART) {
            (step_apart<team, Early, Parts>(shared, weights, load, activate, finish, vectors), ...);
        } else {
            Early early[TURNS];
            load_early(early, load);
            sums own = {};
            go_on<void, Parts...>(own, shared, weights, false, vectors...);
            if (PASSES == 1)
                store(own, shared, 0);
            __syncthreads();
            finish_points(shared, activate, finish, early);
        }
    }

  private:
    enum { READ = 1, ADDED = 2, MET = 3 }; /* barriers, of which each team has its own from the last on */

    /* A warp's points of a turn lie side by side; a lane has a gate of the one with number `place`, or all gates. */
    static RAMMER_MEMBER uint32_t first_point(int turn) { return (threadIdx.x / 32 + turn * POINT_WARPS) * WARP_POINTS; }
    static RAMMER_MEMBER uint32_t place(void) { return min(lane() / LANES, WARP_POINTS - 1u); }
    static RAMMER_MEMBER uint32_t point(int turn) { return min(first_point(turn) + place(), POINTS - 1u); }

    /* What the epilogue reads that does not stay, on its way. */
    template <typename Early, typename Load> static RAMMER_MEMBER void load_early(Early (&early)[TURNS], Load load) {
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn)
            load(point(turn), early[turn]);
    }

    /* The epilogue of all points, behind the barrier by which all sums are there. */
    template <typename Activate, typename Finish, typename Early>
    static RAMMER_MEMBER void finish_points(const float *shared, Activate activate, Finish finish, const Early (&early)[TURNS]) {
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn)
            if ((POINT_WARPS * (turn + 1) - 1) * WARP_POINTS < POINTS || first_point(turn) < POINTS) {
                float mine[gates / LANES];
#pragma unroll
                for (int i = 0; i < gates / LANES; ++i) {
                    const uint32_t gate = lane() % LANES + i * LANES;
                    mine[i] = activate(gate, total(shared, gate, point(turn)));
                }
                totals all;
#pragma unroll
                for (int gate = 0; gate < gates; ++gate)
                    all[gate] = LANES == 1 ? mine[gate]
                                           : __shfl_sync(0xffffffffu, mine[gate / LANES], place() * LANES + gate % LANES);
                const bool is_first = lane() < WARP_POINTS * LANES && lane() % LANES == 0 && first_point(turn) + place() < POINTS;
                finish(point(turn), is_first, all, shared + KEPT_AT, early[turn]);
            }
    }

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

    /* A barrier of those that have a part. */
    template <typename Part> static RAMMER_MEMBER void meet(void) {
        if constexpr (Part::IS_APART) {
            rammer_barrier_sync_named<Part::THREADS, !meets>(MET + Part::TEAM);
        } else if constexpr (meets) {
            rammer_meet();
        } else {
            __syncthreads();
        }
    }
    /* Returns whether `holds` of any of them. */
    template <typename Part> static RAMMER_MEMBER bool meet_or(bool holds) {
        if constexpr (!Format::IS_SCALED) {
            meet<Part>();
            return false;
        } else if constexpr (Part::IS_APART) {
            return rammer_barrier_or_named<Part::THREADS, !meets>(MET + Part::TEAM, holds);
        } else if constexpr (meets) {
            return rammer_meet_or(holds);
        } else {
            return __syncthreads_or(holds) != 0;
        }
    }

    /* Multiplies a part and those behind it. Where there is room, the part before it is multiplied while the first of its own
     * vectors are on their way. */
    template <typename Before, typename Part, typename... More, typename Vectors, typename... Others>
    static RAMMER_MEMBER void go_on(
        sums &own, float *shared, const float *weights, bool begun, Vectors vectors, Others... others
    ) {
        rammer_rnn_looks<rammer_rnn_batch, Part, Vectors> some;
        if (has_room && some.has_any())
            some.ask(vectors, 0);
        add((Before *)nullptr, own, shared, weights, begun, 0);
        if (!Part::IS_FIRST && Part::VECTOR_AT == 0)
            __syncthreads();
        const bool beyond = bring<Part>(some, shared, vectors);
        if constexpr (Format::IS_SCALED)
            if (beyond)
                add_beyond<Part>(own, shared, weights, vectors);
        if constexpr (sizeof...(More) == 0)
            add((Part *)nullptr, own, shared, weights, beyond, 0);
        else
            go_on<Part, More...>(own, shared, weights, beyond, others...);
    }

    /* The work of a team, if the part is its own. */
    template <
        int team, typename Early, typename Part, typename Load, typename Activate, typename Finish, typename Vectors>
    static RAMMER_MEMBER void step_apart(
        float *shared, const float *weights, Load load, Activate activate, Finish finish, Vectors vectors
    ) {
        static_assert(PASSES == 1 && has_room, "sums and looks in registers");
        if constexpr (Part::TEAM == team) {
            sums own = {};
            if constexpr (team == 0) {
                Early early[TURNS];
                load_early(early, load);
                add_apart<Part>(own, shared, weights, vectors);
                store<Part::END / 32>(own, shared, 0);
                rammer_barrier_sync_named<RAMMER_THREADS, !meets>(ADDED);
                finish_points(shared, activate, finish, early);
            } else {
                add_apart<Part>(own, shared, weights, vectors);
                rammer_barrier_sync_named<RAMMER_THREADS, !meets>(READ);
                store<Part::END / 32>(own, shared, 0);
                rammer_barrier_sync_named<RAMMER_THREADS, !meets>(ADDED);
            }
        }
    }

    /* Brings a team's part and multiplies it. */
    template <typename Part, typename Vectors>
    static RAMMER_MEMBER void add_apart(sums &own, float *shared, const float *weights, Vectors vectors) {
        rammer_rnn_looks<rammer_rnn_batch, Part, Vectors> some;
        if (some.has_any())
            some.ask(vectors, 0);
        const bool beyond = bring<Part>(some, shared, vectors);
        if constexpr (Part::TEAM == 0)
            rammer_barrier_arrive_named<RAMMER_THREADS, !meets>(READ);
        if constexpr (Format::IS_SCALED)
            if (beyond)
                add_beyond<Part>(own, shared, weights, vectors);
        multiply<Part>(own, shared, weights, 0);
    }

    /* Brings a part's vectors, of which the first are looked at if there is room. Returns whether some elements are too large for
     * the format. */
    template <typename Part, typename Looks, typename Vectors>
    static RAMMER_MEMBER bool bring(Looks &some, float *shared, Vectors &vectors) {
        bool beyond = false;
        if (some.has_any()) {
            if (!has_room)
                some.ask(vectors, 0);
            beyond = some.bring(vectors, 0, (element *)shared);
#pragma unroll
            for (int first = some.COUNT; first < (int)some.TURNS; first += some.COUNT) {
                some.ask(vectors, first);
                beyond |= some.bring(vectors, first, (element *)shared);
            }
        }
        return meet_or<Part>(beyond);
    }

    /* Adds a part's products with elements that are too large for the format, band by band of their exponents, and leaves the
     * others in shared memory. It is seldom, and need not be fast. */
    template <typename Part, typename Vectors>
    static RAMMER_MEMBER void add_beyond(sums &own, float *shared, const float *weights, Vectors vectors) {
#pragma unroll 1
        for (int band = Format::BANDS - 1; band >= 0; --band) {
            take_band<Part>(shared, vectors, band);
            if (band > 0)
                add((Part *)nullptr, own, shared, weights, band < Format::BANDS - 1, band);
            meet<Part>();
        }
    }
    /* Brings the elements of a band, and zeros for others. */
    template <typename Part, typename Vectors>
    static RAMMER_MEMBER void take_band(float *shared, Vectors &vectors, int band) {
        typedef rammer_rnn_looks<rammer_rnn_batch, Part, Vectors> some;
        const typename some::own mine;
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
        meet<Part>();
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
                scale(own, Format::less(band));
        multiply<Part>(own, shared, weights, first);
        if constexpr (Format::IS_SCALED)
            if (band != 0)
                scale(own, Format::more(band));
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

    /* The same to those of some columns. What is multiplied next is on its way from shared memory meanwhile. A lone sum is added
     * to in two places in turns: an instruction waits for the one before that adds to the same. */
    template <typename Part>
    static RAMMER_MEMBER void multiply(sums &own, const float *shared, const float *weights, int first) {
        constexpr int TILES = at_once / 8, COUNT = Part::ELEMENTS / Format::STEP * TILES, AHEAD = COUNT < 4 ? COUNT : 4;
        constexpr int CHAINS = slots / 2 * TILES == 1 ? 2 : 1;
        if (is_idle<Part::END / 32>())
            return;
        sums more = {}, lesser[CHAINS] = {};
        const element *vectors = (const element *)shared;
        vectors += (first + lane() / 4) * pitch + Part::VECTOR_AT + slice_of<Part>() * Part::PITCH + lane() % 4 * Format::STEP;
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
                Format::multiply(
                    step % CHAINS == 0 ? own[i][n] : more[i][n], lesser[step % CHAINS][i][n], a[step % 2][i], b[number % AHEAD]
                );
            if (number + AHEAD < COUNT)
                b[number % AHEAD].template load<PLANE>(at(number + AHEAD));
        }
#pragma unroll
        for (int i = 0; i < slots / 2; ++i)
#pragma unroll
            for (int n = 0; n < at_once / 8; ++n)
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    const float left = CHAINS == 1 ? lesser[0][i][n][k] : lesser[0][i][n][k] + lesser[CHAINS - 1][i][n][k];
                    own[i][n][k] += CHAINS == 1 ? left * Format::LESSER : fmaf(left, Format::LESSER, more[i][n][k]);
                }
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
                for (int word = 0; word < Format::WORDS; word += 2)
                    rammer_load_vector<4>(stored + 2 * word, shared + stored_at<Part>(element, i, word));
                rows[i].load(stored);
            } else {
                rows[i].load(of_lane + 2 * i * WORDS, of_lane + (2 * i + 1) * WORDS);
            }
        }
    }

    /* visit(sum, place) for each sum of a lane and its place among those of its slice. */
    template <int end, typename Visit> static RAMMER_MEMBER void each(sums &own, int first, Visit visit) {
        if (is_idle<end>())
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
                        visit(&own[i / 2][n / 8][i % 2 * 2 + k], at + (n + k) * row_pitch + behind(i));
                }
    }

    template <int end = WARPS> static RAMMER_MEMBER void store(sums &own, float *shared, int first) {
#pragma unroll
        for (int i = 0; i < slots / 2; ++i)
#pragma unroll
            for (int n = 0; n < at_once / 8; ++n)
                Format::gather(own[i][n]);
        float *const into = shared + SUMS_AT + slice() * SUMS;
        each<end>(own, first, [=](const float *sum, uint32_t at) { into[at] = *sum; });
    }

    static RAMMER_MEMBER void load(sums &own, const float *shared, int first) {
        const float *const from = shared + SUMS_AT + slice() * SUMS;
        each<WARPS>(own, first, [=](float *sum, uint32_t at) { *sum = from[at]; });
    }
};

#endif
