/* Threads are made on demand and kept. Between runs a worker polls for a moment and then sleeps. */
#define _GNU_SOURCE
#include "pool.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

enum { STACK_BYTES = 8 << 20, POLLS_PER_CLOCK = 64, POLLS_BEFORE_YIELD = 1024, ANY_CORE = -1 };

struct worker {
    _Alignas(64) _Atomic uint32_t ticket; /* counts the jobs handed to this worker */
    _Atomic uint32_t asleep;
    pthread_mutex_t mutex; /* these two only for sleeping */
    pthread_cond_t wake;
    uint32_t veu;
};

/* The job under way. Plain fields are published by the ticket's store and read after its load. */
static struct {
    void (*body)(void *, uint32_t);
    void *context;
    const int32_t *cores;
    int64_t spin_ns;
    _Alignas(64) _Atomic uint32_t unfinished;
} job;

static pthread_mutex_t pool_mutex = PTHREAD_MUTEX_INITIALIZER; /* held by whoever runs a job */
static struct worker workers[RAMMER_MAX_VEUS]; /* workers[0] stands for the caller and is not used */
static uint32_t worker_count = 1;

#ifdef __linux__
static void pin(int32_t core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    /* A core that was taken away since (a changed cpuset) costs speed only. */
    (void)sched_setaffinity(0, sizeof set, &set);
}

/* Moves the calling thread to a core, within what its owner allows it, and leaves its affinity as it was. Where
 * it runs alone on the core it stays there, so that most calls find it in place: pinning each time costs 5 us. */
static void move_to(int32_t core) {
    cpu_set_t allowed;
    if (core == ANY_CORE || sched_getcpu() == core || sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    if (CPU_ISSET((size_t)core, &allowed)) {
        pin(core);
        (void)sched_setaffinity(0, sizeof allowed, &allowed);
    }
}
#else
static void pin(int32_t core) { (void)core; }
static void move_to(int32_t core) { (void)core; }
#endif

/* The ticket after `seen`, once there is one. */
static uint32_t next_ticket(struct worker *self, uint32_t seen, int64_t spin_ns) {
    const int64_t end = rammer_now_ns() + spin_ns;
    while (rammer_now_ns() < end) {
        for (int poll = 0; poll < POLLS_PER_CLOCK; ++poll) {
            const uint32_t ticket = atomic_load_explicit(&self->ticket, memory_order_acquire);
            if (ticket != seen)
                return ticket;
            rammer_relax();
        }
    }
    /* Either `hand_over` sees `asleep` and wakes, or this thread sees the new ticket: both orders are total. */
    pthread_mutex_lock(&self->mutex);
    atomic_store(&self->asleep, 1);
    uint32_t ticket;
    while ((ticket = atomic_load(&self->ticket)) == seen)
        pthread_cond_wait(&self->wake, &self->mutex);
    atomic_store(&self->asleep, 0);
    pthread_mutex_unlock(&self->mutex);
    return ticket;
}

static void hand_over(struct worker *worker) {
    atomic_fetch_add(&worker->ticket, 1);
    if (atomic_load(&worker->asleep)) {
        pthread_mutex_lock(&worker->mutex);
        pthread_cond_signal(&worker->wake);
        pthread_mutex_unlock(&worker->mutex);
    }
}

static void *work(void *argument) {
    struct worker *self = argument;
    uint32_t ticket = 0;
    int32_t core = ANY_CORE;
    int64_t spin_ns = 0;
    for (;;) {
        ticket = next_ticket(self, ticket, spin_ns);
        if (job.cores[self->veu] != core && job.cores[self->veu] != ANY_CORE) {
            core = job.cores[self->veu];
            pin(core);
        }
        spin_ns = job.spin_ns;
        job.body(job.context, self->veu);
        atomic_fetch_sub_explicit(&job.unfinished, 1, memory_order_release);
    }
    return NULL;
}

static int start_worker(uint32_t veu) {
    struct worker *worker = &workers[veu];
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, saved;
    worker->veu = veu;
    atomic_store(&worker->ticket, 0);
    atomic_store(&worker->asleep, 0);
    pthread_mutex_init(&worker->mutex, NULL);
    pthread_cond_init(&worker->wake, NULL);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    /* Signals belong to the program's own threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved);
    const int error = pthread_create(&thread, &attributes, work, worker);
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

/* A forked child has no threads but the one that forked: it starts with an empty pool of its own. */
static void forget_workers(void) {
    pthread_mutex_init(&pool_mutex, NULL);
    worker_count = 1;
}

/* Once loaded, and not at first use: a fork under way does not call handlers that it has not seen at its start. */
__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(NULL, NULL, forget_workers);
}

int rammer_pool_run(uint32_t veu_count, const int32_t *cores, int64_t spin_ns,
                    void (*body)(void *context, uint32_t veu), void *context) {
    if (veu_count > RAMMER_MAX_VEUS)
        return EAGAIN;
    pthread_mutex_lock(&pool_mutex);
    while (worker_count < veu_count) {
        const int error = start_worker(worker_count);
        if (error != 0) {
            pthread_mutex_unlock(&pool_mutex);
            return error;
        }
        ++worker_count;
    }
    job.body = body;
    job.context = context;
    job.cores = cores;
    job.spin_ns = spin_ns;
    atomic_store_explicit(&job.unfinished, veu_count - 1, memory_order_relaxed);
    for (uint32_t veu = 1; veu < veu_count; ++veu)
        hand_over(&workers[veu]);

    move_to(cores[0]);
    body(context, 0);
    for (uint32_t poll = 0; atomic_load_explicit(&job.unfinished, memory_order_acquire) != 0; ++poll) {
        if (poll < POLLS_BEFORE_YIELD)
            rammer_relax();
        else
            sched_yield();
    }
    pthread_mutex_unlock(&pool_mutex);
    return 0;
}
