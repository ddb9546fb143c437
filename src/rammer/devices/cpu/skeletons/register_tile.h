/* The register tile of products: sums of rows by vectors, in registers.
 *
 * They are an array of which only constant places are named, so that it never needs memory: what is done with a row or a
 * vector is a macro, which is written out for each of them.
 */
#ifndef RAMMER_REGISTER_TILE_H
#define RAMMER_REGISTER_TILE_H

#include "rammer_kernel.h"

/* row(0) row(1) ... for `count` rows: a number up to 32. */
#define RAMMER_ROWS(count, row) RAMMER_JOIN(RAMMER_ROWS_, count)(row)
#define RAMMER_ROWS_1(row) row(0L)
#define RAMMER_ROWS_2(row) RAMMER_ROWS_1(row) row(1L)
#define RAMMER_ROWS_3(row) RAMMER_ROWS_2(row) row(2L)
#define RAMMER_ROWS_4(row) RAMMER_ROWS_3(row) row(3L)
#define RAMMER_ROWS_5(row) RAMMER_ROWS_4(row) row(4L)
#define RAMMER_ROWS_6(row) RAMMER_ROWS_5(row) row(5L)
#define RAMMER_ROWS_7(row) RAMMER_ROWS_6(row) row(6L)
#define RAMMER_ROWS_8(row) RAMMER_ROWS_7(row) row(7L)
#define RAMMER_ROWS_9(row) RAMMER_ROWS_8(row) row(8L)
#define RAMMER_ROWS_10(row) RAMMER_ROWS_9(row) row(9L)
#define RAMMER_ROWS_11(row) RAMMER_ROWS_10(row) row(10L)
#define RAMMER_ROWS_12(row) RAMMER_ROWS_11(row) row(11L)
#define RAMMER_ROWS_13(row) RAMMER_ROWS_12(row) row(12L)
#define RAMMER_ROWS_14(row) RAMMER_ROWS_13(row) row(13L)
#define RAMMER_ROWS_15(row) RAMMER_ROWS_14(row) row(14L)
#define RAMMER_ROWS_16(row) RAMMER_ROWS_15(row) row(15L)
#define RAMMER_ROWS_17(row) RAMMER_ROWS_16(row) row(16L)
#define RAMMER_ROWS_18(row) RAMMER_ROWS_17(row) row(17L)
#define RAMMER_ROWS_19(row) RAMMER_ROWS_18(row) row(18L)
#define RAMMER_ROWS_20(row) RAMMER_ROWS_19(row) row(19L)
#define RAMMER_ROWS_21(row) RAMMER_ROWS_20(row) row(20L)
#define RAMMER_ROWS_22(row) RAMMER_ROWS_21(row) row(21L)
#define RAMMER_ROWS_23(row) RAMMER_ROWS_22(row) row(22L)
#define RAMMER_ROWS_24(row) RAMMER_ROWS_23(row) row(23L)
#define RAMMER_ROWS_25(row) RAMMER_ROWS_24(row) row(24L)
#define RAMMER_ROWS_26(row) RAMMER_ROWS_25(row) row(25L)
#define RAMMER_ROWS_27(row) RAMMER_ROWS_26(row) row(26L)
#define RAMMER_ROWS_28(row) RAMMER_ROWS_27(row) row(27L)
#define RAMMER_ROWS_29(row) RAMMER_ROWS_28(row) row(28L)
#define RAMMER_ROWS_30(row) RAMMER_ROWS_29(row) row(29L)
#define RAMMER_ROWS_31(row) RAMMER_ROWS_30(row) row(30L)
#define RAMMER_ROWS_32(row) RAMMER_ROWS_31(row) row(31L)

/* vector(0, ...) vector(1, ...) ... for `count` vectors, likewise. */
#define RAMMER_VECTORS(count, vector, ...) RAMMER_JOIN(RAMMER_VECTORS_, count)(vector, __VA_ARGS__)
#define RAMMER_VECTORS_1(vector, ...) vector(0, __VA_ARGS__)
#define RAMMER_VECTORS_2(vector, ...) RAMMER_VECTORS_1(vector, __VA_ARGS__) vector(1, __VA_ARGS__)
#define RAMMER_VECTORS_3(vector, ...) RAMMER_VECTORS_2(vector, __VA_ARGS__) vector(2, __VA_ARGS__)
#define RAMMER_VECTORS_4(vector, ...) RAMMER_VECTORS_3(vector, __VA_ARGS__) vector(3, __VA_ARGS__)
#define RAMMER_VECTORS_5(vector, ...) RAMMER_VECTORS_4(vector, __VA_ARGS__) vector(4, __VA_ARGS__)
#define RAMMER_VECTORS_6(vector, ...) RAMMER_VECTORS_5(vector, __VA_ARGS__) vector(5, __VA_ARGS__)
#define RAMMER_VECTORS_7(vector, ...) RAMMER_VECTORS_6(vector, __VA_ARGS__) vector(6, __VA_ARGS__)
#define RAMMER_VECTORS_8(vector, ...) RAMMER_VECTORS_7(vector, __VA_ARGS__) vector(7, __VA_ARGS__)
#define RAMMER_VECTORS_9(vector, ...) RAMMER_VECTORS_8(vector, __VA_ARGS__) vector(8, __VA_ARGS__)
#define RAMMER_VECTORS_10(vector, ...) RAMMER_VECTORS_9(vector, __VA_ARGS__) vector(9, __VA_ARGS__)
#define RAMMER_VECTORS_11(vector, ...) RAMMER_VECTORS_10(vector, __VA_ARGS__) vector(10, __VA_ARGS__)
#define RAMMER_VECTORS_12(vector, ...) RAMMER_VECTORS_11(vector, __VA_ARGS__) vector(11, __VA_ARGS__)
#define RAMMER_VECTORS_13(vector, ...) RAMMER_VECTORS_12(vector, __VA_ARGS__) vector(12, __VA_ARGS__)
#define RAMMER_VECTORS_14(vector, ...) RAMMER_VECTORS_13(vector, __VA_ARGS__) vector(13, __VA_ARGS__)
#define RAMMER_VECTORS_15(vector, ...) RAMMER_VECTORS_14(vector, __VA_ARGS__) vector(14, __VA_ARGS__)
#define RAMMER_VECTORS_16(vector, ...) RAMMER_VECTORS_15(vector, __VA_ARGS__) vector(15, __VA_ARGS__)
#define RAMMER_VECTORS_17(vector, ...) RAMMER_VECTORS_16(vector, __VA_ARGS__) vector(16, __VA_ARGS__)
#define RAMMER_VECTORS_18(vector, ...) RAMMER_VECTORS_17(vector, __VA_ARGS__) vector(17, __VA_ARGS__)
#define RAMMER_VECTORS_19(vector, ...) RAMMER_VECTORS_18(vector, __VA_ARGS__) vector(18, __VA_ARGS__)
#define RAMMER_VECTORS_20(vector, ...) RAMMER_VECTORS_19(vector, __VA_ARGS__) vector(19, __VA_ARGS__)
#define RAMMER_VECTORS_21(vector, ...) RAMMER_VECTORS_20(vector, __VA_ARGS__) vector(20, __VA_ARGS__)
#define RAMMER_VECTORS_22(vector, ...) RAMMER_VECTORS_21(vector, __VA_ARGS__) vector(21, __VA_ARGS__)
#define RAMMER_VECTORS_23(vector, ...) RAMMER_VECTORS_22(vector, __VA_ARGS__) vector(22, __VA_ARGS__)
#define RAMMER_VECTORS_24(vector, ...) RAMMER_VECTORS_23(vector, __VA_ARGS__) vector(23, __VA_ARGS__)
#define RAMMER_VECTORS_25(vector, ...) RAMMER_VECTORS_24(vector, __VA_ARGS__) vector(24, __VA_ARGS__)
#define RAMMER_VECTORS_26(vector, ...) RAMMER_VECTORS_25(vector, __VA_ARGS__) vector(25, __VA_ARGS__)
#define RAMMER_VECTORS_27(vector, ...) RAMMER_VECTORS_26(vector, __VA_ARGS__) vector(26, __VA_ARGS__)
#define RAMMER_VECTORS_28(vector, ...) RAMMER_VECTORS_27(vector, __VA_ARGS__) vector(27, __VA_ARGS__)
#define RAMMER_VECTORS_29(vector, ...) RAMMER_VECTORS_28(vector, __VA_ARGS__) vector(28, __VA_ARGS__)
#define RAMMER_VECTORS_30(vector, ...) RAMMER_VECTORS_29(vector, __VA_ARGS__) vector(29, __VA_ARGS__)
#define RAMMER_VECTORS_31(vector, ...) RAMMER_VECTORS_30(vector, __VA_ARGS__) vector(30, __VA_ARGS__)
#define RAMMER_VECTORS_32(vector, ...) RAMMER_VECTORS_31(vector, __VA_ARGS__) vector(31, __VA_ARGS__)

/* to[lane]: all vectors of a row, each of `width` lanes. */
#define RAMMER_STORE_VECTORS(count, vector, width, to, sums)                                                          \
    RAMMER_VECTORS(count, RAMMER_STORE_VECTOR, vector, width, to, sums)
#define RAMMER_STORE_VECTOR(v, vector, width, to, sums) RAMMER_STORE(vector, &to[v * (width)], sums[v]);

/* A row of sums += factor * vectors. The factor is a name: of a scalar, or of as many vectors; or of a scalar of four bytes,
 * by vectors of such. */
#define RAMMER_ADD_PRODUCTS(count, sums, factor, vectors)                                                             \
    RAMMER_VECTORS(count, RAMMER_ADD_PRODUCT, sums, factor, vectors)
#define RAMMER_ADD_PRODUCT(v, sums, factor, vectors) sums[v] += factor * vectors[v];
#define RAMMER_ADD_BY_VECTORS(count, sums, factors, vectors)                                                          \
    RAMMER_VECTORS(count, RAMMER_ADD_BY_VECTOR, sums, factors, vectors)
#define RAMMER_ADD_BY_VECTOR(v, sums, factors, vectors) sums[v] += factors[v] * vectors[v];
#define RAMMER_ADD_DOTS(count, lanes, sums, factor, vectors)                                                          \
    RAMMER_VECTORS(count, RAMMER_ADD_DOT, lanes, sums, factor, vectors)
#define RAMMER_ADD_DOT(v, lanes, sums, factor, vectors) sums[v] = RAMMER_DOT_##lanes(sums[v], factor, vectors[v]);

/* `body(count)` for i from `first` on, `side` at a time; what is left over by powers of 2, for the sums of one alone are
 * too few to hide a multiply-add's latency. `side` is a number up to 32. */
#define RAMMER_IN_GROUPS(i, first, past, side, body)                                                                  \
    {                                                                                                                 \
        int64_t i = (first);                                                                                          \
        const int64_t left = ((past) - i) % (side);                                                                   \
        for (; i + (side) <= (past); i += (side)) {                                                                   \
            RAMMER_IN_ORDER;                                                                                          \
            body(side)                                                                                                \
        }                                                                                                             \
        RAMMER_GROUP(i, left, side, 16, body)                                                                         \
        RAMMER_GROUP(i, left, side, 8, body)                                                                          \
        RAMMER_GROUP(i, left, side, 4, body)                                                                          \
        RAMMER_GROUP(i, left, side, 2, body)                                                                          \
        RAMMER_GROUP(i, left, side, 1, body)                                                                          \
    }
#define RAMMER_GROUP(i, left, side, count, body)                                                                      \
    if ((side) > (count) && left & (count)) {                                                                         \
        body(count)                                                                                                   \
        i += (count);                                                                                                 \
    }

#endif
