/* The state of a launch, which the scheduler and what threads call have in common. See scheduler.h. */
#ifndef HOST_CUDA_FIBRES_H
#define HOST_CUDA_FIBRES_H

#include "scheduler.h"

#include <setjmp.h>
#include <stddef.h>
#include <ucontext.h>

namespace host {

enum State { READY, WAITS, LOOKS, SLEEPS, ENDED };
enum Policy { FORWARD, REVERSE, TURNS, AHEAD, BEHIND, RANDOM };
enum Copies { EARLY, LATE, ANY_TIME };

constexpr unsigned MOST_WARPS = 32; /* of a block */

struct Copy {
    char *into;
    const char *from;
    unsigned bytes, group;
};

struct Look {
    const void *at;
    uint64_t seen;
    unsigned bytes;
};
constexpr unsigned MOST_LOOKS = 16; /* of a thread at different words, again and again */

struct Fibre : host_thread {
    State state;
    bool started;
    unsigned block_number, warp, lane;
    jmp_buf context;
    ucontext_t start;
    const char *purpose; /* that it waits for */
    int barrier;         /* where it waits */
    int votes;           /* that it came with, then of all */
    Look looks[MOST_LOOKS]; /* at what others write, since the last barrier */
    unsigned look_count;
    unsigned same; /* looks one after another that saw what others had */
    Copy *copies;
    unsigned copy_count, copy_room, groups; /* `groups` have ended */
};

struct Meeting {
    const char *purpose;
    unsigned here, wanted;
    int votes;
};

struct Gathering {
    const char *purpose;
    unsigned mask, here; /* no mask: there is none */
    void *lanes[HOST_WARP];
};

struct Warp {
    unsigned ready; /* a bit for each lane */
    uint64_t rank;
    Gathering gatherings[HOST_WARP];
};

struct Block {
    uint64_t ready; /* a bit for each warp with lanes that are */
    uint64_t rank;
    unsigned alive;
    Warp warps[MOST_WARPS];
    Meeting barriers[HOST_BARRIERS];
    char *shared[2];
};

/* A part of shared memory, of the block that runs. */
struct Part {
    char *at;
    size_t size;
};

/* Threads that sleep until something happens. */
struct List {
    Fibre **fibres;
    unsigned count;
};

/* How often an instruction was used. */
struct Count {
    const char *name;
    uint64_t times;
};

extern Policy policy;
extern Copies copies;
extern Part shared[2];
extern Block *blocks;
extern List lookers, sleepers;
extern Fibre *here;
extern uint64_t now_ns;
extern Count counts[64];
extern sigjmp_buf outside;
extern char message[4000];

/* The fibre of a thread. */
Fibre *at(unsigned block, unsigned warp, unsigned lane);

void set_state(Fibre *fibre, State state);

/* Lets whose turn it is go on; comes back when it is this one's. */
void switch_over(void);

void wait_for(const char *purpose, State state);

/* Lets all go on that wait at a barrier, if it is met. */
void open_if_met(Block &block, int number);

/* Makes the copies of the groups before one. */
void do_copies(Fibre *fibre, unsigned before_group);

}  // namespace host

#endif
