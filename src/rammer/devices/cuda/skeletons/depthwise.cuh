/* The skeleton `depthwise`: sums over windows of an image, channel by channel, of a patch in shared memory.
 *
 *     copy the weights, which may be on their way before the rTask waits, and the patch into shared memory
 *     for each thread's points: for each row of the windows
 *       read the row of the patch that its points reach, and the row of weights
 *       add up their products
 *     store
 *
 * rammer_operand (skeletons/gemm.cuh) copies.
 */
#ifndef RAMMER_DEPTHWISE_CUH
#define RAMMER_DEPTHWISE_CUH

/* Windows of `rows` rows: `points` neighbours, `stride` elements apart, of `taps` elements in a row, `dilation` apart. The rows
 * are written out where they are `unrolled`. A thread has `vector` channels of the points of an item, of which there are
 * `items`. */
template <int vector, int points, int stride, int taps, int dilation, int rows, bool unrolled, uint32_t items>
struct rammer_window {
    enum { REACH = (points - 1) * stride + (taps - 1) * dilation + 1 };

    /* A thread's items: visit(item). */
    template <typename Visit> static RAMMER_MEMBER void each_item(Visit visit) {
        for (uint32_t item = threadIdx.x; item < items; item += RAMMER_THREADS)
            visit(item);
    }
    /* Rows of the windows: visit(row). */
    template <typename Visit> static RAMMER_MEMBER void each_row(Visit visit) {
#pragma unroll(unrolled ? rows : 1)
        for (int row = 0; row < rows; ++row)
            visit(row);
    }
    /* Points: visit(point). */
    template <typename Visit> static RAMMER_MEMBER void each_point(Visit visit) {
#pragma unroll
        for (int point = 0; point < points; ++point)
            visit(point);
    }

    /* Adds the products of a row to the sums. image(element, into) and weight(tap, into) give the channels' factors. */
    template <typename Image, typename Weight>
    static RAMMER_MEMBER void add(float (&sums)[points][vector], Image image, Weight weight) {
        float row[REACH][vector], weights[taps][vector];
#pragma unroll
        for (int tap = 0; tap < taps; ++tap)
            weight(tap, weights[tap]);
#pragma unroll
        for (int element = 0; element < REACH; ++element)
            image(element, row[element]);
#pragma unroll
        for (int tap = 0; tap < taps; ++tap)
#pragma unroll
            for (int point = 0; point < points; ++point)
#pragma unroll
                for (int lane = 0; lane < vector; ++lane)
                    sums[point][lane] += row[point * stride + tap * dilation][lane] * weights[tap][lane];
    }
};

#endif
