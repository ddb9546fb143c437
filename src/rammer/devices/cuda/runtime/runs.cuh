/* The walk of a vEU along runs of persistent recurrent layers.
 *
 * A run may change between rKernels that have the same weights, as the first and the last cell of a layer have with those in
 * between: such a family has one walk.
 */
#ifndef RAMMER_RUNS_CUH
#define RAMMER_RUNS_CUH

/* What runs of an rKernel a program has: some that begin a walk, some that are busy, long ones that are not. What it has
 * none of needs no code. Where times are written, all are busy. */
enum rammer_runs { RAMMER_BEGIN = 1, RAMMER_BUSY = 2, RAMMER_LONG = 4 };

/* The rKernel of that number: `Cell` has its functions load_weights, keep_constants and step. */
template <uint32_t number, typename Cell_, int runs> struct rammer_member {
    static constexpr uint32_t NUMBER = number;
    static constexpr bool BEGINS = runs & RAMMER_BEGIN, LONG = runs & RAMMER_LONG;
#ifdef RAMMER_TRACE
    static constexpr bool BUSY = true;
#else
    static constexpr bool BUSY = runs & RAMMER_BUSY;
#endif
    typedef Cell_ Cell;
};

/* What its members do, by their numbers: the compiler makes a switch of it. */
template <typename... Members> struct rammer_family {
    static RAMMER_MEMBER void load_weights(uint32_t, uint32_t, uint32_t, float *, float *) {}
    static RAMMER_MEMBER bool walk(uint32_t, uint32_t *, bool, uint32_t, float *, const float *) { return true; }
};

template <typename Member, typename... More> struct rammer_family<Member, More...> {
    typedef typename Member::Cell Cell;

    static RAMMER_MEMBER void load_weights(
        uint32_t kernel, uint32_t position, uint32_t tile, float *shared, float *weights
    ) {
        if (Member::BEGINS && kernel == Member::NUMBER)
            Cell::load_weights(rammer_operands(rammer_at(position)), tile, shared, weights);
        else
            rammer_family<More...>::load_weights(kernel, position, tile, shared, weights);
    }

    /* Walks a run to its last record. Returns false if a Wait was in vain. */
    static RAMMER_MEMBER bool walk(
        uint32_t kernel, uint32_t *position, bool busy, uint32_t tile, float *shared, const float *weights
    ) {
        if (kernel != Member::NUMBER)
            return rammer_family<More...>::walk(kernel, position, busy, tile, shared, weights);
        const uint32_t last = *position + rammer_at(*position)->run - 1;
        Cell::keep_constants(rammer_operands(rammer_at(*position)), tile, shared);
        if constexpr (Cell::rnn::TEAMS == 1)
            return walk_as<0>(position, last, Member::BUSY && busy, tile, shared, weights);
        else if (!Member::BUSY || (Member::LONG && !busy))
            return threadIdx.x < Cell::rnn::POINT_THREADS
                       ? walk_as<0>(position, last, false, tile, shared, weights)
                       : walk_as<1>(position, last, false, tile, shared, weights);
        else
            return threadIdx.x < Cell::rnn::POINT_THREADS ? walk_as<0>(position, last, true, tile, shared, weights)
                                                          : walk_as<1>(position, last, true, tile, shared, weights);
    }

  private:
    /* The same for a team. Each has a loop of its own, long runs that are not busy another one: what it jumps over
     * takes it time. */
    template <int team>
    static RAMMER_MEMBER bool walk_as(
        uint32_t *position, uint32_t last, bool busy, uint32_t tile, float *shared, const float *weights
    ) {
        for (;; rammer_reach(++*position)) {
            if (busy && !rammer_begin(rammer_at(*position)))
                return false;
            Cell::template step<team>(rammer_operands(rammer_at(*position)), tile, *position, shared, weights);
            if (*position == last)
                return true;
            if (busy)
                rammer_end_early(rammer_at(*position));
        }
    }
};

/* Walks runs of a family that join, from the record at `position` on. Returns the position of the last of them, which its
 * caller ends, or of the first that waited in vain. Weights take `registers` of a thread, slices of vectors `vectors`
 * words of shared memory. */
template <int registers, uint32_t vectors, typename... Members> RAMMER_INLINE uint32_t rammer_walk(uint32_t position) {
    typedef rammer_family<Members...> family;
    const uint32_t tile = rammer_at(position)->tile;
    float *shared = (float *)rammer_scratch;
    float weights[registers] = {}; /* the compiler would keep registers for values that a path leaves open */
    family::load_weights(rammer_at(position)->kernel, position, tile, shared, weights);
    for (uint32_t i = threadIdx.x; i < vectors; i += RAMMER_THREADS)
        shared[i] = 0.0f; /* elements beyond the end of a slice are multiplied, too */
    __syncthreads();
    for (;; rammer_reach(++position)) {
        const bool busy = rammer_is_busy(position);
        if (!family::walk(rammer_at(position)->kernel, &position, busy, tile, shared, weights))
            return position;
        if (rammer_at(position)->joins == 0)
            return position;
        if (busy)
            rammer_end_early(rammer_at(position));
    }
}

#endif
