/* The register tile of products: sums of a few scalars by a few vectors, in registers.
 *
 * An array of constant size that loops of constant length walk is kept in registers, once these are unrolled.
 */
#ifndef RAMMER_REGISTER_TILE_H
#define RAMMER_REGISTER_TILE_H

#include "rammer_kernel.h"

/* A loop over i from 0, of which the compiler writes out each of the few iterations. */
#define RAMMER_EACH(i, count) RAMMER_UNROLL for (int i = 0; i < (count); i++)

/* sums[i][v] += factor * lanes, for i below `scalars` and v below `vectors`; `factor` may use i, `lanes` may use v. One
 * scalar after the other, so that few vectors are alive beside the sums. */
#define RAMMER_ADD_PRODUCTS(vector, sums, i, scalars, factor, v, vectors, lanes)                                      \
    do {                                                                                                              \
        vector lanes_of[vectors];                                                                                     \
        RAMMER_EACH(v, vectors) lanes_of[v] = (lanes);                                                                \
        RAMMER_EACH(i, scalars) {                                                                                     \
            const __typeof__((lanes_of[0])[0]) factor_of = (factor);                                                  \
            RAMMER_EACH(v, vectors) sums[i][v] += factor_of * lanes_of[v];                                            \
        }                                                                                                             \
    } while (0)

/* `body(count)` for i from `first` on, `side` at a time; what is left over by powers of 2, for the sums of one alone are
 * too few to hide a multiply-add's latency. `side` is 32 at most. */
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
