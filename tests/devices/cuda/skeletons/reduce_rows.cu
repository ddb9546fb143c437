/* y = (x - mean) / deviation, of each of ROWS rows of LENGTH: two reductions, and outputs along the row. */
typedef rammer_share<LENGTH, TEAM, VECTOR, TURNS> share;

struct loaded {
    float x[VECTOR];
};

/* Calls fn(element, lane, x) for a thread's elements of a row: those in registers, or block by block. */
template <typename Fn> RAMMER_INLINE void over_row(const float *row, const loaded *kept, uint32_t rank, Fn fn) {
    if constexpr (share::BLOCKS == 1) {
        share::each(0, rank, [&](int turn, uint32_t element) {
            for (int lane = 0; lane < VECTOR; ++lane)
                fn(element, lane, kept[turn].x[lane]);
        });
    } else {
        const auto bring = [&](uint32_t element, loaded &into) { rammer_load_vector<VECTOR>(into.x, row + element); };
        share::run<loaded>(rank, bring, [&](uint32_t element, const loaded &of) {
            for (int lane = 0; lane < VECTOR; ++lane)
                fn(element, lane, of.x[lane]);
        });
    }
}

extern "C" __global__ void rammer_run(const float *x, float *y) {
    rammer_team<TEAM> team(rammer_scratch);
    const auto add = [](float a, float b) { return a + b; };
    rammer_by_turns<ROWS, RAMMER_THREADS / TEAM>(team.number(), [&](uint32_t row, bool is_there) {
        const float *const from = x + row * LENGTH;
        loaded kept[TURNS];
        if constexpr (share::BLOCKS == 1)
            share::each(0, team.rank(), [&](int turn, uint32_t element) {
                rammer_load_vector<VECTOR>(kept[turn].x, from + element);
            });
        float total[VECTOR] = {}, square[VECTOR] = {};
        over_row(from, kept, team.rank(), [&](uint32_t, int lane, float value) { total[lane] += value; });
        const float mean = team.over(rammer_over_lanes<VECTOR>(total, add), add) / LENGTH;
        over_row(from, kept, team.rank(),
                 [&](uint32_t, int lane, float value) { square[lane] += (value - mean) * (value - mean); });
        const float deviation = sqrtf(team.over(rammer_over_lanes<VECTOR>(square, add), add) / LENGTH);
        over_row(from, kept, team.rank(), [&](uint32_t element, int lane, float value) {
            if (is_there)
                y[row * LENGTH + element + lane] = (value - mean) / deviation;
        });
    });
}
