/* Sections of a file as programs use them: checked, widened, and made of what they follow from.
 *
 * `rammer.runtime` says the same in NumPy, for files without this library; results are the same bits. Sums and products
 * are never contracted.
 */
#define _GNU_SOURCE
#include <stdbool.h>
#include <string.h>

#ifdef __linux__
#include <sys/mman.h>
#endif
#if defined(__PCLMUL__) && defined(__SSE4_1__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

#include "clock.h"
#include "rammer_runtime.h"

/* --- Checksums: CRC-32 as in zlib. The bits of a byte are the highest powers of a polynomial first. ---------------- */

#ifdef __ARM_FEATURE_CRC32

static uint32_t crc_of(const char *data, uint64_t size_bytes) {
    uint32_t crc = ~0u;
    for (; size_bytes >= 8; data += 8, size_bytes -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        crc = __crc32d(crc, word);
    }
    for (; size_bytes > 0; ++data, --size_bytes)
        crc = __crc32b(crc, (uint8_t)*data);
    return ~crc;
}

#else

enum { TABLES = 8 };

static uint32_t tables[TABLES][256]; /* [n][byte]: what a byte with n bytes behind it leaves */

__attribute__((constructor)) static void fill_tables(void) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t rest = byte;
        for (int bit = 0; bit < 8; ++bit)
            rest = rest >> 1 ^ (rest & 1 ? 0xEDB88320u : 0);
        tables[0][byte] = rest;
    }
    for (int n = 1; n < TABLES; ++n)
        for (uint32_t byte = 0; byte < 256; ++byte)
            tables[n][byte] = tables[n - 1][byte] >> 8 ^ tables[0][tables[n - 1][byte] & 255];
}

/* The remainder of some bytes, behind others that left `crc`. */
static uint32_t by_tables(uint32_t crc, const char *data, uint64_t size_bytes) {
    for (; size_bytes >= TABLES; data += TABLES, size_bytes -= TABLES) {
        uint8_t bytes[TABLES];
        memcpy(bytes, data, TABLES);
        uint32_t rest = 0;
        for (int i = 0; i < TABLES; ++i)
            rest ^= tables[TABLES - 1 - i][bytes[i] ^ (i < 4 ? crc >> 8 * i & 255 : 0)];
        crc = rest;
    }
    for (; size_bytes > 0; ++data, --size_bytes)
        crc = crc >> 8 ^ tables[0][(crc ^ (uint8_t)*data) & 255];
    return crc;
}

#if defined(__PCLMUL__) && defined(__SSE4_1__)

/* A polynomial with so many bytes behind it, without changing the remainder: each half times a power of x. */
static inline __m128i moved(__m128i value, __m128i powers) {
    return _mm_xor_si128(_mm_clmulepi64_si128(value, powers, 0x00), _mm_clmulepi64_si128(value, powers, 0x11));
}

static uint32_t crc_of(const char *data, uint64_t size_bytes) {
    enum { STREAMS = 4, STEP_BYTES = 16 * STREAMS, AHEAD_BYTES = 4096 };
    if (size_bytes < 2 * STEP_BYTES)
        return ~by_tables(~0u, data, size_bytes);
    /* x^(n + 32) and x^(n - 32) modulo the polynomial, bits reversed and shifted by one: n bits on. */
    const __m128i far = _mm_set_epi64x(0x1c6e41596, 0x154442bd4), near = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    __m128i rests[STREAMS];
    for (int i = 0; i < STREAMS; ++i)
        rests[i] = _mm_loadu_si128((const __m128i *)data + i);
    rests[0] = _mm_xor_si128(rests[0], _mm_cvtsi32_si128(~0)); /* the remainder that begins */
    for (data += STEP_BYTES, size_bytes -= STEP_BYTES; size_bytes >= STEP_BYTES; data += STEP_BYTES, size_bytes -= STEP_BYTES) {
        __builtin_prefetch(data + AHEAD_BYTES);
        for (int i = 0; i < STREAMS; ++i)
            rests[i] = _mm_xor_si128(moved(rests[i], far), _mm_loadu_si128((const __m128i *)data + i));
    }
    for (int i = 1; i < STREAMS; ++i)
        rests[i] = _mm_xor_si128(moved(rests[i - 1], near), rests[i]);
    char rest[16];
    memcpy(rest, &rests[STREAMS - 1], sizeof rest);
    return ~by_tables(by_tables(0, rest, sizeof rest), data, size_bytes);
}

#else

static uint32_t crc_of(const char *data, uint64_t size_bytes) {
    return ~by_tables(~0u, data, size_bytes);
}

#endif
#endif

/* --- 16 bits as 32 -------------------------------------------------------------------------------------------------- */

/* By integers, which leaves NaNs as they are, and without small numbers, which a thread may take for zero. */
static inline uint32_t wide_bits(uint16_t half, uint32_t type) {
    const uint32_t magnitude = half & 0x7FFF, moved = magnitude << 13;
    if (type == RAMMER_BFLOAT16)
        return (uint32_t)half << 16;
    const float small = (float)(int32_t)magnitude * 0x1p-24f;
    uint32_t small_bits;
    memcpy(&small_bits, &small, 4);
    const uint32_t normal = moved + (112u << 23) + (magnitude >= 0x7C00 ? 112u << 23 : 0);
    return (magnitude < 0x400 ? small_bits : normal) | (uint32_t)(half & 0x8000) << 16;
}

static inline void widen_as(const uint16_t *halves, uint32_t *words, uint64_t count, uint32_t type) {
    for (uint64_t i = 0; i < count; ++i)
        words[i] = wide_bits(halves[i], type);
}

static void widen(const uint16_t *restrict halves, uint32_t *restrict words, uint64_t count, uint32_t type) {
    if (type == RAMMER_BFLOAT16)
        widen_as(halves, words, count, RAMMER_BFLOAT16);
    else
        widen_as(halves, words, count, RAMMER_FLOAT16);
}

/* --- Pieces ---------------------------------------------------------------------------------------------------------- */

enum { LARGE_BYTES = 2 << 20, ORDINARY_NS = 600000, MOST_LATE_NS = 6000000 };

/* Makes pages that are about to be written, at most a large one.
 *
 * That takes less time than to fill them one by one. Large pages take half of the time, or several times as much where
 * memory has to be put together first, or lent to a virtual machine: the first ones tell. */
static void make_pages(rammer_pieces *work, char *from, char *to) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    enum { POPULATE_WRITE = 23 }; /* MADV_POPULATE_WRITE of Linux 5.14; before that, pages are made as they are filled */
    const uintptr_t page_bytes = 4096, start = (uintptr_t)from / page_bytes * page_bytes;
    if (__atomic_load_n(&work->late_ns, __ATOMIC_RELAXED) >= MOST_LATE_NS) {
        madvise((void *)start, (uintptr_t)to - start, POPULATE_WRITE);
        return;
    }
    const int64_t began_ns = rammer_time_ns(CLOCK_THREAD_CPUTIME_ID);
    madvise((void *)start, (uintptr_t)to - start, POPULATE_WRITE);
    const int64_t late_ns = rammer_time_ns(CLOCK_THREAD_CPUTIME_ID) - began_ns - ORDINARY_NS;
    if (__atomic_add_fetch(&work->late_ns, late_ns, __ATOMIC_RELAXED) >= MOST_LATE_NS)
        madvise(work->memory, work->memory_bytes, MADV_NOHUGEPAGE);
#endif
}

/* Where the large page of an address ends, or what is before that. */
static inline char *large_page_end(char *address, char *end) {
    char *stop = (char *)(((uintptr_t)address / LARGE_BYTES + 1) * LARGE_BYTES);
    return stop < end ? stop : end;
}

static void widen_piece(rammer_pieces *work, const rammer_piece *piece) {
    const uint16_t *halves = (const uint16_t *)piece->from;
    char *to = piece->to, *const end = to + piece->size_bytes / 2 * 4;
    while (to < end) { /* what has just been made is still in the core's cache */
        char *stop = large_page_end(to, end);
        const uint64_t count = (uint64_t)(stop - to) / 4;
        make_pages(work, to, stop);
        widen(halves, (uint32_t *)to, count, piece->type);
        halves += count;
        to = stop;
    }
}

void rammer_check(rammer_pieces *work) {
    for (uint64_t taken; (taken = __atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED)) < work->count;) {
        rammer_piece *piece = &work->pieces[taken];
        if (piece->type == RAMMER_PAGES) {
            for (char *to = piece->to, *stop; to < piece->to + piece->size_bytes; to = stop) {
                stop = large_page_end(to, piece->to + piece->size_bytes);
                make_pages(work, to, stop);
            }
            continue;
        }
        piece->altered = crc_of(piece->from, piece->size_bytes) != piece->checksum;
        if (piece->to != NULL && !piece->altered)
            widen_piece(work, piece);
    }
}

/* --- Constants that follow from less --------------------------------------------------------------------------------- */

enum { LANES = RAMMER_BLOCK, ROWS = RAMMER_BLOCK, TAPS = RAMMER_MOST_TAPS };

typedef double lanes[LANES];

static inline uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* The tap of the weights that is tap `i` of a sum, or `taps` and more where there is none. */
static inline int64_t tap_of(const rammer_line *line, uint32_t sum, uint32_t i) {
    const uint32_t phase = sum / line->groups, group = sum % line->groups;
    return ((int64_t)group * line->length + i) * line->stride + phase;
}

/* Some lanes of some others; or, `along` the lanes, row after row of one other's. */
typedef struct {
    const rammer_making *making;
    uint32_t lane;
    uint32_t other;
    uint32_t count; /* lanes of each row */
    uint32_t rows;
    bool along;
    lanes factors[ROWS];
} tile;

static inline uint32_t lane_of(const tile *tile, uint32_t row) {
    return tile->lane + (tile->along ? row * LANES : 0);
}

static inline uint32_t other_of(const tile *tile, uint32_t row) {
    return tile->other + (tile->along ? 0 : row);
}

static void find_factors(tile *tile) {
    const rammer_making *making = tile->making;
    memset(tile->factors, 0, sizeof tile->factors);
    for (uint32_t row = 0; row < tile->rows; ++row) {
        const double *factors = making->factor + lane_of(tile, row) * making->factor_strides[0] +
                                other_of(tile, row) * making->factor_strides[1];
        for (uint32_t i = 0; i < tile->count; ++i)
            tile->factors[row][i] = factors[i * making->factor_strides[0]];
    }
}

/* One tap of the weights, times its factors: [row][lane], rows `step` apart. */
static void load_tap(const tile *tile, int64_t at, uint32_t step, float *restrict to) {
    const rammer_making *making = tile->making;
    const int64_t by_lane = making->strides[0], by_row = tile->along ? LANES * by_lane : making->strides[1];
    uint32_t raw[ROWS][LANES];
    if (tile->count < LANES)
        memset(raw, 0, sizeof raw);
    if (making->type == RAMMER_FLOAT32) {
        const uint32_t *from = (const uint32_t *)making->from + at;
        for (uint32_t i = 0; i < tile->count; ++i) { /* lanes far apart, of which the core foresees few */
            __builtin_prefetch(from + i * by_lane + ROWS * by_row);
            for (uint32_t row = 0; row < tile->rows; ++row)
                raw[row][i] = from[i * by_lane + row * by_row];
        }
    } else {
        const uint16_t *from = (const uint16_t *)making->from + at;
        for (uint32_t i = 0; i < tile->count; ++i)
            for (uint32_t row = 0; row < tile->rows; ++row)
                raw[row][i] = from[i * by_lane + row * by_row];
        for (uint32_t row = 0; row < tile->rows; ++row)
            for (uint32_t i = 0; i < LANES; ++i)
                raw[row][i] = wide_bits((uint16_t)raw[row][i], making->type);
    }
    for (uint32_t row = 0; row < tile->rows; ++row) {
        float values[LANES];
        memcpy(values, raw[row], sizeof values);
        for (uint32_t i = 0; i < LANES; ++i)
            to[row * step + i] = making->factor == NULL ? values[i] : (float)((double)values[i] * tile->factors[row][i]);
    }
}

/* The taps of a sum: [row of the tile][tap of rows][tap of columns][lane]. */
static void load_taps(const tile *tile, const uint32_t sums[2], float *restrict taps) {
    const rammer_making *making = tile->making;
    const rammer_line *rows = &making->lines[0], *columns = &making->lines[1];
    const uint32_t each = rows->length * columns->length * LANES;
    const int64_t from = tile->lane * making->strides[0] + tile->other * making->strides[1];
    for (uint32_t row = 0; row < rows->length; ++row)
        for (uint32_t column = 0; column < columns->length; ++column) {
            const int64_t at_row = tap_of(rows, sums[0], row), at_column = tap_of(columns, sums[1], column);
            float *to = taps + (row * columns->length + column) * LANES;
            if (at_row < rows->taps && at_column < columns->taps)
                load_tap(tile, from + at_row * making->strides[2] + at_column * making->strides[3], each, to);
            else
                for (uint32_t i = 0; i < tile->rows; ++i)
                    memset(to + i * each, 0, sizeof(float) * LANES);
        }
}

/* The sum of coefficients times values that lie `step` apart, in order; those that are zero are left out. */
static inline void combine(const double *coefficients, uint32_t length, const lanes *values, uint32_t step,
                           lanes total) {
    bool begun = false;
    lanes sum = {0};
    for (uint32_t k = 0; k < length; ++k) {
        const double coefficient = coefficients[k];
        if (coefficient == 0)
            continue;
        if (begun)
            for (uint32_t i = 0; i < LANES; ++i)
                sum[i] += values[k * step][i] * coefficient;
        else
            for (uint32_t i = 0; i < LANES; ++i)
                sum[i] = values[k * step][i] * coefficient;
        begun = true;
    }
    memcpy(total, sum, sizeof sum);
}

/* Whether points are the weights as they are. */
static bool is_plain(const rammer_making *making) {
    bool plain = true;
    for (int i = 0; i < 2; ++i)
        plain &= making->lines[i].points == 1 && making->lines[i].length == 1 && making->lines[i].matrix[0] == 1;
    return plain;
}

/* Where some lanes go that lie as `steps` says, side by side or not. */
static inline void store(float *to, const float *values, const int64_t *steps, uint32_t count, bool side_by_side) {
    if (side_by_side)
        memcpy(to, values, sizeof(float) * LANES);
    else
        for (uint32_t i = 0; i < count; ++i)
            to[steps[i] - steps[0]] = values[i];
}

/* The values at all points, of the taps of one sum for some lanes. `to` is where the first lane's go at point 0. */
static void transform(const rammer_making *making, const float *taps, float *to, const int64_t *lane_steps,
                      uint32_t count, bool side_by_side) {
    const rammer_line *rows = &making->lines[0], *columns = &making->lines[1];
    lanes values[TAPS * TAPS], at_rows[TAPS];
    for (uint32_t k = 0; k < rows->length * columns->length; ++k)
        for (uint32_t i = 0; i < LANES; ++i)
            values[k][i] = taps[k * LANES + i];
    for (uint32_t row = 0; row < rows->points; ++row) {
        for (uint32_t k = 0; k < columns->length; ++k)
            combine(rows->matrix + row * rows->length, rows->length, values + k, columns->length, at_rows[k]);
        for (uint32_t column = 0; column < columns->points; ++column) {
            lanes point;
            float rounded[LANES];
            combine(columns->matrix + column * columns->length, columns->length, at_rows, 1, point);
            for (uint32_t i = 0; i < LANES; ++i)
                rounded[i] = (float)point[i];
            store(to + making->steps[0][row * columns->points + column], rounded, lane_steps, count, side_by_side);
        }
    }
}

static bool are_side_by_side(const int64_t *steps, uint32_t count) {
    bool found = count == LANES;
    for (uint32_t i = 0; i < count; ++i)
        found &= steps[i] == steps[0] + i;
    return found;
}

/* A tile at all points and sums. */
static void make_tile(tile *tile) {
    const rammer_making *making = tile->making;
    const uint32_t taps = making->lines[0].length * making->lines[1].length;
    const bool plain = is_plain(making);
    bool side_by_side[ROWS];
    for (uint32_t row = 0; row < tile->rows; ++row)
        side_by_side[row] = are_side_by_side(making->steps[1] + lane_of(tile, row), tile->count);
    if (making->factor != NULL)
        find_factors(tile);
    float values[ROWS * TAPS * TAPS * LANES];
    for (uint32_t sum = 0; sum < making->lines[0].sums * making->lines[1].sums; ++sum) {
        const uint32_t sums[2] = {sum / making->lines[1].sums, sum % making->lines[1].sums};
        load_taps(tile, sums, values);
        for (uint32_t row = 0; row < tile->rows; ++row) {
            const int64_t *lane_steps = making->steps[1] + lane_of(tile, row);
            const float *own = values + row * taps * LANES;
            float *to = making->to + lane_steps[0] + making->steps[2][other_of(tile, row)] + making->steps[3][sums[0]] +
                        making->steps[4][sums[1]];
            if (plain)
                store(to + making->steps[0][0], own, lane_steps, tile->count, side_by_side[row]);
            else
                transform(making, own, to, lane_steps, tile->count, side_by_side[row]);
        }
    }
}

/* Memory is written in order where it can be: all others of some lanes, or all lanes of some others. */
static void make_block(const rammer_making *making, uint32_t first) {
    tile tile = {.making = making, .lane = first, .count = least(making->lanes - first, LANES)};
    if (!making->by_others) {
        for (; tile.other < making->others; tile.other += ROWS) {
            tile.rows = least(making->others - tile.other, ROWS);
            make_tile(&tile);
        }
        return;
    }
    tile.along = true;
    for (tile.other = first; tile.other < making->others && tile.other < first + RAMMER_BLOCK; ++tile.other)
        for (tile.lane = 0; tile.lane < making->lanes; tile.lane += tile.rows * LANES) {
            const uint32_t left = making->lanes - tile.lane;
            tile.count = least(left, LANES);
            tile.rows = left < LANES ? 1 : least(left / LANES, ROWS);
            make_tile(&tile);
        }
}

void rammer_make(rammer_makings *work) {
    for (;;) {
        const uint64_t taken = __atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED);
        uint64_t making = 0;
        while (making < work->count && taken >= work->ends[making])
            ++making;
        if (making == work->count)
            return;
        const uint64_t first = making == 0 ? 0 : work->ends[making - 1];
        make_block(&work->makings[making], (uint32_t)(taken - first) * RAMMER_BLOCK);
    }
}
