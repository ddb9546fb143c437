/* y = x * w in integers, x being ROWS x K of uint8 and w K / 4 x N x 4 of int8: N is a multiple of VECTORS vectors. */
#include "register_tile.h"

#define VECTOR RAMMER_JOIN(rammer_i32x, WIDTH)
#define LOAD(v, lanes) lanes[v] = RAMMER_LOAD(VECTOR, w + k * N + 4 * (lane0 + v * WIDTH));
#define ADD(row)                                                                                                      \
    {                                                                                                                 \
        const int32_t four = RAMMER_QUAD(x + (row) * K + k);                                                          \
        RAMMER_ADD_DOTS(VECTORS, WIDTH, sum[row], four, lanes)                                                        \
    }
#define RESULT(v, row) RAMMER_STORE(VECTOR, y + (row) * N + lane0 + v * WIDTH, sum[row][v]);
#define RESULTS(row) RAMMER_VECTORS(VECTORS, RESULT, row)

void rammer_run(const uint8_t *x, const int8_t *w, int32_t *y) {
    for (int64_t lane0 = 0; lane0 < N; lane0 += VECTORS * WIDTH) {
        VECTOR sum[ROWS][VECTORS] = {{{0}}};
        for (int64_t k = 0; k < K; k += 4) {
            VECTOR lanes[VECTORS];
            RAMMER_VECTORS(VECTORS, LOAD, lanes)
            RAMMER_ROWS(ROWS, ADD)
        }
        RAMMER_ROWS(ROWS, RESULTS)
    }
}
