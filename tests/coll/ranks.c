/* ranks - makes a coll for each rank, over threads or forked processes, and the numbers that the
 * ranks sum. */
#include "ranks.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "coll/fabric/load.h"
#include "coll/tcp.h"
#include "local.h"
#include "tensor/half.h"

enum { CONNECT_MS = 200000, FABRIC_MOST = 3 };

/* By enum transport. */
static const struct {
    const char *name;
    int is_fork;
    enum coll_encrypt encrypt;
    int share_memory, is_split; /* is_split: half of the ranks have the address of another host */
    const char *fabric;
} transports[] = {
    [OVER_LOCAL] = {"local"},
    [OVER_TCP_THREADS] = {"tcp threads"},
    [OVER_TCP_FORK] = {"tcp processes", .is_fork = 1},
    [OVER_TLS_THREADS] = {"tls threads", .encrypt = COLL_ENCRYPT_ON},
    [OVER_TLS_FORK] = {"tls processes", .is_fork = 1, .encrypt = COLL_ENCRYPT_ON},
    [OVER_SHM_THREADS] = {"shared memory threads", .share_memory = 1, .is_split = 1},
    [OVER_SHM_FORK] = {"shared memory processes", .is_fork = 1, .share_memory = 1},
    [OVER_FABRIC_THREADS] = {"fabric threads", .fabric = "tcp;ofi_rxm"},
    [OVER_FABRIC_FORK] = {"encrypted fabric processes", .is_fork = 1, .encrypt = COLL_ENCRYPT_ON,
                          .fabric = "tcp;ofi_rxm"},
    [OVER_FABRIC_PLAIN_FORK] = {"fabric processes", .is_fork = 1, .fabric = "tcp;ofi_rxm"},
    [OVER_FABRIC_SHM_FORK] = {"fabric shm processes", .is_fork = 1, .fabric = "shm"},
};

const char *transport_name(enum transport t) { return transports[t].name; }

int unexpected(struct verdict *v, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(v->why, sizeof v->why, fmt, ap);
    va_end(ap);
    return 1;
}

/* Data */

static double element(int64_t i, int rank)
{
    uint64_t h = ((uint64_t)i * 8 + (uint64_t)rank + 1) * 0x9e3779b97f4a7c15u;
    h ^= h >> 29;
    h *= 0xbf58476d1ce4e5b9u;
    return ((double)(int64_t)(h >> 12) - 0x1p51) * 0x1p-40 / (double)(1 + (h & 1023));
}

static void store(void *x, int64_t i, enum dtype dtype, double v)
{
    if (dtype == DTYPE_F32)
        ((float *)x)[i] = (float)v;
    else if (dtype == DTYPE_BF16)
        ((uint16_t *)x)[i] = bf16_from_float((float)v);
    else if (dtype == DTYPE_F16)
        ((uint16_t *)x)[i] = f16_from_float((float)v);
    else
        ((double *)x)[i] = v;
}

static double sum_f32(int64_t i, int size)
{
    float sum = (float)element(i, 0);
    for (int r = 1; r < size; r++)
        sum += (float)element(i, r);
    return (double)sum;
}

/* The sum is rounded where it is stored: after each rank. */
static double sum_half(int64_t i, int size, enum dtype dtype)
{
    uint16_t sum;

    store(&sum, 0, dtype, element(i, 0));
    for (int r = 1; r < size; r++) {
        uint16_t next;

        store(&next, 0, dtype, element(i, r));
        store(&sum, 0, dtype, (double)real_get(&sum, dtype, 0) + (double)real_get(&next, dtype, 0));
    }
    return (double)real_get(&sum, dtype, 0);
}

static double sum_f64(int64_t i, int size)
{
    double sum = element(i, 0);
    for (int r = 1; r < size; r++)
        sum += element(i, r);
    return sum;
}

static void make(void *x, int64_t n, enum dtype dtype, int rank)
{
    for (int64_t i = 0; i < n; i++)
        store(x, i, dtype, element(i, rank));
}

static void make_sum(void *x, int64_t n, enum dtype dtype, int size)
{
    for (int64_t i = 0; i < n; i++)
        store(x, i, dtype,
              dtype == DTYPE_F32     ? sum_f32(i, size)
              : dtype_is_half(dtype) ? sum_half(i, size, dtype)
                                     : sum_f64(i, size));
}

/* ranks_keep makes these, by element type and by rank or size: n numbers of each. */
static struct {
    int64_t n;
    void *of_rank[RANKS_MAX], *of_size[RANKS_MAX + 1];
} kept[DTYPE_COUNT];

void ranks_keep(int64_t n, enum dtype dtype)
{
    const size_t n_bytes = (size_t)n * dtype_size(dtype);

    ASSERT(n > 0 && !kept[dtype].n);
    for (int r = 0; r < RANKS_MAX; r++)
        make(kept[dtype].of_rank[r] = xmalloc(n_bytes), n, dtype, r);
    for (int size = 1; size <= RANKS_MAX; size++)
        make_sum(kept[dtype].of_size[size] = xmalloc(n_bytes), n, dtype, size);
    kept[dtype].n = n;
}

void fill(void *x, int64_t n, enum dtype dtype, int rank)
{
    if (n > kept[dtype].n || rank >= RANKS_MAX)
        make(x, n, dtype, rank);
    else if (n > 0)
        memcpy(x, kept[dtype].of_rank[rank], (size_t)n * dtype_size(dtype));
}

void expect(void *x, int64_t n, enum dtype dtype, int size)
{
    if (n > kept[dtype].n || size > RANKS_MAX)
        make_sum(x, n, dtype, size);
    else if (n > 0)
        memcpy(x, kept[dtype].of_size[size], (size_t)n * dtype_size(dtype));
}

int ranks_meet(struct coll *c, struct err *err)
{
    uint8_t mine = 0, all[RANKS_MAX];

    return coll_allgather(c, &mine, 1, all, err);
}

/* Threads */

struct crew {
    enum transport transport;
    int size;
    rank_fn *fn;
    const void *arg;
    struct coll_group *group;
    pthread_barrier_t all_listen;
    struct buf blobs[RANKS_MAX];
};

struct member {
    struct crew *crew;
    int rank, rc;
    struct verdict verdict;
    pthread_t thread;
};

static struct coll_tcp_options options_of(enum transport t, int rank, int size)
{
    const int is_far = transports[t].is_split && rank >= size / 2;

    return (struct coll_tcp_options){.rank = rank,
                                     .size = size,
                                     .bind = is_far ? "127.0.0.2" : NULL,
                                     .encrypt = transports[t].encrypt,
                                     .share_memory = transports[t].share_memory,
                                     .fabric = transports[t].fabric};
}

static int connect_thread(struct crew *w, int rank, struct coll **c, struct err *err)
{
    const struct coll_tcp_options o = options_of(w->transport, rank, w->size);
    int rc = coll_tcp_prepare(&o, c, err);
    if (rc == 0)
        coll_tcp_endpoint(*c, &w->blobs[rank]);
    pthread_barrier_wait(&w->all_listen);
    if (rc < 0)
        return rc;
    const void *blobs[RANKS_MAX];
    size_t lens[RANKS_MAX];
    for (int r = 0; r < w->size; r++) {
        blobs[r] = w->blobs[r].data;
        lens[r] = w->blobs[r].len;
    }
    return coll_tcp_connect(*c, blobs, lens, CONNECT_MS, err);
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    struct crew *w = m->crew;
    struct coll *c = NULL;
    struct err err;
    int rc = w->transport == OVER_LOCAL ? coll_new_local(w->group, m->rank, &c, &err)
                                        : connect_thread(w, m->rank, &c, &err);
    m->rc = rc < 0 ? unexpected(&m->verdict, "%s", err.msg) : w->fn(c, w->arg, &m->verdict);
    coll_free(c);
    return NULL;
}

static int complain(enum transport t, int size, int rank, const char *why)
{
    fprintf(stderr, "%s, %d ranks: rank %d: %s\n", transport_name(t), size, rank, why);
    return 1;
}

static int run_crew(struct crew *w)
{
    struct member members[RANKS_MAX];
    memset(members, 0, sizeof members);
    pthread_barrier_init(&w->all_listen, NULL, (unsigned)w->size);
    for (int r = 0; r < w->size; r++) {
        members[r] = (struct member){.crew = w, .rank = r};
        ASSERT(pthread_create(&members[r].thread, NULL, member_main, &members[r]) == 0);
    }
    int bad = 0;
    for (int r = 0; r < w->size; r++)
        pthread_join(members[r].thread, NULL);
    for (int r = 0; r < w->size; r++) {
        if (members[r].rc && !bad)
            bad = complain(w->transport, w->size, r, members[r].verdict.why);
        buf_fini(&w->blobs[r]);
    }
    pthread_barrier_destroy(&w->all_listen);
    return bad;
}

static int run_threads(enum transport t, int size, const struct coll_fault *faults, rank_fn *fn,
                       const void *arg)
{
    struct crew w = {.transport = t, .size = size, .fn = fn, .arg = arg};
    w.group = coll_group_new(size);
    for (int r = 0; faults && r < size; r++)
        coll_local_inject(w.group, r, faults[r]);
    int bad = run_crew(&w);
    coll_group_free(w.group);
    return bad;
}

int run_ranks_with_faults(int size, const struct coll_fault *faults, rank_fn *fn, const void *arg)
{
    return run_threads(OVER_LOCAL, size, faults, fn, arg);
}

/* Processes: each has a seqpacket socket to the parent, over which blobs and the verdict travel. */

static int connect_process(int to_parent, enum transport t, int rank, int size, struct coll **c,
                           struct err *err)
{
    const struct coll_tcp_options o = options_of(t, rank, size);
    int rc = coll_tcp_prepare(&o, c, err);
    struct buf blob = {0};
    static uint8_t table[RANKS_MAX][1024];
    const void *blobs[RANKS_MAX];
    size_t lens[RANKS_MAX];
    if (rc < 0)
        return rc;
    coll_tcp_endpoint(*c, &blob);
    ASSERT(send(to_parent, blob.data, blob.len, MSG_NOSIGNAL) == (ssize_t)blob.len);
    buf_fini(&blob);
    for (int r = 0; r < size; r++) {
        ssize_t n = recv(to_parent, table[r], sizeof table[r], 0);
        ASSERT(n > 0);
        blobs[r] = table[r];
        lens[r] = (size_t)n;
    }
    return coll_tcp_connect(*c, blobs, lens, CONNECT_MS, err);
}

static void child_main(int to_parent, enum transport t, int rank, int size, rank_fn *fn,
                       const void *arg)
{
    struct coll *c = NULL;
    struct err err;
    struct verdict v = {{0}};
    int rc = connect_process(to_parent, t, rank, size, &c, &err);
    rc = rc < 0 ? unexpected(&v, "%s", err.msg) : fn(c, arg, &v);
    coll_free(c);
    if (rc)
        ASSERT(send(to_parent, v.why, strlen(v.why) + 1, MSG_NOSIGNAL) > 0);
    fflush(NULL);
    _exit(rc != 0);
}

static void pass_blobs(const int *fds, int size)
{
    uint8_t blob[1024];
    for (int r = 0; r < size; r++) {
        ssize_t n = recv(fds[r], blob, sizeof blob, 0);
        for (int to = 0; n > 0 && to < size; to++)
            (void)!send(fds[to], blob, (size_t)n, MSG_NOSIGNAL);
    }
}

static int reap(enum transport t, int size, int rank, pid_t pid, int fd, int may_die)
{
    int status;
    char why[400] = "";
    ASSERT(waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (may_die && WIFSIGNALED(status) && WTERMSIG(status) == may_die)
        return 0;
    if (recv(fd, why, sizeof why - 1, MSG_DONTWAIT) <= 0)
        snprintf(why, sizeof why, "wait status %#x", (unsigned)status);
    return complain(t, size, rank, why);
}

static int run_processes(enum transport t, int size, int may_die, rank_fn *fn, const void *arg)
{
    int fds[RANKS_MAX] = {0};
    pid_t pids[RANKS_MAX];
    for (int r = 0; r < size; r++) {
        int pair[2];
        ASSERT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
        fflush(NULL);
        pids[r] = fork();
        ASSERT(pids[r] >= 0);
        if (pids[r] == 0) {
            for (int i = 0; i < r; i++)
                close(fds[i]);
            close(pair[0]);
            child_main(pair[1], t, r, size, fn, arg);
        }
        close(pair[1]);
        fds[r] = pair[0];
    }
    pass_blobs(fds, size);
    int bad = 0;
    for (int r = 0; r < size; r++) {
        bad |= reap(t, size, r, pids[r], fds[r], may_die);
        close(fds[r]);
    }
    return bad;
}

int ranks_have_fabric(void)
{
    static int is_told;
    const struct fabric_ops *ops;
    struct err err;

    if (HAS_FABRIC && (fabric_load(&ops, &err) == 0 ||
                       !strstr(err.msg, "libfabric.so.1: cannot open shared object file")))
        return 1;
    if (!is_told++)
        fprintf(stderr, "skipped: whatever goes over a fabric, as there is no libfabric\n");
    return 0;
}

int run_ranks(enum transport t, int size, int may_die, rank_fn *fn, const void *arg)
{
    ASSERT(size <= RANKS_MAX);
    /* It is slow, and its own protocol is tested in test_fabric.c: a few ranks are enough. */
    if (t < TRANSPORTS && transports[t].fabric && (size < 2 || size > FABRIC_MOST))
        return 0;
    if (transports[t].fabric && !ranks_have_fabric())
        return 0;
    return transports[t].is_fork ? run_processes(t, size, may_die, fn, arg)
                                 : run_threads(t, size, NULL, fn, arg);
}

int ranks_open_fds(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    for (const struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.' && (fcntl(atoi(e->d_name), F_GETFD) & FD_CLOEXEC);
    closedir(d);
    return n;
}
