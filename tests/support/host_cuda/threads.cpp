/* What threads call: scheduler.h says what it is. */
#include "fibres.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

using namespace host;

namespace {

constexpr unsigned LOOKS_AWAKE = 3; /* at the same value of each word, before a thread sleeps */

Look *find_look(Fibre *fibre, const void *address) {
    for (unsigned i = 0; i < fibre->look_count; ++i)
        if (fibre->looks[i].at == address)
            return &fibre->looks[i];
    return nullptr;
}

/* Whether any word has changed behind a thread's last look at it, which is then one at what it is now. */
bool see_changes(Fibre *fibre) {
    bool changed = false;
    for (unsigned i = 0; i < fibre->look_count; ++i) {
        Look &look = fibre->looks[i];
        changed |= memcmp(look.at, &look.seen, look.bytes) != 0;
        memcpy(&look.seen, look.at, look.bytes);
    }
    return changed;
}

/* Purposes are literals, of which the linker keeps one each where it can. */
bool differ(const char *one, const char *other) { return one != other && strcmp(one, other) != 0; }

/* That of a mask, or a free one. */
Gathering *find_gathering(Warp &warp, unsigned mask) {
    Gathering *free = nullptr;
    for (Gathering &one : warp.gatherings) {
        if (one.mask == mask)
            return &one;
        if (!one.mask && !free)
            free = &one;
    }
    return free;
}

}  // namespace

void host::do_copies(Fibre *fibre, unsigned before_group) {
    unsigned done = 0;
    for (; done < fibre->copy_count && fibre->copies[done].group < before_group; ++done) {
        const Copy &copy = fibre->copies[done];
        if (copy.from)
            memcpy(copy.into, copy.from, copy.bytes);
        else
            memset(copy.into, 0, copy.bytes);
    }
    fibre->copy_count -= done;
    memmove(fibre->copies, fibre->copies + done, fibre->copy_count * sizeof(Copy));
}

void host_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int end = vsnprintf(message, sizeof message / 2, format, arguments);
    va_end(arguments);
    if (here)
        snprintf(message + end, sizeof message / 2, ", in thread %u of block %u", here->thread.x, here->block.x);
    siglongjmp(outside, 1);
}

void host_count(const char *name) {
    unsigned number = 0;
    while (counts[number].name && counts[number].name != name)
        ++number;
    counts[number].name = name;
    ++counts[number].times;
}

void host_point(void) { switch_over(); }

void host_look(const void *address, uint64_t value, unsigned bytes) {
    Look *look = find_look(here, address);
    here->same = look && look->seen == value ? here->same + 1 : 0;
    if (!look) {
        here->look_count %= MOST_LOOKS;
        look = &here->looks[here->look_count++];
    }
    *look = {address, value, bytes};
    if (here->same < LOOKS_AWAKE * here->look_count || see_changes(here)) {
        switch_over();
        return;
    }
    lookers.fibres[lookers.count++] = here;
    wait_for("looks again and again at what others write", LOOKS);
}

void host_changed(const void *address) {
    unsigned kept = 0;
    for (unsigned i = 0; i < lookers.count; ++i) {
        Fibre *const fibre = lookers.fibres[i];
        if (find_look(fibre, address))
            set_state(fibre, READY);
        else
            lookers.fibres[kept++] = fibre;
    }
    lookers.count = kept;
}

namespace {

Meeting &come_to(const char *purpose, int number, unsigned count) {
    Meeting &barrier = blocks[here->block_number].barriers[number];
    if (barrier.here == 0)
        barrier = {purpose, 0, count, 0};
    if (differ(barrier.purpose, purpose) || barrier.wanted != count)
        host_fail("threads meet at barrier %d for %s (%u of them) and for %s (%u)", number, barrier.purpose,
                  barrier.wanted, purpose, count);
    ++barrier.here;
    here->look_count = here->same = 0;
    return barrier;
}

} // namespace

void host_arrive(const char *purpose, int number, unsigned count) {
    come_to(purpose, number, count);
    open_if_met(blocks[here->block_number], number);
    switch_over();
}

int host_barrier(const char *purpose, int number, unsigned count, bool vote) {
    Block &block = blocks[here->block_number];
    come_to(purpose, number, count).votes += vote;
    here->barrier = number;
    here->purpose = purpose;
    set_state(here, WAITS);
    open_if_met(block, number);
    switch_over();
    return here->votes;
}

void host_together(const char *purpose, unsigned mask, void *mine, void (*combine)(void *const *, unsigned)) {
    if (!(mask >> here->lane & 1))
        host_fail("not in its own mask %08x for %s", mask, purpose);
    Gathering *found = find_gathering(blocks[here->block_number].warps[here->warp], mask);
    if (!found->mask)
        *found = {purpose, mask, 0, {}};
    if (differ(found->purpose, purpose))
        host_fail("lanes of mask %08x come together for %s and for %s", mask, found->purpose, purpose);
    found->lanes[here->lane] = mine;
    found->here |= 1u << here->lane;
    if (found->here != mask) {
        wait_for(purpose, WAITS);
        return;
    }
    combine(found->lanes, mask);
    found->mask = 0;
    host_count(purpose);
    for (unsigned lane = 0; lane < HOST_WARP; ++lane)
        if (mask >> lane & 1)
            set_state(at(here->block_number, here->warp, lane), READY);
    switch_over();
}

void host_copy(void *into, const void *from, unsigned bytes) {
    if (reinterpret_cast<uintptr_t>(into) % bytes || reinterpret_cast<uintptr_t>(from) % bytes)
        host_fail("a copy of %u bytes from %p to %p", bytes, from, into);
    if (!host_is_shared(into))
        host_fail("a copy to %p, which is not in shared memory", into);
    if (here->copy_count == here->copy_room) {
        here->copy_room = here->copy_room * 2 + 8;
        here->copies = static_cast<Copy *>(realloc(here->copies, here->copy_room * sizeof(Copy)));
    }
    here->copies[here->copy_count++] = {static_cast<char *>(into), static_cast<const char *>(from), bytes, here->groups};
    host_count(bytes == 16 ? "cp.async 16" : bytes == 8 ? "cp.async 8" : "cp.async 4");
    if (copies == EARLY)
        do_copies(here, ~0u);
}

void host_copies_end(void) {
    ++here->groups;
    switch_over();
}

void host_copies_wait(unsigned pending) {
    do_copies(here, here->groups > pending ? here->groups - pending : 0);
    switch_over();
}

uint64_t host_time_ns(void) { return ++now_ns; }

void host_sleep(uint64_t) {
    sleepers.fibres[sleepers.count++] = here;
    wait_for("sleeps", SLEEPS);
}

bool host_is_shared(const void *address) {
    for (const Part &part : shared)
        if (address >= part.at && address < part.at + part.size)
            return true;
    return false;
}

/* What a launch asks for begins at 0, as operands that are swizzled want it; what code names lies behind. */
constexpr uint32_t NAMED = 1 << 20;

uint32_t host_shared_address(const void *address) {
    if (!host_is_shared(address))
        host_fail("%p is not in shared memory", address);
    const char *at = static_cast<const char *>(address);
    const bool is_named = at >= shared[0].at && at < shared[0].at + shared[0].size;
    return is_named ? NAMED + uint32_t(at - shared[0].at) : uint32_t(at - shared[1].at);
}

void *host_in_shared(uint32_t address) {
    return address < NAMED ? shared[1].at + address : shared[0].at + (address - NAMED);
}
