/* C = max(A B^T / sqrt(squares of a row) + bias of a column, 0), of a block: A is ROWS x K, B is COLUMNS x K.
 *
 * `maps` are the tensor maps of what gives wgmma its rows and its columns: A and B, or if SWAPPED, B and A. What each row is
 * divided by, warps compute that neither copy nor multiply. */
typedef rammer_gemm_sm90<FORMAT, GROUPS, N, SLABS, STAGES, SWAPPED, FINISHERS> gemm;
enum { A_ROWS = GROUPS * RAMMER_GROUP_ROWS, SLAB = RAMMER_SLAB_BYTES / sizeof(ELEMENT), IS_WHOLE = K % SLAB == 0 };

extern "C" __global__ void __launch_bounds__(RAMMER_THREADS)
rammer_run(const char *maps, const ELEMENT *, const ELEMENT *, const float *squares, const float *bias, float *c) {
    const auto tile_of = [&](int number, uint32_t rows) {
        const int32_t elements = IS_WHOLE ? 0 : (int32_t)SLAB, slabs = IS_WHOLE ? SLABS : 0;
        return rammer_matrix_tile{maps + number * 128, 0, 0, 0, 0, elements, slabs, 0, 0, SLABS * rows * RAMMER_SLAB_BYTES};
    };
    const int32_t count = (K + SLAB * SLABS - 1) / (SLAB * SLABS);
    const rammer_product product = {tile_of(0, A_ROWS), tile_of(1, N), A_IS_CONSTANT, B_IS_CONSTANT, count, count, 1};
    const auto begin = [] {
        __syncthreads();
        return true;
    };
    const auto beside = [&](uint32_t thread, uint32_t threads) {
        for (uint32_t row = thread; row < ROWS; row += threads)
            rammer_row_values[row][0] = rsqrtf(squares[row]);
    };
    const auto compute = [&](float(&held)[RAMMER_MOST_SUMS]) {
        return gemm::run(held, product, rammer_scratch, begin, beside);
    };
    if (!rammer_with_sums(compute))
        return;
    if (FINISHERS < RAMMER_THREADS)
        rammer_await_sums();
    for (uint32_t place = threadIdx.x - (RAMMER_THREADS - FINISHERS); place < ROWS * COLUMNS; place += FINISHERS) {
        const uint32_t row = place / COLUMNS, column = place % COLUMNS;
        const float sum = ((const float *)rammer_scratch)[row * gemm::PITCH + column];
        c[place] = fmaxf(sum * rammer_row_values[row][0] + bias[column], 0.0f);
    }
}
