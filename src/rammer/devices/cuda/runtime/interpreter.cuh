/* The interpreter of an rProgram: a resident block for each vEU, which walks its own queue of records.
 *
 * Everything that depends on a model is in tables and in `rammer_execute`, which the generated code defines.
 * RAMMER_THREADS is the size of a block. With RAMMER_TRACE every record's times are written, too.
 *
 * Order in memory: all threads of a block finish an rTask before the barrier that precedes its Signal; the Signal is a
 * release by one thread, a Wait an acquire by one thread before the barrier that begins the next rTask. Barriers and
 * the pair of release and acquire are transitive in the PTX memory model, so plain loads of all threads see what was
 * written. Kernels therefore never read tensors through the read-only path (ld.global.nc).
 */
#ifndef RAMMER_INTERPRETER_CUH
#define RAMMER_INTERPRETER_CUH

/* Computes rTile `tile` with kernel `kernel` over the operands in `pointers`. All threads call it. */
static __device__ void rammer_execute(uint32_t kernel, char *const *pointers, uint32_t tile, char *scratch);

extern __shared__ __align__(128) char rammer_scratch[];

enum {
    RAMMER_CHUNK = 32,      /* records that are fetched together, by one warp */
    RAMMER_POLLS = 256      /* polls between two looks at the clock */
};

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

/* Returns whether `counter` came to `wanted`; if not in time, or if another block gave up, the run is given up. */
static __device__ bool rammer_await(const rammer_program *program, uint32_t counter, uint32_t wanted) {
    const uint32_t *signals = &program->counters[counter].signals;
    uint64_t deadline_ns = 0;
    for (uint32_t poll = 1;; ++poll) {
        /* The difference of numbers that wrap around. */
        if ((int32_t)(rammer_load_acquire(signals) - wanted) >= 0)
            return true;
        if (poll % RAMMER_POLLS != 0)
            continue;
        if (rammer_load_relaxed(&program->status->stalled) != 0)
            return false;
        const uint64_t now_ns = rammer_now_ns();
        if (deadline_ns == 0)
            deadline_ns = now_ns + program->timeout_ns;
        else if (now_ns > deadline_ns) {
            atomicExch(&program->status->stalled, 1u);
            return false;
        }
    }
}

/* Fetches a chunk of records: each lane of the first warp one record. Ends past the queue are clamped. */
static __device__ __forceinline__ void rammer_fetch(rammer_record *chunk, const rammer_record *from, uint32_t left) {
    const uint32_t lane = threadIdx.x;
    if (lane < RAMMER_CHUNK && lane < left) {
        const uint32_t target = (uint32_t)__cvta_generic_to_shared(&chunk[lane]);
        asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" : : "r"(target), "l"(&from[lane]) : "memory");
    }
    asm volatile("cp.async.commit_group;" : : : "memory");
}

static __device__ __forceinline__ void rammer_fetched(void) {
    asm volatile("cp.async.wait_all;" : : : "memory");
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(RAMMER_THREADS, 1) rammer_run(const rammer_program program) {
    __shared__ rammer_record chunks[2][RAMMER_CHUNK];
    const uint32_t start = program.starts[blockIdx.x];
    const uint32_t count = program.starts[blockIdx.x + 1] - start;
    const rammer_record *queue = program.records + start;
    const bool leads = threadIdx.x == 0;
    rammer_fetch(chunks[0], queue, count);
#ifdef RAMMER_TRACE
    if (leads) {
        rammer_add_release(&program.counters[program.met].signals);
        rammer_await(&program, program.met, gridDim.x);
    }
    __syncthreads();
    const int64_t origin = clock64();
    const uint64_t origin_ns = rammer_now_ns();
#endif
    uint32_t i = 0;
    for (; i < count; ++i) {
        const uint32_t place = i % RAMMER_CHUNK;
        if (place == 0) {
            rammer_fetched();
            const uint32_t next = i + RAMMER_CHUNK;
            if (next < count)
                rammer_fetch(chunks[next / RAMMER_CHUNK % 2], queue + next, count - next);
        }
        const rammer_record record = chunks[i / RAMMER_CHUNK % 2][place];
#ifdef RAMMER_TRACE
        const int64_t begin = clock64();
#endif
        if (record.opcode == RAMMER_EXECUTE) {
            rammer_execute(record.a, program.pointers + record.c, record.b, rammer_scratch);
            __syncthreads(); /* the rTask is whole before a Signal, and done with shared memory before the next */
        } else if (record.opcode == RAMMER_WAIT) {
            const uint32_t wanted = program.run * record.c + record.b;
            if (__syncthreads_or(leads && !rammer_await(&program, record.a, wanted)))
                break;
        } else if (leads) {
            rammer_add_release(&program.counters[record.a].signals);
        }
#ifdef RAMMER_TRACE
        if (leads) {
            program.spans[start + i].start = begin - origin;
            program.spans[start + i].end = clock64() - origin;
        }
#endif
    }
    if (leads) {
        program.reached[blockIdx.x] = i == count ? RAMMER_DONE : i;
#ifdef RAMMER_TRACE
        program.clocks[blockIdx.x].cycles = clock64() - origin;
        program.clocks[blockIdx.x].nanoseconds = (int64_t)(rammer_now_ns() - origin_ns);
#endif
    }
}

#endif
