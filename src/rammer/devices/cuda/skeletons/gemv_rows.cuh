/* The skeleton `gemv` where what is summed over lies side by side: rows of a matrix times a vector.
 *
 * A team of threads takes the elements of a row, in vectors of 16 bytes; its threads have the same elements of each row, and
 * keep what these are multiplied with in registers. Several rows are on their way at a time. Those that come first may be
 * asked for before anything else is known (the matrix is constant): while the rTask waits, memory does not.
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

/* `terms` sums for each of `points` points, and `wholes` that all points have in common. `across` threads share a row, of
 * which each has `turns` vectors of `vector` elements; `batch` points of a team are on their way at a time. Where threads
 * may have waited one by one for what they multiply, `meets`. */
template <int terms, int wholes, int turns, int vector, int across, int batch, uint32_t points, bool meets>
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
            if (team() == 0 && lane == 0)
                common_parts[whole * PARTS + part] = total;
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
                totals[term][0] = add_up(parts + (term * points + threadIdx.x) * PARTS);
#pragma unroll
            for (int whole = 0; whole < wholes; ++whole)
                totals[terms + whole][0] = add_up(common_parts + whole * PARTS);
        }
        __syncthreads(); /* the next rTask may write to `scratch` */
        if (threadIdx.x < points)
            finish(threadIdx.x, totals, early);
    }

  private:
    static RAMMER_MEMBER float add_up(const float *from) {
        float total = from[0];
#pragma unroll
        for (int i = 1; i < PARTS; ++i)
            total += from[i];
        return total;
    }
};

#endif
