/* What saturates one part of a core each: its multiply-adds, or one level of its memory (see `devices.cpu.peaks`).
 *
 * Both stand in a function with the signature of an rKernel, with numbers that are known when it is compiled.
 */
#ifndef RAMMER_PEAKS_H
#define RAMMER_PEAKS_H

#include <stdint.h>

/* Chains that hide the latency of a multiply-add, or of a load, and leave a few of 16 registers. */
#define RAMMER_CHAINS(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
enum { RAMMER_CHAIN_COUNT = 12 };

/* `rounds` multiply-adds in each chain, of vectors of `bytes` bytes. The chains start apart, or they would be one. */
#define RAMMER_MULTIPLY_ADDS(type, bytes, rounds)                                                                       \
    typedef type vector __attribute__((vector_size(bytes), aligned(sizeof(type))));                                    \
    const vector *start = (const vector *)pointers[0];                                                                 \
    const vector factor = start[RAMMER_CHAIN_COUNT], summand = start[RAMMER_CHAIN_COUNT + 1];                          \
    RAMMER_CHAINS(RAMMER_CHAIN_START)                                                                                  \
    for (int64_t i = 0; i < (rounds); ++i) {                                                                           \
        RAMMER_CHAINS(RAMMER_CHAIN_MULTIPLY_ADD)                                                                       \
    }                                                                                                                  \
    vector *end = (vector *)pointers[1];                                                                               \
    RAMMER_CHAINS(RAMMER_CHAIN_END)
#define RAMMER_CHAIN_START(n) vector chain##n = start[n];
#define RAMMER_CHAIN_MULTIPLY_ADD(n) chain##n = chain##n * factor + summand;
#define RAMMER_CHAIN_END(n) end[n] = chain##n;

/* All of slice `tile` is read `passes` times, by each chain a part of `length` vectors of `bytes` bytes: vector i of chain
 * n is number `n * apart + i * step` of the slice. Chains that go hand in hand suit caches, streams far apart memory. */
#define RAMMER_READS(bytes, length, apart, step, passes)                                                                \
    typedef uint32_t vector __attribute__((vector_size(bytes), aligned(4)));                                           \
    const vector *slice = (const vector *)pointers[0] + tile * (int64_t)(length)*RAMMER_CHAIN_COUNT;                   \
    vector *end = (vector *)pointers[1] + tile * (int64_t)RAMMER_CHAIN_COUNT;                                          \
    RAMMER_CHAINS(RAMMER_CHAIN_ZERO)                                                                                   \
    for (int64_t pass = 0; pass < (passes); ++pass)                                                                    \
        for (int64_t i = 0; i < (length); ++i) {                                                                       \
            const vector *here = slice + i * (step);                                                                   \
            const int64_t next = (apart);                                                                              \
            RAMMER_CHAINS(RAMMER_CHAIN_ADD)                                                                            \
        }                                                                                                              \
    RAMMER_CHAINS(RAMMER_CHAIN_END)
#define RAMMER_CHAIN_ZERO(n) vector chain##n = {0};
#define RAMMER_CHAIN_ADD(n) chain##n += here[n * next];

#endif
