/* Sums of products of bytes by tiles (AMX): of 16 rows by 16 lanes of int32, up to 64 bytes of the sums at a time.
 *
 * Tiles 0 and 1 have the sums of the first 16 rows (of lanes 0 to 15 and 16 to 31), 2 and 3 those of the next 16, 4 and
 * 5 what rows are multiplied by, 6 and 7 what lanes are. Without the instructions, or where the system does not grant
 * them, vectors stand for tiles: as exact, and slower.
 */
#ifndef RAMMER_TILES_H
#define RAMMER_TILES_H

#include "rammer_kernel.h"

#if defined(RAMMER_TILES_GRANTED) && defined(__AMX_INT8__) && defined(__AMX_TILE__)

/* What a function knows of the tiles: their shapes, as one number. */
typedef struct {
    int32_t shapes;
} rammer_tiles;

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} rammer_tile_shapes;

#define RAMMER_SET_TILES(upper, lower, k)                                                                             \
    do {                                                                                                              \
        static const rammer_tile_shapes shapes __attribute__((aligned(64))) = {                                       \
            .palette = 1,                                                                                             \
            .bytes = {64, 64, (lower) ? 64 : 0, (lower) ? 64 : 0, k, (lower) ? (k) : 0, 64, 64},                      \
            .rows = {upper, upper, lower, lower, upper, lower, (k) / 4, (k) / 4},                                     \
        };                                                                                                            \
        __asm__ volatile("ldtilecfg %0" ::"m"(shapes));                                                               \
    } while (0)
#define RAMMER_TEXT(number) RAMMER_TEXT_OF(number)
#define RAMMER_TEXT_OF(number) #number
#define RAMMER_TILES_END __asm__ volatile("tilerelease" ::)
#define RAMMER_TILE_ZERO(tile) __asm__ volatile("tilezero %%tmm" RAMMER_TEXT(tile)::)
#define RAMMER_TILE_LOAD(tile, address, stride)                                                                       \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" RAMMER_TEXT(tile)::"r"(address), "r"((int64_t)(stride)) : "memory")
#define RAMMER_TILE_STORE(tile, address, stride)                                                                      \
    __asm__ volatile("tilestored %%tmm" RAMMER_TEXT(tile) ", (%0,%1,1)" ::"r"(address), "r"((int64_t)(stride)) : "memory")
#define RAMMER_TILE_DOT(sums, rows, lanes)                                                                            \
    __asm__ volatile("tdpbusd %%tmm" RAMMER_TEXT(lanes) ", %%tmm" RAMMER_TEXT(rows) ", %%tmm" RAMMER_TEXT(sums)::)

#else

typedef struct {
    int32_t shapes;
    rammer_i32x16 row[8][16];
} rammer_tiles;

RAMMER_INLINE int64_t rammer_tile_rows(const rammer_tiles *tiles, int tile) {
    const int half = tile < 4 ? tile / 2 : tile - 4;
    return tile >= 6 ? (tiles->shapes >> 16) / 4 : tiles->shapes >> 8 * half & 255;
}

RAMMER_INLINE void rammer_tile_load(rammer_tiles *tiles, int tile, const void *from, int64_t stride) {
    const uint64_t bytes = tile >= 6 ? 64 : (uint64_t)tiles->shapes >> 16;
    for (int64_t row = 0; row < rammer_tile_rows(tiles, tile); row++)
        __builtin_memcpy(&tiles->row[tile][row], (const char *)from + row * stride, bytes);
}

RAMMER_INLINE void rammer_tile_store(const rammer_tiles *tiles, int tile, void *to, int64_t stride) {
    for (int64_t row = 0; row < rammer_tile_rows(tiles, tile); row++)
        __builtin_memcpy((char *)to + row * stride, &tiles->row[tile][row], 64);
}

RAMMER_INLINE void rammer_tile_dot(rammer_tiles *tiles, int sums, int rows, int lanes) {
    for (int64_t row = 0; row < rammer_tile_rows(tiles, rows); row++)
        for (int64_t quad = 0; quad < rammer_tile_rows(tiles, lanes); quad++)
            tiles->row[sums][row] =
                RAMMER_DOT_16(tiles->row[sums][row], tiles->row[rows][row][quad], tiles->row[lanes][quad]);
}

#define RAMMER_SET_TILES(upper, lower, k) (void)0
#define RAMMER_TILES_END (void)0
#define RAMMER_TILE_ZERO(tile) __builtin_memset(tiles.row[tile], 0, sizeof tiles.row[tile])
#define RAMMER_TILE_LOAD(tile, address, stride) rammer_tile_load(&tiles, tile, address, stride)
#define RAMMER_TILE_STORE(tile, address, stride) rammer_tile_store(&tiles, tile, address, stride)
/* sums += rows * lanes: four bytes of a row, uint8, by those of each lane, int8. */
#define RAMMER_TILE_DOT(sums, rows, lanes) rammer_tile_dot(&tiles, sums, rows, lanes)

#endif

/* How many rows the tiles of each half have (none: 0), and how many bytes of the sums are multiplied at a time. Telling
 * the processor takes as long as ten products do, so it is told only what is new. */
#define RAMMER_TILES_ARE(upper, lower, k)                                                                             \
    if (tiles.shapes != ((upper) | (lower) << 8 | (k) << 16)) {                                                       \
        tiles.shapes = (upper) | (lower) << 8 | (k) << 16;                                                            \
        RAMMER_SET_TILES(upper, lower, k);                                                                            \
    }

/* Where rows do not lie evenly they are copied, and what is padding is zero. */
#define RAMMER_TILE_ROW(target, address, bytes) __builtin_memcpy(target, address, bytes)
#define RAMMER_TILE_PADDING(target, bytes) __builtin_memset(target, 0, bytes)

#endif
