/* Types that the host and the interpreter share; `rammer.devices.cuda.tables` mirrors them. */
#ifndef RAMMER_TABLES_CUH
#define RAMMER_TABLES_CUH

typedef unsigned char uint8_t;
typedef signed char int8_t;
typedef unsigned short uint16_t;
typedef short int16_t;
typedef unsigned int uint32_t;
typedef int int32_t;
typedef unsigned long long uint64_t;
typedef long long int64_t;

/* What a record says, and its operands `a`, `b`, `c`. */
enum {
    RAMMER_EXECUTE = 0, /* kernel index, tile, first slot */
    RAMMER_WAIT = 1,    /* counter, signals to wait for in this run, signals of one run */
    RAMMER_SIGNAL = 2   /* counter, -, - */
};

struct __align__(16) rammer_record {
    uint32_t opcode;
    uint32_t a;
    uint32_t b;
    uint32_t c;
};

/* Each counter has a sector of L2 to itself. It only grows; it wraps around after 2^32 signals. */
struct __align__(32) rammer_counter {
    uint32_t signals;
    uint32_t reserved[7];
};

/* Set by the first block whose Wait takes too long: all others then give up, too. */
struct rammer_status {
    uint32_t stalled;
    uint32_t reserved;
};

/* Cycles of a multiprocessor's clock since all blocks met at the start of a traced run. */
struct rammer_span {
    int64_t start;
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
    char *const *pointers; /* per slot */
    rammer_counter *counters;
    uint32_t *reached;     /* per vEU: the Wait in its queue where it gave up, or RAMMER_DONE */
    rammer_status *status;
    rammer_span *spans;    /* per record, of a traced run */
    rammer_clock *clocks;  /* per vEU, of a traced run */
    uint64_t timeout_ns;   /* how long a Wait may take */
    uint32_t run;          /* whole runs that the counters hold */
    uint32_t met;          /* the counter where all blocks meet at the start of a traced run; 0 before it */
};

enum { RAMMER_DONE = 0xffffffffu };

#endif
