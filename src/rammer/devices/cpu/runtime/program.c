/* Models, and their runs from the caller's side. Counters only grow: in run n a Wait asks for n * signals + threshold. */
#define _GNU_SOURCE
#include "rammer_runtime.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "model.h"

static pthread_mutex_t models_mutex = PTHREAD_MUTEX_INITIALIZER;
static rammer_model *models; /* all of them, for a fork's child to reset */

uint32_t rammer_abi(void) {
    return RAMMER_ABI;
}

/* Back to "no run yet". Nobody may be running the model. */
static void reset(rammer_model *model) {
    for (uint32_t i = 0; i < model->program.counter_count; ++i)
        atomic_store_explicit(&model->counters[i].signals, 0, memory_order_relaxed);
    for (uint32_t veu = 0; veu < model->program.veu_count; ++veu)
        atomic_store_explicit(&model->queues[veu].state, QUEUE_DONE, memory_order_relaxed);
    atomic_store_explicit(&model->runs, 0, memory_order_relaxed);
    atomic_store_explicit(&model->open, 0, memory_order_relaxed);
    atomic_store_explicit(&model->paused, false, memory_order_relaxed);
    atomic_store_explicit(&model->halt, GO_ON, memory_order_relaxed);
}

static void lock_models(void) {
    pthread_mutex_lock(&models_mutex);
}

static void unlock_models(void) {
    pthread_mutex_unlock(&models_mutex);
}

static void make_locks(rammer_model *model) {
    pthread_mutex_init(&model->mutex, NULL);
    pthread_mutex_init(&model->news_mutex, NULL);
    pthread_cond_init(&model->news, NULL);
    atomic_store_explicit(&model->sleepers, 0, memory_order_relaxed);
}

/* Another thread may have been running a model when this process was forked; here that run never happened. */
static void reset_models(void) {
    for (rammer_model *model = models; model != NULL; model = model->next) {
        make_locks(model);
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
    const size_t bytes = (count * size / RAMMER_LINE_BYTES + 1) * RAMMER_LINE_BYTES;
    void *memory = aligned_alloc(RAMMER_LINE_BYTES, bytes);
    if (memory != NULL)
        memset(memory, 0, bytes);
    return memory;
}

static void destroy(rammer_model *model) {
    free(model->counters);
    free(model->queues);
    free(model->pointers);
    free(model->bound);
    free(model);
}

static void join(struct rammer_work *work, uint32_t thread) {
    rammer_walk((rammer_model *)((char *)work - offsetof(rammer_model, work)), thread, 0);
}

rammer_model *rammer_model_new(const rammer_program *program) {
    rammer_model *model = allocate(1, sizeof *model);
    if (model == NULL)
        return NULL;
    model->program = *program;
    model->counters = allocate(program->counter_count, sizeof *model->counters);
    model->queues = allocate(program->veu_count, sizeof *model->queues);
    model->pointers = allocate(program->slot_count, sizeof *model->pointers);
    model->bound = allocate(program->slot_count, sizeof *model->bound);
    if (!model->counters || !model->queues || !model->pointers || !model->bound) {
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
    const uint32_t threads = program->thread_count < RAMMER_MAX_THREADS ? program->thread_count : RAMMER_MAX_THREADS;
    model->work = (struct rammer_work){
        .join = join,
        .thread_count = threads < model->awake ? threads : model->awake,
        .cores = program->cores,
        .spin_ns = program->spin_ns,
    };
    make_locks(model);
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
    rammer_pool_dismiss(&model->work);
    lock_models();
    *model->link = model->next;
    if (model->next != NULL)
        model->next->link = model->link;
    unlock_models();
    pthread_mutex_destroy(&model->mutex);
    pthread_mutex_destroy(&model->news_mutex);
    pthread_cond_destroy(&model->news);
    destroy(model);
}

/* Opens all queues to the threads that are to walk them. */
static void open_queues(rammer_model *model) {
    for (uint32_t veu = 0; veu < model->awake; ++veu)
        atomic_store_explicit(&model->queues[veu].reached, 0, memory_order_relaxed);
    atomic_store_explicit(&model->open, model->awake, memory_order_relaxed);
    for (uint32_t veu = 0; veu < model->awake; ++veu)
        atomic_store_explicit(&model->queues[veu].state, QUEUE_FREE, memory_order_release);
}

static void end(rammer_model *model) {
    if (model->work.thread_count > 1)
        rammer_pool_leave();
    pthread_mutex_unlock(&model->mutex);
}

/* The caller's part of a run, until it is over or has taken long. */
static int take_part(rammer_model *model, rammer_stall *stall) {
    rammer_clock_want();
    rammer_walk(model, RAMMER_CALLER, atomic_load_explicit(&rammer_ticks, memory_order_relaxed));
    int result = RAMMER_OK;
    if (atomic_load(&model->halt) != GO_ON) {
        rammer_halt(model, GIVEN_UP);
        memset(stall, 0, sizeof *stall);
        rammer_describe_stall(model, stall);
        reset(model);
        result = RAMMER_STALLED;
    } else if (atomic_load_explicit(&model->open, memory_order_acquire) != 0) {
        atomic_store_explicit(&model->paused, true, memory_order_relaxed);
        return RAMMER_PAUSED;
    } else {
        atomic_fetch_add_explicit(&model->runs, 1, memory_order_relaxed);
    }
    end(model);
    return result;
}

int rammer_model_run(rammer_model *model, char *const *arrays, rammer_span *spans, rammer_stall *stall) {
    const rammer_program *program = &model->program;
    pthread_mutex_lock(&model->mutex);
    for (uint32_t i = 0; i < model->bound_count; ++i) {
        const rammer_slot *slot = &program->slots[model->bound[i]];
        model->pointers[model->bound[i]] = arrays[slot->segment - RAMMER_CALLER_ARRAYS] + slot->offset_bytes;
    }
    model->spans = spans;
    model->origin_ns = rammer_now_ns();
    model->caller = pthread_self();
    atomic_store_explicit(&model->polls, program->wait_polls, memory_order_relaxed);
    open_queues(model);
    if (model->work.thread_count > 1) {
        atomic_store_explicit(&model->callers_clock, rammer_own_clock(), memory_order_relaxed);
        if (rammer_pool_invite(&model->work, model->origin_ns) == 0)
            atomic_store_explicit(&model->polls, 1, memory_order_relaxed); /* nobody else signals */
    }
    return take_part(model, stall);
}

/* Whether the calling thread has a run of the model that waits for it. */
static bool is_paused_here(rammer_model *model) {
    return atomic_load(&model->paused) && pthread_equal(model->caller, pthread_self());
}

int rammer_model_resume(rammer_model *model, rammer_stall *stall) {
    if (!is_paused_here(model))
        return RAMMER_OK;
    atomic_store_explicit(&model->paused, false, memory_order_relaxed);
    return take_part(model, stall);
}

void rammer_model_cancel(rammer_model *model) {
    if (!is_paused_here(model))
        return;
    rammer_halt(model, CANCELLED);
    reset(model);
    end(model);
}
