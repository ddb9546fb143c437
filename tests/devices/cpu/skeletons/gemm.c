/* y = max(x * w + bias, 0), x being IMAGES x ROWS x K, w TAPS x K x N and y IMAGES x ROWS x N: a sum over the rows from
 * PADDING above a row on, those that there are. N is a multiple of VECTORS vectors; with one tap it is a matrix product. */
#include "register_tile.h"

#define VECTOR RAMMER_JOIN(rammer_f32x, WIDTH)
#define INSIDE(row, tap) ((uint64_t)((row) + (tap) - PADDING) < ROWS)
#define LOAD(v, lanes) lanes[v] = RAMMER_LOAD(VECTOR, w + ((tap) * K + k) * N + lane0 + v * WIDTH);
#define ADD(row)                                                                                                      \
    if (INSIDE(row, tap)) {                                                                                           \
        const float factor = x[((image * ROWS) + (row) + (tap) - PADDING) * K + k];                                   \
        RAMMER_ADD_PRODUCTS(VECTORS, sum[row], factor, lanes)                                                         \
    }
#define RESULT(v, row)                                                                                                \
    {                                                                                                                 \
        RAMMER_BY_LANE(VECTOR, of_lanes, sum[row][v]);                                                                \
        RAMMER_ONE_VECTOR                                                                                             \
        RAMMER_LANES                                                                                                  \
        for (int64_t i = 0; i < WIDTH; i++) {                                                                         \
            const int64_t lane = lane0 + v * WIDTH + i;                                                               \
            y[(image * ROWS + (row)) * N + lane] = rammer_max_f32(of_lanes[i] + bias[lane], 0.0f);                    \
        }                                                                                                             \
    }
#define RESULTS(row) RAMMER_VECTORS(VECTORS, RESULT, row)

void rammer_run(const float *x, const float *w, const float *bias, float *y) {
    for (int64_t image = 0; image < IMAGES; image++)
        for (int64_t lane0 = 0; lane0 < N; lane0 += VECTORS * WIDTH) {
            VECTOR sum[ROWS][VECTORS] = {{{0}}};
            for (int64_t k = 0; k < K; k++) {
                VECTOR lanes[VECTORS];
                RAMMER_IN_ORDER;
#define tap 0
                RAMMER_VECTORS(VECTORS, LOAD, lanes)
                RAMMER_ROWS(ROWS, ADD)
#undef tap
#if TAPS == 3
                RAMMER_APART;
#define tap 1
                RAMMER_VECTORS(VECTORS, LOAD, lanes)
                RAMMER_ROWS(ROWS, ADD)
#undef tap
                RAMMER_APART;
#define tap 2
                RAMMER_VECTORS(VECTORS, LOAD, lanes)
                RAMMER_ROWS(ROWS, ADD)
#undef tap
#endif
            }
            RAMMER_ROWS(ROWS, RESULTS)
        }
}
