/* A vEU's walk through its queue: records fetched ahead, Waits before an rTask and Signals behind it.
 *
 * Order in memory: all threads of a block finish an rTask before the barrier that precedes its Signals; a Signal is a
 * release by one thread, a Wait an acquire by one thread before the barrier behind which the rTask reads what others
 * write. Barriers and the pair of release and acquire are transitive in the PTX memory model, so plain loads of all
 * threads see what was written. Flagged words (NCCL's LL protocol) say nothing but themselves: value and tag are one
 * word, and nobody concludes from it that anything else was written. A warp waits as a whole, and stays whole; where lanes wait one by one,
 * threads meet before they do anything together. Kernels never read tensors through the read-only path (ld.global.nc).
 */
#ifndef RAMMER_WALK_CUH
#define RAMMER_WALK_CUH

enum {
    RAMMER_LINE_BYTES = 128,
    RAMMER_WARP = 32,
    RAMMER_POLLS = 256, /* between two looks at the clock */
    RAMMER_PATIENCE = 64, RAMMER_PAUSE_NS = 1000, /* polls of flagged words before pauses: many polls slow others down */
    RAMMER_DELAY_NS = 200000,
    RAMMER_DELAYED = 13, /* one in two to the power of it */
    RAMMER_HURRY = 7     /* behind a run that was given up, Waits may take this power of two less */
};

/* What the kernel was launched with, and the queue of this block's vEU. In shared memory, for resident rKernels have no
 * registers to spare, and through a pointer the launch's parameters come from L2 after every acquire. */
static __shared__ rammer_program rammer_given;
static __shared__ struct {
    const rammer_record *records;
    uint32_t veu;
    uint32_t count;
    uint32_t runs; /* before this one */
    uint32_t turn; /* runs that moved the states before */
    uint32_t tag;  /* of this run: another one than before, and not that of memory that was never written */
    uint32_t late; /* the first step that waited in vain, or RAMMER_DONE */
    uint32_t silent; /* the first record that ended without its Signals, or RAMMER_DONE */
    uint32_t seen[RAMMER_WAITS]; /* by the Waits of its record, if they were, else RAMMER_DONE */
} rammer_queue;

extern __shared__ __align__(RAMMER_SCRATCH_ALIGNMENT) char rammer_scratch[];
static __shared__ rammer_record rammer_chunks[2][RAMMER_CHUNK];
#ifdef RAMMER_TRACE
static __shared__ int64_t rammer_origin;
static __shared__ uint64_t rammer_origin_ns;
#endif

/* Looks at the clock. Returns whether waiting may go on; if not, the run is given up. 0 is no deadline yet. */
static __device__ __forceinline__ bool rammer_is_in_time(uint64_t *deadline_ns) {
    uint64_t *status = (uint64_t *)rammer_given.status;
    const uint64_t given_up = rammer_load_relaxed(status), stalled = 1ull << 32 | (rammer_queue.runs + 1);
    if (given_up == stalled)
        return false;
    const uint64_t now_ns = rammer_globaltimer_ns();
    if (*deadline_ns == 0)
        *deadline_ns = now_ns + (rammer_given.timeout_ns >> (given_up >> 32 ? RAMMER_HURRY : 0));
    if (now_ns <= *deadline_ns)
        return true;
    rammer_store_relaxed(status, stalled);
    return false;
}

/* Whether a counter came to `wanted`, by the difference of numbers that wrap around. */
static __device__ __forceinline__ bool rammer_came_to(const uint32_t *signals, uint32_t wanted) {
    return (int32_t)(rammer_load_acquire(signals) - wanted) >= 0;
}

/* Returns whether `counter` came to `wanted`; if not in time, or if another block gave up, the run is given up. A whole
 * warp calls it, whose lanes see the same. */
static __device__ __forceinline__ bool rammer_await(uint32_t counter, uint32_t wanted) {
    const uint32_t *signals = &rammer_given.counters[counter].signals;
    if (rammer_came_to(signals, wanted))
        return true;
    uint64_t deadline_ns = 0;
    uint32_t poll = 1;
#pragma unroll 1
    do {
        if (++poll % RAMMER_POLLS == 0 && !rammer_is_in_time(&deadline_ns))
            return false;
    } while (!rammer_came_to(signals, wanted));
    return true;
}

/* An element and its tag as they are now, the tag in the upper half. */
static __device__ __forceinline__ uint64_t rammer_look(const rammer_tagged *from) {
    return rammer_load_relaxed((const uint64_t *)from);
}
static __device__ __forceinline__ uint32_t rammer_look(const rammer_tagged_bits *from) {
    return rammer_load_relaxed((const uint32_t *)from);
}
static __device__ __forceinline__ uint32_t rammer_look(const rammer_tagged_half *from) {
    return rammer_load_relaxed((const uint32_t *)from);
}
/* The same of neighbours that lie in one vector. */
template <typename Tagged, typename Word, int count>
static __device__ __forceinline__ void rammer_look(Word (&words)[count], const Tagged *from) {
    if constexpr (count == 1)
        words[0] = rammer_look(from);
    else
        rammer_load_relaxed(words, (const Word *)from);
}

/* The tag of this run: whether what was looked at has it. Elements of fewer bits have part of it, which comes again behind
 * runs that each write all elements. */
struct rammer_tag {
    uint32_t tag;
    static __device__ __forceinline__ rammer_tag now(void) { return {rammer_queue.tag}; }
    template <typename Tagged, typename Word> __device__ __forceinline__ bool is_in(const Tagged *from, Word word) const {
        return off(from, word) == 0;
    }
    template <typename Tagged, typename Word, int count>
    __device__ __forceinline__ bool is_in(const Tagged *from, const Word (&words)[count]) const {
        uint32_t any = 0;
#pragma unroll
        for (int i = 0; i < count; ++i)
            any |= off(from, words[i]);
        return any == 0;
    }

  private:
    /* The bits in which the tag of a word is another one. */
    static constexpr uint32_t HALF = 0xffffu;
    __device__ __forceinline__ uint32_t off(const rammer_tagged *, uint64_t word) const { return (uint32_t)(word >> 32) ^ tag; }
    __device__ __forceinline__ uint32_t off(const rammer_tagged_bits *, uint32_t word) const {
        return (word ^ tag) & RAMMER_TAG_BITS;
    }
    __device__ __forceinline__ uint32_t off(const rammer_tagged_half *, uint32_t word) const {
        return word >> 16 ^ (tag & HALF);
    }
};

/* The element that was looked at. */
static __device__ __forceinline__ float rammer_element(const rammer_tagged *, uint64_t word) {
    return __uint_as_float((uint32_t)word);
}
static __device__ __forceinline__ uint32_t rammer_element(const rammer_tagged_bits *, uint32_t word) {
    return word & ~RAMMER_TAG_BITS;
}
static __device__ __forceinline__ uint16_t rammer_element(const rammer_tagged_half *, uint32_t word) { return (uint16_t)word; }

/* Whether `holds` of every lane of a warp that is whole, or of this lane. */
template <bool whole> static __device__ __forceinline__ bool rammer_agree(bool holds) {
    return whole ? __all_sync(RAMMER_ALL, holds) : holds;
}

/* Waits for the element at `from`, which was `word` when it was looked at, until this run has written it. Returns whether it
 * came in time. Where a whole warp calls it, all lanes leave it by one vote. */
template <bool whole>
static __device__ __forceinline__ bool rammer_poll_flagged(const rammer_tagged *from, uint64_t word, float *value) {
    const uint32_t tag = rammer_queue.tag;
    bool is_there = (uint32_t)(word >> 32) == tag;
    if (!rammer_agree<whole>(is_there)) {
        uint64_t deadline_ns = 0;
        uint32_t poll = 1;
#pragma unroll 1
        do {
            if (poll > RAMMER_PATIENCE)
                __nanosleep(RAMMER_PAUSE_NS);
            word = rammer_look(from);
            is_there = (uint32_t)(word >> 32) == tag;
            if (++poll % RAMMER_POLLS == 0 && !rammer_agree<whole>(rammer_is_in_time(&deadline_ns)))
                break;
        } while (!rammer_agree<whole>(is_there));
    }
    *value = __uint_as_float((uint32_t)word);
    return is_there;
}

/* The same for elements that the rTask of a record takes, of which a thread has several or one of fewer bits: calls again() until
 * are_there(), or until the run is given up. */
template <bool whole> struct rammer_flagged_poll {
    const rammer_record *record;
    template <typename AreThere, typename Again>
    __device__ __forceinline__ void operator()(AreThere are_there, Again again) const {
        bool came = are_there();
        if (!rammer_agree<whole>(came)) {
            uint64_t deadline_ns = 0;
            uint32_t poll = 1;
#pragma unroll 1
            do {
                if (poll > RAMMER_PATIENCE)
                    __nanosleep(RAMMER_PAUSE_NS);
                again();
                came = are_there();
                if (++poll % RAMMER_POLLS == 0 && !rammer_agree<whole>(rammer_is_in_time(&deadline_ns))) {
                    if (!came)
                        atomicMin(&rammer_queue.late, record->step + record->wait_count);
                    break;
                }
            } while (!rammer_agree<whole>(came));
        }
    }
};

/* The element at `from` for the rTask of a record; anything if the run is given up. The first look at it is on its way before
 * anything else is done (ADR 0014). */
template <bool whole> struct rammer_flagged_loader {
    const rammer_record *record;
    template <typename Tagged> __device__ __forceinline__ auto operator()(const Tagged *from) const {
        return (*this)(from, rammer_look(from));
    }
    __device__ __forceinline__ float operator()(const rammer_tagged *from, uint64_t word) const {
        float value;
        if (!rammer_poll_flagged<whole>(from, word, &value))
            atomicMin(&rammer_queue.late, record->step + record->wait_count);
        return value;
    }
    template <typename Tagged> __device__ __forceinline__ auto operator()(const Tagged *from, uint32_t word) const {
        const rammer_tag tag = rammer_tag::now();
        rammer_flagged_poll<whole>{record}([&] { return tag.is_in(from, word); }, [&] { word = rammer_look(from); });
        return rammer_element(from, word);
    }
};
typedef rammer_flagged_loader<false> rammer_load_flagged;
typedef rammer_flagged_loader<true> rammer_load_flagged_by_warps;

/* Writes an element for everyone to take. */
static __device__ __forceinline__ void rammer_store_flagged(rammer_tagged *to, float value) {
    const uint64_t word = (uint64_t)rammer_queue.tag << 32 | __float_as_uint(value);
    rammer_store_relaxed((uint64_t *)to, word);
}

static __device__ __forceinline__ void rammer_store_flagged(rammer_tagged_bits *to, uint32_t value) {
    rammer_store_relaxed((uint32_t *)to, (value & ~RAMMER_TAG_BITS) | (rammer_queue.tag & RAMMER_TAG_BITS));
}
static __device__ __forceinline__ void rammer_store_flagged(rammer_tagged_half *to, uint16_t value) {
    rammer_store_relaxed((uint32_t *)to, rammer_queue.tag << 16 | value);
}

/* Starts to fetch the chunk of records from `first` on. */
static __device__ __forceinline__ void rammer_fetch(uint32_t first) {
    if (first < rammer_queue.count) {
        const uint32_t parts = min(rammer_queue.count - first, (uint32_t)RAMMER_CHUNK) * (sizeof(rammer_record) / 16);
        const uint32_t into = rammer_shared_address(rammer_chunks[first / RAMMER_CHUNK % 2]);
        const char *from = (const char *)(rammer_queue.records + first);
#pragma unroll 1
        for (uint32_t part = threadIdx.x; part < parts; part += RAMMER_THREADS)
            rammer_cp_async<16>(into + part * 16, from + part * 16);
    }
    rammer_cp_async_commit();
}

/* The record at a position that has been reached. */
static __device__ __forceinline__ rammer_record *rammer_at(uint32_t position) {
    return &rammer_chunks[position / RAMMER_CHUNK % 2][position % RAMMER_CHUNK];
}

/* Its operands, which are addresses. */
static __device__ __forceinline__ char *const *rammer_operands(const rammer_record *record) {
    return (char *const *)record->operands;
}

/* Where it is compiled in, any warp stands still now and then: others then wait long for what it makes. */
static __device__ __forceinline__ void rammer_delay(void) {
#ifdef RAMMER_DELAYS
    const uint32_t mixed = ((uint32_t)clock64() + blockIdx.x * 977u + threadIdx.x / RAMMER_WARP * 40503u) * 2654435761u;
    if (__shfl_sync(RAMMER_ALL, mixed, 0) >> (32 - RAMMER_DELAYED) == 0)
        __nanosleep(RAMMER_DELAY_NS);
#endif
}

/* Goes to a position: its record is then there, and its operands are addresses. All threads call it at each record. */
static __device__ __forceinline__ void rammer_reach(uint32_t position) {
    rammer_delay();
    if (position % RAMMER_CHUNK != 0)
        return;
    rammer_record *chunk = rammer_at(position);
    rammer_cp_async_wait_all();
    __syncthreads();
    const uint32_t operands = min(rammer_queue.count - position, (uint32_t)RAMMER_CHUNK) * RAMMER_SLOTS;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < operands; i += RAMMER_THREADS) {
        uint64_t *operand = &chunk[i / RAMMER_SLOTS].operands[i % RAMMER_SLOTS];
        const uint64_t offset = *operand & ((1ull << RAMMER_SEGMENT_SHIFT) - 1);
        *operand = (uint64_t)(rammer_given.segments[*operand >> RAMMER_SEGMENT_SHIFT] + offset);
    }
    __syncthreads();
    rammer_fetch(position + RAMMER_CHUNK);
}

#ifdef RAMMER_TRACE
#define RAMMER_STAMP(record, field)                                                                                    \
    if (threadIdx.x == 0)                                                                                              \
    rammer_given.spans[(record)->number].field = clock64() - rammer_origin
#else
#define RAMMER_STAMP(record, field)
#endif

/* How a record begins. One load, which does not wait for what else is looked at first. */
struct rammer_head {
    uint32_t kernel;
    uint32_t tile;
    uint32_t run;
    uint32_t ahead_bytes;
};
static __device__ __forceinline__ rammer_head rammer_head_of(const rammer_record *record) {
    uint32_t words[4];
    rammer_load_shared(words, record);
    return {words[0], words[1], words[2], words[3]};
}

/* Whether there is a record at a position, and no step before it waited in vain. All threads have passed a barrier since
 * that step. */
static __device__ __forceinline__ bool rammer_goes_on(uint32_t position) {
    return position < rammer_queue.count && rammer_queue.late == RAMMER_DONE;
}

/* Asks for what the next rTask reads of the constants to be brought into L2. */
static __device__ __forceinline__ void rammer_look_ahead(const rammer_record *record) {
    const char *from = rammer_given.segments[RAMMER_CONSTANTS] + record->ahead_offset;
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0)
        rammer_prefetch_l2_bulk(from, record->ahead_bytes);
#else
    for (uint32_t i = threadIdx.x * RAMMER_LINE_BYTES; i < record->ahead_bytes; i += RAMMER_THREADS * RAMMER_LINE_BYTES)
        rammer_prefetch_l2(from + i);
#endif
}

/* Whether the records of a run have Waits, Signals or times to be written. */
static __device__ __forceinline__ bool rammer_is_busy(uint32_t position) {
#ifdef RAMMER_TRACE
    return true;
#else
    return rammer_at(position)->busy != 0;
#endif
}

/* Whether the rTask of a record is to run. If not, copies that it asked for early are over: the next one may have the
 * same places. */
static __device__ __forceinline__ bool rammer_is_needed(const rammer_record *record) {
#if RAMMER_PREDICATES
    if (record->predicated != 0 && *(const volatile uint8_t *)record->operands[RAMMER_SLOTS - 1] == 0) {
        rammer_cp_async_wait_all();
        return false;
    }
#endif
    return true;
}

/* The Waits of a record, a warp for each. Returns whether they ended in time and its rTask is to run. */
static __device__ __forceinline__ bool rammer_begin(const rammer_record *record) {
    RAMMER_STAMP(record, begin);
    bool late = false;
    const uint32_t number = threadIdx.x / RAMMER_WARP;
    if (number < record->wait_count) {
        const rammer_wait wait = record->waits[number];
        const uint32_t before = rammer_queue.runs * wait.signals;
        late = !rammer_await(wait.counter, before + wait.threshold);
        if (late) {
            rammer_queue.seen[number] = rammer_load_acquire(&rammer_given.counters[wait.counter].signals) - before;
            atomicMin(&rammer_queue.late, record->step + number);
        }
    }
    const bool goes_on = record->wait_count == 0 || !__syncthreads_or(late);
    RAMMER_STAMP(record, ready);
    return goes_on && rammer_is_needed(record);
}

/* The Signals of a record; all threads have passed a barrier since its rTask. They are the last warp's, for a release
 * takes until all that was written is where others see it, and the first warp has the next record's Waits to look at. */
static __device__ __forceinline__ void rammer_end(const rammer_record *record) {
    RAMMER_STAMP(record, computed);
    const uint32_t number = threadIdx.x - (RAMMER_THREADS - RAMMER_WARP);
    if (number < record->signal_count) {
        if (rammer_queue.late == RAMMER_DONE)
            rammer_add_release(&rammer_given.counters[record->signals[number]].signals, 1);
        else
            atomicMin(&rammer_queue.silent, record->step); /* a warp that is ahead may have waited in vain by now */
    }
    RAMMER_STAMP(record, end);
}

/* As rammer_end, where threads have not passed a barrier: there is one only if there are Signals. */
static __device__ __forceinline__ void rammer_end_early(const rammer_record *record) {
    if (record->signal_count != 0)
        __syncthreads();
    rammer_end(record);
}

/* What the last run of the states wrote is read, and what it read is written. A barrier follows. */
static __device__ __forceinline__ void rammer_take_turns(void) {
    if (RAMMER_STATES != 0 && rammer_queue.turn % 2 != 0)
        for (uint32_t i = threadIdx.x; i < RAMMER_STATES; i += RAMMER_THREADS) {
            char *const read = rammer_given.segments[RAMMER_READ + i];
            rammer_given.segments[RAMMER_READ + i] = rammer_given.segments[RAMMER_WRITTEN + i];
            rammer_given.segments[RAMMER_WRITTEN + i] = read;
        }
}

/* Counts the run for the vEU of this block's number, and for those that only models of more vEUs have. */
static __device__ __forceinline__ void rammer_end_turn(void) {
    if (RAMMER_STATES != 0)
        for (uint32_t i = blockIdx.x + threadIdx.x * gridDim.x; i < rammer_given.turn_count; i += RAMMER_THREADS * gridDim.x)
            rammer_given.turns[i] = rammer_queue.turn + 1;
}

/* Whether each multiprocessor has a block, and a vEU of its number. */
static __device__ __forceinline__ bool rammer_has_neighbours(void) {
    return RAMMER_NEIGHBOURS && rammer_multiprocessors() == gridDim.x;
}

/* What a vEU is about to walk. */
struct rammer_beginning {
    uint32_t veu;
    uint32_t first; /* of its records */
    uint32_t end;
    uint32_t runs; /* before this one */
};
static __device__ __forceinline__ rammer_beginning rammer_beginning_of(uint32_t veu) {
    const uint32_t *start = &rammer_given.starts[veu];
    const uint32_t first = rammer_load_relaxed(start), end = rammer_load_relaxed(start + 1);
    return {veu, first, end, rammer_load_relaxed(&rammer_given.veus[veu].runs)};
}

/* Chooses the vEU of this block. Multiprocessors of neighbouring numbers seem to get what both read by one request to L2, so
 * vEUs are to be neighbours there, too. A block claims that of its multiprocessor, or the next one that is free: two may find
 * the same number, for one that made room for another program may have gone on elsewhere. In each launch as many blocks claim
 * as there are vEUs, one each, so all counts are equal between launches. A count that is too large for a while is that of a
 * vEU which has been claimed: nobody takes it for a free one. What the vEU starts with is on its way with the claim. */
static __device__ __forceinline__ rammer_beginning rammer_claim(void) {
    if (!rammer_has_neighbours())
        return rammer_beginning_of(blockIdx.x);
    rammer_veu *const veus = rammer_given.veus;
    uint32_t veu = rammer_multiprocessor();
    const uint32_t launches = rammer_load_relaxed(&veus[blockIdx.x].launches);
    const uint32_t claims = atomicAdd(&veus[veu].claims, 1u);
    const rammer_beginning begins = rammer_beginning_of(veu);
    veus[blockIdx.x].launches = launches + 1;
    if (claims == launches)
        return begins;
    atomicAdd(&veus[veu].claims, 0u - 1u);
    do
        veu = (veu + 1) % gridDim.x;
    while (atomicCAS(&veus[veu].claims, launches, launches + 1) != launches);
    return rammer_beginning_of(veu);
}

/* Gets this block ready to walk its queue. */
static __device__ __forceinline__ void rammer_start(const rammer_program *program) {
    for (uint32_t i = threadIdx.x; i < sizeof(rammer_program) / sizeof(uint64_t); i += RAMMER_THREADS)
        ((uint64_t *)&rammer_given)[i] = ((const uint64_t *)program)[i];
    __syncthreads();
    if (threadIdx.x == 0) {
        rammer_queue.turn = RAMMER_STATES != 0 ? rammer_given.turns[blockIdx.x] : 0;
        const rammer_beginning begins = rammer_claim();
        rammer_queue.veu = begins.veu;
        rammer_queue.late = rammer_queue.silent = rammer_queue.seen[0] = RAMMER_DONE;
        rammer_queue.runs = begins.runs;
        rammer_queue.tag = begins.runs + 1;
        rammer_queue.records = rammer_given.records + begins.first;
        rammer_queue.count = begins.end - begins.first;
    }
#ifdef RAMMER_TRACE
    if (threadIdx.x < RAMMER_WARP) {
        if (threadIdx.x == 0)
            rammer_add_release(&rammer_given.counters[rammer_given.met].signals, 1);
        rammer_await(rammer_given.met, gridDim.x);
        if (threadIdx.x == 0) {
            rammer_origin = clock64();
            rammer_origin_ns = rammer_globaltimer_ns();
        }
    }
#endif
    __syncthreads();
    rammer_take_turns();
    rammer_fetch(0);
}

/* Gives the Signals of a run that was given up which were not given: the next run finds all counters where it looks for
 * them. Others may go on by them; what they compute is part of the same run. The thread that gives the first Signal of each
 * record calls it: it knows for which it did not. */
static __device__ __forceinline__ void rammer_make_up(void) {
    for (uint32_t i = 0; i < rammer_queue.count; ++i) {
        const rammer_record *record = &rammer_queue.records[i];
        if (record->step >= rammer_queue.silent || record->step + record->wait_count >= rammer_queue.late)
            for (uint32_t number = 0; number < record->signal_count; ++number)
                rammer_add_release(&rammer_given.counters[record->signals[number]].signals, 1);
    }
}

/* The end of the walk; a Wait that took too long leaves its place. */
static __device__ __forceinline__ void rammer_finish(void) {
    const bool is_late = rammer_queue.late != RAMMER_DONE;
    if (is_late && threadIdx.x == RAMMER_THREADS - RAMMER_WARP)
        rammer_make_up();
    rammer_end_turn();
    if (threadIdx.x == 0) {
        rammer_veu *veu = &rammer_given.veus[rammer_queue.veu];
        veu->runs = rammer_queue.runs + 1;
        if (is_late) {
            veu->late_run = rammer_queue.runs + 1;
            veu->late = rammer_queue.late;
            veu->seen = rammer_queue.seen[rammer_queue.seen[0] == RAMMER_DONE];
        }
#ifdef RAMMER_TRACE
        rammer_given.clocks[rammer_queue.veu].cycles = clock64() - rammer_origin;
        rammer_given.clocks[rammer_queue.veu].nanoseconds = (int64_t)(rammer_globaltimer_ns() - rammer_origin_ns);
#endif
    }
}

#endif
