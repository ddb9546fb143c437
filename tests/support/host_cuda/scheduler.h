/* The threads of a launch as fibres of one thread of the host: what the intrinsics of `intrinsics.h` stand on.
 *
 * One fibre runs at a time, until it comes to a scheduling point: where it waits for others, and where others may see
 * what it did. Which one goes on is the order's choice, so that a run can be had again.
 */
#ifndef HOST_CUDA_SCHEDULER_H
#define HOST_CUDA_SCHEDULER_H

#include <stdint.h>

struct host_dim {
    unsigned x, y, z;
};

/* What a thread sees of itself. */
struct host_thread {
    host_dim thread, block;
};

extern host_thread *host_here; /* the one that runs */
extern host_dim host_threads, host_blocks;

enum { HOST_WARP = 32, HOST_BARRIERS = 16 };

/* The end of the launch: what is wrong. */
[[noreturn]] void host_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Somebody did what the instruction of a name does; names are literals, at most 63. */
void host_count(const char *name);

/* Others may go on here. */
void host_point(void);

/* The same before a load of what others change. Who looks again and again sleeps until `host_changed` says that somebody
 * wrote there, or until nobody else can go on: then time passes. */
void host_look(const void *address, uint64_t value, unsigned bytes);
void host_changed(const void *address);

/* Waits until `count` threads of the block (0: all that have not ended) have come to barrier `number`, all for the same
 * `purpose`. Returns how many came with `vote`. */
int host_barrier(const char *purpose, int number, unsigned count, bool vote);

/* Comes there likewise, without a vote, and goes on. */
void host_arrive(const char *purpose, int number, unsigned count);

/* Waits until all lanes of `mask` have come, all for the same `purpose`. The last one calls `combine` with what each of
 * them brought, by lane, before any goes on. */
void host_together(const char *purpose, unsigned mask, void *mine, void (*combine)(void *const *lanes, unsigned mask));

/* Copies that run beside the thread, as the order says: at once, as late as can be, or at any scheduling point between.
 * `from` is null for zeros. */
void host_copy(void *into, const void *from, unsigned bytes);
void host_copies_end(void);
void host_copies_wait(unsigned pending);

/* Time that passes where somebody waits, in nanoseconds. */
uint64_t host_time_ns(void);
void host_sleep(uint64_t ns);

/* The number of the multiprocessor that has the block, and how many numbers there are. */
unsigned host_multiprocessor(void);
unsigned host_multiprocessors(void);

bool host_is_shared(const void *address);

/* The same place as a number, from the beginning of shared memory, and back. */
uint32_t host_shared_address(const void *address);
void *host_in_shared(uint32_t address);

#endif
