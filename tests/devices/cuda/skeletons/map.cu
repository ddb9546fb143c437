/* y = max(x + shift, 0): elements of x lie side by side, as do those of the shift, one for each COLUMNS. */
typedef rammer_share<COUNT / VECTOR, RAMMER_THREADS, 1, TURNS> share;

extern "C" __global__ void rammer_run(const float *x, const float *shift, float *y) {
    struct loaded {
        float x[VECTOR], shift[VECTOR];
    };
    const auto bring = [&](uint32_t vector, loaded &into) {
        rammer_load_vector<VECTOR>(into.x, x + vector * VECTOR);
        rammer_load_vector<VECTOR>(into.shift, shift + vector * VECTOR % COLUMNS);
    };
    const auto finish = [&](uint32_t vector, const loaded &of) {
        float found[VECTOR];
        for (int lane = 0; lane < VECTOR; ++lane)
            found[lane] = fmaxf(of.x[lane] + of.shift[lane], 0.0f);
        rammer_store_vector<VECTOR>(y + vector * VECTOR, found);
    };
    share::run<loaded>(threadIdx.x, bring, finish);
}
