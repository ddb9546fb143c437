/* y = W x / (1 + x x) of a block: W is POINTS x K, of numbers of BITS bits, which stand for (number - ZERO) * scale; there is
 * a scale for each vector of them. */
typedef rammer_packed<BITS> packed;
enum { VECTOR = packed::COUNT, VECTORS = K / VECTOR, TURNS = (VECTORS + ACROSS - 1) / ACROSS, GROUPS = K / packed::GROUP };
typedef rammer_gemv_rows<1, 1, TURNS, VECTOR, ACROSS, BATCH, POINTS, false, RAMMER_THREADS / 32> gemv;

extern "C" __global__ void rammer_run(const float *x, const uint8_t *w, const float *scales, float *y) {
    struct weights {
        uint32_t words[TURNS][4];
        float scale[TURNS];
    };
    struct early {};
    float *const staged = (float *)(rammer_scratch + (64 << 10));
    const auto bring = [&](uint32_t point, weights &row) {
        gemv::each_turn([&](int turn, uint32_t number) {
            const bool there = point < POINTS && number < VECTORS;
            const uint32_t at = point * VECTORS + number;
            rammer_load_now<true>(row.words[turn], (const rammer_vector<uint32_t, 4> *)w + at, there);
            row.scale[turn] = rammer_load_where(scales + at, there);
        });
    };
    weights rows[BATCH] = {};
    gemv::begin(rows, bring);
    float common[1] = {};
    gemv::each_group<GROUPS>([&](int turn, uint32_t number) {
        if (number < GROUPS) {
            float some[packed::GROUP];
            rammer_load_vector<packed::GROUP>(some, x + number * packed::GROUP);
            for (int lane = 0; lane < packed::GROUP; ++lane)
                common[0] += some[lane] * some[lane];
            packed::put(staged, number, some);
        }
    });
    __syncthreads();
    float vector[TURNS][VECTOR] = {}, total[TURNS] = {};
    gemv::each_turn([&](int turn, uint32_t number) {
        if (number < VECTORS)
            total[turn] = packed::take(staged, number, vector[turn]);
    });
    const auto multiply = [&](const weights &row, float *sums) {
        gemv::each_turn([&](int turn, uint32_t number) {
            const float sum = packed::multiply(row.words[turn], vector[turn], -(float)ZERO * total[turn]);
            sums[0] += sum * (row.scale[turn] * packed::unit());
        });
    };
    const auto load = [&](uint32_t point, early &into) {};
    const auto finish = [&](uint32_t point, const gemv::sums &sums, const early &) {
        y[point] = sums[0][0] / (1 + sums[1][0]);
    };
    gemv::run<early>(rammer_scratch, rows, common, bring, multiply, load, finish);
}
