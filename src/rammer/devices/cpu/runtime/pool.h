/* Threads that help with work which its owner could do alone. Internal to the runtime. */
#ifndef RAMMER_POOL_H
#define RAMMER_POOL_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum { RAMMER_MAX_THREADS = 1024, RAMMER_CALLER = 0 };

/* One poll's pause, kind to the other thread of the core and to who writes what is polled. On Arm `yield` does nothing
 * where a core has one thread; `isb` takes as long as `pause` does on x86 (see rust-lang/rust, pull request 84725). */
static inline void rammer_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

/* Work that any number of threads may join and leave at any time. Its owner, the calling thread, is number 0. */
struct rammer_work {
    void (*join)(struct rammer_work *work, uint32_t thread); /* returns when there is nothing left to do */
    uint32_t thread_count;                                   /* with the owner's */
    const int32_t *cores;                                    /* for each thread the core to stay on, or -1 */
    int64_t spin_ns;                                         /* how long an idle thread polls before it sleeps */
};

/* Wakes threads 1 .. thread_count - 1, as far as they are idle and were given their cores of late, and moves the calling
 * thread to its core unless others are at work there. Returns how many were woken. Nobody is waited for. */
uint32_t rammer_pool_invite(struct rammer_work *work, int64_t now_ns);

/* The owner has done: what `rammer_pool_invite` notes is undone. */
void rammer_pool_leave(void);

/* Returns once no thread is in the work or on its way there. */
void rammer_pool_dismiss(const struct rammer_work *work);

/* A clock of the processor time that a thread of the pool has had; see rammer_own_clock. */
clockid_t rammer_pool_clock(uint32_t thread);

/* A thread was not given its core for so long while others waited for it. Where that happens often it is left out for a
 * while, each time for twice as long, and this returns true; the calling thread, RAMMER_CALLER, is not moved to its core
 * for that while. */
bool rammer_pool_note_loss(uint32_t thread, int64_t loss_ns, int64_t now_ns);

#endif
