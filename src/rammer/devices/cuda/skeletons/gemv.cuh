/* The skeleton `gemv`: products with few points and long sums, matrix-vector products and recurrent cells.
 *
 * Neighbouring threads take neighbouring points, so that weights stream in whole lines; a thread takes `vector` of them, where
 * one load brings the weights of all. Threads that have the same points split the sums (split K within a block), and their
 * parts are put together through shuffles and shared memory.
 */
#ifndef RAMMER_GEMV_CUH
#define RAMMER_GEMV_CUH

/* `terms` sums of each of `points` points, of which the block has `width` at a time. Where threads may have waited one by
 * one for what they multiply, `meets`. */
template <typename T, int terms, int width, int vector, uint32_t points, bool meets> struct rammer_gemv {
    enum { ACROSS = width / vector, SPLITS = RAMMER_THREADS / ACROSS, WARPS = RAMMER_THREADS / 32 };
    enum { PARTS = SPLITS < WARPS ? SPLITS : WARPS };
    typedef T sums[terms][vector];

    /* Computes an rTask. What the epilogue reads is on its way while the sums run: load(point, Early &). Then sum(point, split,
     * sums &) adds a split's products for `vector` points, and finish(point, const sums &, const Early &) is the epilogue;
     * the sums of a point are the first ones. */
    template <typename Early, typename Load, typename Sum, typename Finish>
    static RAMMER_MEMBER void run(char *scratch, Load load, Sum sum, Finish finish) {
        const uint32_t place = threadIdx.x % width, split = threadIdx.x / ACROSS;
        for (uint32_t first = 0; first < points; first += width) {
            Early early;
            load(first + place, early);
            sums parts = {};
            sum(first + threadIdx.x % ACROSS * vector, split, parts);
            if constexpr (SPLITS > 1)
                combine(parts, (T *)scratch, place, split);
            if (SPLITS == 1 || threadIdx.x < width)
                finish(first + place, parts, early);
        }
    }

  private:
    /* Adds up the parts of threads with the same points; the first `width` threads get the sums of a point each. */
    static RAMMER_MEMBER void combine(sums &parts, T *partial, uint32_t place, uint32_t split) {
        T *whole = partial + terms * PARTS * width;
        if constexpr (meets)
            rammer_meet();
#pragma unroll
        for (int term = 0; term < terms; ++term)
#pragma unroll
            for (int distance = 16; distance >= ACROSS; distance /= 2)
#pragma unroll
                for (int i = 0; i < vector; ++i)
                    parts[term][i] += __shfl_xor_sync(0xffffffffu, parts[term][i], distance);
        const uint32_t part = ACROSS >= 32 ? split : threadIdx.x / 32;
        if (ACROSS >= 32 || threadIdx.x % 32 < ACROSS)
#pragma unroll
            for (int term = 0; term < terms; ++term)
#pragma unroll
                for (int i = 0; i < vector; ++i)
                    partial[(term * PARTS + part) * width + threadIdx.x % ACROSS * vector + i] = parts[term][i];
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < terms * width; i += RAMMER_THREADS) {
            const T *from = partial + i / width * (PARTS * width) + i % width;
            T total = from[0];
            for (int part = 1; part < PARTS; ++part)
                total += from[part * width];
            whole[i] = total;
        }
        __syncthreads();
#pragma unroll
        for (int term = 0; term < terms; ++term)
            parts[term][0] = whole[term * width + place];
    }
};

#endif
