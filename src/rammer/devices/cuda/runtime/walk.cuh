/* A vEU's walk through its queue: records fetched ahead, Waits before an rTask and Signals behind it.
 *
 * Order in memory: all threads of a block finish an rTask before the barrier that precedes its Signals; a Signal is a
 * release by one thread, a Wait an acquire by one thread before the barrier behind which the rTask reads what others
 * write. Barriers and the pair of release and acquire are transitive in the PTX memory model, so plain loads of all
 * threads see what was written. Tagged elements say nothing but themselves: value and tag are one word, and nobody
 * concludes from it that anything else was written. Kernels never read tensors through the read-only path
 * (ld.global.nc).
 */
#ifndef RAMMER_WALK_CUH
#define RAMMER_WALK_CUH

enum {
    RAMMER_LINE_BYTES = 128,
    RAMMER_POLLS = 256 /* between two looks at the clock */
};

/* This block's queue. In shared memory, for resident rKernels have no registers to spare. */
static __shared__ struct {
    const rammer_program *program;
    const rammer_record *records;
    uint32_t start;
    uint32_t count;
    uint32_t tag;
    bool gave_up;  /* a tagged element did not come in time */
    uint32_t late; /* likewise in a run: the first rTask's step, or RAMMER_DONE */
} rammer_queue;

static __shared__ rammer_record rammer_chunks[2][RAMMER_CHUNK];
static __shared__ char *rammer_segments[RAMMER_SEGMENTS];
#ifdef RAMMER_TRACE
static __shared__ int64_t rammer_origin;
static __shared__ uint64_t rammer_origin_ns;
#endif

static __device__ __forceinline__ uint32_t rammer_load_acquire(const uint32_t *address) {
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
}

static __device__ __forceinline__ uint32_t rammer_load_relaxed(const uint32_t *address) {
    uint32_t value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
}

static __device__ __forceinline__ void rammer_add_release(uint32_t *address) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" : : "l"(address) : "memory");
}

static __device__ __forceinline__ uint64_t rammer_now_ns(void) {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/* Looks at the clock. Returns whether waiting may go on; if not, the run is given up. 0 is no deadline yet. */
static __device__ __forceinline__ bool rammer_is_in_time(const rammer_program *program, uint64_t *deadline_ns) {
    if (rammer_load_relaxed(&program->status->stalled) != 0)
        return false;
    const uint64_t now_ns = rammer_now_ns();
    if (*deadline_ns == 0)
        *deadline_ns = now_ns + program->timeout_ns;
    if (now_ns <= *deadline_ns)
        return true;
    atomicExch(&program->status->stalled, 1u);
    return false;
}

/* Returns whether `counter` came to `wanted`; if not in time, or if another block gave up, the run is given up. */
static __device__ __forceinline__ bool rammer_await(const rammer_program *program, uint32_t counter, uint32_t wanted) {
    const uint32_t *signals = &program->counters[counter].signals;
    uint64_t deadline_ns = 0;
    for (uint32_t poll = 1;; ++poll) {
        /* The difference of numbers that wrap around. */
        if ((int32_t)(rammer_load_acquire(signals) - wanted) >= 0)
            return true;
        if (poll % RAMMER_POLLS == 0 && !rammer_is_in_time(program, &deadline_ns))
            return false;
    }
}

/* Waits for the element at `from` until this run has written it. Returns whether it came in time. */
static __device__ __forceinline__ bool rammer_receive(const rammer_tagged *from, float *value) {
    uint64_t deadline_ns = 0;
    for (uint32_t poll = 1;; ++poll) {
        uint64_t word;
        asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
        *value = __uint_as_float((uint32_t)word);
        if ((uint32_t)(word >> 32) == rammer_queue.tag)
            return true;
        if (poll % RAMMER_POLLS == 0 && !rammer_is_in_time(rammer_queue.program, &deadline_ns))
            return false;
    }
}

/* The element at `from`; anything if the run is given up. */
static __device__ __forceinline__ float rammer_take(const rammer_tagged *from) {
    float value;
    if (!rammer_receive(from, &value))
        rammer_queue.gave_up = true;
    return value;
}

/* Writes an element for everyone to take. */
static __device__ __forceinline__ void rammer_give(rammer_tagged *to, float value) {
    const uint64_t word = (uint64_t)rammer_queue.tag << 32 | __float_as_uint(value);
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(to), "l"(word) : "memory");
}

/* Starts to fetch the chunk of records from `first` on. */
static __device__ __forceinline__ void rammer_fetch(uint32_t first) {
    if (first < rammer_queue.count) {
        const uint32_t parts = min(rammer_queue.count - first, (uint32_t)RAMMER_CHUNK) * (sizeof(rammer_record) / 16);
        const uint32_t target = (uint32_t)__cvta_generic_to_shared(rammer_chunks[first / RAMMER_CHUNK % 2]);
        const char *from = (const char *)(rammer_queue.records + first);
        for (uint32_t part = threadIdx.x; part < parts; part += RAMMER_THREADS)
            asm volatile("cp.async.ca.shared.global [%0], [%1], 16;"
                         : : "r"(target + part * 16), "l"(from + part * 16) : "memory");
    }
    asm volatile("cp.async.commit_group;" : : : "memory");
}

/* The record at a position that has been reached. */
static __device__ __forceinline__ rammer_record *rammer_at(uint32_t position) {
    return &rammer_chunks[position / RAMMER_CHUNK % 2][position % RAMMER_CHUNK];
}

/* Its operands, which are addresses. */
static __device__ __forceinline__ char *const *rammer_operands(uint32_t position) {
    return (char *const *)rammer_at(position)->operands;
}

/* Goes to a position: its record is then there, and its operands are addresses. All threads call it at each record. */
static __device__ __forceinline__ void rammer_reach(uint32_t position) {
    if (position % RAMMER_CHUNK != 0)
        return;
    rammer_record *chunk = rammer_at(position);
    asm volatile("cp.async.wait_all;" : : : "memory");
    __syncthreads();
    const uint32_t operands = min(rammer_queue.count - position, (uint32_t)RAMMER_CHUNK) * RAMMER_SLOTS;
    for (uint32_t i = threadIdx.x; i < operands; i += RAMMER_THREADS) {
        uint64_t *operand = &chunk[i / RAMMER_SLOTS].operands[i % RAMMER_SLOTS];
        const uint64_t offset = *operand & ((1ull << RAMMER_SEGMENT_SHIFT) - 1);
        *operand = (uint64_t)(rammer_segments[*operand >> RAMMER_SEGMENT_SHIFT] + offset);
    }
    __syncthreads();
    rammer_fetch(position + RAMMER_CHUNK);
}

#ifdef RAMMER_TRACE
#define RAMMER_STAMP(position, field)                                                                                  \
    if (threadIdx.x == 0)                                                                                              \
    rammer_queue.program->spans[rammer_queue.start + (position)].field = clock64() - rammer_origin
#else
#define RAMMER_STAMP(position, field)
#endif

/* Asks for what the next rTask reads of the constants to be brought into L2. */
static __device__ __forceinline__ void rammer_look_ahead(uint32_t position) {
    const rammer_record *record = rammer_at(position);
    const char *from = rammer_segments[RAMMER_CONSTANTS] + record->ahead_offset;
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0 && record->ahead_bytes != 0)
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" : : "l"(from), "r"(record->ahead_bytes) : "memory");
#else
    for (uint32_t i = threadIdx.x * RAMMER_LINE_BYTES; i < record->ahead_bytes; i += RAMMER_THREADS * RAMMER_LINE_BYTES)
        asm volatile("prefetch.global.L2 [%0];" : : "l"(from + i));
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

/* The Waits of a record, side by side. Returns whether they ended in time. */
static __device__ __forceinline__ bool rammer_begin(uint32_t position) {
    const rammer_record *record = rammer_at(position);
    RAMMER_STAMP(position, begin);
    bool late = false;
    if (threadIdx.x < record->wait_count) {
        const rammer_program *program = rammer_queue.program;
        const rammer_wait wait = record->waits[threadIdx.x];
        late = !rammer_await(program, wait.counter, program->run * wait.signals + wait.threshold);
        if (late)
            program->reached[blockIdx.x] = record->step + threadIdx.x;
    }
    const bool goes_on = record->wait_count == 0 || !__syncthreads_or(late);
    RAMMER_STAMP(position, ready);
    return goes_on;
}

/* Whether all tagged elements that an rTask took came in time. All threads have passed a barrier since. */
static __device__ __forceinline__ bool rammer_took(uint32_t position) {
    if (!rammer_queue.gave_up)
        return true;
    const rammer_record *record = rammer_at(position);
    rammer_queue.program->reached[blockIdx.x] = record->step + record->wait_count;
    return false;
}

/* As rammer_take, for the record at a position of a run, which goes on with anything until its end. */
struct rammer_run_take {
    uint32_t position;
    __device__ __forceinline__ float operator()(const rammer_tagged *from) const {
        float value;
        if (!rammer_receive(from, &value))
            atomicMin(&rammer_queue.late, rammer_at(position)->step + rammer_at(position)->wait_count);
        return value;
    }
};

/* As rammer_took, for all records of a run. */
static __device__ __forceinline__ bool rammer_took_all(void) {
    if (rammer_queue.late == RAMMER_DONE)
        return true;
    rammer_queue.program->reached[blockIdx.x] = rammer_queue.late;
    return false;
}

/* The Signals of a record; all threads have passed a barrier since its rTask. */
static __device__ __forceinline__ void rammer_end(uint32_t position) {
    const rammer_record *record = rammer_at(position);
    RAMMER_STAMP(position, computed);
    if (threadIdx.x < record->signal_count)
        rammer_add_release(&rammer_queue.program->counters[record->signals[threadIdx.x]].signals);
    RAMMER_STAMP(position, end);
}

/* As rammer_end, where threads have not passed a barrier: there is one only if there are Signals. */
static __device__ __forceinline__ void rammer_end_early(uint32_t position) {
    if (rammer_at(position)->signal_count != 0)
        __syncthreads();
    rammer_end(position);
}

/* Gets this block ready to walk its queue. */
static __device__ __forceinline__ void rammer_start(const rammer_program *program) {
    if (threadIdx.x == 0) {
        rammer_queue.program = program;
        rammer_queue.tag = program->tag;
        rammer_queue.gave_up = false;
        rammer_queue.late = RAMMER_DONE;
        rammer_queue.start = program->starts[blockIdx.x];
        rammer_queue.records = program->records + rammer_queue.start;
        rammer_queue.count = program->starts[blockIdx.x + 1] - rammer_queue.start;
#ifdef RAMMER_TRACE
        rammer_add_release(&program->counters[program->met].signals);
        rammer_await(program, program->met, gridDim.x);
        rammer_origin = clock64();
        rammer_origin_ns = rammer_now_ns();
#endif
    }
    for (uint32_t i = threadIdx.x; i < RAMMER_SEGMENTS; i += RAMMER_THREADS)
        rammer_segments[i] = program->segments[i];
    __syncthreads();
    rammer_fetch(0);
}

/* The end of the walk; a Wait that took too long has left its place. */
static __device__ __forceinline__ void rammer_finish(const rammer_program *program, bool went_on) {
    if (threadIdx.x == 0) {
        if (went_on)
            program->reached[blockIdx.x] = RAMMER_DONE;
#ifdef RAMMER_TRACE
        program->clocks[blockIdx.x].cycles = clock64() - rammer_origin;
        program->clocks[blockIdx.x].nanoseconds = (int64_t)(rammer_now_ns() - rammer_origin_ns);
#endif
    }
}

#endif
