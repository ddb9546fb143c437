/* The interpreter of an rProgram: a resident block for each vEU, which walks its own queue of records.
 *
 * Everything that depends on a model is in tables and in the dispatch over rKernels, which the generated code defines.
 * RAMMER_THREADS is the size of a block. With RAMMER_TRACE every record's times are written, too.
 */
#ifndef RAMMER_INTERPRETER_CUH
#define RAMMER_INTERPRETER_CUH

/* Runs the record at `position`, whose kernel is `kernel`: its Waits and its rTask. Returns whether all Waits ended in
 * time. All threads call it. */
static __device__ bool rammer_execute(uint32_t kernel, uint32_t position, char *scratch);

/* Walks the runs of records that begin with that of the resident rKernel `kernel` at `*position`, and leaves there what
 * is behind them. Returns whether all their Waits ended in time. */
static __device__ bool rammer_execute_run(uint32_t kernel, uint32_t *position, char *scratch);

extern __shared__ __align__(128) char rammer_scratch[];

extern "C" __global__ void __launch_bounds__(RAMMER_THREADS, 1)
rammer_run(const __grid_constant__ rammer_program program) {
    rammer_start(&program);
    bool goes_on = true;
    for (uint32_t position = 0; goes_on && position < rammer_queue.count;) {
        rammer_reach(position);
        const rammer_record *record = rammer_at(position);
        const uint32_t kernel = record->kernel;
        if (record->run != 0) {
            goes_on = rammer_execute_run(kernel, &position, rammer_scratch);
        } else {
            rammer_look_ahead(position);
            if (kernel != RAMMER_NOTHING) {
                goes_on = rammer_execute(kernel, position, rammer_scratch);
                __syncthreads(); /* the rTask is whole before a Signal, and done with shared memory before the next */
            } else {
                goes_on = rammer_begin(position);
            }
            goes_on = goes_on && rammer_took(position);
            if (goes_on)
                rammer_end(position);
            ++position;
        }
    }
    rammer_finish(&program, goes_on);
}

#endif
