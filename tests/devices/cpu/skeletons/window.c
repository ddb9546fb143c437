/* y = HEIGHT x WIDTH elements of x, which is ROWS x COLUMNS, from (TOP, LEFT) on, PADDING where these are outside; columns
 * from NEEDED on are not read, and stay PADDING. */
#include "stage.h"

void rammer_run(const float *restrict x, float *restrict y) {
    RAMMER_FILL(y, HEIGHT * WIDTH, PADDING)
    RAMMER_INSIDE(i, TOP, HEIGHT, ROWS,
        RAMMER_INSIDE_LANES(j, LEFT, NEEDED, COLUMNS,
            y[i * WIDTH + j] = x[(TOP + i) * COLUMNS + LEFT + j];))
}
