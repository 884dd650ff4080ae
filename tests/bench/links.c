/* links - times all-reduces of float32 between processes of this machine, over coll/tcp.
 *
 * links plain|tls|shared|fabric|fabric_tls|fabric_shm [RANKS [ROUNDS [BYTES]]], over TCP,
 * encrypted, through shared memory, or over libfabric's tcp;ofi_rxm, encrypted, or its shm: a line
 * for each size: bytes, median and least microseconds, and the microseconds of CPU time that rank 0
 * took for a sum.  Nothing is printed if there is no libfabric.  ROUNDS: at most so many of each
 * size.  BYTES: this size alone.  The time is what the caller sees, a hand-over to the comm
 * thread included.  The sums have no tag, unlike gradients', so small ones need no hand-over. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "../coll/ranks.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "coll/fabric/load.h"

enum { ROUNDS_MAX = 2000, ROUNDS_MIN = 11 };

/* Set before the ranks are forked. */
static int most_rounds = ROUNDS_MAX;
static size_t only_bytes; /* 0: all sizes */

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* CPU time of this process, in microseconds. */
static double cpu_us(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return 1e6 * (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static int reduce(struct coll *c, float *x, int64_t n, struct err *err)
{
    const int64_t t = coll_allreduce(c, COLL_BULK, x, n, DTYPE_F32, COLL_TAG_NONE, err);

    return t < 0 ? (int)t : coll_wait(c, t, err);
}

/* All ranks run the same number of rounds: about half a second of them for most sizes. */
static int time_size(struct coll *c, size_t n_bytes, struct verdict *v)
{
    static double us[ROUNDS_MAX];
    const int64_t of_half_s = max_i64(ROUNDS_MIN, (INT64_C(512) << 20) / (int64_t)n_bytes);
    const int n_rounds = (int)min_i64(most_rounds, of_half_s);
    const int64_t n = (int64_t)(n_bytes / sizeof(float));
    float *x = xcalloc((size_t)n, sizeof *x);
    double cpu = 0;
    struct err err;
    int rc = 0;

    for (int i = -ROUNDS_MIN / 2; i < n_rounds && rc == 0; i++) {
        const int64_t t0 = clock_mono_ns();

        cpu = i == 0 ? cpu_us() : cpu;
        rc = reduce(c, x, n, &err);
        if (i >= 0)
            us[i] = 1e6 * clock_since_s(t0);
    }
    free(x);
    if (rc < 0)
        return unexpected(v, "%s", err.msg);
    qsort(us, (size_t)n_rounds, sizeof *us, by_size);
    if (coll_rank(c) == 0)
        printf("%zu %.1f %.1f %.1f\n", n_bytes, us[n_rounds / 2], us[0],
               (cpu_us() - cpu) / n_rounds);
    fflush(stdout);
    return 0;
}

static int time_all(struct coll *c, const void *arg, struct verdict *v)
{
    (void)arg;
    for (size_t n_bytes = 64; n_bytes <= 64 << 20; n_bytes *= 4)
        if ((!only_bytes || n_bytes == only_bytes) && time_size(c, n_bytes, v))
            return 1;
    return 0;
}

int main(int argc, char **argv)
{
    const int n_ranks = argc > 2 ? atoi(argv[2]) : 2;
    static const struct {
        const char *name;
        enum transport transport;
    } mode[] = {{"plain", OVER_TCP_FORK},         {"tls", OVER_TLS_FORK},
                {"shared", OVER_SHM_FORK},        {"fabric", OVER_FABRIC_PLAIN_FORK},
                {"fabric_tls", OVER_FABRIC_FORK}, {"fabric_shm", OVER_FABRIC_SHM_FORK}};

    fabric_set_limit(""); /* as the daemons do */
    if (argc > 3)
        most_rounds = (int)max_i64(1, min_i64(atoi(argv[3]), ROUNDS_MAX));
    if (argc > 4)
        only_bytes = (size_t)atoll(argv[4]);
    for (size_t i = 0; i < ARRAY_LEN(mode) && argc > 1 && n_ranks >= 2 && n_ranks <= RANKS_MAX; i++)
        if (strcmp(argv[1], mode[i].name) == 0)
            return run_ranks(mode[i].transport, n_ranks, 0, time_all, NULL);
    fprintf(stderr, "usage: links plain|tls|shared|fabric|fabric_tls|fabric_shm "
                    "[RANKS [ROUNDS [BYTES]]]\n");
    return 2;
}
