/* Loops that are cut where padding begins and ends, into runs: what is padding at one position of a run is so at all.
 *
 * What is done at a position is a macro, once, and compiled for each run. There the run's number is a constant,
 * <axis>_run, which tells what is padding: nothing is tested as the loop runs.
 */
#ifndef RAMMER_RUNS_H
#define RAMMER_RUNS_H

#include "rammer_kernel.h"

/* `at` each position of an axis from `first` on, before `past`: those of run `number`. `at` is a macro of statements. */
#define RAMMER_RUN(axis, number, first, past, at)                                                                     \
    for (int64_t axis = (first); axis < (past); axis++) {                                                             \
        RAMMER_IN_ORDER;                                                                                              \
        enum { axis##_run = (number) };                                                                               \
        at                                                                                                            \
    }

#endif
