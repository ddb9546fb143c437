/* y[row] = the greatest, or the sum, of COUNT numbers of a row, or WITHIN it of those from the diagonal on: lanes take turns. */
#include "reduce.h"

#define TAKE lanes[i - i_turn] = COMBINED(lanes[i - i_turn], x[row * COUNT + i]);

void rammer_run(const float *x, float *y) {
    for (int64_t row = 0; row < ROWS; row++) {
        RAMMER_IN_ORDER;
        RAMMER_PARTIAL_RESULTS(float, lanes, WIDTH, FIRST)
#if WITHIN
        RAMMER_BY_TURNS_WITHIN(i, row, COUNT, WIDTH, TAKE)
#elif COUNT % WIDTH
        RAMMER_BY_TURNS_AND_REST(i, COUNT, WIDTH, TAKE)
#else
        RAMMER_BY_TURNS(i, COUNT, WIDTH, TAKE)
#endif
        RAMMER_FOLD(lanes, WIDTH, a, b, COMBINED(a, b))
        y[row] = lanes[0];
    }
}
