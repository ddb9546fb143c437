/* y[row] = the greatest, or the sum, of COUNT numbers of a row: lanes take turns at them. */
#include "reduce.h"

void rammer_run(const float *x, float *y) {
    for (int64_t row = 0; row < ROWS; row++) {
        RAMMER_IN_ORDER;
        RAMMER_PARTIAL_RESULTS(float, lanes, WIDTH, FIRST)
        for (int64_t strip = 0; strip < COUNT; strip += WIDTH) {
            RAMMER_IN_ORDER;
            const int64_t past = rammer_min_i64(WIDTH, COUNT - strip);
            RAMMER_LANES
            for (int64_t i = 0; i < past; i++)
                lanes[i] = COMBINED(lanes[i], x[row * COUNT + strip + i]);
        }
        RAMMER_FOLD(lanes, WIDTH, a, b, COMBINED(a, b))
        y[row] = lanes[0];
    }
}
