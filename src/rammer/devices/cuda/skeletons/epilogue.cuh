/* What follows on sums that lie in shared memory, row by row: threads take `width` neighbouring columns of a row at a time.
 *
 * The loop is not unrolled: code that is run seldom has to be short.
 */
#ifndef RAMMER_EPILOGUE_CUH
#define RAMMER_EPILOGUE_CUH

/* A tile of `rows` by `columns`, whose sums are `pitch` apart from row to row. */
template <uint32_t rows, uint32_t columns, int width, int pitch> struct rammer_epilogue {
    enum : uint32_t { ACROSS = columns / width, TOGETHER = width < 4 ? width : 4 };
    static_assert(columns % width == 0, "rows end with a vector");

    /* The first column of all that a thread takes, where each row is taken by the same threads. */
    static RAMMER_MEMBER uint32_t column(void) {
        static_assert(RAMMER_THREADS % ACROSS == 0, "a thread stays in its columns");
        return threadIdx.x % ACROSS * width;
    }

    /* Calls finish(row, column) for a thread's vectors. */
    template <typename Finish> static RAMMER_MEMBER void run(Finish finish) {
#pragma unroll 1
        for (uint32_t vector = threadIdx.x; vector < rows * ACROSS; vector += RAMMER_THREADS)
            finish(vector / ACROSS, vector % ACROSS * width);
    }

    static RAMMER_MEMBER void load(float (&total)[width], const float *sums, uint32_t row, uint32_t column) {
#pragma unroll
        for (uint32_t element = 0; element < width; element += TOGETHER)
            rammer_load_vector<TOGETHER>(total + element, sums + row * pitch + column + element);
    }
};

#endif
