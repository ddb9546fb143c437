/* Y = softmax(Q K^T / 8 + bias) V of a block, head by head: Q is HEADS x QUERIES x DEPTH, K and V of all heads are
 * KEYS x DEPTH and KEYS x WIDTH, bias is QUERIES x KEYS. With CAUSAL, query i sees no keys behind key i + KEYS - QUERIES.
 *
 * As an rKernel has it: constants for the sizes, functors for elements and scores. */
typedef rammer_operand<ELEMENT, 0, TILE_ROWS, DEPTH + PADDING, DEPTH> queries_tile;
typedef rammer_attention_team<ROW_WARPS * COLUMN_WARPS, TEAMS> team;
typedef rammer_operand<ELEMENT, 0, TEAM_KEYS, DEPTH + PADDING, DEPTH, team> keys_tile;
typedef rammer_operand<ELEMENT, keys_tile::BYTES, TEAM_KEYS, TILE_COLUMNS + PADDING, TILE_COLUMNS, team> values_tile;
typedef rammer_attention<WARP_TILE, ROW_WARPS, COLUMN_WARPS, TEAMS, STAGES, queries_tile, keys_tile, values_tile> attention;

extern "C" __global__ void rammer_run(
    const ELEMENT *q, const ELEMENT *k, const ELEMENT *v, const float *bias, float *y
) {
    constexpr int chunk = 8 / sizeof(ELEMENT);
    for (uint32_t head = 0; head < HEADS; ++head)
        for (uint32_t row0 = 0; row0 < QUERIES; row0 += TILE_ROWS) {
            const auto queries = [&](char *stage) {
                queries_tile::copy<chunk, false>(stage, [&](uint32_t point, uint32_t element) {
                    const uint32_t row = row0 + point;
                    return rammer_piece<ELEMENT>{q + (head * QUERIES + row) * DEPTH + element, row < QUERIES};
                });
            };
            const auto keys = [&](uint32_t first, char *stage) {
                keys_tile::copy<chunk, false>(stage, [&](uint32_t point, uint32_t element) {
                    return rammer_piece<ELEMENT>{k + (first + point) * DEPTH + element, first + point < KEYS};
                });
            };
            const auto values = [&](uint32_t first, char *stage) {
                values_tile::compute<false>(stage, [&](uint32_t point, uint32_t element) {
                    const uint32_t key = first + point;
                    return key < KEYS && element < WIDTH ? v[key * WIDTH + element] : ELEMENT(0);
                });
            };
            const auto score = [&](uint32_t place, uint32_t key, float product) {
                const uint32_t row = row0 + place;
                if (row >= QUERIES)
                    return product;
                if (CAUSAL && key > row + KEYS - QUERIES)
                    return -INFINITY;
                return product * 0.125f + bias[row * KEYS + min(key, KEYS - 1)];
            };
            const uint32_t past = CAUSAL ? row0 + TILE_ROWS + KEYS - QUERIES : KEYS;
            attention::run(rammer_scratch, [] { return true; }, past < KEYS ? past : KEYS, queries, keys, values, score);
            const float *sums = (const float *)rammer_scratch;
            for (uint32_t place = threadIdx.x; place < TILE_ROWS * WIDTH; place += RAMMER_THREADS) {
                const uint32_t row = place / WIDTH, column = place % WIDTH;
                if (row0 + row < QUERIES)
                    y[(head * QUERIES + row0 + row) * WIDTH + column] =
                        sums[row * attention::PITCH + column] / sums[attention::TOTALS + row];
            }
            __syncthreads();
        }
}
