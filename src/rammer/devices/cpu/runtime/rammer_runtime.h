/* The interpreter of an rProgram on processor threads.
 *
 * One library for the process: it owns the pool of threads, models bring only kernels and tables. The tables are
 * written by `rammer.devices.codegen.tables`; RAMMER_ABI changes whenever anything in this file does.
 */
#ifndef RAMMER_RUNTIME_H
#define RAMMER_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#define RAMMER_ABI 5

/* Computes one rTask: rTile `tile` over the operands that `pointers` holds, inputs first, then outputs. */
typedef void (*rammer_kernel)(char *const *restrict pointers, int32_t tile);

/* What a record says, and its operands `a`, `b`, `c`. */
enum {
    RAMMER_EXECUTE = 0, /* kernel index, tile, first slot */
    RAMMER_WAIT = 1,    /* counter, signals to wait for in this run, - */
    RAMMER_SIGNAL = 2,  /* counter, -, - */
    RAMMER_EXECUTE_IF = 3 /* as RAMMER_EXECUTE, where the bool in the slot before the first one holds */
};

typedef struct {
    uint32_t opcode;
    uint32_t a;
    uint32_t b;
    uint32_t c;
} rammer_record;

/* Segment 0 is the arena, 1 the constants, 2 and on are the arrays of the call: inputs, then outputs. */
enum { RAMMER_ARENA = 0, RAMMER_CONSTANTS = 1, RAMMER_CALLER_ARRAYS = 2 };

typedef struct {
    uint32_t segment;
    uint32_t reserved;
    uint64_t offset_bytes;
} rammer_slot;

typedef struct {
    int64_t start_ns;
    int64_t end_ns;
} rammer_span;

/* A model. Everything it points to stays valid, and in place, until rammer_model_free. */
typedef struct {
    uint32_t veu_count;
    uint32_t counter_count;
    uint32_t slot_count;
    uint32_t wait_polls;          /* how often a Wait polls before its thread looks for something else to do */
    uint32_t thread_count;        /* that walk the vEUs' records, the caller's included; at most veu_count */
    const rammer_kernel *kernels; /* by kernel index */
    const rammer_record *records; /* vEU i walks starts[i] .. starts[i + 1] */
    const uint32_t *starts;       /* veu_count + 1 */
    const rammer_slot *slots;
    const uint32_t *signals; /* per counter: Signals in one run */
    const int32_t *cores;    /* per vEU: the core to stay on, or -1 */
    char *arena;
    char *constants;
    int64_t spin_ns;    /* how long idle workers poll for the next run before they sleep */
    int64_t timeout_ns; /* how long nothing may move before the run is given up */
} rammer_program;

/* Where a run that was given up stood: a vEU that waits in vain. */
typedef struct {
    uint32_t veu;
    uint32_t step; /* in the vEU's own records */
    uint32_t counter;
    uint32_t reserved;
    uint64_t seen; /* Signals in this run */
    uint64_t wanted;
} rammer_stall;

typedef struct rammer_model rammer_model;

enum { RAMMER_OK = 0, RAMMER_STALLED = -1, RAMMER_PAUSED = -2 };

uint32_t rammer_abi(void);

/* Returns NULL where memory ran out. */
rammer_model *rammer_model_new(const rammer_program *program);

/* No run of the model may be under way. NULL is allowed. */
void rammer_model_free(rammer_model *model);

/* Runs the model once; callers on other threads wait their turn.
 *
 * `arrays` holds the addresses of inputs and outputs. `spans`, if not NULL, has room for every record and gets their
 * times. Returns RAMMER_OK, or RAMMER_STALLED with `stall` filled in: after either the model is ready for the next run.
 * A run of more than some 0.1 s returns RAMMER_PAUSED now and then, so that its caller can look after other things, such
 * as signals; other threads go on with it. The same thread has to resume it, or to cancel it.
 */
int rammer_model_run(rammer_model *model, char *const *arrays, rammer_span *spans, rammer_stall *stall);

/* Goes on with the calling thread's run that returned RAMMER_PAUSED; returns what rammer_model_run does. */
int rammer_model_resume(rammer_model *model, rammer_stall *stall);

/* Gives up the calling thread's run that returned RAMMER_PAUSED, if there is one, as soon as the rTasks under way have
 * ended; what it has written stays. After it the model is ready for the next run. */
void rammer_model_cancel(rammer_model *model);

/* --- What a file holds, while it is loaded: any number of threads do it together, each piece or block once. --------- */

enum { RAMMER_FLOAT32 = 0, RAMMER_FLOAT16 = 1, RAMMER_BFLOAT16 = 2, RAMMER_PAGES = 3 };

/* Consecutive bytes of a file; or of memory, `to`, whose pages are to be made, where the type is RAMMER_PAGES. */
typedef struct {
    const char *from;
    uint64_t size_bytes;
    char *to;          /* where they go as float32 values, or NULL */
    uint32_t type;     /* which they are in the file, where they go anywhere */
    uint32_t checksum; /* what their CRC-32 has to be */
    uint32_t altered;  /* set where it is not */
    uint32_t reserved;
} rammer_piece;

typedef struct {
    rammer_piece *pieces;
    uint64_t count;
    char *memory; /* where all of them go, of whole large pages */
    uint64_t memory_bytes;
    uint64_t next;   /* the piece that nobody has taken yet; whoever sets it to `count` ends the work */
    int64_t late_ns; /* by how much large pages took longer than ordinary ones */
} rammer_pieces;

/* Checks pieces and widens them until none is left. */
void rammer_check(rammer_pieces *work);

enum { RAMMER_MOST_TAPS = 8, RAMMER_MOST_POINTS = 16, RAMMER_BLOCK = 16 };

/* A filter along one dimension; see `FilterLine` in `rammer.ir.recipe`. */
typedef struct {
    uint32_t taps; /* of the weights */
    uint32_t stride;
    uint32_t groups;
    uint32_t points;
    uint32_t length;      /* taps of a group */
    uint32_t sums;        /* phases times groups */
    const double *matrix; /* [points][length] */
} rammer_line;

/* Float32 values at the points of two filters, of weights that have four dimensions: lanes, others, and taps of both. */
typedef struct {
    const char *from; /* the weights */
    uint32_t type;
    uint32_t lanes;
    uint32_t others;
    uint32_t by_others; /* whether blocks are of others, else of lanes */
    int64_t strides[4];     /* of the weights, in elements */
    const double *factor;   /* what they are multiplied by first, which rounds to float32; or NULL */
    int64_t factor_strides[2]; /* along lanes and others */
    rammer_line lines[2];
    float *to;
    const int64_t *steps[5]; /* what a point, a lane, another and both sums add to an address, in elements */
} rammer_making;

typedef struct {
    const rammer_making *makings;
    const uint64_t *ends; /* per making: blocks of RAMMER_BLOCK lanes, or others, of it and of all before it */
    uint64_t count;
    uint64_t next; /* the block that nobody has taken yet */
} rammer_makings;

/* Makes constants until no block is left. */
void rammer_make(rammer_makings *work);

#endif
