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

/* A row of windows: `points` neighbours, `stride` elements apart, of `taps` elements each, `dilation` apart. A thread has
 * `vector` channels. */
template <int vector, int points, int stride, int taps, int dilation> struct rammer_window {
    enum { REACH = (points - 1) * stride + (taps - 1) * dilation + 1 };

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
