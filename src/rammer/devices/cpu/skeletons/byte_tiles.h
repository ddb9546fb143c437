/* Blocks of sums of products of bytes by tiles: up to 32 rows by 32 lanes, two tiles of 16 (rammer_tiles.h) each way.
 *
 *     RAMMER_TILES_BEGIN
 *     for each step of the sums, of up to 64 bytes
 *         the rows of each half: RAMMER_TILE_LOAD, where they lie evenly, or RAMMER_TILE_COPY
 *         RAMMER_TILE_PRODUCTS
 *     RAMMER_TILES_STORE
 *
 * `halves` are the tiles of rows: 1 the first, 2 the second, 3 both. `vectors` are those of lanes, 1 or 2.
 */
#ifndef RAMMER_BYTE_TILES_H
#define RAMMER_BYTE_TILES_H

#include "rammer_tiles.h"
#include "register_tile.h"

/* Numbers of tiles: of sums, by half and vector; of rows, by half; of lanes, by vector. */
#define RAMMER_SUMS_00 0
#define RAMMER_SUMS_01 1
#define RAMMER_SUMS_10 2
#define RAMMER_SUMS_11 3
#define RAMMER_ROWS_OF_0 4
#define RAMMER_ROWS_OF_1 5
#define RAMMER_LANES_OF_0 6
#define RAMMER_LANES_OF_1 7

/* what(half, ...) for each of some halves. */
#define RAMMER_HALVES(halves, what, ...) RAMMER_JOIN(RAMMER_HALVES_, halves)(what, __VA_ARGS__)
#define RAMMER_HALVES_1(what, ...) what(0, __VA_ARGS__)
#define RAMMER_HALVES_2(what, ...) what(1, __VA_ARGS__)
#define RAMMER_HALVES_3(what, ...) what(0, __VA_ARGS__) what(1, __VA_ARGS__)

/* Sums of zero: of `upper` and `lower` rows in the halves, `bytes` at a step. */
#define RAMMER_TILES_BEGIN(halves, vectors, upper, lower, bytes)                                                      \
    RAMMER_TILES_ARE(upper, lower, bytes)                                                                             \
    RAMMER_HALVES(halves, RAMMER_ZERO_HALF, vectors)
#define RAMMER_ZERO_HALF(half, vectors) RAMMER_VECTORS(vectors, RAMMER_ZERO_SUMS, half)
#define RAMMER_ZERO_SUMS(v, half) RAMMER_TILE_ZERO(RAMMER_SUMS_##half##v);

/* The rows of a half, from `place(row)`; zero are those that `there` has no bit for, and the first `skipped` of the bytes. */
#define RAMMER_TILE_COPY(half, rows, there, skipped, bytes, place)                                                    \
    {                                                                                                                 \
        uint8_t copies[16][64] RAMMER_ALIGNED;                                                                        \
        RAMMER_VECTORS(rows, RAMMER_COPY_ROW, there, skipped, bytes, place)                                           \
        RAMMER_TILE_LOAD(RAMMER_ROWS_OF_##half, copies, 64);                                                          \
    }
#define RAMMER_COPY_ROW(row, there, skipped, bytes, place)                                                            \
    if (skipped) RAMMER_TILE_PADDING(copies[row], skipped);                                                           \
    if ((there) >> (row) & 1)                                                                                         \
        RAMMER_TILE_ROW(copies[row] + (skipped), place(row) + (skipped), (bytes) - (skipped));                        \
    else                                                                                                              \
        RAMMER_TILE_PADDING(copies[row] + (skipped), (bytes) - (skipped));

/* The loaded rows of halves by the lanes of vectors, whose tiles lie `apart` bytes from each other. */
#define RAMMER_TILE_PRODUCTS(halves, vectors, lanes, apart)                                                           \
    RAMMER_VECTORS(vectors, RAMMER_MULTIPLY_TILES, halves, lanes, apart)
#define RAMMER_MULTIPLY_TILES(v, halves, lanes, apart)                                                                \
    RAMMER_TILE_LOAD(RAMMER_LANES_OF_##v, (lanes) + v * (apart), 64);                                                 \
    RAMMER_HALVES(halves, RAMMER_MULTIPLY_TILE, v)
#define RAMMER_MULTIPLY_TILE(half, v)                                                                                 \
    RAMMER_TILE_DOT(RAMMER_SUMS_##half##v, RAMMER_ROWS_OF_##half, RAMMER_LANES_OF_##v);

/* sums[row][lane]: those of the lower half begin behind the `upper` ones. */
#define RAMMER_TILES_STORE(halves, vectors, upper, sums)                                                              \
    RAMMER_HALVES(halves, RAMMER_STORE_HALF, vectors, upper, sums)
#define RAMMER_STORE_HALF(half, vectors, upper, sums) RAMMER_VECTORS(vectors, RAMMER_STORE_SUMS, half, upper, sums)
#define RAMMER_STORE_SUMS(v, half, upper, sums)                                                                       \
    RAMMER_TILE_STORE(RAMMER_SUMS_##half##v, &sums[half * (upper)][v * 16], sizeof *sums);

/* Prefetches so many lines of 64 bytes. */
#define RAMMER_PREFETCH_LINES(count, place) RAMMER_VECTORS(count, RAMMER_PREFETCH_LINE, place)
#define RAMMER_PREFETCH_LINE(line, place) RAMMER_PREFETCH((const char *)(place) + 64 * line);

#endif
