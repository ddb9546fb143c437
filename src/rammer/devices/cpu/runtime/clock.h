/* A coarse clock that costs one load to read, for what looks often at the time. Internal to the runtime. */
#ifndef RAMMER_CLOCK_H
#define RAMMER_CLOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

enum { RAMMER_TICK_MS = 50 };

__attribute__((visibility("hidden"))) extern _Atomic uint32_t rammer_ticks; /* grows by one a tick as long as somebody wants it to */

/* Keeps the clock going for two ticks at least. */
void rammer_clock_want(void);

static inline int64_t rammer_time_ns(clockid_t clock) {
    struct timespec time = {0};
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static inline int64_t rammer_now_ns(void) {
    return rammer_time_ns(CLOCK_MONOTONIC);
}

/* A clock of the processor time that the calling thread has had, for others to read; where there is none, of all time. */
static inline clockid_t rammer_own_clock(void) {
    clockid_t clock = CLOCK_MONOTONIC;
#ifdef __linux__
    pthread_getcpuclockid(pthread_self(), &clock);
#endif
    return clock;
}

#endif
