/* Copies of what operands have, on the stack: lanes that lie apart, are converted or may be padding; windows with their
 * padding in them. */
#ifndef RAMMER_STAGE_H
#define RAMMER_STAGE_H

#include "rammer_kernel.h"

/* One vector after the other of `element` at each position of the axis `lane` from `first` on, `present` of `lanes`: what is
 * absent is zero. */
#define RAMMER_PACK(to, lanes, lane, first, present, element)                                                         \
    {                                                                                                                 \
        RAMMER_LANES                                                                                                  \
        for (int64_t lane = (first); lane < (first) + (present); lane++)                                              \
            (to)[lane - (first)] = element;                                                                           \
        if ((present) < (lanes)) {                                                                                    \
            RAMMER_LANES                                                                                              \
            for (int64_t i = (present); i < (lanes); i++)                                                             \
                (to)[i] = 0;                                                                                          \
        }                                                                                                             \
    }

/* The first of `count` elements: what a window has where it leaves its operand. */
#define RAMMER_FILL(window, count, padding)                                                                           \
    RAMMER_LANES                                                                                                      \
    for (int64_t i = 0; i < (count); i++)                                                                             \
        (window)[i] = padding;

/* `at` each position of a dimension of a window that is inside of its operand, which has `extent` there. The window begins
 * at position `first` of the operand; of its positions `needed` are read. In the innermost dimension they may be copied at
 * the same time. */
#define RAMMER_INSIDE(i, first, needed, extent, at)                                                                   \
    for (int64_t i = rammer_max_i64(0, -(first)); i < rammer_min_i64(needed, (extent) - (first)); i++) {              \
        RAMMER_IN_ORDER;                                                                                              \
        at                                                                                                            \
    }
#define RAMMER_INSIDE_LANES(i, first, needed, extent, at)                                                             \
    RAMMER_LANES                                                                                                      \
    for (int64_t i = rammer_max_i64(0, -(first)); i < rammer_min_i64(needed, (extent) - (first)); i++) {              \
        at                                                                                                            \
    }

#endif
