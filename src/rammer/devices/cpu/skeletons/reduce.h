/* Partial results of a reduction: they lie side by side in a small array, and loops over lanes update them. */
#ifndef RAMMER_REDUCE_H
#define RAMMER_REDUCE_H

#include "rammer_kernel.h"

/* An array of `width` of them, each of which is `first`. */
#define RAMMER_PARTIAL_RESULTS(type, lanes, width, first)                                                             \
    type lanes[width];                                                                                                \
    RAMMER_LANES                                                                                                      \
    for (int64_t i = 0; i < (width); i++)                                                                             \
        lanes[i] = (first);

/* Lanes take turns at `count` elements, a multiple of `width`: what follows, statements that may have commas, is done for
 * element i, by lane i - i_turn. */
#define RAMMER_BY_TURNS(i, count, width, ...)                                                                         \
    for (int64_t i##_turn = 0; i##_turn < (count); i##_turn += (width)) {                                             \
        RAMMER_IN_ORDER;                                                                                              \
        RAMMER_TURN(i, i##_turn + (width), __VA_ARGS__)                                                               \
    }
/* The same where the lanes are those of one vector at most. */
#define RAMMER_BY_VECTORS(i, count, width, ...)                                                                       \
    for (int64_t i##_turn = 0; i##_turn < (count); i##_turn += (width)) {                                             \
        RAMMER_IN_ORDER;                                                                                              \
        RAMMER_ONE_VECTOR                                                                                             \
        RAMMER_TURN(i, i##_turn + (width), __VA_ARGS__)                                                               \
    }
/* The same for any number of elements. One macro for both would have an `if` that is never true, from which gcc makes other
 * code of the loop before it, of some reductions slower. */
#define RAMMER_BY_TURNS_AND_REST(i, count, width, ...)                                                                \
    RAMMER_BY_TURNS(i, (count) / (width) * (width), width, __VA_ARGS__)                                               \
    {                                                                                                                 \
        enum { i##_turn = (count) / (width) * (width) };                                                              \
        RAMMER_TURN(i, count, __VA_ARGS__)                                                                            \
    }
#define RAMMER_BY_VECTORS_AND_REST(i, count, width, ...)                                                              \
    RAMMER_BY_VECTORS(i, (count) / (width) * (width), width, __VA_ARGS__)                                             \
    {                                                                                                                 \
        enum { i##_turn = (count) / (width) * (width) };                                                              \
        RAMMER_TURN(i, count, __VA_ARGS__)                                                                            \
    }
/* The same for elements from `first` on, before `past`. */
#define RAMMER_BY_TURNS_WITHIN(i, first, past, width, ...)                                                            \
    {                                                                                                                 \
        int64_t i##_turn = (first);                                                                                   \
        for (; i##_turn + (width) <= (past); i##_turn += (width)) {                                                   \
            RAMMER_IN_ORDER;                                                                                          \
            RAMMER_TURN(i, i##_turn + (width), __VA_ARGS__)                                                           \
        }                                                                                                             \
        RAMMER_TURN(i, past, __VA_ARGS__)                                                                             \
    }
#define RAMMER_TURN(i, past, ...)                                                                                     \
    RAMMER_LANES                                                                                                      \
    for (int64_t i = i##_turn; i < (past); i++)                                                                       \
        __VA_ARGS__

/* Folds them in halves, so that the first becomes the result: `combined` is what is made of a and b. The width is a power
 * of 2, 256 at most. */
#define RAMMER_FOLD(lanes, width, a, b, combined)                                                                     \
    RAMMER_FOLD_HALF(lanes, width, 128, a, b, combined)                                                               \
    RAMMER_FOLD_HALF(lanes, width, 64, a, b, combined)                                                                \
    RAMMER_FOLD_HALF(lanes, width, 32, a, b, combined)                                                                \
    RAMMER_FOLD_HALF(lanes, width, 16, a, b, combined)                                                                \
    RAMMER_FOLD_HALF(lanes, width, 8, a, b, combined)                                                                 \
    RAMMER_FOLD_HALF(lanes, width, 4, a, b, combined)                                                                 \
    RAMMER_FOLD_HALF(lanes, width, 2, a, b, combined)                                                                 \
    RAMMER_FOLD_HALF(lanes, width, 1, a, b, combined)
#define RAMMER_FOLD_HALF(lanes, width, half, a, b, combined)                                                          \
    if ((width) > (half)) {                                                                                           \
        RAMMER_LANES                                                                                                  \
        for (int64_t i = 0; i < (half); i++) {                                                                        \
            const __typeof__(lanes[0]) a = lanes[i], b = lanes[i + (half)];                                           \
            lanes[i] = (combined);                                                                                    \
        }                                                                                                             \
    }

#endif
