/* y[row][lane] = the sum of x[row][k][lane] * w[k][lane]: N is a multiple of VECTORS vectors. */
#include "register_tile.h"

#define VECTOR RAMMER_JOIN(rammer_f32x, WIDTH)
#define LOAD(v, lanes, from) lanes[v] = RAMMER_LOAD(VECTOR, from + v * WIDTH);
#define ADD(row)                                                                                                      \
    {                                                                                                                 \
        VECTOR factors[VECTORS];                                                                                      \
        RAMMER_VECTORS(VECTORS, LOAD, factors, x + ((row) * K + k) * N + lane0)                                       \
        RAMMER_ADD_BY_VECTORS(VECTORS, sum[row], factors, lanes)                                                      \
    }
#define RESULT(v, row) RAMMER_STORE(VECTOR, y + (row) * N + lane0 + v * WIDTH, sum[row][v]);
#define RESULTS(row) RAMMER_VECTORS(VECTORS, RESULT, row)

void rammer_run(const float *x, const float *w, float *y) {
    for (int64_t lane0 = 0; lane0 < N; lane0 += VECTORS * WIDTH) {
        VECTOR sum[ROWS][VECTORS] = {{{0}}};
        for (int64_t k = 0; k < K; k++) {
            VECTOR lanes[VECTORS];
            RAMMER_VECTORS(VECTORS, LOAD, lanes, w + k * N + lane0)
            RAMMER_ROWS(ROWS, ADD)
        }
        RAMMER_ROWS(ROWS, RESULTS)
    }
}
