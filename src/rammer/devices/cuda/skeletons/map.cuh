/* The skeleton `map`: how threads share out elements, and bring several of them at once.
 *
 * A thread takes `vector` elements side by side with one load where they lie so, and has `unroll` such loads in flight
 * before it uses the first. Between loads and stores there is a loop of its own each: as far as a compiler knows, a store
 * may change what later loads read.
 */
#ifndef RAMMER_MAP_CUH
#define RAMMER_MAP_CUH

/* `count` elements, shared out among `team` threads. A *block* of elements is what they take together: `vector` neighbours
 * for each thread, `unroll` times. */
template <uint32_t count, int team, int vector, int unroll> struct rammer_share {
    static_assert(vector == 1 || count % vector == 0, "a vector is all there, or not at all");
    enum : uint32_t { TURN = team * vector, BLOCK = TURN * unroll, BLOCKS = (count + BLOCK - 1) / BLOCK };

    /* Calls fn(turn, element) for the vectors of thread number `rank` in a block, by their first elements. */
    template <typename Fn> static RAMMER_MEMBER void each(uint32_t block, uint32_t rank, Fn fn) {
        const uint32_t first = block * BLOCK + rank * vector;
#pragma unroll
        for (int turn = 0; turn < unroll; ++turn)
            if (count % BLOCK == 0 || first + turn * TURN < count)
                fn(turn, first + turn * TURN);
    }
};

#endif
