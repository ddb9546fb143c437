/* y = max(W x, 0) * (U x) / (1 + x x) + bias of a block: W and U are POINTS x K, of 16-bit floats. */
enum { VECTOR = 8, VECTORS = K / VECTOR, TURNS = (VECTORS + ACROSS - 1) / ACROSS };
typedef rammer_gemv_rows<2, 1, TURNS, VECTOR, ACROSS, BATCH, POINTS, MEETS> gemv;

extern "C" __global__ void rammer_run(const float *x, const uint16_t *w, const uint16_t *u, const float *bias, float *y) {
    struct weights {
        union {
            uint32_t words[4];
            uint16_t lane[VECTOR];
        } w[TURNS], u[TURNS];
    };
    struct early {
        float bias;
    };
    const auto bring = [&](uint32_t point, weights &row) {
        gemv::each_turn([&](int turn, uint32_t number) {
            const bool there = point < POINTS && number < VECTORS;
            const uint32_t at = point * K + number * VECTOR;
            rammer_load_now<true>(row.w[turn].words, w + at, there);
            rammer_load_now<false>(row.u[turn].words, u + at, there);
        });
    };
    weights rows[BATCH] = {};
    gemv::begin(rows, bring);
    float vector[TURNS][VECTOR] = {}, common[1] = {};
    gemv::each_turn([&](int turn, uint32_t number) {
        for (int lane = 0; lane < VECTOR && number < VECTORS; ++lane)
            vector[turn][lane] = x[number * VECTOR + lane];
    });
    gemv::each_lane([&](int turn, int lane) { common[0] += vector[turn][lane] * vector[turn][lane]; });
    const auto multiply = [&](const weights &row, float *sums) {
        gemv::each_lane([&](int turn, int lane) {
            sums[0] += vector[turn][lane] * rammer_widen_f16(row.w[turn].lane[lane]);
            sums[1] += vector[turn][lane] * rammer_widen_f16(row.u[turn].lane[lane]);
        });
    };
    const auto load = [&](uint32_t point, early &into) { into.bias = bias[point]; };
    const auto finish = [&](uint32_t point, const gemv::sums &sums, const early &loaded) {
        y[point] = fmaxf(sums[0][0], 0.0f) * sums[1][0] / (1 + sums[2][0]) + loaded.bias;
    };
    gemv::run<early>(rammer_scratch, rows, common, bring, multiply, load, finish);
}
