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

    /* Takes the vectors of thread number `rank`, a block after the other: bring(element, Loaded &) loads what a vector
     * needs, finish(element, const Loaded &) does the rest. */
    template <typename Loaded, typename Bring, typename Finish>
    static RAMMER_MEMBER void run(uint32_t rank, Bring bring, Finish finish) {
        for (uint32_t block = 0; block < BLOCKS; ++block) {
            Loaded loaded[unroll];
            each(block, rank, [&](int turn, uint32_t element) { bring(element, loaded[turn]); });
            each(block, rank, [&](int turn, uint32_t element) { finish(element, loaded[turn]); });
        }
    }
};

/* Calls fn(item, is_there) for the items of number `rank` of `team` that take them by turns. Where there are none left, it
 * goes along with the last: what threads do together they all come to. */
template <uint32_t count, uint32_t team, typename Fn> RAMMER_INLINE void rammer_by_turns(uint32_t rank, Fn fn) {
    for (uint32_t first = 0; first < count; first += team) {
        if constexpr (count % team == 0)
            fn(first + rank, true);
        else
            fn(min(first + rank, count - 1), first + rank < count);
    }
}

/* Calls fn(element) for the elements of a sum that are those of a split, `unroll` of which wait for memory together. */
template <uint32_t length, uint32_t splits, int unroll, typename Fn>
RAMMER_INLINE void rammer_over_elements(uint32_t split, Fn fn) {
#pragma unroll unroll
    for (uint32_t element = split; element < length; element += splits)
        fn(element);
}

#endif
