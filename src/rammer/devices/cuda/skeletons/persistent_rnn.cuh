/* The skeleton `persistent_rnn`: a cell of a recurrent layer whose weights stay in registers while its vEU walks a run of
 * records (runtime/runs.cuh).
 *
 *     load_weights: the weights into registers, at the beginning of a run
 *     keep_constants: those of the epilogue into shared memory, where another rKernel was before
 *     step: for each record
 *       for each part, short ones together: load its vector; each warp multiplies its slice of it into the sums of all rows
 *       put the sums of all lanes that have the same row together, then those of all warps
 *       for each gate: its activation; for each point: the epilogue
 *
 * A cell has `units` units of some gates; number `gate * units + unit` is a row, and each unit a point of the epilogue.
 * Neighbouring lanes have neighbouring rows, `across` of them; the lanes that are left over split a warp's slice of a vector.
 */
#ifndef RAMMER_PERSISTENT_RNN_CUH
#define RAMMER_PERSISTENT_RNN_CUH

/* Adds each of `count` values over the lanes whose numbers are equal modulo `across`. Lanes halve the values among them
 * at every step, so that a sum takes about one exchange. Returns the number of the sum that is then in `values[0]` of
 * this lane, the next ones behind it, `*present` in all: before, that is `count`. */
template <int count, int across, int distance = 16> RAMMER_INLINE int rammer_sum_lanes(float *values, int *present) {
    if constexpr (distance < across) {
        return 0;
    } else if constexpr (count == 1) {
        values[0] += __shfl_xor_sync(0xffffffffu, values[0], distance);
        return rammer_sum_lanes<1, across, distance / 2>(values, present);
    } else {
        constexpr int kept = (count + 1) / 2;
        const bool upper = (threadIdx.x & distance) != 0;
#pragma unroll
        for (int i = 0; i < kept; ++i) {
            const float partner = i + kept < count ? values[i + kept] : 0.0f;
            const float given = upper ? values[i] : partner;
            values[i] = (upper ? partner : values[i]) + __shfl_xor_sync(0xffffffffu, given, distance);
        }
        *present = upper ? *present - kept : min(*present, kept);
        return (upper ? kept : 0) + rammer_sum_lanes<kept, across, distance / 2>(values, present);
    }
}

/* How many of `count` sums a lane has left of them. */
template <int count, int across, int distance = 16> RAMMER_MEMBER constexpr int rammer_sums_left(void) {
    if constexpr (distance < across)
        return count;
    else
        return rammer_sums_left<(count + 1) / 2, across, distance / 2>();
}

/* Adds `count` values, a power of two, one half to the other. */
template <int count> RAMMER_INLINE float rammer_sum_halves(float *values) {
    if constexpr (count == 1) {
        return values[0];
    } else {
#pragma unroll
        for (int i = 0; i < count / 2; ++i)
            values[i] += values[i + count / 2];
        return rammer_sum_halves<count / 2>(values);
    }
}

/* Adds up what all warps have for a row: they lie `pitch` elements apart, those of neighbouring rows side by side. */
template <int pitch> RAMMER_INLINE float rammer_sum_warps(const float *from) {
    float sums[RAMMER_THREADS / 32];
#pragma unroll
    for (int warp = 0; warp < RAMMER_THREADS / 32; ++warp)
        sums[warp] = from[warp * pitch];
    return rammer_sum_halves<RAMMER_THREADS / 32>(sums);
}

/* A vector of `length` elements, and the weights that it is multiplied with. Each warp has a slice of it, whose lanes have
 * `elements` each; slices begin at element `vector_at` of shared memory, `pitch` apart. A lane's weights are those of `slots`
 * rows from its row number `first_slot` on, at `weights_at` among its registers. Parts of one `group` are loaded together, each by
 * the threads before number `end`; one of them is the `last`. */
template <
    int length, int slice, int pitch, int elements, int first_slot, int slots, int weights_at, int vector_at, int group, int end,
    bool last>
struct rammer_rnn_part {
    enum {
        LENGTH = length,
        SLICE = slice,
        PITCH = pitch,
        ELEMENTS = elements,
        FIRST_SLOT = first_slot,
        SLOTS = slots,
        WEIGHTS_AT = weights_at,
        VECTOR_AT = vector_at,
        GROUP = group,
        LAST = last,
        END = end,
        VECTOR = elements % 4 == 0 ? 4 : elements % 2 == 0 ? 2 : 1
    };
};

/* How elements of a part's vector are loaded: look(number) asks for element `number`, take(number, looked) is what came, once
 * it is there. */
template <typename Look, typename Take> struct rammer_vectors {
    Look look;
    Take take;
};
template <typename Look, typename Take> rammer_vectors(Look, Take) -> rammer_vectors<Look, Take>;

/* A cell. `pitch` elements of shared memory have the slices of all parts. Behind them lie the sums of warps, and the constants of
 * the epilogue. Where threads may wait one by one for elements, `meets`. */
template <int units, int gates, int across, int pitch, bool meets, typename Words, typename... Parts> struct rammer_rnn {
    enum {
        WARPS = RAMMER_THREADS / 32,
        POINTS = units,
        POINT_THREADS = RAMMER_THREADS,
        TEAMS = 1,
        ROWS = units * gates,
        SLOTS = (ROWS + across - 1) / across,
        POINTS_PER_WARP = 32 / gates,
        POINT_WARPS = (POINTS + POINTS_PER_WARP - 1) / POINTS_PER_WARP,
        LOOKS = 4, /* of a thread together */
        SUMS_AT = pitch,
        BIASES_AT = SUMS_AT + WARPS * ROWS,
        KEPT_AT = BIASES_AT + ROWS
    };
    typedef float totals[gates];

    /* weight(gate, unit), one functor for each part, has the weights of a row: see Words::load. */
    template <typename... Weights> static RAMMER_MEMBER void load_weights(float *, float *weights, Weights... weight) {
        (load_weights_of<Parts>(weights, weight), ...);
    }

    /* constants(gate, point, float *kept) returns the bias of a gate, and has `count` other constants of a point. */
    template <int count, typename Constants> static RAMMER_MEMBER void keep_constants(float *shared, Constants constants) {
        if (threadIdx.x / 32 < POINT_WARPS) {
            float kept[count + 1];
            const float bias = constants(gate(), point(), kept);
            __syncwarp(); /* lanes may still read those of another rKernel */
            shared[BIASES_AT + gate() * POINTS + point()] = bias;
#pragma unroll
            for (int i = 0; i < count; ++i)
                shared[KEPT_AT + i * POINTS + point()] = kept[i];
            __syncwarp();
        }
    }

    /* The work for one record: `fresh` says whether other threads may still write, for the record before, what this one reads.
     *
     * load(point, Early &) starts what the epilogue reads that does not stay. There are `vectors` for each part. activate(gate,
     * sum) is the function of a gate. finish(point, is_first, const totals &, const float *kept, const Early &) is the
     * epilogue, for each lane; the first one of a point `is_first`. */
    template <int team, typename Early, typename Load, typename Activate, typename Finish, typename... Vectors>
    static RAMMER_MEMBER void step(
        bool fresh, float *shared, const float *weights, Load load, Activate activate, Finish finish, Vectors... vectors
    ) {
        if (fresh)
            __syncthreads();
        float sums[SLOTS] = {};
        Early early;
        load(point(), early);
        ((load_vector_of<Parts>(shared, vectors), multiply_group<Parts>(sums, shared, weights)), ...);
        float *partial = shared + SUMS_AT;
        combine(sums, partial);
        if (threadIdx.x / 32 < POINT_WARPS) {
            const uint32_t row = gate() * units + point();
            const float bias = shared[BIASES_AT + row];
            const float mine = activate(gate(), rammer_sum_warps<ROWS>(partial + row) + bias);
            totals all;
#pragma unroll
            for (int i = 0; i < gates; ++i)
                all[i] = __shfl_sync(0xffffffffu, mine, place() * gates + i);
            bool is_first = gate() == 0 && lane() < POINTS_PER_WARP * gates;
            if (POINTS % POINTS_PER_WARP != 0)
                is_first = is_first && threadIdx.x / 32 * POINTS_PER_WARP + place() < POINTS;
            finish(point(), is_first, all, shared + KEPT_AT, early);
        }
    }

  private:
    static RAMMER_MEMBER uint32_t lane(void) { return threadIdx.x % 32; }
    /* The gate and the point that a lane does the epilogue of, the latter as `place` of its warp. */
    static RAMMER_MEMBER uint32_t gate(void) { return lane() % gates; }
    static RAMMER_MEMBER uint32_t place(void) { return min(lane() / gates, POINTS_PER_WARP - 1u); }
    static RAMMER_MEMBER uint32_t point(void) { return min(threadIdx.x / 32 * POINTS_PER_WARP + place(), POINTS - 1u); }

    /* All loads are on their way together. */
    template <typename Part, typename Weight>
    static RAMMER_MEMBER void load_weights_of(float *weights, Weight weight) {
        constexpr bool IS_EVEN = Part::LENGTH == WARPS * Part::PITCH;
        constexpr int TOGETHER = Words::template together<Part::ELEMENTS>();
#pragma unroll
        for (int i = 0; i < Part::SLOTS; ++i) {
            const uint32_t row = (i + Part::FIRST_SLOT) * across + lane() % across;
            const auto of_row = weight(row / units, row % units);
#pragma unroll
            for (int j = 0; j < Part::ELEMENTS; j += TOGETHER) {
                const uint32_t number = lane() / across * Part::ELEMENTS + j;
                const uint32_t element = threadIdx.x / 32 * Part::SLICE + number;
                const uint32_t inside = IS_EVEN ? element : min(element, Part::LENGTH - 1u);
                const int left = IS_EVEN ? TOGETHER : min((int)(Part::SLICE - number), (int)(Part::LENGTH - element));
                float values[TOGETHER];
                Words::load(values, of_row, inside, left);
#pragma unroll
                for (int k = 0; k < TOGETHER; ++k)
                    weights[register_of<Part>(i, j + k)] = values[k];
            }
        }
    }

    /* Of a lane's weight of a slot and an element. */
    template <typename Part> static RAMMER_MEMBER constexpr int register_of(int slot, int element) {
        return Part::WEIGHTS_AT + slot * Part::ELEMENTS + element;
    }

    /* The last threads first: the first ones may still be finishing points of the record before. Whole warps load flagged
     * words, those behind the end of the vector its last element once more. What a thread has several of, it asks for
     * before it takes the first. */
    template <typename Part, typename Vectors> static RAMMER_MEMBER void load_vector_of(float *shared, Vectors vectors) {
        constexpr uint32_t COUNT = Part::LENGTH, LOADING = (COUNT + 31) / 32 * 32;
        constexpr uint32_t FIRST = Part::END > LOADING ? Part::END - LOADING : 0;
        constexpr int TURNS = (LOADING + RAMMER_THREADS - 1) / RAMMER_THREADS;
        if (Part::END != RAMMER_THREADS && threadIdx.x >= Part::END)
            return;
#pragma unroll
        for (int first = 0; first < TURNS; first += LOOKS) {
            decltype(vectors.look(0u)) looked[TURNS < LOOKS ? TURNS : LOOKS];
#pragma unroll
            for (int i = 0; i < LOOKS && first + i < TURNS; ++i) {
                const uint32_t turn = threadIdx.x - FIRST + (first + i) * RAMMER_THREADS;
                if (turn < LOADING)
                    looked[i] = vectors.look(min(turn, COUNT - 1));
            }
#pragma unroll
            for (int i = 0; i < LOOKS && first + i < TURNS; ++i) {
                const uint32_t turn = threadIdx.x - FIRST + (first + i) * RAMMER_THREADS;
                if (turn >= LOADING)
                    continue;
                const uint32_t element = min(turn, COUNT - 1);
                const float value = vectors.take(element, looked[i]);
                if (LOADING == COUNT || turn < COUNT)
                    shared[Part::VECTOR_AT + element / Part::SLICE * Part::PITCH + element % Part::SLICE] = value;
            }
        }
    }

    /* Multiplies all vectors of a group, behind the last one. */
    template <typename Part>
    static RAMMER_MEMBER void multiply_group(float *sums, const float *shared, const float *weights) {
        if constexpr (Part::LAST) {
            if constexpr (meets) {
                rammer_meet();
            } else {
                __syncthreads();
            }
            (multiply<Parts, Part::GROUP>(sums, shared, weights), ...);
        }
    }

    template <typename Part, int group>
    static RAMMER_MEMBER void multiply(float *sums, const float *shared, const float *weights) {
        if constexpr (Part::GROUP == group) {
            const float *slice = shared + Part::VECTOR_AT + threadIdx.x / 32 * Part::PITCH + lane() / across * Part::ELEMENTS;
#pragma unroll
            for (int j = 0; j < Part::ELEMENTS; j += Part::VECTOR) {
                float vector[Part::VECTOR];
                rammer_load_vector<Part::VECTOR>(vector, slice + j);
#pragma unroll
                for (int k = 0; k < Part::VECTOR; ++k)
#pragma unroll
                    for (int i = 0; i < Part::SLOTS; ++i)
                        sums[Part::FIRST_SLOT + i] += weights[register_of<Part>(i, j + k)] * vector[k];
            }
        }
    }

    /* Adds the sums of lanes that have the same row, and writes those of each warp where all find them. */
    static RAMMER_MEMBER void combine(float *sums, float *partial) {
        constexpr int LEFT = rammer_sums_left<SLOTS, across>();
        int present = SLOTS;
        const uint32_t first = rammer_sum_lanes<SLOTS, across>(sums, &present);
        partial += threadIdx.x / 32 * ROWS + lane() % across;
#pragma unroll
        for (int i = 0; i < LEFT; ++i) {
            const uint32_t row = (LEFT == SLOTS ? i : first + i) * across;
            if (LEFT == SLOTS && i * across + across <= ROWS)
                partial[row] = sums[i];
            else if (i < present && row + lane() % across < ROWS)
                partial[row] = sums[i];
        }
        __syncthreads();
    }
};

#endif
