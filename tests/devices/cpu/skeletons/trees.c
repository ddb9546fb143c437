/* y = the leaves of TREES trees, added up for COUNT rows: codes are [3][COUNT], ROWS of a block, y is [WIDTH][COUNT]. With
 * WORDS, bits of words say something of 64 rows each; else rows follow their paths, with ROWS = 1, or permutations do. */
#include "trees.h"

void rammer_run(const uint8_t *in_codes, const int32_t *roots, const uint32_t *words, const float *values, float *y) {
    const rammer_fields fields = {2, 4};
    for (int64_t first = 0; first < COUNT; first += ROWS) {
        const int64_t count = rammer_min_i64(ROWS, COUNT - first);
        float sums[WIDTH * ROWS] __attribute__((aligned(64))) = {0};
#if ROWS == 1
        rammer_trees_u8_w32_f32_row(in_codes + first, COUNT, roots, TREES, words, values, WIDTH, fields, STEPS, sums);
#else
        uint8_t codes[3 * ROWS + 4] __attribute__((aligned(64))) = {0};
        for (int64_t column = 0; column < 3; column++)
            for (int64_t row = 0; row < count; row++)
                codes[column * ROWS + row] = in_codes[column * COUNT + first + row];
#if PERMUTED
        rammer_trees_u8_f32_permuted(codes, ROWS, count, roots, TREES, words, values, WIDTH, fields, STEPS, NODES, sums);
#else
        RAMMER_JOIN(rammer_rows, WORDS) above[TREE_NODES / 2 + 1], node_rows[TREE_NODES + 2], leaf_rows[TREE_NODES / 2 + 2];
        uint8_t inner[TREE_NODES + 2];
        int32_t leaves[TREE_NODES / 2 + 2];
        float table[TREE_NODES / 2 + 66] __attribute__((aligned(64)));
        RAMMER_JOIN(rammer_trees_u8_w32_f32_, WORDS)
        (codes, count, roots, TREES, words, values, WIDTH, fields, STEPS, TREE_NODES, BLEND, inner, above, node_rows,
         leaf_rows, leaves, table, sums);
#endif
#endif
        for (int64_t place = 0; place < WIDTH; place++)
            for (int64_t row = 0; row < count; row++)
                y[place * COUNT + first + row] = sums[place * ROWS + row];
    }
}
