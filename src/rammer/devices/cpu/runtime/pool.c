/* Threads are made on demand and kept. Without work a thread polls for a moment and then sleeps. */
#define _GNU_SOURCE
#include "pool.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "clock.h"

enum { STACK_BYTES = 8 << 20, POLLS_PER_CLOCK = 64, ANY_CORE = -1 };

/* Long enough that the runs in which a thread is tried again are less than one in a hundred. */
static const int64_t FIRST_SHUN_NS = 250000000, LAST_SHUN_NS = 8000000000;

/* With half of its core a thread is worth having no more; a quarter of it is borne, and a slice of another's. */
static const int64_t MOST_LOST_NS = 5000000;
enum { LOSS_BORNE = 4, MANY_TRIES = 100 };

struct thread {
    _Alignas(64) _Atomic(struct rammer_work *) invitation; /* NULL while the thread is idle, and only then */
    _Atomic bool asleep;
    _Atomic int64_t shunned_until_ns;
    _Atomic uint32_t tries; /* runs since it was left out the last time */
    int64_t shun_ns;        /* how long that was */
    int64_t lost_ns;        /* less what is borne, as of noted_ns */
    int64_t noted_ns;
    pthread_mutex_t mutex;   /* these two only for sleeping */
    pthread_cond_t wake;
    _Atomic clockid_t clock;
    uint32_t number;
};

static struct thread threads[RAMMER_MAX_THREADS]; /* threads[RAMMER_CALLER] stands for the callers */
static _Atomic uint32_t thread_count = 1;
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint32_t owners; /* of work under way */
static pthread_mutex_t losses = PTHREAD_MUTEX_INITIALIZER; /* held to note them */

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

clockid_t rammer_pool_clock(uint32_t thread) {
    return atomic_load_explicit(&threads[thread].clock, memory_order_relaxed);
}

/* The work that the thread is invited to, once there is some. */
static struct rammer_work *next_work(struct thread *self, int64_t spin_ns) {
    struct rammer_work *work;
    const int64_t end = rammer_now_ns() + spin_ns;
    while (rammer_now_ns() < end) {
        for (int poll = 0; poll < POLLS_PER_CLOCK; ++poll) {
            if ((work = atomic_load_explicit(&self->invitation, memory_order_acquire)) != NULL)
                return work;
            rammer_relax();
        }
    }
    /* Either `invite` sees `asleep` and wakes, or this thread sees the invitation: both orders are total. */
    pthread_mutex_lock(&self->mutex);
    atomic_store(&self->asleep, true);
    while ((work = atomic_load(&self->invitation)) == NULL)
        pthread_cond_wait(&self->wake, &self->mutex);
    atomic_store(&self->asleep, false);
    pthread_mutex_unlock(&self->mutex);
    return work;
}

static void *serve(void *argument) {
    struct thread *self = argument;
    atomic_store_explicit(&self->clock, rammer_own_clock(), memory_order_relaxed);
    int32_t core = ANY_CORE;
    int64_t spin_ns = 0;
    for (;;) {
        struct rammer_work *work = next_work(self, spin_ns);
        if (work->cores[self->number] != core && work->cores[self->number] != ANY_CORE) {
            core = work->cores[self->number];
            pin(core);
        }
        spin_ns = work->spin_ns;
        work->join(work, self->number);
        atomic_store_explicit(&self->invitation, NULL, memory_order_release); /* the work may be gone from here on */
    }
    return NULL;
}

static bool start_thread(uint32_t number) {
    struct thread *thread = &threads[number];
    pthread_t handle;
    pthread_attr_t attributes;
    sigset_t all, saved;
    thread->number = number;
    atomic_store(&thread->invitation, NULL);
    atomic_store(&thread->asleep, false);
    pthread_mutex_init(&thread->mutex, NULL);
    pthread_cond_init(&thread->wake, NULL);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    /* Signals belong to the program's own threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved);
    const int error = pthread_create(&handle, &attributes, serve, thread);
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    pthread_attr_destroy(&attributes);
    return error == 0;
}

/* How many threads there are for work that wants so many; what cannot be made is done without. */
static uint32_t started(uint32_t wanted) {
    uint32_t count = atomic_load_explicit(&thread_count, memory_order_acquire);
    if (count >= wanted)
        return wanted;
    pthread_mutex_lock(&starting);
    for (count = atomic_load(&thread_count); count < wanted && start_thread(count); ++count)
        atomic_store(&thread_count, count + 1);
    pthread_mutex_unlock(&starting);
    return count < wanted ? count : wanted;
}

/* Whether the thread is in the work, or on its way there. */
static bool invite(struct thread *thread, struct rammer_work *work, int64_t now_ns) {
    struct rammer_work *busy_with = NULL;
    if (now_ns < atomic_load_explicit(&thread->shunned_until_ns, memory_order_relaxed))
        return false;
    atomic_fetch_add_explicit(&thread->tries, 1, memory_order_relaxed);
    if (!atomic_compare_exchange_strong(&thread->invitation, &busy_with, work))
        return busy_with == work;
    if (atomic_load(&thread->asleep)) {
        pthread_mutex_lock(&thread->mutex);
        pthread_cond_signal(&thread->wake);
        pthread_mutex_unlock(&thread->mutex);
    }
    return true;
}

uint32_t rammer_pool_invite(struct rammer_work *work, int64_t now_ns) {
    const uint32_t count = started(work->thread_count);
    const bool alone = atomic_fetch_add_explicit(&owners, 1, memory_order_relaxed) == 0;
    uint32_t guests = 0;
    for (uint32_t number = 1; number < count; ++number)
        guests += invite(&threads[number], work, now_ns);
    struct thread *caller = &threads[RAMMER_CALLER];
    if (guests > 0 && alone && now_ns >= atomic_load_explicit(&caller->shunned_until_ns, memory_order_relaxed))
        move_to(work->cores[RAMMER_CALLER]);
    return guests;
}

void rammer_pool_leave(void) {
    atomic_fetch_sub_explicit(&owners, 1, memory_order_relaxed);
}

void rammer_pool_dismiss(const struct rammer_work *work) {
    const uint32_t count = atomic_load(&thread_count);
    for (uint32_t number = 1; number < count; ++number)
        while (atomic_load_explicit(&threads[number].invitation, memory_order_acquire) == work)
            sched_yield();
}

static void shun(struct thread *thread, int64_t now_ns) {
    const bool again = thread->shun_ns > 0 && atomic_load_explicit(&thread->tries, memory_order_relaxed) < MANY_TRIES;
    const int64_t shun_ns = again ? 2 * thread->shun_ns : FIRST_SHUN_NS;
    thread->shun_ns = shun_ns < LAST_SHUN_NS ? shun_ns : LAST_SHUN_NS;
    thread->lost_ns = MOST_LOST_NS - 1; /* when it is tried again, the next loss counts at once */
    thread->noted_ns = now_ns + thread->shun_ns;
    atomic_store_explicit(&thread->tries, 0, memory_order_relaxed);
    atomic_store_explicit(&thread->shunned_until_ns, thread->noted_ns, memory_order_relaxed);
}

bool rammer_pool_note_loss(uint32_t number, int64_t loss_ns, int64_t now_ns) {
    struct thread *thread = &threads[number];
    pthread_mutex_lock(&losses);
    const int64_t since_ns = now_ns - thread->noted_ns;
    if (since_ns > 0) { /* else it is left out by now, or another thread noted the same */
        const int64_t before_ns = thread->lost_ns - since_ns / LOSS_BORNE;
        thread->lost_ns = (before_ns > 0 ? before_ns : 0) + loss_ns;
        thread->noted_ns = now_ns;
        if (thread->lost_ns >= MOST_LOST_NS)
            shun(thread, now_ns);
    }
    const bool shunned = now_ns < atomic_load_explicit(&thread->shunned_until_ns, memory_order_relaxed);
    pthread_mutex_unlock(&losses);
    return shunned;
}

/* A forked child has no threads but the one that forked: it starts with an empty pool of its own. */
static void forget_threads(void) {
    pthread_mutex_init(&starting, NULL);
    pthread_mutex_init(&losses, NULL);
    atomic_store(&thread_count, 1);
    atomic_store(&owners, 0);
}

/* Once loaded, and not at first use: a fork under way does not call handlers that it has not seen at its start. */
__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(NULL, NULL, forget_threads);
}
