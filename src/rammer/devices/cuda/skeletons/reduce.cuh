/* The skeleton `reduce`: reductions that a team of threads shares.
 *
 * By rows: a team takes the elements of one row after another, as `rammer_share` has it; all that a row needs more than
 * once stays in registers where a block of elements is the whole row. By columns: the threads of a warp have columns side
 * by side, and the elements of each are split among the threads that have the same columns.
 */
#ifndef RAMMER_REDUCE_CUH
#define RAMMER_REDUCE_CUH

enum { RAMMER_PART_BYTES = 8 }; /* of the widest type */

/* `fn` over an array, in pairs. */
template <int count, typename T, typename Fn> RAMMER_INLINE T rammer_over_lanes(const T *values, Fn fn) {
    if constexpr (count == 1)
        return values[0];
    else
        return fn(rammer_over_lanes<count / 2>(values, fn), rammer_over_lanes<count - count / 2>(values + count / 2, fn));
}

/* `team` threads that are neighbours, a power of two of them. All of them call its functions together. */
template <int team> struct rammer_team {
    enum { WARPS = team > 32 ? team / 32 : 1, TEAMS = RAMMER_THREADS / team };
    char *scratch; /* RAMMER_PART_BYTES for each warp of the block, twice: what is written next may still be read */
    uint32_t calls = 0;

    RAMMER_MEMBER explicit rammer_team(char *scratch) : scratch(scratch) {}
    static RAMMER_MEMBER uint32_t number(void) { return threadIdx.x / team; }
    static RAMMER_MEMBER uint32_t rank(void) { return threadIdx.x % team; }

    /* A barrier of its warps. */
    static RAMMER_MEMBER void meet(void) {
        if constexpr (team == RAMMER_THREADS) {
            __syncthreads();
        } else {
            rammer_barrier_sync_named<team>(1 + number());
        }
    }

    /* What `value` of all its threads comes to, for each of them the same bits. */
    template <typename T, typename Fn> RAMMER_MEMBER T over(T value, Fn fn) {
#pragma unroll
        for (int distance = (team < 32 ? team : 32) / 2; distance > 0; distance /= 2)
            value = fn(value, (T)__shfl_xor_sync(0xffffffffu, (typename rammer_exchange<T>::type)value, distance));
        if constexpr (WARPS > 1) {
            T *parts = (T *)(scratch + calls++ % 2 * (RAMMER_THREADS / 32 * RAMMER_PART_BYTES)) + number() * WARPS;
            if (threadIdx.x % 32 == 0)
                parts[rank() / 32] = value;
            meet();
            T each[WARPS];
#pragma unroll
            for (int warp = 0; warp < WARPS; ++warp)
                each[warp] = parts[warp];
            value = rammer_over_lanes<WARPS>(each, fn);
        }
        return value;
    }
};

/* `across` threads side by side that have `vector` columns each, and `SPLITS` times so many that have the same ones. */
template <int across, int vector> struct rammer_columns {
    enum { SPLITS = RAMMER_THREADS / across, PARTS = across < 32 ? RAMMER_THREADS / 32 : SPLITS, WIDTH = across * vector };

    static RAMMER_MEMBER uint32_t column(void) { return threadIdx.x % across; }
    static RAMMER_MEMBER uint32_t split(void) { return threadIdx.x / across; }

    /* What the `values` of all threads with the same columns come to, for each of them. All threads of the block call it.
     * `scratch` has room for WIDTH * (PARTS + 1) values. */
    template <typename T, typename Fn> static RAMMER_MEMBER void over(T *values, char *scratch, Fn fn) {
        typedef typename rammer_exchange<T>::type exchanged;
#pragma unroll
        for (int distance = 16; distance >= across; distance /= 2)
#pragma unroll
            for (int i = 0; i < vector; ++i)
                values[i] = fn(values[i], (T)__shfl_xor_sync(0xffffffffu, (exchanged)values[i], distance));
        if constexpr (PARTS > 1) {
            T *parts = (T *)scratch, *whole = parts + WIDTH * PARTS;
            const uint32_t part = threadIdx.x / (across < 32 ? 32 : across);
            if (threadIdx.x % 32 < across)
#pragma unroll
                for (int i = 0; i < vector; ++i)
                    parts[part * WIDTH + i * across + column()] = values[i]; /* neighbours in different banks */
            __syncthreads();
            for (uint32_t i = threadIdx.x; i < WIDTH; i += RAMMER_THREADS) {
                T each[PARTS];
#pragma unroll
                for (int k = 0; k < PARTS; ++k)
                    each[k] = parts[k * WIDTH + i];
                whole[i] = rammer_over_lanes<PARTS>(each, fn);
            }
            __syncthreads();
#pragma unroll
            for (int i = 0; i < vector; ++i)
                values[i] = whole[i * across + column()];
        }
    }
};

#endif
