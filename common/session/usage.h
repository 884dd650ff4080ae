/* usage - what a rank takes of its machine, as its process measures it and its heartbeats tell it.
 *
 * Threads: one at a time; plain numbers. */
#ifndef SESSION_USAGE_H
#define SESSION_USAGE_H

#include <stdint.h>

/* X(KIND, key): the counters of energy; the key in events and in the status. */
#define ENERGY_LIST(X)  \
    X(PACKAGE, package) \
    X(GPU, gpu)

enum energy_kind {
#define X(KIND, key) ENERGY_##KIND,
    ENERGY_LIST(X)
#undef X
        ENERGY_KINDS
};

/* 0 is "not known" everywhere: what is known and rounds to 0 is told as 1. */
struct usage {
    int64_t mj[ENERGY_KINDS]; /* counters, from a time of the process's choice: the packages of its
                                 machine, which ranks beside it count, too; and its GPU */
    int64_t resident_kib;     /* of the process */
    int64_t cpu_permille;     /* of one CPU, lately: 2000 are two whole ones */
    int64_t gpu_permille;     /* the part of the time in which the GPU computed, lately */
    int64_t gpu_memory_kib;   /* in use on the GPU, by all processes */
    int64_t gpu_celsius, gpu_mw, gpu_clock_mhz;
};

#endif
