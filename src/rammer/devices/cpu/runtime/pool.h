/* A pool of threads, one per vEU but the first, which is the caller's own. Internal to the runtime. */
#ifndef RAMMER_POOL_H
#define RAMMER_POOL_H

#include <stdint.h>
#include <time.h>

#define RAMMER_MAX_VEUS 1024

/* One poll's pause, kind to the other thread of the core and to who writes what is polled. On Arm `yield` does nothing
 * where a core has one thread; `isb` takes as long as `pause` does on x86 (see rust-lang/rust, pull request 84725). */
static inline void rammer_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

static inline int64_t rammer_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Calls body(context, veu) once for each vEU, all at the same time, and returns when the last one has.
 *
 * Calls are served one at a time. Unless cores[veu] is -1, the thread of a vEU is pinned there; the caller's, vEU 0,
 * is moved there and keeps its affinity. Returns 0, or an errno value where a thread could not be made: then nothing
 * was run.
 */
int rammer_pool_run(uint32_t veu_count, const int32_t *cores, int64_t spin_ns,
                    void (*body)(void *context, uint32_t veu), void *context);

#endif
