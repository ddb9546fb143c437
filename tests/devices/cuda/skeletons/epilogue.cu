/* y = max(sums + bias, 0) of a tile of ROWS by COLUMNS, whose sums lie in shared memory; the bias is loaded ahead if AHEAD. */
typedef rammer_epilogue<ROWS, COLUMNS, WIDTH, PITCH, THREADS> epilogue;

extern "C" __global__ void rammer_run(const float *x, const float *bias, float *y) {
    float *const sums = (float *)rammer_scratch;
    for (uint32_t i = threadIdx.x; i < ROWS * COLUMNS; i += RAMMER_THREADS)
        sums[i / COLUMNS * PITCH + i % COLUMNS] = x[i];
    __syncthreads();
    float added[WIDTH];
#if AHEAD
    rammer_load_vector<WIDTH>(added, bias + epilogue::column());
#endif
    epilogue::run([&](uint32_t row, uint32_t column) {
#if !AHEAD
        rammer_load_vector<WIDTH>(added, bias + column);
#endif
        float total[WIDTH];
        epilogue::load(total, sums, row, column);
        for (int lane = 0; lane < WIDTH; ++lane)
            total[lane] = fmaxf(total[lane] + added[lane], 0.0f);
        rammer_store_vector<WIDTH>(y + row * COLUMNS + column, total);
    });
}
