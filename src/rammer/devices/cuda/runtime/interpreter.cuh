/* The interpreter of an rProgram: a resident block for each vEU, which walks its own queue of records.
 *
 * Everything that depends on a model is in tables and in the dispatch over rKernels, which the generated code defines.
 * RAMMER_THREADS is the size of a block, RAMMER_BLOCKS how many a multiprocessor holds. With RAMMER_TRACE every record's
 * times are written, too.
 */
#ifndef RAMMER_INTERPRETER_CUH
#define RAMMER_INTERPRETER_CUH

/* Runs the record at `position`, whose kernel is `kernel`: its Waits and its rTask. Where that is the first of a run, it
 * walks on. Returns the position of the last record that it came to, which is to be ended. All threads call it. */
static __device__ uint32_t rammer_execute(uint32_t kernel, const rammer_record *record, uint32_t position);


/* Computes the sums of an rTask that is a product of warpgroups, and says whether to run the rest; where a program has some,
 * the generated code defines it, and RAMMER_ALIKE, by which the compiler sees that all lanes of a warp are at one position. */
#ifndef RAMMER_MULTIPLY
#define RAMMER_MULTIPLY(kernel, record) true
#define RAMMER_ALIKE(position) position
#endif

extern "C" __global__ void __launch_bounds__(RAMMER_THREADS, RAMMER_BLOCKS)
rammer_run(const __grid_constant__ rammer_program program) {
    rammer_start(&program);
    for (uint32_t position = 0;;) {
        position = RAMMER_ALIKE(position);
        rammer_reach(position);
        const rammer_record *record = rammer_at(position);
        const rammer_head head = rammer_head_of(record);
        if (!rammer_goes_on(position))
            break;
        if (head.ahead_bytes != 0)
            rammer_look_ahead(record);
        if (head.kernel == RAMMER_NOTHING)
            rammer_begin(record);
        else if (RAMMER_MULTIPLY(head.kernel, record))
            position = rammer_execute(head.kernel, record, position);
        __syncthreads(); /* the rTask is whole before a Signal, and done with shared memory before the next */
        rammer_end(rammer_at(position));
        ++position;
    }
    rammer_finish();
}

#endif
