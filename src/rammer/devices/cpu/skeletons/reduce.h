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
