/* What follows on sums that lie in shared memory, row by row: threads take `width` neighbouring columns of a row at a time.
 *
 * A thread stays in its columns, so that what they have in common is loaded once; as many threads take part as whole rows need.
 * The loop is not unrolled: code that is run seldom has to be short.
 */
#ifndef RAMMER_EPILOGUE_CUH
#define RAMMER_EPILOGUE_CUH

/* A tile of `rows` by `columns`, whose sums are `pitch` apart from row to row. */
template <uint32_t rows, uint32_t columns, int width, int pitch> struct rammer_epilogue {
    enum : uint32_t { ACROSS = columns / width, DOWN = RAMMER_THREADS / ACROSS, TOGETHER = width < 4 ? width : 4 };
    static_assert(columns % width == 0 && DOWN > 0, "rows end with a vector, and threads take whole ones");

    /* The first column of those that a thread takes. */
    static RAMMER_MEMBER uint32_t column(void) { return threadIdx.x % ACROSS * width; }

    /* Calls finish(row, column) for a thread's vectors. */
    template <typename Finish> static RAMMER_MEMBER void run(Finish finish) {
        if (threadIdx.x >= ACROSS * DOWN)
            return;
#pragma unroll 1
        for (uint32_t row = threadIdx.x / ACROSS; row < rows; row += DOWN)
            finish(row, column());
    }

    static RAMMER_MEMBER void load(float (&total)[width], const float *sums, uint32_t row, uint32_t column) {
#pragma unroll
        for (uint32_t element = 0; element < width; element += TOGETHER)
            rammer_load_vector<TOGETHER>(total + element, sums + row * pitch + column + element);
    }
};

#endif
