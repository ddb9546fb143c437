/* The skeleton `attention`: values weighted with the softmax of scores, in one pass over the keys.
 *
 *     start to copy, into shared memory, those of the first steps' keys and values that nobody writes
 *     wait; start to copy the others, and the queries
 *     each team of warps, for each step of its keys
 *       start to copy a later step's
 *       each warp: the scores of its rows and the keys of the step; a much greater one rescales what was summed;
 *         weights = exp(scores - greatest); total += weights; sums += weights * values
 *     put the sums of teams together in shared memory
 *
 * What a warp computes is in attention_warps.cuh. An rKernel (emit/attention.py) gives sizes as constants, and functors:
 * where elements lie, what is made of a product and, in the end, of sums and totals. Milakov and Gimelshein 2018 have the
 * running maximum, Dao 2023 the shares of warps.
 */
#ifndef RAMMER_ATTENTION_CUH
#define RAMMER_ATTENTION_CUH

/* --- The block. ------------------------------------------------------------------------------------------------------ */

/* The team of a warp, one of so many: `warps` of it multiply, others help to bring keys. Neighbouring warps run on different
 * quarters of a multiprocessor: those that multiply come first. */
template <int warps, int teams> struct rammer_attention_team {
    enum : uint32_t { WARPS = RAMMER_THREADS / 32 / teams, THREADS = WARPS * 32, MULTIPLY = warps * teams };
    static_assert(warps <= WARPS, "a warp for each part");

    static RAMMER_MEMBER uint32_t number(void) {
        return warp() < MULTIPLY ? warp() / warps : (warp() - MULTIPLY) % teams;
    }
    /* The place of a warp in its team; from WARPS on: in none. */
    static RAMMER_MEMBER uint32_t place(void) {
        return warp() < MULTIPLY ? warp() % warps : warps + (warp() - MULTIPLY) / teams;
    }
    static RAMMER_MEMBER uint32_t rank(void) { return place() * 32 + threadIdx.x % 32; }
    static RAMMER_MEMBER void meet(void) {
        if constexpr (WARPS == 1)
            __syncwarp();
        else
            rammer_barrier_sync_named<THREADS>(1 + number());
    }

  private:
    static RAMMER_MEMBER uint32_t warp(void) { return threadIdx.x / 32; }
};

/* Warps have `Warp`s: so many beside each other along rows and columns (each of the latter has the scores again) multiply for
 * a team, and each of `teams` has keys of its own, which it brings by itself: teams do not wait for each other until all
 * keys are done, so that some multiply while others make weights.
 *
 * `Queries` are the operand at the beginning of scratch; `Keys` and `Values` those of a team's stage, of which it has
 * `stages`. */
template <
    typename Warp, int row_warps, int column_warps, int teams, int stages, typename Queries, typename Keys,
    typename Values>
struct rammer_attention {
    typedef typename Warp::Element Element;
    enum : uint32_t {
        ROWS = row_warps * Warp::KEPT,
        COLUMNS = column_warps * Warp::N,
        STEP = teams * Warp::KEYS, /* keys */
        WARPS = row_warps * column_warps,
        QUERY_BYTES = Queries::BYTES,
        STAGE_BYTES = Keys::BYTES + Values::BYTES,
        PIPELINE_BYTES = QUERY_BYTES + teams * stages * STAGE_BYTES,
        /* Of what is put together: the sums of teams, behind them greatest scores and totals. */
        PITCH = COLUMNS + 4,
        SIZE = ROWS * PITCH,
        GREATEST = teams * SIZE,
        TOTALS = GREATEST + teams * ROWS
    };
    typedef rammer_attention_team<WARPS, teams> Team;
    static_assert(row_warps == 1 || Warp::KEPT == Warp::M, "rows of warps lie beside each other");
    static constexpr int AHEAD = stages > 1 ? stages - 1 : 1;
    static constexpr float SLACK = 8; /* weights are up to its exponential before what was summed is rescaled */

    /* Leaves, at the beginning of scratch, sums of row r and column c at r * PITCH + c, and the row's total at TOTALS + r.
     *
     * begin() waits for what others write. queries(stage) copies queries; a team's keys and values of a step are copied by
     * ready(first, stage), where nobody writes them, and by others(first, stage). score(row, key, product) is a score. Keys
     * from `past` on count for nothing. Returns false if begin() does. */
    template <typename Begin, typename CopyQueries, typename CopyReady, typename CopyOthers, typename Score>
    static RAMMER_MEMBER bool run(
        char *scratch, Begin begin, uint32_t past, CopyQueries queries, CopyReady ready, CopyOthers others, Score score
    ) {
        rammer_attention block;
        const uint32_t steps = (past + STEP - 1) / STEP;
        char *const pipeline = scratch + QUERY_BYTES + block.team * (stages * STAGE_BYTES);
        uint32_t filled = 0, taken = 0;
#pragma unroll
        for (int step = 0; step < AHEAD; ++step)
            block.fill(step, past, pipeline, filled, ready);
        if (!begin())
            return false;
        queries(scratch);
        filled = 0;
#pragma unroll
        for (int step = 0; step < AHEAD; ++step)
            block.fill(step, past, pipeline, filled, others);
        rammer_cp_async_wait<AHEAD - 1>();
        __syncthreads();
        for (uint32_t step = 0; step < steps && block.place < Team::WARPS; ++step) {
            if (step > 0) {
                rammer_cp_async_wait<AHEAD - 1>();
                Team::meet();
            }
            block.fill(step + AHEAD, past, pipeline, filled, [&](uint32_t first, char *stage) {
                ready(first, stage);
                others(first, stage);
            });
            const uint32_t first = step * STEP + block.team * Warp::KEYS;
            if (block.place < WARPS && first < past)
                block.add(scratch, pipeline + taken, first, past, score);
            taken = next(taken);
        }
        rammer_cp_async_wait_all();
        __syncthreads(); /* before sums take the place of operands */
        block.join((float *)scratch);
        return true;
    }

  private:
    Warp warp;
    float greatest[Warp::ROWS], totals[Warp::ROWS] = {};
    const uint32_t team = Team::number(), place = Team::place();
    const uint32_t row0 = place % row_warps * Warp::M, column0 = place / row_warps * Warp::N;

    RAMMER_MEMBER rammer_attention(void) {
#pragma unroll
        for (int i = 0; i < Warp::ROWS; ++i)
            greatest[i] = -INFINITY;
    }

    /* Starts copies of a step's keys and values to where the stage that is `filled` next lies. */
    template <typename Copy>
    RAMMER_MEMBER void fill(uint32_t step, uint32_t past, char *pipeline, uint32_t &filled, Copy copy) const {
        const uint32_t first = step * STEP + team * Warp::KEYS;
        if (place < Team::WARPS && first < past) { /* a team's last keys may be those of one step less */
            copy(first, pipeline + filled);
            filled = next(filled);
        }
        rammer_cp_async_commit();
    }

    static RAMMER_MEMBER uint32_t next(uint32_t at) { return at == (stages - 1) * STAGE_BYTES ? 0 : at + STAGE_BYTES; }

    /* What is taken from scores. Where all are minus infinity so far, weights are 0. */
    static RAMMER_MEMBER float shift(float most) { return most == -INFINITY ? 0.0f : most; }

    /* Adds the keys of a stage, from `first` on. */
    template <typename Score>
    RAMMER_MEMBER void add(char *scratch, char *stage, uint32_t first, uint32_t past, Score score) {
        typename Warp::Scores scores;
        Warp::multiply(scores, Queries::place(scratch, row0, 0), Keys::place(stage, 0, 0));
        weigh(scores, first, past, score);
        char *const room = scratch + PIPELINE_BYTES + (team * WARPS + place) * Warp::WEIGHT_BYTES;
        warp.template add_values<Values::PITCH>(scores, Values::place(stage, 0, column0), room);
    }

    /* Makes weights of the products of keys from `first` on. */
    template <typename Score>
    RAMMER_MEMBER void weigh(typename Warp::Scores &scores, uint32_t first, uint32_t past, Score score) {
#pragma unroll
        for (int i = 0; i < Warp::ROWS; ++i)
#pragma unroll
            for (int j = 0; j < Warp::HELD; ++j)
                scores.at(i, j) = score(row0 + Warp::row(i), first + Warp::key(j), scores.at(i, j));
        if (first + Warp::KEYS > past) {
#pragma unroll
            for (int j = 0; j < Warp::HELD; ++j)
#pragma unroll
                for (int i = 0; i < Warp::ROWS; ++i)
                    scores.at(i, j) = first + Warp::key(j) < past ? scores.at(i, j) : -INFINITY;
        }
        float most[Warp::ROWS];
        bool grows = false;
#pragma unroll
        for (int i = 0; i < Warp::ROWS; ++i) {
            most[i] = greatest[i];
#pragma unroll
            for (int j = 0; j < Warp::HELD; ++j)
                most[i] = fmaxf(most[i], scores.at(i, j));
            most[i] = Warp::across(most[i], [](float a, float b) { return fmaxf(a, b); });
            grows |= most[i] > greatest[i] + SLACK;
        }
        if (__any_sync(0xffffffffu, grows)) {
#pragma unroll
            for (int i = 0; i < Warp::ROWS; ++i) {
                const float factor = Warp::decay(greatest[i] - shift(most[i]));
                totals[i] *= factor;
                greatest[i] = most[i];
                warp.rescale(i, factor);
            }
        }
#pragma unroll
        for (int i = 0; i < Warp::ROWS; ++i) {
#pragma unroll
            for (int j = 0; j < Warp::HELD; ++j) {
                scores.at(i, j) = Warp::decay(scores.at(i, j) - shift(greatest[i]));
                totals[i] += scores.at(i, j);
            }
        }
    }

    /* Puts the sums of all keys together. */
    RAMMER_MEMBER void join(float *parts) {
        const bool has_part = place < WARPS;
        if (teams > 1) {
            if (has_part && column0 == 0)
                each_row([&](int i, uint32_t row) { parts[GREATEST + team * ROWS + row] = greatest[i]; });
            __syncthreads();
            each_row([&](int i, uint32_t row) {
                float most = greatest[i];
                for (int other = 0; other < teams; ++other)
                    most = fmaxf(most, parts[GREATEST + other * ROWS + row]);
                const float factor = Warp::decay(greatest[i] - shift(most));
                totals[i] *= factor;
                warp.rescale(i, factor);
                greatest[i] = most;
            });
        }
        if (has_part) {
            warp.template store<PITCH>(parts + team * SIZE + row0 * PITCH + column0);
            each_row([&](int i, uint32_t row) {
                const float total = Warp::across(totals[i], [](float a, float b) { return a + b; });
                /* Of a row whose scores are all minus infinity the softmax is undefined. */
                if (column0 == 0)
                    parts[TOTALS + team * ROWS + row] = greatest[i] == -INFINITY ? NAN : total;
            });
        }
        __syncthreads();
        if (teams > 1) {
            add_parts<4, SIZE>(parts, threadIdx.x);
            add_parts<1, ROWS>(parts + TOTALS, RAMMER_THREADS - 1 - threadIdx.x); /* meanwhile */
            __syncthreads();
        }
    }

    /* Adds, to `size` values of the first part, those of the others; a thread has so many `together`. */
    template <int together, uint32_t size> static RAMMER_MEMBER void add_parts(float *first, uint32_t thread) {
        constexpr uint32_t turns = (size + RAMMER_THREADS * together - 1) / (RAMMER_THREADS * together);
#pragma unroll 1
        for (uint32_t turn = 0; turn < turns; ++turn) {
            float *const place = first + (turn * RAMMER_THREADS + thread) * together;
            if (place >= first + size)
                break;
            float sum[together], other[together];
            rammer_load_vector<together>(sum, place);
#pragma unroll
            for (int part = 1; part < teams; ++part) {
                rammer_load_vector<together>(other, place + part * size);
#pragma unroll
                for (int i = 0; i < together; ++i)
                    sum[i] += other[i];
            }
            rammer_stage_vector<together>(place, sum);
        }
    }

    template <typename Fn> RAMMER_MEMBER void each_row(Fn fn) {
#pragma unroll
        for (int i = 0; i < Warp::ROWS; ++i)
            fn(i, row0 + Warp::row(i));
    }
};

#endif
