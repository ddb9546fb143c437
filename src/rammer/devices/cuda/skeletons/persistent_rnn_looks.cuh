/* How the threads of the skeleton `persistent_rnn_batch` look at a part's vectors, and bring them into shared memory. */
#ifndef RAMMER_PERSISTENT_RNN_LOOKS_CUH
#define RAMMER_PERSISTENT_RNN_LOOKS_CUH

/* What each of those that bring a part's vectors brings, `width` neighbours in a turn. Whole warps look, those behind the end at
 * the last elements once more. */
template <typename Cell, typename Part, int width> struct rammer_rnn_share {
    static constexpr uint32_t THREADS = Part::BRINGERS, OF_COLUMN = Part::LENGTH / width, COUNT = OF_COLUMN * Cell::COLUMNS;
    static constexpr uint32_t LOOKING = (COUNT + 31) / 32 * 32;
    static constexpr int TURNS = (LOOKING + THREADS - 1) / THREADS;
    /* Whether a thread has the same elements of several columns. */
    static constexpr bool HAS_ONE_PLACE = THREADS % OF_COLUMN == 0 && COUNT == LOOKING;
    static_assert(Part::LENGTH % width == 0 && RAMMER_THREADS % Part::BRINGERS == 0, "neighbours of one column");

    /* Where there are no registers for addresses from record to record, they are computed each time. */
    uint32_t thread;
    RAMMER_MEMBER rammer_rnn_share(void) : thread((Cell::IS_SHORT ? rammer_opaque(threadIdx.x) : threadIdx.x) % THREADS) {}

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
template <typename Cell, typename Part, typename Vectors> struct rammer_rnn_looks {
    typedef typename Cell::format Format;
    typedef typename Cell::element element;
    typedef decltype(((Vectors *)nullptr)->look(0u, 0u)) word;
    enum {
        WIDTH = word::WIDTH,
        MOST = (int)sizeof(word) < (int)Cell::LOOK_BYTES ? (int)Cell::LOOK_BYTES / (int)sizeof(word) : 1
    };
    typedef rammer_rnn_share<Cell, Part, WIDTH> own;
    enum { TURNS = own::TURNS, COUNT = (int)TURNS < (int)MOST ? (int)TURNS : (int)MOST };
    word looked[COUNT];

    static RAMMER_MEMBER bool has_any(void) {
        return (int)Part::BRINGERS == (int)Part::THREADS || threadIdx.x >= (uint32_t)Part::FIRST_BRINGER;
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
            Format::template put<Cell::PLANE>(
                into + mine.column(turn) * Cell::PITCH + Part::VECTOR_AT + mine.element(turn), values
            );
    }
};

#endif
