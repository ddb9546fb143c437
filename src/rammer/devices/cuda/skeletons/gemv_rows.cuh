/* The skeleton `gemv` where what is summed over lies side by side: rows of a matrix times a vector.
 *
 * A team of threads takes the elements of a row, in vectors of 16 bytes; its threads have the same elements of each row, and
 * keep what these are multiplied with in registers. Several rows are on their way at a time. Those that come first may be
 * asked for before anything else is known (the matrix is constant): while the rTask waits, memory does not.
 *
 * Of numbers of few bits (`rammer_packed`) a vector has so many that threads who read theirs of what these are multiplied
 * with would read far from each other: all threads of the block share that out, and it passes through shared memory.
 */
#ifndef RAMMER_GEMV_ROWS_CUH
#define RAMMER_GEMV_ROWS_CUH

/* Adds up `values` over a warp; lane i gets what number i * count / 32 comes to. `count` is a power of two up to 32. */
template <int count> RAMMER_INLINE float rammer_add_over_warp(float (&values)[count]) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int left = count / 2, distance = 16; left > 0; left /= 2, distance /= 2) {
        const bool upper = lane & distance;
#pragma unroll
        for (int i = 0; i < left; ++i) {
            const float other = upper ? values[i] : values[i + left], own = upper ? values[i + left] : values[i];
            values[i] = own + __shfl_xor_sync(0xffffffffu, other, distance);
        }
    }
    float total = values[0];
#pragma unroll
    for (int distance = 16 / count; distance > 0; distance /= 2)
        total += __shfl_xor_sync(0xffffffffu, total, distance);
    return total;
}

/* A vector of numbers of `bits` bits, the first in the lowest bits of the first of four words.
 *
 * As the bits of a float, an integer below 2^24 is that integer times 2^-149, a number that arithmetic takes like any other
 * (there is no flushing to zero). So a number is masked where it stands, and needs no conversion: what it is multiplied
 * with has been divided by its place before, once for all rows. It has been scaled up, too, to stay clear of both ends of
 * float's range. Numbers above 2^24 are moved down together, and masked with those below them, which are taken off again by
 * what these are multiplied with: so the last needs no mask. */
template <int bits> struct rammer_packed {
    enum { WORD = 32 / bits, COUNT = 4 * WORD, GROUP = 4, GROUPS = COUNT / GROUP, EXACT = 24, RAISED = 64, LOWEST = 149 };

    /* What sums of products have to be multiplied with. */
    static RAMMER_MEMBER float unit(void) { return power(LOWEST - RAISED); }

    /* Stores group number `number` of what is multiplied. Neighbours in a warp take other banks, here and in `take`. */
    static RAMMER_MEMBER void put(float *staged, uint32_t number, const float (&values)[GROUP]) {
        rammer_stage_vector<GROUP>(staged + place(number), values);
    }

    /* A thread's elements of it, for its vector of number `number`, made ready; gives their sum, in units. */
    static RAMMER_MEMBER float take(const float *staged, uint32_t number, float (&values)[COUNT]) {
        float total = 0;
#pragma unroll
        for (int i = 0; i < GROUPS; ++i) {
            float some[GROUP];
            rammer_load_vector<GROUP>(some, staged + place(number * GROUPS + i));
#pragma unroll
            for (int lane = 0; lane < GROUP; ++lane) {
                total += some[lane];
                values[i * GROUP + lane] = some[lane];
            }
        }
#pragma unroll
        for (int element = 0; element < COUNT; ++element) {
            const int bit = element % WORD * bits;
            values[element] *= power(RAISED - place_of(bit));
            if (bit >= EXACT && bit + bits < 32)
                values[element] -= values[element + 1] * power(RAISED - place_of(bit + bits));
        }
        return total * power(RAISED - LOWEST);
    }

    /* `sum` and the products of a vector of numbers and what was made ready, in units. */
    static RAMMER_MEMBER float multiply(const uint32_t (&words)[4], const float (&values)[COUNT], float sum) {
        const uint32_t mask = (1u << bits) - 1;
#pragma unroll
        for (int element = 0; element < COUNT; ++element) {
            const int bit = element % WORD * bits;
            const uint32_t word = words[element / WORD], below = (2u << (place_of(bit) + bits - 1)) - 1;
            const uint32_t number = bit < EXACT ? word & mask << bit : word >> EXACT & below;
            sum += values[element] * __uint_as_float(number);
        }
        return sum;
    }

  private:
    static RAMMER_MEMBER constexpr int place_of(int bit) { return bit < EXACT ? bit : bit - EXACT; }
    static RAMMER_MEMBER float power(int exponent) { return __uint_as_float((uint32_t)(127 + exponent) << 23); }
    static RAMMER_MEMBER uint32_t place(uint32_t number) {
        const uint32_t vector = number / GROUPS, turn = vector / (8 / GROUPS) % GROUPS;
        return (vector * GROUPS + (number % GROUPS ^ turn)) * GROUP;
    }
};

/* `terms` sums for each of `points` points, and `wholes` that all points have in common. `across` threads share a row, of
 * which each has `turns` vectors of `vector` elements; `batch` points of a team are on their way at a time. Where threads
 * may have waited one by one for what they multiply, `meets`. The first `shares` warps have parts of the common sums. */
template <int terms, int wholes, int turns, int vector, int across, int batch, uint32_t points, bool meets,
          int shares = across / 32>
struct rammer_gemv_rows {
    enum { TEAMS = RAMMER_THREADS / across, PARTS = across / 32 };
    typedef float sums[terms + wholes][1];

    static RAMMER_MEMBER uint32_t rank(void) { return threadIdx.x % across; }
    static RAMMER_MEMBER uint32_t team(void) { return threadIdx.x / across; }

    /* A thread's vectors: visit(turn, number among the row's). */
    template <typename Visit> static RAMMER_MEMBER void each_turn(Visit visit) {
#pragma unroll
        for (int turn = 0; turn < turns; ++turn)
            visit(turn, turn * across + rank());
    }
    /* Numbers below `count` shared out among all threads of the block: visit(turn, number). */
    template <uint32_t count, typename Visit> static RAMMER_MEMBER void each_group(Visit visit) {
#pragma unroll
        for (int turn = 0; turn < (count + RAMMER_THREADS - 1) / RAMMER_THREADS; ++turn)
            visit(turn, turn * RAMMER_THREADS + threadIdx.x);
    }
    /* Their elements: visit(turn, lane). */
    template <typename Visit> static RAMMER_MEMBER void each_lane(Visit visit) {
#pragma unroll
        for (int turn = 0; turn < turns; ++turn)
#pragma unroll
            for (int lane = 0; lane < vector; ++lane)
                visit(turn, lane);
    }

    /* Asks for the first rows: bring(point, row), which leaves the row as it is where there is no such point. */
    template <typename Row, typename Bring> static RAMMER_MEMBER void begin(Row (&rows)[batch], Bring bring) {
#pragma unroll
        for (int i = 0; i < batch; ++i)
            bring(i * TEAMS + team(), rows[i]);
    }

    /* Computes an rTask whose first rows are on their way. multiply(row, parts) gives a thread's part of a point's sums;
     * `common` is its part of those of all points. What the epilogue reads is on its way while the sums run:
     * load(point, Early &); finish(point, const sums &, const Early &) is the epilogue. */
    template <typename Early, typename Row, typename Bring, typename Multiply, typename Load, typename Finish>
    static RAMMER_MEMBER void run(char *scratch, Row (&rows)[batch], const float *common, Bring bring, Multiply multiply,
                                  Load load, Finish finish) {
        float *parts = (float *)scratch, *common_parts = parts + terms * points * PARTS;
        const uint32_t lane = threadIdx.x % 32, part = rank() / 32;
        Early early;
        if (threadIdx.x < points)
            load(threadIdx.x, early);
        if constexpr (meets)
            rammer_meet();
        for (int whole = 0; whole < wholes; ++whole) {
            float value[1] = {common[whole]};
            const float total = rammer_add_over_warp(value);
            if (threadIdx.x / 32 < shares && lane == 0)
                common_parts[whole * shares + threadIdx.x / 32] = total;
        }
#pragma unroll 1
        for (uint32_t first = 0; first < points; first += batch * TEAMS) {
            float found[terms][batch];
#pragma unroll
            for (int i = 0; i < batch; ++i) {
                float of_point[terms] = {};
                multiply(rows[i], of_point);
#pragma unroll
                for (int term = 0; term < terms; ++term)
                    found[term][i] = of_point[term];
                bring(first + (batch + i) * TEAMS + team(), rows[i]);
            }
            const uint32_t point = first + lane / (32 / batch) * TEAMS + team();
#pragma unroll
            for (int term = 0; term < terms; ++term) {
                const float total = rammer_add_over_warp(found[term]);
                if (lane % (32 / batch) == 0 && point < points)
                    parts[(term * points + point) * PARTS + part] = total;
            }
        }
        __syncthreads();
        sums totals = {};
        if (threadIdx.x < points) {
#pragma unroll
            for (int term = 0; term < terms; ++term)
                totals[term][0] = add_up<PARTS>(parts + (term * points + threadIdx.x) * PARTS);
#pragma unroll
            for (int whole = 0; whole < wholes; ++whole)
                totals[terms + whole][0] = add_up<shares>(common_parts + whole * shares);
        }
        __syncthreads(); /* the next rTask may write to `scratch` */
        if (threadIdx.x < points)
            finish(threadIdx.x, totals, early);
    }

  private:
    template <int count> static RAMMER_MEMBER float add_up(const float *from) {
        float total = from[0];
#pragma unroll
        for (int i = 1; i < count; ++i)
            total += from[i];
        return total;
    }
};

#endif
