/* Walks of rows through decision trees (tiling/trees.py says what they are).
 *
 * Either each row follows its path, several rows at a time; or, for 64 rows and all nodes of a tree at once, bit r of a
 * word says something of row r: that its code is above a node's bound, then that it comes to a node, and at last of
 * which leaf's number a bit is set (after QuickScorer and its vectorised forms, Lucchese et al. 2015 and Ye et al. 2018).
 */
#ifndef RAMMER_TREES_H
#define RAMMER_TREES_H

#include <stdint.h>

#include "rammer_kernel.h"

/* What bits of a node's word are what: the highest its column, the lowest how much the greatest bound is above its own,
 * those between its step. */
typedef struct {
    int32_t column_bits, bound_bits;
} rammer_fields;

#define RAMMER_WORDS(word, word_t)                                                                                    \
    RAMMER_INLINE int64_t rammer_column_##word(word_t node, rammer_fields fields) {                                   \
        return (int64_t)(node >> (8 * (int)sizeof(word_t) - fields.column_bits));                                     \
    }                                                                                                                 \
    /* The step, and one more for a code that is above the bound: it carries. */                                      \
    RAMMER_INLINE int32_t rammer_step_##word(word_t node, uint32_t code, rammer_fields fields) {                      \
        return (int32_t)(((node & ((word_t)-1 >> fields.column_bits)) + code) >> fields.bound_bits);                  \
    }                                                                                                                 \
    RAMMER_INLINE uint32_t rammer_bound_##word(word_t node, rammer_fields fields) {                                   \
        return (uint32_t)(~node & (((word_t)1 << fields.bound_bits) - 1));                                            \
    }

RAMMER_WORDS(w32, uint32_t)
RAMMER_WORDS(w64, uint64_t)

enum { RAMMER_TOP_LEVELS = 5 }; /* of a tree, whose nodes two vectors hold */

/* --- Words of 64 rows --------------------------------------------------------------------------------------------- */

RAMMER_VECTOR(uint8_t, 32, rammer_u8x32)
RAMMER_VECTOR(uint8_t, 64, rammer_u8x64)
RAMMER_VECTOR(uint16_t, 32, rammer_u16x32)
typedef char rammer_char64 __attribute__((vector_size(64)));
typedef char rammer_char32 __attribute__((vector_size(32)));
typedef char rammer_char16 __attribute__((vector_size(16)));
typedef char rammer_char16_at __attribute__((vector_size(16), aligned(1)));
typedef short rammer_short32 __attribute__((vector_size(64)));

/* Which of 64 bytes, each 0 or 255, are set. */
RAMMER_INLINE uint64_t rammer_set_bytes(const uint8_t *bytes) {
    uint64_t found = 0;
#if defined(__AVX2__)
    for (int i = 0; i < 64; i += 32)
        found |= (uint64_t)(uint32_t)__builtin_ia32_pmovmskb256((rammer_char32)RAMMER_LOAD(rammer_u8x32, bytes + i)) << i;
#elif defined(__SSE2__)
    for (int i = 0; i < 64; i += 16)
        found |= (uint64_t)(uint32_t)__builtin_ia32_pmovmskb128((rammer_char16)RAMMER_LOAD(rammer_u8x16, bytes + i)) << i;
#else
    for (int i = 0; i < 64; i += 8) {
        uint64_t eight = 0; /* byte r moves to bit r of the highest byte */
        for (int r = 0; r < 8; r++) eight |= (uint64_t)(bytes[i + r] & 1) << r;
        found |= eight << i;
    }
#endif
    return found;
}

/* Which of 64 codes are above a bound. */
RAMMER_INLINE uint64_t rammer_above_u8(const uint8_t *codes, uint32_t bound) {
#if defined(__AVX512BW__)
    const rammer_u8x64 bounds = (rammer_u8x64){0} + (uint8_t)bound;
    return (uint64_t)__builtin_ia32_ucmpb512_mask((rammer_char64)RAMMER_LOAD(rammer_u8x64, codes), (rammer_char64)bounds, 6,
                                                  (uint64_t)-1);
#else
    uint8_t bytes[64] __attribute__((aligned(64)));
    RAMMER_LANES
    for (int r = 0; r < 64; r++) bytes[r] = codes[r] > (uint8_t)bound ? 255 : 0;
    return rammer_set_bytes(bytes);
#endif
}

RAMMER_INLINE uint64_t rammer_above_u16(const uint16_t *codes, uint32_t bound) {
#if defined(__AVX512BW__)
    const rammer_u16x32 bounds = (rammer_u16x32){0} + (uint16_t)bound;
    const rammer_short32 low = (rammer_short32)RAMMER_LOAD(rammer_u16x32, codes);
    const rammer_short32 high = (rammer_short32)RAMMER_LOAD(rammer_u16x32, codes + 32);
    const uint32_t first = __builtin_ia32_ucmpw512_mask(low, (rammer_short32)bounds, 6, (uint32_t)-1);
    const uint32_t second = __builtin_ia32_ucmpw512_mask(high, (rammer_short32)bounds, 6, (uint32_t)-1);
    return (uint64_t)second << 32 | first;
#else
    uint8_t bytes[64] __attribute__((aligned(64)));
    RAMMER_LANES
    for (int r = 0; r < 64; r++) bytes[r] = codes[r] > (uint16_t)bound ? 255 : 0;
    return rammer_set_bytes(bytes);
#endif
}

/* Of each of 64 rows the value of the leaf whose word, `step` apart from the next, has its bit. */
#if defined(__AVX512DQ__)
typedef long long rammer_long8 __attribute__((vector_size(64)));
#if defined(__clang__)
#define RAMMER_CHOSEN_D(mask, bits, other) __builtin_ia32_selectd_512(mask, (rammer_i32x16)(bits), (rammer_i32x16)(other))
#define RAMMER_CHOSEN_Q(mask, bits, other) __builtin_ia32_selectq_512(mask, (rammer_long8)(bits), (rammer_long8)(other))
#else
#define RAMMER_CHOSEN_D(mask, bits, other) __builtin_ia32_blendmd_512_mask((rammer_i32x16)(other), (rammer_i32x16)(bits), mask)
#define RAMMER_CHOSEN_Q(mask, bits, other) __builtin_ia32_blendmq_512_mask((rammer_long8)(other), (rammer_long8)(bits), mask)
#endif
#define RAMMER_BLENDED(real, real_t, bits_t, lanes, vector, choose, part_t)                                             \
    RAMMER_INLINE void rammer_blended_##real(const uint64_t *words, int64_t step, int64_t leaves, const real_t *table, \
                                             real_t *chosen) {                                                        \
        vector found[64 / lanes] = {0};                                                                               \
        for (int64_t leaf = 0; leaf < leaves; leaf++) {                                                               \
            bits_t bits;                                                                                              \
            __builtin_memcpy(&bits, table + leaf, sizeof bits);                                                       \
            const vector all = (vector){0} + bits;                                                                    \
            _Pragma("GCC unroll 8") for (int part = 0; part < 64 / lanes; part++) found[part] =                       \
                (vector)choose((part_t)(words[leaf * step] >> part * lanes), all, found[part]);                       \
        }                                                                                                             \
        for (int part = 0; part < 64 / lanes; part++) RAMMER_STORE(vector, chosen + part * lanes, found[part]);       \
    }
#else
#define RAMMER_BLENDED(real, real_t, bits_t, lanes, vector, mask, part_t)                                             \
    RAMMER_INLINE void rammer_blended_##real(const uint64_t *words, int64_t step, int64_t leaves, const real_t *table, \
                                             real_t *chosen) {                                                        \
        for (int64_t leaf = 0; leaf < leaves; leaf++) {                                                               \
            const uint64_t rows = words[leaf * step];                                                                 \
            RAMMER_LANES                                                                                              \
            for (int r = 0; r < 64; r++) chosen[r] = rows >> r & 1 ? table[leaf] : chosen[r];                         \
        }                                                                                                             \
    }
#endif

RAMMER_VECTOR(uint32_t, 16, rammer_u32x16)
RAMMER_VECTOR(uint64_t, 8, rammer_u64x8)
RAMMER_BLENDED(f32, float, uint32_t, 16, rammer_u32x16, RAMMER_CHOSEN_D, uint16_t)
RAMMER_BLENDED(f64, double, uint64_t, 8, rammer_u64x8, RAMMER_CHOSEN_Q, uint8_t)

/* Adds to 64 sums the values of a table at 64 numbers. Small tables are permuted, which takes less than loads from 64 places:
 * they have room for four vectors, and numbers for 8 more. */
#if defined(__AVX512DQ__)
#if defined(__clang__)
#define RAMMER_NUMBERS_D(address) __builtin_convertvector(RAMMER_LOAD(rammer_u8x16, address), rammer_i32x16)
#define RAMMER_NUMBERS_Q(address) __builtin_convertvector(RAMMER_LOAD(rammer_u8x8, address), rammer_long8)
#define RAMMER_HAVE_D(places, bit) __builtin_ia32_cmpd512_mask((places) & (bit), (rammer_i32x16){0}, 4, (uint16_t)-1)
#define RAMMER_HAVE_Q(places, bit) __builtin_ia32_cmpq512_mask((places) & (bit), (rammer_long8){0}, 4, (uint8_t)-1)
#define RAMMER_OF_TWO_D(a, b, places) __builtin_ia32_vpermi2varps512(a, places, b)
#define RAMMER_OF_TWO_Q(a, b, places) __builtin_ia32_vpermi2varpd512(a, places, b)
#else
#define RAMMER_NUMBERS(address) (*(const rammer_char16_at *)(address))
#define RAMMER_NUMBERS_D(address) __builtin_ia32_pmovzxbd512_mask(RAMMER_NUMBERS(address), (rammer_i32x16){0}, (uint16_t)-1)
#define RAMMER_NUMBERS_Q(address) __builtin_ia32_pmovzxbq512_mask(RAMMER_NUMBERS(address), (rammer_long8){0}, (uint8_t)-1)
#define RAMMER_HAVE_D(places, bit) __builtin_ia32_ptestmd512(places, (rammer_i32x16){0} + (bit), (uint16_t)-1)
#define RAMMER_HAVE_Q(places, bit) __builtin_ia32_ptestmq512(places, (rammer_long8){0} + (bit), (uint8_t)-1)
#define RAMMER_OF_TWO_D(a, b, places) __builtin_shuffle(a, b, places)
#define RAMMER_OF_TWO_Q(a, b, places) __builtin_shuffle(a, b, places)
#endif
#define RAMMER_ADD_VALUES(real, real_t, lanes, vector, ints_t, D)                                                     \
    RAMMER_INLINE void rammer_add_values_##real(const real_t *table, int64_t count, const uint8_t *numbers, real_t *sum) { \
        if (count > 4 * lanes) {                                                                                      \
            RAMMER_LANES                                                                                              \
            for (int r = 0; r < 64; r++) sum[r] += table[numbers[r]];                                                 \
            return;                                                                                                   \
        }                                                                                                             \
        const vector first = RAMMER_LOAD(vector, table), second = RAMMER_LOAD(vector, table + lanes);                 \
        const vector third = RAMMER_LOAD(vector, table + 2 * lanes), fourth = RAMMER_LOAD(vector, table + 3 * lanes); \
        _Pragma("GCC unroll 8") for (int r = 0; r < 64; r += lanes) {                                                 \
            const ints_t places = RAMMER_NUMBERS_##D(numbers + r);                                                    \
            vector found = RAMMER_OF_TWO_##D(first, second, places);                                                  \
            if (count > 2 * lanes)                                                                                    \
                found = (vector)RAMMER_CHOSEN_##D(RAMMER_HAVE_##D(places, 2 * lanes),                                 \
                                                  RAMMER_OF_TWO_##D(third, fourth, places), found);                   \
            RAMMER_STORE(vector, sum + r, RAMMER_LOAD(vector, sum + r) + found);                                      \
        }                                                                                                             \
    }
#else
#define RAMMER_ADD_VALUES(real, real_t, lanes, vector, ints_t, D)                                                     \
    RAMMER_INLINE void rammer_add_values_##real(const real_t *table, int64_t count, const uint8_t *numbers, real_t *sum) { \
        (void)count;                                                                                                  \
        RAMMER_LANES                                                                                                  \
        for (int r = 0; r < 64; r++) sum[r] += table[numbers[r]];                                                     \
    }
#endif

RAMMER_ADD_VALUES(f32, float, 16, rammer_f32x16, rammer_i32x16, D)
RAMMER_ADD_VALUES(f64, double, 8, rammer_f64x8, rammer_long8, Q)

/* The numbers whose bits are in words of 64 rows, `step` words apart. */
RAMMER_INLINE void rammer_numbers(const uint64_t *words, int64_t step, int64_t bits, uint8_t *numbers) {
#if defined(__AVX512BW__)
    rammer_u8x64 found = {0};
    for (int64_t j = 0; j < bits; j++)
        found |= (rammer_u8x64)__builtin_ia32_cvtmask2b512(words[j * step]) & (uint8_t)(1 << j);
    RAMMER_STORE(rammer_u8x64, numbers, found);
#else
    for (int r = 0; r < 64; r++) numbers[r] = 0;
    for (int64_t j = 0; j < bits; j++) {
        const uint64_t word = words[j * step];
        for (int part = 0; part < 64; part += 8) {
            const uint8_t eight = (uint8_t)(word >> part);
            RAMMER_LANES
            for (int r = 0; r < 8; r++) numbers[part + r] |= (uint8_t)((eight >> r & 1) << j);
        }
    }
#endif
}

/* --- The nodes of a tree ------------------------------------------------------------------------------------------ */

/* The bits of 64, 128, ... rows: a vector of words. */
typedef uint64_t rammer_rows1;
RAMMER_VECTOR(uint64_t, 2, rammer_rows2)
RAMMER_VECTOR(uint64_t, 4, rammer_rows4)
RAMMER_VECTOR(uint64_t, 8, rammer_rows8)

/* `inner` lists for each node of a tree whether it has children, `above` for each that has the rows that go to the
 * second. Finds the rows that come to each leaf and the leaves' nodes; returns how many leaves there are.
 *
 * Nodes lie level by level, siblings side by side: those that have children are met in the order of their children. */
#define RAMMER_LEAVES(words)                                                                                          \
    RAMMER_INLINE int64_t rammer_leaf_rows##words(const uint8_t *inner, int64_t nodes, const rammer_rows##words *above, \
                                                  rammer_rows##words *node_rows, rammer_rows##words *leaf_rows,       \
                                                  int32_t *leaves) {                                                  \
        int64_t found = 0;                                                                                            \
        rammer_rows##words *children = node_rows + 1;                                                                 \
        node_rows[0] = ~(rammer_rows##words){0};                                                                      \
        for (int64_t i = 0; i < nodes; i++) {                                                                         \
            const rammer_rows##words here = node_rows[i];                                                             \
            if (inner[i]) {                                                                                           \
                const rammer_rows##words up = *above++;                                                               \
                children[0] = here & ~up;                                                                             \
                children[1] = here & up;                                                                              \
                children += 2;                                                                                        \
            } else {                                                                                                  \
                leaf_rows[found] = here;                                                                              \
                leaves[found++] = (int32_t)i;                                                                         \
            }                                                                                                         \
        }                                                                                                             \
        return found;                                                                                                 \
    }                                                                                                                 \
                                                                                                                      \
    /* The bits of the numbers of leaves, from the rows of each; returns how many. Changes `leaf_rows`. */            \
    RAMMER_INLINE int64_t rammer_leaf_bits##words(rammer_rows##words *leaf_rows, int64_t count,                       \
                                                  rammer_rows##words *bits) {                                         \
        int64_t used = 0;                                                                                             \
        for (; count > 1; count = (count + 1) / 2, used++) {                                                          \
            rammer_rows##words bit = {0};                                                                             \
            leaf_rows[count] = bit; /* the other one of the last pair */                                              \
            for (int64_t pair = 0; pair < (count + 1) / 2; pair++) {                                                  \
                const rammer_rows##words odd = leaf_rows[2 * pair + 1];                                               \
                bit |= odd;                                                                                           \
                leaf_rows[pair] = leaf_rows[2 * pair] | odd;                                                          \
            }                                                                                                         \
            bits[used] = bit;                                                                                         \
        }                                                                                                             \
        return used;                                                                                                  \
    }

RAMMER_LEAVES(1)
RAMMER_LEAVES(2)
RAMMER_LEAVES(4)
RAMMER_LEAVES(8)

/* --- Sums --------------------------------------------------------------------------------------------------------- */

/* The child that a row goes to, whose codes are `step` apart. */
#define RAMMER_NEXT(code, code_t, word, word_t)                                                                       \
    RAMMER_INLINE int32_t rammer_next_##code##_##word(int32_t at, const word_t *nodes, const code_t *codes,           \
                                                      int64_t step, rammer_fields fields) {                           \
        word_t node = nodes[at];                                                                                      \
        __asm__("" : "+r"(node)); /* gathers would be slower, and so would be registers of vectors */                 \
        uint32_t found = codes[rammer_column_##word(node, fields) * step];                                            \
        __asm__("" : "+r"(found));                                                                                    \
        return at + rammer_step_##word(node, found, fields);                                                          \
    }

/* Nodes follow their paths side by side: by `depth` steps, or as many as the longest path has where that is -1 (a leaf is
 * its own child). Node u has its codes at codes[u * apart], `step` apart. Known numbers of steps spare a branch that is
 * guessed wrong at every end. */
#define RAMMER_PATHS(code, code_t, word, word_t)                                                                      \
    RAMMER_INLINE void rammer_paths_##code##_##word(int32_t *at, const int paths, const word_t *nodes,                \
                                                    const code_t *codes, int64_t apart, int64_t step,                 \
                                                    rammer_fields fields, int64_t depth) {                            \
        int32_t moved = 1;                                                                                            \
        for (int64_t i = 0; depth < 0 ? moved : i < depth; i++) {                                                     \
            moved = 0;                                                                                                \
            _Pragma("GCC unroll 16") for (int u = 0; u < paths; u++) {                                                \
                const int32_t next = rammer_next_##code##_##word(at[u], nodes, codes + u * apart, step, fields);      \
                if (depth < 0) moved |= next ^ at[u];                                                                 \
                at[u] = next;                                                                                         \
            }                                                                                                         \
        }                                                                                                             \
    }

/* Adds the leaves of a tree to sums[width][step], following the path of each row. Rows are taken by eights. */
#define RAMMER_FOLLOW(code, code_t, word, word_t, real, real_t)                                                       \
    RAMMER_INLINE void rammer_follow_##code##_##word##_##real(const code_t *codes, int64_t step, int64_t rows, int32_t root, \
                                                     const word_t *nodes, const real_t *values, int64_t width,        \
                                                     rammer_fields fields, int64_t depth, real_t *sums) {             \
        for (int64_t row = 0; row < rows; row += 8) {                                                                 \
            int32_t at[8];                                                                                            \
            for (int u = 0; u < 8; u++) at[u] = root;                                                                 \
            rammer_paths_##code##_##word(at, 8, nodes, codes + row, 1, step, fields, depth);                          \
            for (int64_t v = 0; v < width; v++)                                                                       \
                for (int u = 0; u < 8; u++) sums[v * step + row + u] += values[at[u] * width + v];                    \
        }                                                                                                             \
    }

/* Adds the leaves of trees to sums[width][64 * words]. Codes are [columns][64 * words]. Trees of up to `most` nodes are
 * taken by words, and values of leaves blended, or found by the leaves' numbers; larger trees are taken by paths. The other
 * arrays are for `most` nodes, or leaves and one more. */
#define RAMMER_TREE_SUMS(code, code_t, word, word_t, real, real_t, words)                                             \
    RAMMER_INLINE void rammer_trees_##code##_##word##_##real##_##words(                                               \
        const code_t *codes, int64_t count, const int32_t *roots, int64_t trees, const word_t *nodes,                 \
        const real_t *values, int64_t width, rammer_fields fields, int64_t depth, int64_t most, const int blend,       \
        uint8_t *inner, rammer_rows##words *above, rammer_rows##words *node_rows, rammer_rows##words *leaf_rows, int32_t *leaves, real_t *table, real_t *sums) { \
        const int64_t rows = 64 * words;                                                                              \
        rammer_rows##words bits[9];                                                                                   \
        real_t chosen[64] __attribute__((aligned(64))) = {0};                                                         \
        uint8_t numbers[72] __attribute__((aligned(64)));                                                             \
        for (int64_t t = 0; t < trees; t++) {                                                                         \
            RAMMER_IN_ORDER;                                                                                          \
            const int32_t root = roots[t];                                                                            \
            int64_t size = 1;                                                                                         \
            uint64_t *word_above = (uint64_t *)above;                                                                 \
            for (int64_t i = 0; i < size && size <= most; i++)   {                                                    \
                RAMMER_IN_ORDER;                                                                                      \
                const word_t node = nodes[root + i];                                                                  \
                inner[i] = rammer_step_##word(node, 0, fields) != 0;                                                  \
                if (!inner[i]) continue;                                                                              \
                size += 2;                                                                                            \
                const code_t *column = codes + rammer_column_##word(node, fields) * rows;                             \
                _Pragma("GCC unroll 8") for (int64_t w = 0; w < words; w++) *word_above++ =                           \
                    rammer_above_##code(column + 64 * w, rammer_bound_##word(node, fields));                          \
            }                                                                                                         \
            if (size > most) {                                                                                        \
                rammer_follow_##code##_##word##_##real(codes, rows, count, root, nodes, values, width, fields, depth, sums); \
                continue;                                                                                             \
            }                                                                                                         \
            const int64_t found = rammer_leaf_rows##words(inner, size, above, node_rows, leaf_rows, leaves);          \
            const int64_t used = blend ? 0 : rammer_leaf_bits##words(leaf_rows, found, bits);                         \
            for (int64_t v = 0; v < width; v++) {                                                                     \
                RAMMER_IN_ORDER;                                                                                      \
                for (int64_t leaf = 0; leaf < found; leaf++) table[leaf] = values[(root + leaves[leaf]) * width + v]; \
                for (int64_t w = 0; w < words; w++) {                                                                 \
                    RAMMER_IN_ORDER;                                                                                  \
                    real_t *restrict sum = sums + v * rows + 64 * w;                                                  \
                    if (blend) {                                                                                      \
                        rammer_blended_##real((const uint64_t *)leaf_rows + w, words, found, table, chosen);          \
                        RAMMER_LANES                                                                                  \
                        for (int r = 0; r < 64; r++) sum[r] += chosen[r];                                             \
                    } else {                                                                                          \
                        rammer_numbers((const uint64_t *)bits + w, words, used, numbers);                             \
                        rammer_add_values_##real(table, found, numbers, sum);                                         \
                    }                                                                                                 \
                }                                                                                                     \
            }                                                                                                         \
        }                                                                                                             \
    }

/* Adds the leaves of trees to sums[width], for the one row whose codes are `step` apart. */
#define RAMMER_TREE_ROW(code, code_t, word, word_t, real, real_t)                                                     \
    RAMMER_INLINE void rammer_trees_##code##_##word##_##real##_row(const code_t *codes, int64_t step, const int32_t *roots, \
                                                          int64_t trees, const word_t *nodes, const real_t *values,   \
                                                          int64_t width, rammer_fields fields, int64_t depth, real_t *sums) { \
        const int paths = depth < 0 ? 8 : 16; /* the fewer, the less some wait for the longest */                     \
        for (int64_t t = 0; t < trees; t += paths) {                                                                  \
            const int64_t last = trees - 1;                                                                           \
            int32_t at[16];                                                                                           \
            for (int u = 0; u < paths; u++) at[u] = roots[t + u < last ? t + u : last];                               \
            rammer_paths_##code##_##word(at, paths, nodes, codes, 0, step, fields, depth);                            \
            for (int u = 0; u < paths && t + u < trees; u++)                                                          \
                for (int64_t v = 0; v < width; v++) sums[v] += values[at[u] * width + v];                             \
        }                                                                                                             \
    }

#define RAMMER_TREES_OF(code, code_t, word, word_t, real, real_t)                                                     \
    RAMMER_TREE_ROW(code, code_t, word, word_t, real, real_t)                                                         \
    RAMMER_FOLLOW(code, code_t, word, word_t, real, real_t)                                                           \
    RAMMER_TREE_SUMS(code, code_t, word, word_t, real, real_t, 1)                                                     \
    RAMMER_TREE_SUMS(code, code_t, word, word_t, real, real_t, 2)                                                     \
    RAMMER_TREE_SUMS(code, code_t, word, word_t, real, real_t, 4)                                                     \
    RAMMER_TREE_SUMS(code, code_t, word, word_t, real, real_t, 8)

#define RAMMER_TREES_ALONG(code, code_t, word, word_t)                                                                \
    RAMMER_NEXT(code, code_t, word, word_t)                                                                           \
    RAMMER_PATHS(code, code_t, word, word_t)                                                                          \
    RAMMER_TREES_OF(code, code_t, word, word_t, f32, float)                                                           \
    RAMMER_TREES_OF(code, code_t, word, word_t, f64, double)

RAMMER_TREES_ALONG(u8, uint8_t, w32, uint32_t)
RAMMER_TREES_ALONG(u8, uint8_t, w64, uint64_t)
RAMMER_TREES_ALONG(u16, uint16_t, w32, uint32_t)
RAMMER_TREES_ALONG(u16, uint16_t, w64, uint64_t)

/* --- The highest levels by permutes ---------------------------------------------------------------------------- */

/* Elements of one vector's, or of two vectors', which permuting them takes and no load. */
#if defined(__clang__)
#define RAMMER_PERMUTE(low, high, places, found)                                                                      \
    do {                                                                                                              \
        uint32_t both[32];                                                                                            \
        RAMMER_STORE(rammer_u32x16, both, low);                                                                       \
        RAMMER_STORE(rammer_u32x16, both + 16, high);                                                                 \
        for (int u = 0; u < 16; u++) (found)[u] = both[(places)[u] & 31];                                             \
    } while (0)
#else
#define RAMMER_PERMUTE(low, high, places, found) ((found) = __builtin_shuffle(low, high, places))
#endif

/* Codes at places of an array that has four bytes more. */
#if defined(__AVX512F__)
#define RAMMER_GATHER(code_t, codes, places, found)                                                                   \
    ((found) = (rammer_u32x16)__builtin_ia32_gathersiv16si((rammer_i32x16){0}, (codes), (rammer_i32x16)(places),      \
                                                           (uint16_t)-1, sizeof(code_t)) &                            \
               (uint32_t)(code_t)-1)
#else
#define RAMMER_GATHER(code_t, codes, places, found)                                                                   \
    do {                                                                                                              \
        for (int u = 0; u < 16; u++) (found)[u] = (codes)[(places)[u]];                                               \
    } while (0)
#endif

/* For 32 rows, whose codes are [columns][step]: the nodes of a tree that they come to in so many steps, no more than there
 * are levels in its `top`. */
#define RAMMER_PERMUTED(code, code_t)                                                                                 \
    RAMMER_INLINE void rammer_permuted_##code(const uint32_t *top, const code_t *codes, int64_t step,                 \
                                              rammer_fields fields, int64_t steps, int32_t *at) {                     \
        const rammer_u32x16 low = RAMMER_LOAD(rammer_u32x16, top), high = RAMMER_LOAD(rammer_u32x16, top + 16);       \
        const rammer_u32x16 lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};                           \
        rammer_u32x16 place[2] = {0};                                                                                 \
        for (int64_t i = 0; i < steps; i++) {                                                                         \
            RAMMER_IN_ORDER;                                                                                          \
            _Pragma("GCC unroll 2") for (int half = 0; half < 2; half++) {                                            \
                rammer_u32x16 node, found;                                                                            \
                RAMMER_PERMUTE(low, high, place[half], node);                                                         \
                const rammer_u32x16 column = node >> (32 - fields.column_bits);                                       \
                RAMMER_GATHER(code_t, codes + 16 * half, column * (uint32_t)step + lanes, found);                     \
                const rammer_u32x16 rest = node & ((uint32_t)-1 >> fields.column_bits);                               \
                place[half] += (rest + found) >> fields.bound_bits;                                                   \
            }                                                                                                         \
        }                                                                                                             \
        for (int half = 0; half < 2; half++) RAMMER_STORE(rammer_u32x16, at + 16 * half, place[half]);                \
    }

RAMMER_PERMUTED(u8, uint8_t)
RAMMER_PERMUTED(u16, uint16_t)

/* Adds the leaves of trees to sums[width][step], for a multiple of 64 rows. The highest levels of a tree are permuted, from
 * there on rows follow their paths. There are `count` nodes in all. */
#define RAMMER_PERMUTED_SUMS(code, code_t, real, real_t)                                                              \
    RAMMER_INLINE void rammer_trees_##code##_##real##_permuted(                                                       \
        const code_t *codes, int64_t step, int64_t rows, const int32_t *roots, int64_t trees, const uint32_t *nodes,  \
        const real_t *values, int64_t width, rammer_fields fields, int64_t depth, int64_t count, real_t *sums) {      \
        const int64_t steps = depth < RAMMER_TOP_LEVELS ? depth : RAMMER_TOP_LEVELS;                                  \
        for (int64_t t = 0; t < trees; t++) {                                                                         \
            RAMMER_IN_ORDER;                                                                                          \
            uint32_t top[1 << RAMMER_TOP_LEVELS];                                                                     \
            int32_t at[32];                                                                                           \
            const int64_t left = count - roots[t];                                                                    \
            for (int64_t i = 0; i < 1 << RAMMER_TOP_LEVELS; i++) top[i] = nodes[roots[t] + (i < left ? i : 0)];       \
            for (int64_t row = 0; row < rows; row += 32) {                                                            \
                RAMMER_IN_ORDER;                                                                                      \
                rammer_permuted_##code(top, codes + row, step, fields, steps, at);                                    \
                for (int64_t u = 0; depth > steps && u < 32; u += 8)                                                  \
                    rammer_paths_##code##_w32(at + u, 8, nodes + roots[t], codes + row + u, 1, step, fields,          \
                                              depth - steps);                                                         \
                for (int64_t v = 0; v < width; v++)                                                                   \
                    for (int u = 0; u < 32; u++) sums[v * step + row + u] += values[(roots[t] + at[u]) * width + v];  \
            }                                                                                                         \
        }                                                                                                             \
    }

RAMMER_PERMUTED_SUMS(u8, uint8_t, f32, float)
RAMMER_PERMUTED_SUMS(u8, uint8_t, f64, double)
RAMMER_PERMUTED_SUMS(u16, uint16_t, f32, float)
RAMMER_PERMUTED_SUMS(u16, uint16_t, f64, double)

#endif
