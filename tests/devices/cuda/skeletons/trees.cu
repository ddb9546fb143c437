/* y = the leaves of TREES trees, added up for ROWS rows: codes are [3][ROWS], a block has all rows. */
typedef rammer_tree_walk<CODE, uint32_t, float, 3, 2, 4, DEPTH, STRATEGY> walk;
typedef rammer_trees<walk, ROWS, WIDTH, CAPACITY> trees;

extern "C" __global__ void rammer_run(const CODE *codes, const int32_t *roots, const uint32_t *words, const float *values,
                                      float *y) {
    const rammer_forest<walk> forest = {roots, TREES, TREES, words, values, NODES};
    const auto finish = [&](uint32_t row, uint32_t place, float total) { y[row * WIDTH + place] = total; };
#if EACH
    trees::by_rows<EACH, SIDE>(rammer_scratch, codes, ROWS, 1, ROWS, forest, finish);
#else
    trees::by_pairs<ROOM, SIDE>(rammer_scratch, codes, ROWS, 1, ROWS, forest, finish);
#endif
}
