/* y = x - mean of each of COLUMNS columns of LENGTH elements, and behind them the means: columns lie side by side. */
typedef rammer_columns<ACROSS, VECTOR> columns;
typedef rammer_share<LENGTH, columns::SPLITS, 1, TURNS> share;

extern "C" __global__ void rammer_run(const float *x, float *y) {
    struct loaded {
        float x[VECTOR];
    };
    rammer_by_turns<COLUMNS / VECTOR, ACROSS>(columns::column(), [&](uint32_t group, bool is_there) {
        const uint32_t first = group * VECTOR;
        float mean[VECTOR] = {};
        rammer_over_elements<LENGTH, columns::SPLITS, TURNS>(columns::split(), [&](uint32_t element) {
            for (int lane = 0; lane < VECTOR; ++lane)
                mean[lane] += x[element * COLUMNS + first + lane];
        });
        columns::over(mean, rammer_scratch, [](float a, float b) { return a + b; });
        for (int lane = 0; lane < VECTOR; ++lane)
            mean[lane] /= LENGTH;
        const auto bring = [&](uint32_t element, loaded &into) {
            rammer_load_vector<VECTOR>(into.x, x + element * COLUMNS + first);
        };
        const auto finish = [&](uint32_t element, const loaded &of) {
            for (int lane = 0; lane < VECTOR && is_there; ++lane)
                y[element * COLUMNS + first + lane] = of.x[lane] - mean[lane];
        };
        share::run<loaded>(columns::split(), bring, finish);
        if (is_there && columns::split() == 0)
            rammer_store_vector<VECTOR>(y + LENGTH * COLUMNS + first, mean);
    });
}
