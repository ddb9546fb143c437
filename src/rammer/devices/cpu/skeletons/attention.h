/* The skeleton `attention`: one pass over the keys for a block of rows, which lie in the lanes of vectors.
 *
 *     queries[depth][rows] = the queries, sums[columns][rows] = 0, greatest[rows] = -inf, totals[rows] = 0
 *     for each block of keys
 *       scores[keys][rows] = key (a scalar) * query (a vector), summed in registers; then scale, mask, ...
 *       greatest, and by how much that rescales what was summed
 *       scores become weights = exp(scores - greatest); totals
 *       sums[columns][rows] = sums * rescale + value (a scalar) * weight (a vector), summed in registers
 *     for each row and column: the elementwise rest, store
 *
 * With rows in lanes, greatest scores and totals need no operations across lanes, and keys and values are read as they
 * lie, whatever their strides. What is laid out anew are the queries and the results, once for all keys.
 *
 * A block of code, included where a block of rows is computed. Rows count from the first of the block. It takes
 *
 *     ROWS, VECTORS, VECTOR, WIDTH     rows, in how many vectors of which type, of how many lanes
 *     KEYS, PAST_KEY                   keys of a block; where those end that any of the rows gives a weight
 *     DEPTH, COLUMNS                   numbers of a query or a key; of a value
 *     KEY_SIDE, COLUMN_SIDE            keys, or columns, whose sums are kept in registers together: 32 at most
 *     QUERIES, QUERY_STEP              the first query, and how far apart they lie, if they are float32; else
 *     QUERY(row, point)                a number of a query
 *     KEY(key, point)                  a number of a key
 *     VALUE(key, column)               a number of a value
 *     STAGE_KEYS, STAGE_VALUES         whether these numbers are computed for each block of keys first, and kept
 *     AT_KEY(key)                      declares what all scores of a key take
 *     SCORE(row, key, product)         what is made of a sum of products; left out where that is the score
 *     WEIGHT(row, key, exponential)    what values are multiplied by
 *     STORE(row, column, sum, total)   stores what is made of a weighted sum and the sum of the exponentials
 */
{
    enum { LANES = VECTORS * WIDTH };
    float queries[DEPTH * LANES] RAMMER_ALIGNED;
    float sums[COLUMNS * LANES] RAMMER_ALIGNED;
    float scores[(KEYS > COLUMNS ? KEYS : COLUMNS) * LANES] RAMMER_ALIGNED;
    float greatest[LANES] RAMMER_ALIGNED, totals[LANES] RAMMER_ALIGNED;
    float shift[LANES] RAMMER_ALIGNED, rescale[LANES] RAMMER_ALIGNED;

#ifdef QUERIES
    RAMMER_JOIN(rammer_transpose_f32x, WIDTH)(QUERIES, QUERY_STEP, ROWS, DEPTH, queries, LANES);
#else
    for (int64_t row = 0; row < ROWS; row++) {
        RAMMER_IN_ORDER;
        for (int64_t point = 0; point < DEPTH; point++) {
            RAMMER_IN_ORDER;
            queries[point * LANES + row] = QUERY(row, point);
        }
    }
#endif
    if (ROWS < LANES) {
        for (int64_t point = 0; point < DEPTH; point++) {
            RAMMER_IN_ORDER;
            RAMMER_LANES
            for (int64_t row = ROWS; row < LANES; row++)
                queries[point * LANES + row] = 0;
        }
    }
    RAMMER_LANES
    for (int64_t i = 0; i < COLUMNS * LANES; i++)
        sums[i] = 0;
    RAMMER_LANES
    for (int64_t i = 0; i < LANES; i++) {
        greatest[i] = -INFINITY;
        totals[i] = 0;
    }

    for (int64_t first_key = 0; first_key < PAST_KEY; first_key += KEYS) {
        RAMMER_IN_ORDER;
        const int64_t past_key = PAST_KEY % KEYS == 0 ? first_key + KEYS : rammer_min_i64(first_key + KEYS, PAST_KEY);

        /* Scores as far as they are sums of products. */
#if STAGE_KEYS
        float keys[KEYS * DEPTH];
        for (int64_t key = first_key; key < past_key; key++) {
            RAMMER_IN_ORDER;
            for (int64_t point = 0; point < DEPTH; point++) {
                RAMMER_IN_ORDER;
                keys[(key - first_key) * DEPTH + point] = KEY(key, point);
            }
        }
#define KEY_AT(key, point) keys[((key) - first_key) * DEPTH + (point)]
#else
#define KEY_AT(key, point) KEY(key, point)
#endif
#define LOAD_QUERIES(v, w) w[v] = RAMMER_LOAD(VECTOR, queries + point * LANES + v * WIDTH);
#define ADD_KEY(i)                                                                                                    \
    {                                                                                                                 \
        const float number = KEY_AT(key + i, point);                                                                  \
        RAMMER_ADD_PRODUCTS(VECTORS, sum[i], number, w)                                                               \
    }
#define STORE_SCORE(v, i) RAMMER_STORE(VECTOR, scores + (key - first_key + i) * LANES + v * WIDTH, sum[i][v]);
#define STORE_SCORES(i) RAMMER_VECTORS(VECTORS, STORE_SCORE, i)
#define SUM_SCORES(count)                                                                                             \
    {                                                                                                                 \
        VECTOR sum[count][VECTORS] = {{{0}}};                                                                         \
        for (int64_t point = 0; point < DEPTH; point++) {                                                             \
            RAMMER_IN_ORDER;                                                                                          \
            VECTOR w[VECTORS];                                                                                        \
            RAMMER_VECTORS(VECTORS, LOAD_QUERIES, w)                                                                  \
            RAMMER_ROWS(count, ADD_KEY)                                                                               \
        }                                                                                                             \
        RAMMER_ROWS(count, STORE_SCORES)                                                                              \
    }
        RAMMER_IN_GROUPS(key, first_key, past_key, KEY_SIDE, SUM_SCORES)
#undef SUM_SCORES
#undef STORE_SCORES
#undef STORE_SCORE
#undef ADD_KEY
#undef LOAD_QUERIES
#undef KEY_AT

        /* What is done to the products; then the greatest of each row, and by how much that rescales. */
        RAMMER_LANES
        for (int64_t i = 0; i < LANES; i++)
            shift[i] = greatest[i];
        for (int64_t key = first_key; key < past_key; key++) {
            RAMMER_IN_ORDER;
            float *const of_key = scores + (key - first_key) * LANES;
#ifdef SCORE
            AT_KEY(key)
            RAMMER_LANES
            for (int64_t row = 0; row < ROWS; row++)
                of_key[row] = SCORE(row, key, of_key[row]);
#endif
            RAMMER_LANES
            for (int64_t i = 0; i < LANES; i++)
                shift[i] = rammer_max_f32(shift[i], of_key[i]);
        }
        RAMMER_LANES
        for (int64_t i = 0; i < LANES; i++) {
            const float most = shift[i];
            /* A row whose scores are all minus infinity so far has weights of 0. */
            shift[i] = most == -INFINITY ? 0.0f : most;
            rescale[i] = rammer_decay_f32(greatest[i] - shift[i]);
            greatest[i] = most;
            totals[i] *= rescale[i];
        }

        /* Scores become weights. */
        for (int64_t key = first_key; key < past_key; key++) {
            RAMMER_IN_ORDER;
            float *const of_key = scores + (key - first_key) * LANES;
            RAMMER_LANES
            for (int64_t row = 0; row < LANES; row++) {
                const float exponential = rammer_decay_f32(of_key[row] - shift[row]);
                totals[row] += exponential;
                of_key[row] = WEIGHT(row, key, exponential);
            }
        }

        /* Weighted values, added to what was summed before. */
#if STAGE_VALUES
        float values[KEYS * COLUMNS];
        for (int64_t key = first_key; key < past_key; key++) {
            RAMMER_IN_ORDER;
            for (int64_t column = 0; column < COLUMNS; column++) {
                RAMMER_IN_ORDER;
                values[(key - first_key) * COLUMNS + column] = VALUE(key, column);
            }
        }
#define VALUE_AT(key, column) values[((key) - first_key) * COLUMNS + (column)]
#else
#define VALUE_AT(key, column) VALUE(key, column)
#endif
#define LOAD_WEIGHTS(v, w) w[v] = RAMMER_LOAD(VECTOR, scores + (key - first_key) * LANES + v * WIDTH);
#define ADD_VALUE(i)                                                                                                  \
    {                                                                                                                 \
        const float number = VALUE_AT(key, column + i);                                                               \
        RAMMER_ADD_PRODUCTS(VECTORS, sum[i], number, w)                                                               \
    }
#define RESCALE_SUM(v, i)                                                                                             \
    sum[i][v] = RAMMER_LOAD(VECTOR, sums + (column + i) * LANES + v * WIDTH) * RAMMER_LOAD(VECTOR, rescale + v * WIDTH);
#define RESCALE_SUMS(i) RAMMER_VECTORS(VECTORS, RESCALE_SUM, i)
#define STORE_SUM(v, i) RAMMER_STORE(VECTOR, sums + (column + i) * LANES + v * WIDTH, sum[i][v]);
#define STORE_SUMS(i) RAMMER_VECTORS(VECTORS, STORE_SUM, i)
#define SUM_VALUES(count)                                                                                             \
    {                                                                                                                 \
        VECTOR sum[count][VECTORS];                                                                                   \
        RAMMER_ROWS(count, RESCALE_SUMS)                                                                              \
        for (int64_t key = first_key; key < past_key; key++) {                                                        \
            RAMMER_IN_ORDER;                                                                                          \
            VECTOR w[VECTORS];                                                                                        \
            RAMMER_VECTORS(VECTORS, LOAD_WEIGHTS, w)                                                                  \
            RAMMER_ROWS(count, ADD_VALUE)                                                                             \
        }                                                                                                             \
        RAMMER_ROWS(count, STORE_SUMS)                                                                                \
    }
        RAMMER_IN_GROUPS(column, 0, COLUMNS, COLUMN_SIDE, SUM_VALUES)
#undef SUM_VALUES
#undef STORE_SUMS
#undef STORE_SUM
#undef RESCALE_SUMS
#undef RESCALE_SUM
#undef ADD_VALUE
#undef LOAD_WEIGHTS
#undef VALUE_AT
    }

    /* Results of one row after the other; the scores are no longer needed. */
    RAMMER_JOIN(rammer_transpose_f32x, WIDTH)(sums, LANES, COLUMNS, ROWS, scores, COLUMNS);
    for (int64_t row = 0; row < ROWS; row++) {
        RAMMER_IN_ORDER;
        /* Of a row whose scores are all minus infinity the softmax is undefined. */
        const float total = greatest[row] == -INFINITY ? NAN : totals[row];
        RAMMER_LANES
        for (int64_t column = 0; column < COLUMNS; column++)
            STORE(row, column, scores[row * COLUMNS + column], total);
    }
}
