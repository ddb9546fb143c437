/* What follows on sums that lie in shared memory, row by row: threads take `width` neighbouring columns of a row at a time. */
#ifndef RAMMER_EPILOGUE_CUH
#define RAMMER_EPILOGUE_CUH

/* --- Of products by warpgroups: a tile of `rows` by `columns`, whose sums are `pitch` apart from row to row. ------------
 *
 * A thread stays in its columns, so that what they have in common is loaded once; of the last `threads` of a block, as many take
 * part as whole rows need. The loop is not unrolled: code that is run seldom has to be short.
 */
template <uint32_t rows, uint32_t columns, int width, int pitch, uint32_t threads> struct rammer_epilogue {
    enum : uint32_t { ACROSS = columns / width, DOWN = threads / ACROSS, TOGETHER = width < 4 ? width : 4 };
    static_assert(columns % width == 0 && DOWN > 0, "rows end with a vector, and threads take whole ones");

    /* The first row and column of those that a thread takes. */
    static RAMMER_MEMBER uint32_t row(void) { return thread() / ACROSS; }
    static RAMMER_MEMBER uint32_t column(void) { return thread() % ACROSS * width; }

    /* Calls load(row, column) for a thread's first vector, if it has any. */
    template <typename Load> static RAMMER_MEMBER void first(Load load) {
        if (row() < min((uint32_t)DOWN, rows))
            load(row(), column());
    }

    /* Calls finish(row, column) for a thread's vectors. */
    template <typename Finish> static RAMMER_MEMBER void run(Finish finish) {
        if (row() >= DOWN)
            return;
#pragma unroll 1
        for (uint32_t row = rammer_epilogue::row(); row < rows; row += DOWN)
            finish(row, column());
    }

    static RAMMER_MEMBER void load(float (&total)[width], const float *sums, uint32_t row, uint32_t column) {
#pragma unroll
        for (uint32_t element = 0; element < width; element += TOGETHER)
            rammer_load_vector<TOGETHER>(total + element, sums + row * pitch + column + element);
    }

  private:
    static RAMMER_MEMBER uint32_t thread(void) { return threadIdx.x - (RAMMER_THREADS - threads); }
};

/* --- Of the skeleton `gemm`: threads take places of a tile in turns, neighbouring threads along its rows. ------------- */

/* The few places of each thread at once. What they read is on its way while the sums run: load(tile, place, Early &),
 * then finish(tile, place, const Sum *parts, const Early &). */
template <typename Gemm, int width, typename Early, typename Load, typename Finish> struct rammer_epilogue_at_once {
    enum : uint32_t { STEP = RAMMER_THREADS * width, TURNS = (Gemm::PLACES + STEP - 1) / STEP };
    Load load;
    Finish finish;
    Early early[TURNS];

    RAMMER_MEMBER void prefetch(const rammer_tile &tile) {
        each([&](uint32_t place, int turn) { load(tile, place, early[turn]); });
    }
    RAMMER_MEMBER void run(const rammer_tile &tile, const typename Gemm::Sum *parts) {
        each([&](uint32_t place, int turn) { finish(tile, place, parts, early[turn]); });
    }

  private:
    template <typename Fn> static RAMMER_MEMBER void each(Fn fn) {
#pragma unroll
        for (uint32_t turn = 0; turn < TURNS; ++turn) {
            const uint32_t place = threadIdx.x * width + turn * STEP;
            if ((turn + 1) * STEP <= Gemm::PLACES || place < Gemm::PLACES)
                fn(place, turn);
        }
    }
};

/* Many places of each thread, a few at a time: compute(tile, place, const Sum *parts, Result &), then
 * store(tile, place, const Result &). A store might change what later loads read, as far as a compiler knows: loads come
 * first. */
template <typename Gemm, int width, typename Result, typename Compute, typename Store> struct rammer_epilogue_in_turns {
    enum : uint32_t { TOGETHER = 4 / width, EACH = RAMMER_THREADS * width, STEP = TOGETHER * EACH };
    Compute compute;
    Store store;

    RAMMER_MEMBER void prefetch(const rammer_tile &) {}
    RAMMER_MEMBER void run(const rammer_tile &tile, const typename Gemm::Sum *parts) {
#pragma unroll 1
        for (uint32_t first = threadIdx.x * width; first < Gemm::PLACES; first += STEP) {
            Result results[TOGETHER] = {}; /* the compiler would keep what a path leaves open from turn to turn */
            each(first, [&](uint32_t place, int i) { compute(tile, place, parts, results[i]); });
            each(first, [&](uint32_t place, int i) { store(tile, place, results[i]); });
        }
    }

  private:
    template <typename Fn> static RAMMER_MEMBER void each(uint32_t first, Fn fn) {
#pragma unroll
        for (uint32_t i = 0; i < TOGETHER; ++i) {
            const uint32_t place = first + i * EACH;
            if (Gemm::PLACES % STEP == 0 || place < Gemm::PLACES)
                fn(place, i);
        }
    }
};

template <typename Gemm, int width, typename Early, typename Load, typename Finish>
RAMMER_INLINE auto rammer_at_once(Load load, Finish finish) {
    return rammer_epilogue_at_once<Gemm, width, Early, Load, Finish>{load, finish, {}};
}
template <typename Gemm, int width, typename Result, typename Compute, typename Store>
RAMMER_INLINE auto rammer_in_turns(Compute compute, Store store) {
    return rammer_epilogue_in_turns<Gemm, width, Result, Compute, Store>{compute, store};
}

#endif
