/* A model in memory, and who is where in its records. Internal to the runtime. */
#ifndef RAMMER_MODEL_H
#define RAMMER_MODEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "pool.h"
#include "rammer_runtime.h"

enum { RAMMER_LINE_BYTES = 64 };

struct counter {
    _Alignas(RAMMER_LINE_BYTES) _Atomic uint64_t signals;
};

enum queue_state { QUEUE_DONE, QUEUE_FREE, QUEUE_TAKEN };

/* The records of a vEU. Whoever takes the queue walks it, to its end or to a Wait that does not come due; then it is
 * free for anybody. `reached` is 0 before the first record, i + 1 at record i, length + 1 at the end; it only grows in a
 * run. It has a line of its own, for those who look for work look at states alone. */
struct queue {
    _Alignas(RAMMER_LINE_BYTES) _Atomic uint32_t state;
    _Atomic uint32_t holder; /* the thread that took it last */
    _Atomic bool recalled;   /* it is to give the queue back, and to leave */
    _Alignas(RAMMER_LINE_BYTES) _Atomic uint32_t reached;
};

enum halt { GO_ON, GIVEN_UP, CANCELLED };

struct rammer_model {
    struct rammer_work work; /* of a run, for threads to join */
    rammer_program program;
    struct counter *counters;
    struct queue *queues;
    char **pointers;      /* per slot */
    uint32_t *bound;      /* the slots that lie in the caller's arrays */
    uint32_t bound_count;
    uint32_t awake;       /* vEUs from 0 on that a run needs; those after them have no records */

    /* Of the run under way. Threads that are on their way out of the last one may read what is atomic. */
    _Atomic uint64_t runs; /* whole runs before it, whose Signals the counters hold */
    rammer_span *spans;   /* or NULL */
    int64_t origin_ns;
    _Atomic uint32_t polls; /* `wait_polls`, or hardly any where the caller is alone */
    _Atomic clockid_t callers_clock;
    pthread_t caller;
    _Atomic bool paused;
    _Alignas(RAMMER_LINE_BYTES) _Atomic uint32_t halt; /* an `enum halt`: whether records are walked any further */
    _Alignas(RAMMER_LINE_BYTES) _Atomic uint32_t open; /* queues that are not done */
    _Atomic uint32_t sleepers;                         /* threads that wait for news: a Signal, or the end */
    pthread_mutex_t news_mutex;
    pthread_cond_t news;

    pthread_mutex_t mutex; /* held during a run */
    rammer_model *next;
    rammer_model **link;   /* what points to this model */
};

/* Where threads join a run: they walk queues until none is open, the run is halted or, the caller's thread alone, the run
 * has taken long since `ticks`. */
void rammer_walk(rammer_model *model, uint32_t thread, uint32_t ticks);

/* Halts the run under way and returns once no thread walks a queue. */
void rammer_halt(rammer_model *model, enum halt reason);

/* Fills in where a run stands that was given up. */
void rammer_describe_stall(const rammer_model *model, rammer_stall *stall);

#endif
