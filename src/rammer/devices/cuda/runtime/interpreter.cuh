/* The interpreter of an rProgram: a resident block for each vEU, which walks its own queue of records.
 *
 * Everything that depends on a model is in tables and in the dispatch over rKernels, which the generated code defines.
 * RAMMER_THREADS is the size of a block, RAMMER_BLOCKS how many a multiprocessor holds. With RAMMER_TRACE every record's
 * times are written, too.
 */
#ifndef RAMMER_INTERPRETER_CUH
#define RAMMER_INTERPRETER_CUH

/* Runs a record, whose kernel is `kernel`: its Waits and its rTask. All threads call it. */
static __device__ void rammer_execute(uint32_t kernel, const rammer_record *record);

/* Walks the runs of records that begin with that of the resident rKernel `kernel` at `position`. Returns the position
 * behind them. */
static __device__ uint32_t rammer_execute_run(uint32_t kernel, uint32_t position, char *scratch);

extern "C" __global__ void __launch_bounds__(RAMMER_THREADS, RAMMER_BLOCKS)
rammer_run(const __grid_constant__ rammer_program program) {
    rammer_start(&program);
    for (uint32_t position = 0;;) {
        rammer_reach(position);
        const rammer_record *record = rammer_at(position);
        const rammer_head head = rammer_head_of(record);
        if (!rammer_goes_on(position))
            break;
        if (head.run != 0) {
            position = rammer_execute_run(head.kernel, position, rammer_scratch);
        } else {
            if (head.ahead_bytes != 0)
                rammer_look_ahead(record);
            if (head.kernel != RAMMER_NOTHING)
                rammer_execute(head.kernel, record);
            else
                rammer_begin(record);
            __syncthreads(); /* the rTask is whole before a Signal, and done with shared memory before the next */
            rammer_end(record);
            ++position;
        }
    }
    rammer_finish();
}

#endif
