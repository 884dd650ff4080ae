/* usage - what a process has used so far. */
#ifndef TESTS_BENCH_SWARM_USAGE_H
#define TESTS_BENCH_SWARM_USAGE_H

struct usage {
    double cpu_s; /* user and system, of all its threads */
    double rss_mib;
};

void usage_of(int pid, struct usage *out); /* pid 0: this one.  Zeros when it is gone. */

#endif
