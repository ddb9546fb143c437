/* Each vEU walks its own records. Counters only grow: in run n a Wait asks for n * signals + threshold. */
#define _GNU_SOURCE
#include "rammer_runtime.h"

#include "pool.h"

#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 64, YIELDS_PER_CLOCK = 64 };

struct counter {
    _Alignas(LINE_BYTES) _Atomic uint64_t signals;
};

/* How far a vEU is: 0 before its first record, i + 1 at record i, length + 1 at the end. It only grows in a run. */
struct position {
    _Alignas(LINE_BYTES) _Atomic uint32_t reached;
};

struct rammer_model {
    rammer_program program;
    struct counter *counters;
    struct position *positions;
    char **pointers;       /* per slot */
    uint32_t *bound;       /* the slots that lie in the caller's arrays */
    uint32_t bound_count;
    uint32_t awake;        /* vEUs from 0 on that a run needs; those after them have no records */
    uint64_t runs;         /* whole runs that the counters hold */
    rammer_span *spans;    /* of the run under way, or NULL */
    int64_t origin_ns;
    _Atomic bool stalled;
    pthread_mutex_t mutex; /* held during a run */
    rammer_model *next;
    rammer_model **link;   /* what points to this model */
};

static pthread_mutex_t models_mutex = PTHREAD_MUTEX_INITIALIZER;
static rammer_model *models; /* all of them, for a fork's child to reset */

uint32_t rammer_abi(void) {
    return RAMMER_ABI;
}

/* Counters back to "no run yet". Nobody may be running the model. */
static void reset(rammer_model *model) {
    for (uint32_t i = 0; i < model->program.counter_count; ++i)
        atomic_store_explicit(&model->counters[i].signals, 0, memory_order_relaxed);
    model->runs = 0;
    atomic_store_explicit(&model->stalled, false, memory_order_relaxed);
}

static void lock_models(void) {
    pthread_mutex_lock(&models_mutex);
}

static void unlock_models(void) {
    pthread_mutex_unlock(&models_mutex);
}

/* Another thread may have been running a model when this process was forked; here that run never happened. */
static void reset_models(void) {
    for (rammer_model *model = models; model != NULL; model = model->next) {
        pthread_mutex_init(&model->mutex, NULL);
        reset(model);
    }
    unlock_models();
}

/* Once loaded, and not at first use: a fork under way does not call handlers that it has not seen at its start. */
__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(lock_models, unlock_models, reset_models);
}

/* Zeroed memory of whole cache lines. */
static void *allocate(size_t count, size_t size) {
    const size_t bytes = (count * size / LINE_BYTES + 1) * LINE_BYTES;
    void *memory = aligned_alloc(LINE_BYTES, bytes);
    if (memory != NULL)
        memset(memory, 0, bytes);
    return memory;
}

static void destroy(rammer_model *model) {
    free(model->counters);
    free(model->positions);
    free(model->pointers);
    free(model->bound);
    free(model);
}

rammer_model *rammer_model_new(const rammer_program *program) {
    rammer_model *model = allocate(1, sizeof *model);
    if (model == NULL)
        return NULL;
    model->program = *program;
    model->counters = allocate(program->counter_count, sizeof *model->counters);
    model->positions = allocate(program->veu_count, sizeof *model->positions);
    model->pointers = allocate(program->slot_count, sizeof *model->pointers);
    model->bound = allocate(program->slot_count, sizeof *model->bound);
    if (!model->counters || !model->positions || !model->pointers || !model->bound) {
        destroy(model);
        return NULL;
    }
    for (uint32_t i = 0; i < program->slot_count; ++i) {
        const rammer_slot *slot = &program->slots[i];
        if (slot->segment == RAMMER_ARENA)
            model->pointers[i] = program->arena + slot->offset_bytes;
        else if (slot->segment == RAMMER_CONSTANTS)
            model->pointers[i] = program->constants + slot->offset_bytes;
        else
            model->bound[model->bound_count++] = i;
    }
    for (uint32_t veu = 0; veu < program->veu_count; ++veu)
        if (program->starts[veu + 1] > program->starts[veu])
            model->awake = veu + 1;
    pthread_mutex_init(&model->mutex, NULL);
    lock_models();
    model->next = models;
    model->link = &models;
    if (models != NULL)
        models->link = &model->next;
    models = model;
    unlock_models();
    return model;
}

void rammer_model_free(rammer_model *model) {
    if (model == NULL)
        return;
    lock_models();
    *model->link = model->next;
    if (model->next != NULL)
        model->next->link = model->link;
    unlock_models();
    pthread_mutex_destroy(&model->mutex);
    destroy(model);
}

static uint64_t before_this_run(const rammer_model *model, uint32_t counter) {
    return model->runs * model->program.signals[counter];
}

static bool is_due(const rammer_model *model, const rammer_record *wait) {
    const uint64_t wanted = before_this_run(model, wait->a) + wait->b;
    return atomic_load_explicit(&model->counters[wait->a].signals, memory_order_acquire) >= wanted;
}

/* The Wait at which a vEU stands in vain, or NULL. A vEU that has yet to start, or computes, is moving. */
static const rammer_record *blocked_at(const rammer_model *model, uint32_t veu, bool *moving) {
    const uint32_t *starts = model->program.starts;
    const uint32_t reached = atomic_load_explicit(&model->positions[veu].reached, memory_order_acquire);
    *moving = reached == 0;
    if (reached == 0 || reached > starts[veu + 1] - starts[veu])
        return NULL;
    const rammer_record *record = &model->program.records[starts[veu] + reached - 1];
    *moving = record->opcode != RAMMER_WAIT || is_due(model, record);
    return *moving ? NULL : record;
}

/* Steps done by all vEUs. As positions only grow, an equal sum later means that none moved. */
static uint64_t steps_reached(const rammer_model *model) {
    uint64_t sum = 0;
    for (uint32_t veu = 0; veu < model->program.veu_count; ++veu)
        sum += atomic_load_explicit(&model->positions[veu].reached, memory_order_acquire);
    return sum;
}

static bool nobody_can_move(const rammer_model *model) {
    for (uint32_t veu = 0; veu < model->program.veu_count; ++veu) {
        bool moving;
        blocked_at(model, veu, &moving);
        if (moving)
            return false;
    }
    return true;
}

/* Returns whether the Wait came due; if not, the run is to be given up. */
static bool await(rammer_model *model, const rammer_record *wait) {
    for (uint32_t poll = 0; poll < model->program.wait_polls; ++poll) {
        if (is_due(model, wait))
            return true;
        rammer_relax();
    }
    int64_t deadline = rammer_now_ns() + model->program.timeout_ns;
    uint64_t reached = steps_reached(model);
    for (uint32_t yield = 1;; ++yield) {
        if (is_due(model, wait))
            return true;
        if (atomic_load_explicit(&model->stalled, memory_order_relaxed))
            return false;
        if (yield % YIELDS_PER_CLOCK == 0 && rammer_now_ns() >= deadline) {
            const bool stuck = nobody_can_move(model);
            const uint64_t latest = steps_reached(model);
            if (stuck && latest == reached) {
                atomic_store_explicit(&model->stalled, true, memory_order_relaxed);
                return false;
            }
            reached = latest;
            deadline = rammer_now_ns() + model->program.timeout_ns;
        }
        sched_yield();
    }
}

static void walk(rammer_model *model, uint32_t veu) {
    const rammer_program *program = &model->program;
    const rammer_record *records = program->records + program->starts[veu];
    const uint32_t count = program->starts[veu + 1] - program->starts[veu];
    rammer_span *spans = model->spans == NULL ? NULL : model->spans + program->starts[veu];
    _Atomic uint32_t *reached = &model->positions[veu].reached;
    for (uint32_t i = 0; i < count; ++i) {
        const rammer_record *record = &records[i];
        atomic_store_explicit(reached, i + 1, memory_order_relaxed);
        if (spans != NULL)
            spans[i].start_ns = rammer_now_ns() - model->origin_ns;
        switch (record->opcode) {
        case RAMMER_EXECUTE:
            program->kernels[record->a](model->pointers + record->c, (int32_t)record->b);
            break;
        case RAMMER_WAIT:
            if (!await(model, record))
                return;
            break;
        default:
            atomic_fetch_add_explicit(&model->counters[record->a].signals, 1, memory_order_release);
        }
        if (spans != NULL)
            spans[i].end_ns = rammer_now_ns() - model->origin_ns;
    }
    atomic_store_explicit(reached, count + 1, memory_order_release);
}

/* All vEUs compute with IEEE defaults, whatever rounding or flushing the caller's thread has set. */
static void run_veu(void *context, uint32_t veu) {
    fenv_t callers;
    fegetenv(&callers);
    fesetenv(FE_DFL_ENV);
    walk(context, veu);
    fesetenv(&callers);
}

/* A Wait for more Signals than a run has is a cause; of others that wait in vain, the first is as good as any. */
static void describe_stall(const rammer_model *model, rammer_stall *stall) {
    const rammer_program *program = &model->program;
    bool cause = false;
    for (uint32_t veu = 0; veu < program->veu_count && !cause; ++veu) {
        bool moving;
        const rammer_record *wait = blocked_at(model, veu, &moving);
        if (wait == NULL)
            continue;
        cause = wait->b > program->signals[wait->a];
        if (stall->wanted != 0 && !cause)
            continue;
        const uint64_t signals = atomic_load_explicit(&model->counters[wait->a].signals, memory_order_relaxed);
        stall->veu = veu;
        stall->step = (uint32_t)(wait - program->records) - program->starts[veu];
        stall->counter = wait->a;
        stall->seen = signals - before_this_run(model, wait->a);
        stall->wanted = wait->b;
    }
}

int rammer_model_run(rammer_model *model, char *const *arrays, rammer_span *spans, rammer_stall *stall) {
    const rammer_program *program = &model->program;
    int result = RAMMER_OK;
    pthread_mutex_lock(&model->mutex);
    for (uint32_t i = 0; i < model->bound_count; ++i) {
        const rammer_slot *slot = &program->slots[model->bound[i]];
        model->pointers[model->bound[i]] = arrays[slot->segment - RAMMER_CALLER] + slot->offset_bytes;
    }
    for (uint32_t veu = 0; veu < program->veu_count; ++veu)
        atomic_store_explicit(&model->positions[veu].reached, veu >= model->awake, memory_order_relaxed);
    model->spans = spans;
    model->origin_ns = rammer_now_ns();
    if (model->awake == 1)
        run_veu(model, 0);
    else if (model->awake > 1)
        result = rammer_pool_run(model->awake, program->cores, program->spin_ns, run_veu, model);
    if (atomic_load_explicit(&model->stalled, memory_order_relaxed)) {
        memset(stall, 0, sizeof *stall);
        describe_stall(model, stall);
        reset(model);
        result = RAMMER_STALLED;
    } else if (result == RAMMER_OK) {
        ++model->runs;
    }
    pthread_mutex_unlock(&model->mutex);
    return result;
}
