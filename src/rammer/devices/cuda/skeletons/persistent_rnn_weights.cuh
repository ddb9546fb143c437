/* How the weights of the skeleton `persistent_rnn_batch` come to where they stay. That is done once in a run: what counts is that
 * many loads are on their way together, and that there is little code, which has to be fetched. So it is loops. */
#ifndef RAMMER_PERSISTENT_RNN_WEIGHTS_CUH
#define RAMMER_PERSISTENT_RNN_WEIGHTS_CUH

/* Those of a cell, whose parts they are given for. */
template <typename Cell> struct rammer_rnn_weights {
    typedef typename Cell::format Format;
    enum { LOADS = 8 }; /* at most, on their way together */

    template <typename... Parts, typename... Weights>
    static RAMMER_MEMBER void load(float *shared, float *weights, Weights... weight) {
        float scale = 1.0f;
        if constexpr (Format::IS_SCALED)
            scale = scale_of<Parts...>(shared, weight...);
        if constexpr (Format::IS_PAIRED)
            (load_pairs<Parts>(shared, weights, weight), ...);
        else
            (load_part<Parts>(shared, weights, scale, weight), ...);
    }

  private:
    /* The power of two that weights are multiplied with, by the largest of the rTask. What undoes it is kept. */
    template <typename... Parts, typename... Weights>
    static RAMMER_MEMBER float scale_of(float *shared, Weights... weight) {
        float largest = 0.0f;
        ((largest = fmaxf(largest, largest_of<Parts>(weight))), ...);
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2)
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
        float *const of_warps = shared + Cell::SUMS_AT; /* there are no sums yet */
        if (Cell::lane() == 0)
            of_warps[threadIdx.x / 32] = largest;
        __syncthreads();
#pragma unroll
        for (int warp = 0; warp < Cell::WARPS; ++warp)
            largest = fmaxf(largest, of_warps[warp]);
        const float scale = Format::scale_of(largest);
        if (threadIdx.x == 0)
            shared[Cell::SCALE_AT] = Format::undone(scale);
        return scale;
    }
    template <typename Part, typename Weight> static RAMMER_MEMBER float largest_of(Weight weight) {
        constexpr uint32_t OF_ROW = (Part::LENGTH + Format::STEP - 1) / Format::STEP, COUNT = Cell::ROWS * OF_ROW;
        float largest = 0.0f;
#pragma unroll 1
        for (uint32_t first = threadIdx.x; first < COUNT; first += LOADS * RAMMER_THREADS) {
            float values[LOADS][Format::STEP];
#pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                const uint32_t number = min(first + i * RAMMER_THREADS, COUNT - 1u), row = number / OF_ROW;
                weight(row / Cell::UNITS, row % Cell::UNITS)(number % OF_ROW * Format::STEP, true, values[i]);
            }
#pragma unroll
            for (int i = 0; i < LOADS * Format::STEP; ++i)
                largest = fmaxf(largest, fabsf(values[i / Format::STEP][i % Format::STEP]));
        }
        return largest;
    }

    /* A lane's weights of the first steps into shared memory, those of the others into registers, which move on from turn to turn. */
    template <typename Part, typename Weight>
    static RAMMER_MEMBER void load_part(float *shared, float *weights, float scale, Weight weight) {
        constexpr int STORED = Part::STORED / Format::STEP, KEPT = Part::ELEMENTS / Format::STEP - STORED;
        constexpr int STORED_TOGETHER = most_together(STORED), KEPT_TOGETHER = most_together(KEPT);
        if (!Cell::template has<Part>())
            return;
#pragma unroll 1
        for (int turn = 0; turn < Cell::SLOTS * STORED / STORED_TOGETHER; ++turn) {
            const int number = turn * STORED_TOGETHER, slot = number / max(STORED, 1), first = number % max(STORED, 1);
            float words[STORED_TOGETHER][Format::WORDS];
            load_steps<Part>(words, scale, slot, first, weight);
#pragma unroll
            for (int i = 0; i < STORED_TOGETHER * Format::WORDS; ++i) {
                const int step = first + i / Format::WORDS, word = i % Format::WORDS;
                const uint32_t at = Cell::template stored_at<Part>(step * Format::STEP, slot / 2, word);
                shared[at + word % 2 * 2 + slot % 2] = words[i / Format::WORDS][word];
            }
        }
        float *const own = weights + Part::WEIGHTS_AT;
#pragma unroll 1
        for (int turn = 0; turn < Cell::SLOTS * KEPT / KEPT_TOGETHER; ++turn) {
            constexpr int ALL = Cell::SLOTS * KEPT * Format::WORDS, LEFT = ALL - KEPT_TOGETHER * Format::WORDS;
            const int number = turn * KEPT_TOGETHER, slot = number / max(KEPT, 1), first = number % max(KEPT, 1);
            float words[KEPT_TOGETHER][Format::WORDS];
            load_steps<Part>(words, scale, slot, STORED + first, weight);
#pragma unroll
            for (int i = 0; i < ALL; ++i)
                own[i] = i < LEFT ? own[i + ALL - LEFT] : words[(i - LEFT) / Format::WORDS][(i - LEFT) % Format::WORDS];
        }
    }
    /* The same of two rows at a time, whose weights of an element come as a word. */
    template <typename Part, typename Weight>
    static RAMMER_MEMBER void load_pairs(float *shared, float *weights, Weight weight) {
        constexpr int STEPS = Part::ELEMENTS / Format::STEP, STORED = Part::STORED / Format::STEP;
        constexpr int OF_ROW = (STEPS - STORED) * Format::WORDS, ALL = Cell::SLOTS * OF_ROW, LEFT = ALL - 2 * OF_ROW;
        float *const own = weights + Part::WEIGHTS_AT;
#pragma unroll 1
        for (int slot = 0; slot < Cell::SLOTS; slot += 2) {
            const auto of_rows = weight(Cell::row(slot) / Cell::UNITS, Cell::row(slot) % Cell::UNITS);
            uint32_t loaded[STEPS][Format::STEP];
#pragma unroll
            for (int step = 0; step < STEPS; ++step) {
                const uint32_t element = (step * 4 + Cell::lane() % 4) * Format::STEP;
                of_rows(Cell::template slice_of<Part>() * Part::PITCH + element, !Cell::is_idle(), loaded[step]);
            }
            /* A word has neighbouring elements of a row. */
            const auto word_of = [&](int step, int row, int word) {
                const uint32_t *both = loaded[step] + 2 * word;
                return __uint_as_float(__byte_perm(both[0], both[1], row == 0 ? 0x5410 : 0x7632));
            };
#pragma unroll
            for (int step = 0; step < STORED; ++step)
#pragma unroll
                for (int i = 0; i < 2 * Format::WORDS; ++i) /* in the order in which they are multiplied */
                    shared[Cell::template stored_at<Part>(step * Format::STEP, slot / 2, 0) + i] = word_of(step, i % 2, i / 2);
#pragma unroll
            for (int i = 0; i < ALL; ++i) {
                const int row = (i - LEFT) / max(OF_ROW, 1), word = (i - LEFT) % max(OF_ROW, 1);
                own[i] = i < LEFT ? own[i + ALL - LEFT] : word_of(STORED + word / Format::WORDS, row, word % Format::WORDS);
            }
        }
    }
    /* So many steps that none is left over. */
    static RAMMER_MEMBER constexpr int most_together(int count) {
        int most = LOADS;
        while (most > 1 && count % most != 0)
            --most;
        return most;
    }

    /* Some steps of a slot, as they are multiplied. */
    template <typename Part, int count, typename Weight>
    static RAMMER_MEMBER void load_steps(float (&words)[count][Format::WORDS], float scale, int slot, int first, Weight weight) {
        const auto of_row = weight(Cell::row(slot) / Cell::UNITS, Cell::row(slot) % Cell::UNITS);
        float values[count][Format::STEP];
#pragma unroll
        for (int i = 0; i < count; ++i) {
            const uint32_t element = ((first + i) * 4 + Cell::lane() % 4) * Format::STEP;
            of_row(Cell::template slice_of<Part>() * Part::PITCH + element, !Cell::is_idle(), values[i]);
        }
#pragma unroll
        for (int i = 0; i < count; ++i) {
            if constexpr (Format::IS_SCALED)
#pragma unroll
                for (int k = 0; k < Format::STEP; ++k)
                    values[i][k] *= scale;
            Format::keep(words[i], values[i]);
        }
    }
};

#endif
