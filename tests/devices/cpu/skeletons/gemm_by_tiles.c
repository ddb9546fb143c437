/* y = x * w in integers, x being of uint8 with K columns, of whose rows SHIFT are absent and zero before the first; w is of
 * int8, N / 16 panels of K / 4 x 16 x 4. UPPER rows are in the first half, LOWER in the second (if HALVES is 3). A step of
 * the sums is of STEP bytes, the last one ends with K. */
#include "byte_tiles.h"

#define UPPER_ROW(row) (x + ((row) - SHIFT) * K + k)
#define LOWER_ROW(row) UPPER_ROW(UPPER + (row))
#define PRODUCTS RAMMER_TILE_PRODUCTS(HALVES, VECTORS, w + n * K + k * 16, K * 16)

void rammer_run(const uint8_t *x, const int8_t *w, int32_t *y) {
    rammer_tiles tiles = {0};
    for (int64_t n = 0; n < N; n += 16 * VECTORS) {
        RAMMER_TILES_BEGIN(HALVES, VECTORS, UPPER, LOWER, STEP)
        for (int64_t k = 0; k + STEP <= K; k += STEP) {
#if SHIFT
            RAMMER_TILE_COPY(0, UPPER, -1 << SHIFT, 0, STEP, UPPER_ROW)
#else
            RAMMER_TILE_LOAD(RAMMER_ROWS_OF_0, UPPER_ROW(0), K);
#endif
#if HALVES == 3
            RAMMER_TILE_LOAD(RAMMER_ROWS_OF_1, LOWER_ROW(0), K);
#endif
            PRODUCTS
            RAMMER_PREFETCH_LINES(2, w + n * K + (k + STEP) * 16)
        }
#if K % STEP
        const int64_t k = K - STEP, skipped = STEP - K % STEP;
        RAMMER_TILE_COPY(0, UPPER, -1 << SHIFT, skipped, STEP, UPPER_ROW)
#if HALVES == 3
        RAMMER_TILE_COPY(1, LOWER, -1, skipped, STEP, LOWER_ROW)
#endif
        PRODUCTS
#endif
        int32_t sums[UPPER + LOWER][16 * VECTORS] RAMMER_ALIGNED;
        RAMMER_TILES_STORE(HALVES, VECTORS, UPPER, sums)
        for (int64_t row = 0; row < UPPER + LOWER; row++)
            for (int64_t lane = 0; lane < 16 * VECTORS; lane++)
                y[row * N + n + lane] = sums[row][lane];
    }
    RAMMER_TILES_END;
}
