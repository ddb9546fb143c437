/* Threads walk the records of vEUs. Each begins with a vEU of its own; one whose vEU waits goes on with another that has
 * work and no thread, so that a run ends with any number of threads, however late they come. */
#define _GNU_SOURCE
#include <fenv.h>
#include <sched.h>

#include "clock.h"
#include "model.h"

enum { NO_QUEUE = UINT32_MAX, LONG_TICKS = 2 };

static const int64_t SLEEP_AFTER_NS = 200000, LONGEST_SLEEP_NS = 10000000, LATE_NS = 1000000;

/* Waiting for something to do: since when, until when the run may stand still, and a thread that holds things up. */
struct wait {
    uint32_t polls;
    int64_t since_ns;
    int64_t deadline_ns;
    uint64_t reached;
    uint32_t holder; /* RAMMER_MAX_THREADS where there is none */
    int64_t holder_since_ns;
    int64_t holder_time_ns;
};

static uint64_t before_this_run(const rammer_model *model, uint32_t counter) {
    return atomic_load_explicit(&model->runs, memory_order_relaxed) * model->program.signals[counter];
}

static bool is_due(const rammer_model *model, const rammer_record *wait) {
    const uint64_t wanted = before_this_run(model, wait->a) + wait->b;
    return atomic_load_explicit(&model->counters[wait->a].signals, memory_order_acquire) >= wanted;
}

static uint32_t length_of(const rammer_model *model, uint32_t veu) {
    return model->program.starts[veu + 1] - model->program.starts[veu];
}

static const rammer_record *records_of(const rammer_model *model, uint32_t veu) {
    return model->program.records + model->program.starts[veu];
}

/* Wakes threads that sleep. What they wait for must have been written before, by a sequentially consistent store: either
 * this sees a sleeper, or the sleeper sees what was written. */
static void tell(rammer_model *model) {
    if (atomic_load(&model->sleepers) == 0)
        return;
    pthread_mutex_lock(&model->news_mutex);
    pthread_cond_broadcast(&model->news);
    pthread_mutex_unlock(&model->news_mutex);
}

static bool comes_due(const rammer_model *model, const rammer_record *wait) {
    const uint32_t polls = atomic_load_explicit(&model->polls, memory_order_relaxed);
    for (uint32_t poll = 0; poll < polls; ++poll) {
        if (is_due(model, wait))
            return true;
        rammer_relax();
    }
    return false;
}

static bool is_long(uint32_t thread, uint32_t ticks) {
    return thread == RAMMER_CALLER && atomic_load_explicit(&rammer_ticks, memory_order_relaxed) - ticks >= LONG_TICKS;
}

/* Whether the predicate of an rTask holds. */
static bool holds(const rammer_model *model, const rammer_record *record) {
    return *(const uint8_t *)model->pointers[record->c - 1] != 0;
}

enum result { QUEUE_ENDS, QUEUE_WAITS, THREAD_LEAVES };

/* Walks a queue that this thread has taken, and gives it back. */
static enum result walk_queue(rammer_model *model, uint32_t veu, uint32_t thread, uint32_t ticks) {
    const rammer_program *program = &model->program;
    const rammer_record *records = records_of(model, veu);
    const uint32_t count = length_of(model, veu);
    struct queue *queue = &model->queues[veu];
    rammer_span *spans = model->spans == NULL ? NULL : model->spans + program->starts[veu];
    const uint32_t reached = atomic_load_explicit(&queue->reached, memory_order_relaxed);
    for (uint32_t i = reached > 0 ? reached - 1 : 0; i < count; ++i) {
        const rammer_record *record = &records[i];
        const bool fresh = i >= reached;
        if (fresh)
            atomic_store_explicit(&queue->reached, i + 1, memory_order_relaxed);
        if (spans != NULL && fresh)
            spans[i].start_ns = rammer_now_ns() - model->origin_ns;
        const bool leaves = atomic_load_explicit(&model->halt, memory_order_relaxed) != GO_ON ||
                            atomic_load_explicit(&queue->recalled, memory_order_relaxed) || is_long(thread, ticks);
        if (leaves || (record->opcode == RAMMER_WAIT && !comes_due(model, record))) {
            atomic_store(&queue->state, QUEUE_FREE);
            if (!leaves)
                return QUEUE_WAITS;
            tell(model);
            return THREAD_LEAVES;
        }
        if (record->opcode == RAMMER_EXECUTE || (record->opcode == RAMMER_EXECUTE_IF && holds(model, record))) {
            program->kernels[record->a](model->pointers + record->c, (int32_t)record->b);
        } else if (record->opcode == RAMMER_SIGNAL) {
            atomic_fetch_add(&model->counters[record->a].signals, 1);
            tell(model);
        }
        if (spans != NULL)
            spans[i].end_ns = rammer_now_ns() - model->origin_ns;
    }
    atomic_store_explicit(&queue->reached, count + 1, memory_order_relaxed);
    atomic_store_explicit(&queue->state, QUEUE_DONE, memory_order_release);
    if (atomic_fetch_sub(&model->open, 1) == 1)
        tell(model);
    return QUEUE_ENDS;
}

/* The Wait at which a vEU stands in vain, or NULL. */
static const rammer_record *blocked_at(const rammer_model *model, uint32_t veu) {
    const uint32_t reached = atomic_load_explicit(&model->queues[veu].reached, memory_order_acquire);
    const uint32_t at = reached > 0 ? reached - 1 : 0;
    if (at >= length_of(model, veu))
        return NULL;
    const rammer_record *record = &records_of(model, veu)[at];
    return record->opcode != RAMMER_WAIT || is_due(model, record) ? NULL : record;
}

/* Takes a queue with something to do, the thread's own if it is one. */
static uint32_t take_queue(rammer_model *model, uint32_t thread) {
    for (uint32_t step = 0; step < model->awake; ++step) {
        const uint32_t veu = thread + step < model->awake ? thread + step : thread + step - model->awake;
        struct queue *queue = &model->queues[veu];
        uint32_t expected = QUEUE_FREE;
        if (atomic_load_explicit(&queue->state, memory_order_acquire) == QUEUE_FREE && blocked_at(model, veu) == NULL &&
            atomic_compare_exchange_strong(&queue->state, &expected, QUEUE_TAKEN)) {
            atomic_store_explicit(&queue->holder, thread, memory_order_relaxed);
            atomic_store_explicit(&queue->recalled, false, memory_order_relaxed);
            return veu;
        }
    }
    return NO_QUEUE;
}

/* Steps done by all vEUs. As positions only grow, an equal sum later means that none moved. */
static uint64_t steps_reached(const rammer_model *model) {
    uint64_t sum = 0;
    for (uint32_t veu = 0; veu < model->awake; ++veu)
        sum += atomic_load_explicit(&model->queues[veu].reached, memory_order_acquire);
    return sum;
}

static bool nobody_can_move(const rammer_model *model) {
    for (uint32_t veu = 0; veu < model->awake; ++veu)
        if (atomic_load_explicit(&model->queues[veu].state, memory_order_acquire) != QUEUE_DONE &&
            blocked_at(model, veu) == NULL)
            return false;
    return true;
}

static bool is_stuck(const rammer_model *model, struct wait *wait, int64_t now_ns) {
    if (now_ns < wait->deadline_ns)
        return false;
    const bool stuck = nobody_can_move(model);
    const uint64_t latest = steps_reached(model);
    if (stuck && latest == wait->reached)
        return true;
    wait->reached = latest;
    wait->deadline_ns = now_ns + model->program.timeout_ns;
    return false;
}

/* The first thread but this one that holds a queue; RAMMER_MAX_THREADS where there is none. */
static uint32_t find_holder(const rammer_model *model, uint32_t thread) {
    for (uint32_t veu = 0; veu < model->awake; ++veu) {
        const struct queue *queue = &model->queues[veu];
        const uint32_t holder = atomic_load_explicit(&queue->holder, memory_order_relaxed);
        if (atomic_load_explicit(&queue->state, memory_order_relaxed) == QUEUE_TAKEN && holder != thread)
            return holder;
    }
    return RAMMER_MAX_THREADS;
}

/* Lets a thread of the pool give back what it holds, so that others go on with it. */
static void recall(rammer_model *model, uint32_t thread) {
    for (uint32_t veu = 0; veu < model->awake && thread != RAMMER_CALLER; ++veu)
        if (atomic_load_explicit(&model->queues[veu].holder, memory_order_relaxed) == thread)
            atomic_store_explicit(&model->queues[veu].recalled, true, memory_order_relaxed);
}

/* Finds out whether a thread that holds a queue has had less than half of its core's time while this one waited. */
static void watch_holder(rammer_model *model, struct wait *wait, uint32_t thread, int64_t now_ns) {
    const uint32_t holder = find_holder(model, thread);
    if (holder == RAMMER_MAX_THREADS)
        return;
    const int64_t time_ns = rammer_time_ns(holder == RAMMER_CALLER ? atomic_load_explicit(&model->callers_clock, memory_order_relaxed)
                                                           : rammer_pool_clock(holder));
    const int64_t waited_ns = now_ns - wait->holder_since_ns, had_ns = time_ns - wait->holder_time_ns;
    if (holder == wait->holder && waited_ns < LATE_NS)
        return;
    if (holder == wait->holder && 2 * had_ns < waited_ns && rammer_pool_note_loss(holder, waited_ns - had_ns, now_ns))
        recall(model, holder);
    wait->holder = holder;
    wait->holder_since_ns = now_ns;
    wait->holder_time_ns = time_ns;
}

/* Sleeps until there may be something to do. */
static void sleep_for(rammer_model *model, int64_t duration_ns) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += duration_ns;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&model->news_mutex);
    atomic_fetch_add(&model->sleepers, 1);
    bool news = atomic_load(&model->open) == 0 || atomic_load(&model->halt) != GO_ON;
    for (uint32_t veu = 0; veu < model->awake && !news; ++veu)
        news = atomic_load(&model->queues[veu].state) == QUEUE_FREE && blocked_at(model, veu) == NULL;
    if (!news)
        pthread_cond_timedwait(&model->news, &model->news_mutex, &until);
    atomic_fetch_sub(&model->sleepers, 1);
    pthread_mutex_unlock(&model->news_mutex);
}

/* Lets a moment pass in which there is nothing to do for a thread. Returns false where the run is to be given up. */
static bool let_pass(rammer_model *model, struct wait *wait, uint32_t thread) {
    if (wait->polls++ < atomic_load_explicit(&model->polls, memory_order_relaxed)) {
        rammer_relax();
        return true;
    }
    const int64_t now_ns = rammer_now_ns();
    if (wait->since_ns == 0) {
        wait->since_ns = now_ns;
        wait->deadline_ns = now_ns + model->program.timeout_ns;
        wait->reached = steps_reached(model);
        wait->holder = RAMMER_MAX_THREADS;
    }
    if (is_stuck(model, wait, now_ns))
        return false;
    if (now_ns - wait->since_ns < SLEEP_AFTER_NS) {
        sched_yield();
        return true;
    }
    watch_holder(model, wait, thread, now_ns);
    const int64_t left_ns = wait->deadline_ns - now_ns;
    sleep_for(model, left_ns < LONGEST_SLEEP_NS ? left_ns : LONGEST_SLEEP_NS);
    return true;
}

/* Polls for the end of the run where all queues have threads. */
static void await_end(const rammer_model *model) {
    if (model->work.thread_count < model->awake)
        return;
    const uint32_t polls = atomic_load_explicit(&model->polls, memory_order_relaxed);
    for (uint32_t poll = 0; poll < polls; ++poll) {
        if (atomic_load_explicit(&model->open, memory_order_acquire) == 0)
            return;
        rammer_relax();
    }
}

void rammer_walk(rammer_model *model, uint32_t thread, uint32_t ticks) {
    fenv_t own;
    struct wait wait = {0};
    /* All threads compute with IEEE defaults, whatever rounding or flushing the caller's thread has set. */
    fegetenv(&own);
    fesetenv(FE_DFL_ENV);
    for (;;) {
        const uint32_t veu = take_queue(model, thread);
        if (veu != NO_QUEUE) {
            wait = (struct wait){0};
            const enum result result = walk_queue(model, veu, thread, ticks);
            if (result == THREAD_LEAVES)
                break;
            if (result == QUEUE_ENDS)
                await_end(model);
        }
        if (atomic_load_explicit(&model->open, memory_order_acquire) == 0 || atomic_load(&model->halt) != GO_ON ||
            is_long(thread, ticks))
            break;
        if (veu == NO_QUEUE && !let_pass(model, &wait, thread)) {
            uint32_t expected = GO_ON;
            atomic_compare_exchange_strong(&model->halt, &expected, GIVEN_UP);
            tell(model);
            break;
        }
    }
    fesetenv(&own);
}

void rammer_halt(rammer_model *model, enum halt reason) {
    atomic_store(&model->halt, reason);
    tell(model);
    for (uint32_t veu = 0; veu < model->awake; ++veu) {
        uint32_t state = QUEUE_FREE;
        while (!atomic_compare_exchange_strong(&model->queues[veu].state, &state, QUEUE_DONE) && state != QUEUE_DONE) {
            sched_yield();
            state = QUEUE_FREE;
        }
    }
}

/* A Wait for more Signals than a run has is a cause; of others that wait in vain, the first is as good as any. */
void rammer_describe_stall(const rammer_model *model, rammer_stall *stall) {
    const rammer_program *program = &model->program;
    bool cause = false;
    for (uint32_t veu = 0; veu < model->awake && !cause; ++veu) {
        const rammer_record *wait = blocked_at(model, veu);
        if (wait == NULL)
            continue;
        cause = wait->b > program->signals[wait->a];
        if (stall->wanted != 0 && !cause)
            continue;
        const uint64_t signals = atomic_load_explicit(&model->counters[wait->a].signals, memory_order_relaxed);
        stall->veu = veu;
        stall->step = (uint32_t)(wait - records_of(model, veu));
        stall->counter = wait->a;
        stall->seen = signals - before_this_run(model, wait->a);
        stall->wanted = wait->b;
    }
}
