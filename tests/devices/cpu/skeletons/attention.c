/* Y = softmax(Q K^T / 8 + bias) V of QUERY_COUNT queries and KEY_COUNT keys, bias being QUERY_COUNT x KEY_COUNT. With
 * CAUSAL, query i sees no keys behind key i + KEY_COUNT - QUERY_COUNT.
 *
 * As an rKernel has it: constants for the sizes, functors for elements, scores and results. */
#include "rammer_kernel.h"
#include "register_tile.h"

#define VECTOR RAMMER_JOIN(rammer_f32x, WIDTH)
#if TRANSPOSED_QUERIES
#define QUERIES q + first * DEPTH
#define QUERY_STEP DEPTH
#else
#define QUERY(row, point) q[(first + (row)) * DEPTH + (point)]
#endif
#define KEY(key, point) k[(key) * DEPTH + (point)]
#define VALUE(key, column) v[(key) * COLUMNS + (column)]
#define AT_KEY(key) const int64_t least_row = CAUSAL ? (key) - KEY_COUNT + QUERY_COUNT : 0;
#define SCORE(row, key, product)                                                                                      \
    ({                                                                                                                \
        const int64_t s = first + (row);                                                                              \
        s < least_row ? -INFINITY : (product) * 0.125f + bias[s * KEY_COUNT + (key)];                                 \
    })
#define WEIGHT(row, key, exponential) (exponential)
#define STORE(row, column, sum, total) { y[(first + (row)) * COLUMNS + (column)] = (sum) / (total); }

void rammer_run(const float *q, const float *k, const float *v, const float *bias, float *y) {
    const int64_t whole = QUERY_COUNT / BLOCK_ROWS * BLOCK_ROWS;
    for (int64_t first = 0; first < whole; first += BLOCK_ROWS) {
        const int64_t past = CAUSAL ? rammer_min_i64(first + BLOCK_ROWS + KEY_COUNT - QUERY_COUNT, KEY_COUNT) : KEY_COUNT;
#define ROWS BLOCK_ROWS
#define VECTORS BLOCK_VECTORS
#define PAST_KEY past
#include "attention.h"
#undef ROWS
#undef VECTORS
#undef PAST_KEY
    }
#if QUERY_COUNT % BLOCK_ROWS
    const int64_t first = whole;
#define ROWS (QUERY_COUNT % BLOCK_ROWS)
#define VECTORS REST_VECTORS
#define PAST_KEY KEY_COUNT
#include "attention.h"
#endif
}
