/* C = max(A B^T + bias, 0) of a block, batch by batch: A is BATCHES x ROWS x K, B is BATCHES x COLUMNS x K.
 *
 * As an rKernel has it: constants for the sizes, functors for elements and the epilogue. B counts as constant. */
typedef rammer_gemm<WARP_TILE, 1, M, N, TILE_K, SLICES, ROWS, COLUMNS, BATCHES, OVERLAPPED> gemm;
typedef rammer_operand<ELEMENT, 0, M, TILE_K + PADDING, TILE_K> a_tile;
typedef rammer_operand<WEIGHT, M *(TILE_K + PADDING) * sizeof(ELEMENT), N, TILE_K + PADDING, TILE_K> b_tile;
typedef rammer_k<int32_t, OVERLAPPED, TILE_K, K> steps;
enum { STAGE_BYTES = (M + N) * (TILE_K + PADDING) * sizeof(ELEMENT) };

extern "C" __global__ void rammer_run(const ELEMENT *a, const WEIGHT *b, const float *bias, float *c) {
    const auto begin = [&] { return true; };
    const auto inside = [&](const rammer_tile &) { return true; };
    const auto constants = [&](const rammer_tile &block, const steps &at, char *stage) {
        b_tile::copy<4 / sizeof(ELEMENT), false>(stage, [&](uint32_t point, uint32_t element) {
            const uint32_t column = block.column0 + point, k = at.element[0] + element;
            const bool present = column < COLUMNS & k < K;
            return rammer_piece<WEIGHT>{b + (block.batch * COLUMNS + column) * K + k, present};
        });
    };
    const auto others = [&](const rammer_tile &block, const steps &at, char *stage) {
        a_tile::compute<false>(stage, [&](uint32_t point, uint32_t element) {
            const uint32_t row = block.row0 + point, k = at.element[0] + element;
            return row < ROWS && k < K ? a[(block.batch * ROWS + row) * K + k] : ELEMENT(0);
        });
    };
    const auto at = [](const rammer_tile &block, uint32_t place, uint32_t *row, uint32_t *column) {
        *row = block.row0 + place / N;
        *column = block.column0 + place % N;
        return *row < ROWS && *column < COLUMNS;
    };
    struct early {
        float bias = 0;
    };
    const auto load = [&](const rammer_tile &block, uint32_t place, early &into) {
        uint32_t row, column;
        if (at(block, place, &row, &column))
            into.bias = bias[column];
    };
    const auto finish = [&](const rammer_tile &block, uint32_t place, const gemm::Sum *parts, const early &loaded) {
        uint32_t row, column;
        if (at(block, place, &row, &column))
            c[(block.batch * ROWS + row) * COLUMNS + column] = fmaxf((float)gemm::total<0>(parts, place) + loaded.bias, 0.0f);
    };
    struct result {
        float c;
    };
    const auto compute = [&](const rammer_tile &block, uint32_t place, const gemm::Sum *parts, result &into) {
        uint32_t row, column;
        if (at(block, place, &row, &column))
            into.c = fmaxf((float)gemm::total<0>(parts, place) + bias[column], 0.0f);
    };
    const auto store = [&](const rammer_tile &block, uint32_t place, const result &computed) {
        uint32_t row, column;
        if (at(block, place, &row, &column))
            c[(block.batch * ROWS + row) * COLUMNS + column] = computed.c;
    };
    const auto group = rammer_group_of<steps, STAGES, STAGE_BYTES, rammer_term<0, a_tile, b_tile>>(constants, others);
    if constexpr (AT_ONCE)
        gemm::run(rammer_scratch, begin, inside, rammer_at_once<gemm, 1, early>(load, finish), group);
    else
        gemm::run(rammer_scratch, begin, inside, rammer_in_turns<gemm, 1, result>(compute, store), group);
}
