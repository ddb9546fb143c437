/* A thread counts the ticks. It sleeps while nobody wants them: an idle process stays idle. */
#define _GNU_SOURCE
#include "clock.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

enum { STACK_BYTES = 64 << 10, IDLE_TICKS = 2 };

_Atomic uint32_t rammer_ticks;

static _Atomic bool wanted; /* since the last tick; either its setter sees `resting`, or the clock sees it set */
static _Atomic bool resting = true;
static bool started;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;

static void rest(void) {
    pthread_mutex_lock(&mutex);
    atomic_store(&resting, true);
    while (!atomic_load(&wanted))
        pthread_cond_wait(&wake, &mutex);
    atomic_store(&resting, false);
    pthread_mutex_unlock(&mutex);
}

static void *tick(void *unused) {
    const struct timespec length = {.tv_nsec = RAMMER_TICK_MS * 1000000};
    (void)unused;
    for (int idle = IDLE_TICKS;;) {
        if (idle >= IDLE_TICKS)
            rest();
        idle = atomic_exchange(&wanted, false) ? 0 : idle + 1;
        nanosleep(&length, NULL);
        atomic_fetch_add_explicit(&rammer_ticks, 1, memory_order_relaxed);
    }
    return NULL;
}

/* Without the thread the clock stands still, and long runs are not interrupted. */
static bool start(void) {
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, saved;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved);
    const int error = pthread_create(&thread, &attributes, tick, NULL);
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    pthread_attr_destroy(&attributes);
    return error == 0;
}

void rammer_clock_want(void) {
    if (atomic_load_explicit(&wanted, memory_order_relaxed))
        return;
    atomic_store(&wanted, true);
    if (!atomic_load(&resting))
        return;
    pthread_mutex_lock(&mutex);
    if (!started)
        started = start();
    pthread_cond_signal(&wake);
    pthread_mutex_unlock(&mutex);
}

/* A forked child has no threads but the one that forked. */
static void forget(void) {
    pthread_mutex_init(&mutex, NULL);
    pthread_cond_init(&wake, NULL);
    atomic_store(&wanted, false);
    atomic_store(&resting, true);
    started = false;
}

/* Once loaded, and not at first use: a fork under way does not call handlers that it has not seen at its start. */
__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(NULL, NULL, forget);
}
