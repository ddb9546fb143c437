/* See scheduler.h. One launch at a time; a library has one kernel, which its translation unit names by HOST_CUDA_KERNEL.
 * Nothing of the C++ library is used, so that none has to be built. */
#include "fibres.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

extern "C" void host_kernel(void **parameters); /* the translation unit's */

/* What driver.py asks a library for; all else is hidden, so that calls need no table. */
#define HOST_EXPORT __attribute__((visibility("default")))

/* Shared memory: what has a name there, which the linker puts together, and what a launch asks for. */
__attribute__((section("host_shared"))) static volatile char at_least_one;
extern "C" char __start_host_shared[], __stop_host_shared[];
__attribute__((aligned(1024))) char rammer_scratch[227 << 10];

host_thread *host_here;
host_dim host_threads, host_blocks;

/* The statement that is left out, of a text that asks for each (mutants.py), and which it came to. */
extern "C" {
HOST_EXPORT int host_mutant = -1;
HOST_EXPORT int host_numbering; /* of multiprocessors, by `Numbering` of driver.py */
HOST_EXPORT unsigned char host_reached[4096];
bool host_runs(int statement) {
    host_reached[statement] = 1;
    return statement != host_mutant;
}
}

enum Numbering { DOUBLED, TURNED, MORE };

unsigned host_multiprocessor(void) {
    const unsigned block = host_here->block.x;
    return host_numbering == DOUBLED ? block / 2 * 2 : (block + 1) % host_multiprocessors();
}

unsigned host_multiprocessors(void) { return host_blocks.x + (host_numbering == MORE); }

namespace host {

Policy policy;
Copies copies;
Part shared[2];
Block *blocks;
List lookers, sleepers;
Fibre *here;
uint64_t now_ns;
Count counts[64];
sigjmp_buf outside;
char message[4000];

}  // namespace host

using namespace host;

namespace {

constexpr size_t STACK_BYTES = 256 << 10, PAGE_BYTES = 4 << 10, SIGNAL_STACK_BYTES = 64 << 10;
constexpr uint64_t IDLE_NS = 10000000; /* that pass where nobody can go on */
constexpr unsigned MOST_IDLE = 1 << 13;   /* times of it */
constexpr uint64_t MOST_POINTS = 1 << 30;
constexpr unsigned CHANGES = 24; /* of a random order: one in so many scheduling points */
constexpr unsigned char GARBAGE = 0xa5; /* what shared memory holds at first */

uint64_t random_state;
Fibre *fibres;
char *stacks;
unsigned block_count, warp_count, fibre_count;
unsigned loaded; /* the block whose shared memory is in place */
uint64_t points;
unsigned alive, idle;
void **parameters;

/* splitmix64, of Steele, Lea and Flood (2014). */
uint64_t random_number(void) {
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* --- Who goes on. --------------------------------------------------------------------------------------------------- */

}  // namespace

void host::set_state(Fibre *fibre, State state) {
    Block &block = blocks[fibre->block_number];
    Warp &warp = block.warps[fibre->warp];
    fibre->state = state;
    warp.ready &= ~(1u << fibre->lane);
    warp.ready |= unsigned(state == READY) << fibre->lane;
    block.ready &= ~(uint64_t(1) << fibre->warp);
    block.ready |= uint64_t(warp.ready != 0) << fibre->warp;
}

namespace {

void wake(List &list) {
    for (unsigned i = 0; i < list.count; ++i)
        set_state(list.fibres[i], READY);
    list.count = 0;
}

}  // namespace

Fibre *host::at(unsigned block, unsigned warp, unsigned lane) {
    return &fibres[size_t(block) * host_threads.x + warp * HOST_WARP + lane];
}

namespace {

/* Ranks say whose turn it is: the least of all blocks, then, in a random order, of its warps; others go up or down. */
void rank_all(unsigned chosen) {
    for (unsigned b = 0; b < block_count; ++b) {
        blocks[b].rank = policy == REVERSE ? block_count - b : b + 1;
        if (policy == RANDOM)
            blocks[b].rank = random_number();
        if (b == chosen % block_count && (policy == AHEAD || policy == BEHIND))
            blocks[b].rank = policy == AHEAD ? 0 : block_count + 1;
        for (unsigned w = 0; policy == RANDOM && w < warp_count; ++w)
            blocks[b].warps[w].rank = random_number();
    }
}

void change_ranks(void) {
    Block &block = blocks[random_number() % block_count];
    if (random_number() % 16 == 0) /* seldom, for shared memory moves with them */
        block.rank = random_number();
    for (unsigned w = 0; w < warp_count; ++w)
        if (random_number() % 4 == 0)
            block.warps[w].rank = random_number();
}

Fibre *first_ready(void) {
    Block *best = nullptr;
    for (Block *block = blocks; block < blocks + block_count; ++block)
        if (block->ready && (!best || block->rank < best->rank))
            best = block;
    if (!best)
        return nullptr;
    const bool reversed = policy == REVERSE || policy == BEHIND;
    unsigned warp = unsigned(reversed ? 63 - __builtin_clzll(best->ready) : __builtin_ctzll(best->ready));
    for (uint64_t rest = policy == RANDOM ? best->ready : 0; rest; rest &= rest - 1) {
        const unsigned other = unsigned(__builtin_ctzll(rest));
        if (best->warps[other].rank < best->warps[warp].rank)
            warp = other;
    }
    const unsigned ready = best->warps[warp].ready;
    const bool down = policy == REVERSE || (policy == RANDOM && best->warps[warp].rank % 2);
    return at(unsigned(best - blocks), warp, unsigned(down ? 31 - __builtin_clz(ready) : __builtin_ctz(ready)));
}

/* The next one behind `here`: lane after lane, warp after warp, block after block. */
Fibre *next_in_turn(void) {
    const Block &own = blocks[here->block_number];
    if (const unsigned lanes = own.warps[here->warp].ready >> here->lane >> 1)
        return at(here->block_number, here->warp, here->lane + 1 + unsigned(__builtin_ctz(lanes)));
    if (const uint64_t warps = own.ready >> here->warp >> 1) {
        const unsigned warp = here->warp + 1 + unsigned(__builtin_ctzll(warps));
        return at(here->block_number, warp, unsigned(__builtin_ctz(own.warps[warp].ready)));
    }
    for (unsigned step = 1; step <= block_count; ++step) {
        const unsigned block = (here->block_number + step) % block_count;
        if (const uint64_t warps = blocks[block].ready) {
            const unsigned warp = unsigned(__builtin_ctzll(warps));
            return at(block, warp, unsigned(__builtin_ctz(blocks[block].warps[warp].ready)));
        }
    }
    return nullptr;
}

/* --- From one to another. ------------------------------------------------------------------------------------------- */

/* Threads that have not ended, neighbours that wait for the same together. */
[[noreturn]] void fail_as_nobody_can_go_on(void) {
    size_t end = size_t(snprintf(message, sizeof message, "nobody can go on:"));
    for (unsigned i = 0; i < fibre_count && end < sizeof message - 200; ++i) {
        const Fibre &first = fibres[i];
        if (first.state == ENDED)
            continue;
        while (i + 1 < fibre_count && fibres[i + 1].state == first.state && fibres[i + 1].purpose == first.purpose &&
               fibres[i + 1].block_number == first.block_number)
            ++i;
        end += size_t(snprintf(message + end, sizeof message - end, "\n  block %u, threads %u to %u: %s", first.block.x,
                               first.thread.x, fibres[i].thread.x, first.purpose));
    }
    siglongjmp(outside, 1);
}

/* Somebody may go on again once time has passed. */
void pass_time(void) {
    if (lookers.count + sleepers.count == 0)
        fail_as_nobody_can_go_on();
    if (++idle > MOST_IDLE)
        host_fail("all wait for what nobody writes");
    now_ns += IDLE_NS;
    wake(lookers);
    wake(sleepers);
}

[[noreturn]] void go_on(Fibre *next) {
    if (next->block_number != loaded) {
        for (int i = 0; i < 2; ++i) {
            memcpy(blocks[loaded].shared[i], shared[i].at, shared[i].size);
            memcpy(shared[i].at, blocks[next->block_number].shared[i], shared[i].size);
        }
        loaded = next->block_number;
    }
    here = next;
    host_here = next;
    if (next->started)
        _longjmp(next->context, 1);
    next->started = true;
    setcontext(&next->start);
    abort();
}

}  // namespace

void host::switch_over(void) {
    if (++points > MOST_POINTS)
        host_fail("%llu scheduling points, and no end", static_cast<unsigned long long>(points));
    ++now_ns;
    if (policy == RANDOM && random_number() % CHANGES == 0)
        change_ranks();
    if (copies == ANY_TIME && random_number() % 4 == 0)
        do_copies(here, ~0u);
    Fibre *next;
    while (!(next = policy == TURNS ? next_in_turn() : first_ready()))
        pass_time();
    if (next != here && !_setjmp(here->context))
        go_on(next);
}

void host::wait_for(const char *purpose, State state) {
    here->purpose = purpose;
    set_state(here, state);
    switch_over();
}

void host::open_if_met(Block &block, int number) {
    Meeting &barrier = block.barriers[number];
    if (barrier.here < (barrier.wanted ? barrier.wanted : block.alive))
        return;
    barrier.here = 0;
    Fibre *const first = at(unsigned(&block - blocks), 0, 0);
    for (Fibre *fibre = first; fibre < first + host_threads.x; ++fibre)
        if (fibre->state == WAITS && fibre->barrier == number) {
            fibre->barrier = -1;
            fibre->votes = barrier.votes;
            set_state(fibre, READY);
        }
}

namespace {

void run_fibre(void) {
    host_kernel(parameters);
    do_copies(here, ~0u);
    here->purpose = "ended";
    set_state(here, ENDED);
    Block &block = blocks[here->block_number];
    --block.alive;
    for (int number = 0; number < HOST_BARRIERS; ++number)
        if (block.barriers[number].here && block.barriers[number].wanted == 0)
            open_if_met(block, number);
    if (--alive == 0)
        siglongjmp(outside, 2);
    switch_over();
}

/* --- A launch. ------------------------------------------------------------------------------------------------------ */

void on_signal(int number, siginfo_t *info, void *) {
    if (number == SIGILL) /* what -fsanitize=alignment,bounds makes of it */
        host_fail("a vector that is not aligned, or an element beyond its array");
    host_fail("signal %d: address %p", number, info->si_addr);
}

template <typename T> T *zeros(size_t count) {
    T *const made = static_cast<T *>(calloc(count ? count : 1, sizeof(T)));
    if (!made)
        abort();
    return made;
}

/* Stacks side by side, each above a page that ends the launch where one is too deep. */
void make_stacks(void) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *const made = mmap(nullptr, fibre_count * STACK_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (made == MAP_FAILED)
        host_fail("no memory for the stacks of %u threads", fibre_count);
    stacks = static_cast<char *>(made);
    for (unsigned i = 0; i < fibre_count; ++i)
        mprotect(stacks + i * STACK_BYTES, PAGE_BYTES, PROT_NONE);
}

void begin_fibre(Fibre &fibre, unsigned number) {
    fibre.thread.x = number % host_threads.x;
    fibre.block.x = fibre.block_number = number / host_threads.x;
    fibre.warp = fibre.thread.x / HOST_WARP;
    fibre.lane = fibre.thread.x % HOST_WARP;
    fibre.purpose = "may go on";
    fibre.barrier = -1;
    getcontext(&fibre.start);
    fibre.start.uc_stack.ss_sp = stacks + number * STACK_BYTES;
    fibre.start.uc_stack.ss_size = STACK_BYTES;
    makecontext(&fibre.start, run_fibre, 0);
    set_state(&fibre, READY);
}

void begin(unsigned count, unsigned threads, unsigned scratch_bytes) {
    if (scratch_bytes > sizeof rammer_scratch || threads > MOST_WARPS * HOST_WARP)
        host_fail("%u threads with %u bytes of shared memory", threads, scratch_bytes);
    host_blocks = {count, 1, 1};
    host_threads = {threads, 1, 1};
    block_count = count;
    warp_count = (threads + HOST_WARP - 1) / HOST_WARP;
    fibre_count = alive = count * threads;
    make_stacks();
    now_ns = points = idle = loaded = 0;
    memset(counts, 0, sizeof counts);
    shared[0] = {__start_host_shared, size_t(__stop_host_shared - __start_host_shared)};
    shared[1] = {rammer_scratch, scratch_bytes};
    at_least_one = 0; /* a linker may leave out what nobody uses */
    memset(__start_host_shared, GARBAGE, shared[0].size);
    memset(rammer_scratch, GARBAGE, sizeof rammer_scratch);
    lookers = {zeros<Fibre *>(fibre_count), 0};
    sleepers = {zeros<Fibre *>(fibre_count), 0};
    fibres = zeros<Fibre>(fibre_count);
    blocks = zeros<Block>(count);
    for (unsigned b = 0; b < count; ++b) {
        blocks[b].alive = threads;
        for (int i = 0; i < 2; ++i)
            memset(blocks[b].shared[i] = zeros<char>(shared[i].size), GARBAGE, shared[i].size);
    }
    for (unsigned i = 0; i < fibre_count; ++i)
        begin_fibre(fibres[i], i);
}

void end(void) {
    for (unsigned b = 0; b < block_count; ++b)
        for (char *memory : blocks[b].shared)
            free(memory);
    for (unsigned i = 0; fibres && i < fibre_count; ++i)
        free(fibres[i].copies);
    if (stacks)
        munmap(stacks, fibre_count * STACK_BYTES);
    free(blocks);
    free(fibres);
    free(lookers.fibres);
    free(sleepers.fibres);
    blocks = nullptr;
    fibres = nullptr;
    stacks = nullptr;
    block_count = 0;
    lookers = sleepers = {};
}

bool is_whole(unsigned scratch_bytes) {
    for (const char *c = rammer_scratch + scratch_bytes; c < rammer_scratch + sizeof rammer_scratch; ++c)
        if (*c != char(GARBAGE))
            return false;
    return true;
}

}  // namespace

/* Runs the kernel. Returns null, or what is wrong; `steps` counts scheduling points. */
extern "C" HOST_EXPORT const char *host_launch(unsigned count, unsigned threads, unsigned scratch_bytes, void **arguments,
                                               int policy_number, int copies_number, uint64_t seed, uint64_t *steps) {
    static char signal_stack[SIGNAL_STACK_BYTES];
    static const int caught[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    struct sigaction before[4], ours = {};
    stack_t stack_before, stack_ours = {};
    stack_ours.ss_sp = signal_stack;
    stack_ours.ss_size = sizeof signal_stack;
    sigaltstack(&stack_ours, &stack_before);
    ours.sa_sigaction = on_signal;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int i = 0; i < 4; ++i)
        sigaction(caught[i], &ours, &before[i]);
    parameters = arguments;
    policy = Policy(policy_number);
    copies = Copies(copies_number);
    random_state = seed;
    here = nullptr;
    const int ended = sigsetjmp(outside, 1);
    if (ended == 0) {
        begin(count, threads, scratch_bytes);
        rank_all(unsigned(seed));
        here = fibres;
        go_on(policy == TURNS ? here : first_ready());
    }
    for (int i = 0; i < 4; ++i)
        sigaction(caught[i], &before[i], nullptr);
    sigaltstack(&stack_before, nullptr);
    *steps = points;
    end();
    if (ended == 2 && is_whole(scratch_bytes))
        return nullptr;
    return ended == 2 ? "something was written behind the end of shared memory" : message;
}

/* How often threads did what instruction `number` does, and its name; null behind the last one. */
extern "C" HOST_EXPORT const char *host_counted(unsigned number, uint64_t *times) {
    *times = counts[number].times;
    return counts[number].name;
}
