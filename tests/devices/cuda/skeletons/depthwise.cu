/* y = max(sums of x over windows of TAPS x TAPS, channel by channel, 0), of a block: x is HEIGHT x WIDTH x CHANNELS, of which
 * PADDING zeros lie on each side. Windows are STRIDE elements apart, their taps DILATION. */
enum {
    REACH = (TAPS - 1) * DILATION + 1,
    ROWS = (HEIGHT + 2 * PADDING - REACH) / STRIDE + 1,
    COLUMNS = (WIDTH + 2 * PADDING - REACH) / STRIDE + 1,
    RUNS = (COLUMNS + POINTS - 1) / POINTS,
    PATCH_ROWS = (ROWS - 1) * STRIDE + REACH,
    PATCH_COLUMNS = (RUNS * POINTS - 1) * STRIDE + REACH,
    VECTORS = CHANNELS / VECTOR,
};
typedef rammer_operand<float, 0, PATCH_ROWS * PATCH_COLUMNS, CHANNELS, CHANNELS> patch;
typedef rammer_operand<float, patch::BYTES, TAPS * TAPS, CHANNELS, CHANNELS> weights;
typedef rammer_window<VECTOR, POINTS, STRIDE, TAPS, DILATION, TAPS, (TAPS < 4), ROWS * RUNS * VECTORS> window;

extern "C" __global__ void rammer_run(const float *x, const float *w, float *y) {
    weights::copy<VECTOR, false>(rammer_scratch, [&](uint32_t point, uint32_t element) {
        return rammer_piece<float>{w + point * CHANNELS + element, true};
    });
    patch::copy<VECTOR, false>(rammer_scratch, [&](uint32_t point, uint32_t element) {
        const int32_t row = (int32_t)(point / PATCH_COLUMNS) - PADDING, column = (int32_t)(point % PATCH_COLUMNS) - PADDING;
        const bool present = 0 <= row & row < HEIGHT & 0 <= column & column < WIDTH;
        return rammer_piece<float>{x + (row * WIDTH + column) * CHANNELS + (int32_t)element, present};
    });
    rammer_cp_async_wait_all();
    __syncthreads();
    window::each_item([&](uint32_t item) {
        const uint32_t channel = item % VECTORS * VECTOR, first = item / VECTORS % RUNS * POINTS, row = item / VECTORS / RUNS;
        float sums[POINTS][VECTOR] = {};
        window::each_row([&](int tap) {
            const uint32_t at = (row * STRIDE + tap * DILATION) * PATCH_COLUMNS + first * STRIDE;
            const auto image = [&](int element, float *into) {
                rammer_load_vector<VECTOR>(into, patch::place(rammer_scratch, at + element, channel));
            };
            const auto weight = [&](int element, float *into) {
                rammer_load_vector<VECTOR>(into, weights::place(rammer_scratch, tap * TAPS + element, channel));
            };
            window::add(sums, image, weight);
        });
        window::each_point([&](int point) {
            for (int lane = 0; lane < VECTOR && first + point < COLUMNS; ++lane)
                y[(row * COLUMNS + first + point) * CHANNELS + channel + lane] = fmaxf(sums[point][lane], 0.0f);
        });
    });
}
