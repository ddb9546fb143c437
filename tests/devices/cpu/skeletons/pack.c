/* y[column][lane] = twice an element of x, which is ROWS x COLUMNS: its rows from FIRST on, PRESENT of them, are the lanes,
 * and zeros those that are absent of LANES. */
#include "stage.h"

#define ELEMENT                                                                                                       \
    ({                                                                                                                \
        const float element = x[row * COLUMNS + column];                                                              \
        element * 2;                                                                                                  \
    })

void rammer_run(const float *restrict x, float *restrict y) {
    for (int64_t column = 0; column < COLUMNS; column++) {
        RAMMER_IN_ORDER;
        RAMMER_PACK(y + column * LANES, LANES, row, FIRST, PRESENT, ELEMENT)
    }
}
