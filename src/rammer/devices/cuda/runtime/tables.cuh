/* Types that the host and the interpreter share; `rammer.devices.cuda.tables` mirrors them.
 *
 * RAMMER_SLOTS is the number of operands that a record has room for, RAMMER_SEGMENTS that of segments they lie in,
 * RAMMER_CHUNK that of records which are fetched together. A run reads RAMMER_STATES segments from RAMMER_READ on, and leaves
 * for the next run as many from RAMMER_WRITTEN on. With RAMMER_NEIGHBOURS, vEUs have the numbers of their multiprocessors.
 */
#ifndef RAMMER_TABLES_CUH
#define RAMMER_TABLES_CUH

enum {
    RAMMER_WAITS = 2,        /* of a record at most */
    RAMMER_SIGNALS = 16,     /* of a record at most */
    RAMMER_SEGMENT_SHIFT = 48,
    RAMMER_CONSTANTS = 1     /* the segment of the model's constants */
};

#define RAMMER_NOTHING 0xffffffffu /* the kernel of a record without an rTask */
#define RAMMER_DONE 0xffffffffu    /* the late step of a vEU that none was in vain of */

/* Go on once `counter` had `threshold` of the `signals` that a run gives it. */
struct rammer_wait {
    uint32_t counter;
    uint32_t threshold;
    uint32_t signals;
};

/* An rTask with what it waits for and whom it tells: neighbouring steps of a vEU's queue, `step` the first of them.
 *
 * An operand is a segment and an offset into it as the host writes it, and an address once a vEU has fetched it.
 * `run` is 0, or the number of records from this one on that are one rTask over the same resident constants.
 * `busy` is 0 if these have no Waits, Signals or predicates; `joins` is not 0 if the next record has the same weights.
 * With `predicated`, the last operand is a bool, and the rTask does nothing where it is false.
 * `number` is its place among the records of all vEUs.
 * The next rTask of the queue will read `ahead_bytes` of the constants from `ahead_offset` on.
 */
struct __align__(16) rammer_record {
    uint32_t kernel;
    uint32_t tile;
    uint32_t run;
    uint32_t ahead_bytes;
    uint32_t number;
    uint32_t step;
    uint16_t wait_count;
    uint16_t signal_count;
    uint8_t busy;
    uint8_t joins;
    uint16_t predicated;
    rammer_wait waits[RAMMER_WAITS];
    uint32_t signals[RAMMER_SIGNALS];
    uint64_t ahead_offset;
    uint64_t operands[RAMMER_SLOTS];
};

/* Each counter has a sector of L2 to itself. It only grows; it wraps around after 2^32 signals. */
struct __align__(32) rammer_counter {
    uint32_t signals;
    uint32_t reserved[7];
};

/* An element of a tagged tensor, and the tag of the run that wrote it. */
struct __align__(8) rammer_tagged {
    float value;
    uint32_t tag;
};

/* The same of a float in TF32: the tag is in the RAMMER_TAG_BITS that TF32 leaves. */
#define RAMMER_TAG_BITS 0x1fffu
struct rammer_tagged_bits {
    uint32_t word;
};

/* The same of 16 bits. */
struct __align__(4) rammer_tagged_half {
    uint16_t value;
    uint16_t tag;
};

/* What a vEU keeps from run to run. Runs follow each other, so each counts them by itself: nobody tells a run its number,
 * and a launch may be repeated as it is.
 *
 * `late_run` is the last run that it gave up, counted from 1, `late` the Wait among its steps that was in vain, or the rTask
 * that tagged elements did not come for, and `seen` the signals that the Wait's counter had in that run. Where blocks claim
 * vEUs, `claims` are those of this one, and `launches` are those in which the block of its number claimed one.
 */
struct __align__(16) rammer_veu {
    uint32_t runs;
    uint32_t late_run;
    uint32_t late;
    uint32_t seen;
    uint32_t claims;
    uint32_t launches;
    uint32_t reserved[2];
};

/* The last run that was given up, counted from 1: set by the first block whose Wait takes too long, for all others to give up,
 * too. The host clears `stalled`. One word, for the two change together. */
struct __align__(8) rammer_status {
    uint32_t run;
    uint32_t stalled;
};

/* Of a record: when it was reached, its Waits and its rTask had ended, and it was left. Cycles of a multiprocessor's
 * clock since all blocks met at the start of a traced run. */
struct rammer_span {
    int64_t begin;
    int64_t ready;
    int64_t computed;
    int64_t end;
};

/* A vEU's clocks over a traced run: cycles and nanoseconds from its start to its end. */
struct rammer_clock {
    int64_t cycles;
    int64_t nanoseconds;
};

struct rammer_program {
    const rammer_record *records; /* vEU i walks starts[i] .. starts[i + 1] */
    const uint32_t *starts;
    rammer_counter *counters;
    rammer_veu *veus;
    rammer_status *status;
    rammer_span *spans;    /* per record, of a traced run */
    rammer_clock *clocks;  /* per vEU, of a traced run */
    uint64_t timeout_ns;   /* how long a Wait may take */
    uint32_t *turns;       /* of the states: the runs that moved them, as every vEU counts them */
    uint32_t turn_count;   /* of these counts, one for each vEU that any model may have */
    uint32_t met;          /* the counter where all blocks meet at the start of a traced run; 0 before it */
    char *segments[RAMMER_SEGMENTS]; /* their addresses; those of the caller's arrays change from run to run */
};

#endif
