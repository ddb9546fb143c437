/* y = the sums of each element's four neighbours in its plane, PADDING beyond the edges: x is ROWS x COLUMNS x CHANNELS, at
 * least two of each. It computes rows from FIRST on, before PAST. */
#include "runs.h"

#define X(row, column) x[((row) * COLUMNS + (column)) * CHANNELS + channel]
#define AT_COLUMN                                                                                                     \
    RAMMER_LANES                                                                                                      \
    for (int64_t channel = 0; channel < CHANNELS; channel++) {                                                        \
        const float above = row_run >= 1 ? X(row - 1, column) : PADDING;                                              \
        const float below = row_run <= 1 ? X(row + 1, column) : PADDING;                                              \
        const float left = column_run >= 1 ? X(row, column - 1) : PADDING;                                            \
        const float right = column_run <= 1 ? X(row, column + 1) : PADDING;                                           \
        y[((row - FIRST) * COLUMNS + column) * CHANNELS + channel] = above + below + left + right;                    \
    }
#define AT_ROW                                                                                                        \
    RAMMER_RUN(column, 0, 0, 1, AT_COLUMN)                                                                            \
    RAMMER_RUN(column, 1, 1, COLUMNS - 1, AT_COLUMN)                                                                  \
    RAMMER_RUN(column, 2, COLUMNS - 1, COLUMNS, AT_COLUMN)

void rammer_run(const float *restrict x, float *restrict y) {
    RAMMER_RUN(row, 0, FIRST, rammer_min_i64(1, PAST), AT_ROW)
    RAMMER_RUN(row, 1, rammer_max_i64(1, FIRST), rammer_min_i64(ROWS - 1, PAST), AT_ROW)
    RAMMER_RUN(row, 2, rammer_max_i64(ROWS - 1, FIRST), PAST, AT_ROW)
}
