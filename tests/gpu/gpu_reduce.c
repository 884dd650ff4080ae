/* gpu_reduce - all-reduces between processes that share a GPU, without any training: it shows
 * whether the ranks' collectives work on this machine, and how long they take.
 *
 *     gpu_reduce [RANKS [MOST_BYTES]]     2 ranks, up to 64 MiB; exit status 77: no GPU
 *
 * Each size and type is summed by calls of the host, then recorded and launched, several times
 * each; every sum is compared.  At the end rank 0 twice launches all-reduces that no other rank
 * joins, and all ranks leave.  These all-reduces must end, and their latch must show that they were
 * aborted; the program prints what stopped them.
 *
 * Each stage is named before it begins, and has 30 s (a quarter of DPTRAIN_PATIENCE if that is
 * set).  After that time it is given up.  If that is impossible because a library does not return,
 * the process says "is stuck in", stays for GRACE_S so that its threads can be looked at, and
 * ends. */
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "coll/device.h"
#include "daemon/shared_gpu.h"
#include "gpu.h"
#include "tensor/half.h"

enum { MOST_RANKS = 4, N_EAGER = 5, N_LAUNCHES = 50, N_LEFT = 4, SMALLEST = 1 << 10 };
enum { STOP_MS = 10000, GRACE_S = 20 };

struct rank {
    int rank, size;
    int pipes[2]; /* from rank 0 to the others */
    size_t most_bytes;
    struct backend *b;
    const struct coll_device_ops *ops;
    struct coll *coll;
    void *x, *source, *host; /* x = the sum of all ranks' source; host: memory for a copy */
    float *veto;
    struct recording *recording;
};

/* ---- stages ---- */

static char stage[200]; /* the present stage's name; the handler of SIGALRM reads it */
static int64_t stage_ns;
static int stage_s = 30; /* the longest time of a stage */
static volatile sig_atomic_t is_stuck;

/* Handles the first SIGALRM and the second.  It formats nothing, which a handler must not do. */
static void say_stuck(int signal)
{
    static const char text[] = "gpu_reduce: is stuck in: ";

    (void)signal;
    if (is_stuck || write(2, text, sizeof text - 1) < 0 || write(2, stage, strlen(stage)) < 0)
        _exit(1);
    is_stuck = 1;
    alarm(GRACE_S);
}

static void watch_stages(void)
{
    const char *patience = getenv("DPTRAIN_PATIENCE");
    struct sigaction act = {.sa_handler = say_stuck, .sa_flags = SA_RESTART};

    if (patience && atoi(patience) >= 4)
        stage_s = atoi(patience) / 4;
    sigaction(SIGALRM, &act, NULL);
}

__attribute__((format(printf, 2, 3))) static void begin(const struct rank *r, const char *form, ...)
{
    char text[sizeof stage - 20];
    va_list args;

    va_start(args, form);
    vsnprintf(text, sizeof text, form, args);
    va_end(args);
    alarm(0);
    is_stuck = 0;
    snprintf(stage, sizeof stage, "rank %d: %s\n", r->rank, text);
    stage_ns = clock_mono_ns();
    if (r->rank == 0)
        printf("  %s\n", text);
    alarm((unsigned)stage_s + GRACE_S / 2); /* a stage that can be given up ends before that */
}

/* Small integers: their sums are exact in every type. */
static float element(int rank, int64_t i) { return (float)((rank + 1) * (i % 8 + 1)); }

static float sum_of(const struct rank *r, int64_t i)
{
    return (float)(r->size * (r->size + 1) / 2) * element(0, i);
}

/* ---- a sum ---- */

static int queue_reduce(struct rank *r, int64_t n, enum dtype t, struct err *err)
{
    const int64_t ticket = coll_allreduce(r->coll, COLL_BULK, r->x, n, t, COLL_TAG_NONE, err);

    return ticket < 0 ? err->code : coll_wait(r->coll, ticket, err);
}

static int queue_sum(struct rank *r, int64_t n, enum dtype t, struct err *err)
{
    if (backend_copy(r->b, r->x, r->source, (size_t)n * dtype_size(t), err) < 0)
        return err->code;
    if (queue_reduce(r, n, t, err) < 0)
        return err->code;
    return coll_device_latch(r->coll, r->veto, err);
}

static int finish(struct rank *r, struct err *err)
{
    int rc;

    while ((rc = backend_poll(r->b, err)) == 1 && coll_poll(r->coll, err) == 0) {
        if (clock_since_s(stage_ns) > stage_s)
            return err_set(err, ERR_TIMEOUT, "not done after %d s", stage_s);
        sched_yield();
    }
    return rc < 0 ? rc : coll_poll(r->coll, err);
}

static int check(struct rank *r, int64_t n, enum dtype t, const char *how, struct err *err)
{
    const size_t n_bytes = (size_t)n * dtype_size(t);

    if (backend_copy_out(r->b, r->host, r->x, n_bytes, err) < 0)
        return err->code;
    for (int64_t i = 0; i < n; i++) {
        const float seen = real_get(r->host, t, i);

        if (seen != sum_of(r, i))
            return err_set(err, ERR_NUMERIC, "%s: element %lld of %lld (%s) is %g, want %g", how,
                           (long long)i, (long long)n, dtype_name(t), (double)seen,
                           (double)sum_of(r, i));
    }
    return 0;
}

static int fill(struct rank *r, int64_t n, enum dtype t, struct err *err)
{
    for (int64_t i = 0; i < n; i++)
        real_put(r->host, t, i, element(r->rank, i));
    return backend_copy_in(r->b, r->source, r->host, (size_t)n * dtype_size(t), err);
}

static int record(struct rank *r, int64_t n, enum dtype t, struct err *err)
{
    struct err other;

    if (backend_record_begin(r->b, err) < 0)
        return err->code;
    if (queue_sum(r, n, t, err) < 0) {
        (void)backend_record_end(r->b, NULL, &other);
        return err_wrap(err, "recording");
    }
    return backend_record_end(r->b, &r->recording, err);
}

/* Sum n elements `n_times`; *ms: the mean time of one sum, in milliseconds. */
static int repeat(struct rank *r, int64_t n, enum dtype t, int n_times, double *ms, struct err *err)
{
    const int64_t start_ns = clock_mono_ns();
    int rc = 0;

    for (int i = 0; rc == 0 && i < n_times; i++) {
        rc = r->recording ? backend_launch(r->b, r->recording, err) : queue_sum(r, n, t, err);
        if (rc == 0)
            rc = finish(r, err);
    }
    *ms = (double)(clock_mono_ns() - start_ns) / 1e6 / n_times;
    return rc < 0 ? rc : check(r, n, t, r->recording ? "recorded" : "eager", err);
}

static int sum(struct rank *r, size_t n_bytes, enum dtype t, struct err *err)
{
    const int64_t n = (int64_t)(n_bytes / dtype_size(t));
    double eager, launched;

    backend_recording_free(r->b, r->recording);
    r->recording = NULL;
    begin(r, "%zu bytes of %s: eager", n_bytes, dtype_name(t));
    if (fill(r, n, t, err) < 0 || repeat(r, n, t, N_EAGER, &eager, err) < 0)
        return err_wrap(err, "%zu bytes of %s", n_bytes, dtype_name(t));
    begin(r, "%zu bytes of %s: recording", n_bytes, dtype_name(t));
    if (record(r, n, t, err) < 0)
        return err_wrap(err, "%zu bytes of %s", n_bytes, dtype_name(t));
    begin(r, "%zu bytes of %s: launching", n_bytes, dtype_name(t));
    if (repeat(r, n, t, N_LAUNCHES, &launched, err) < 0)
        return err_wrap(err, "%zu bytes of %s", n_bytes, dtype_name(t));
    if (r->rank == 0)
        printf("%9zu bytes of %-4s: %8.3f ms eager, %8.3f ms recorded\n", n_bytes, dtype_name(t),
               eager, launched);
    return 0;
}

static int sums(struct rank *r, struct err *err)
{
    static const size_t sizes[] = {SMALLEST, 1 << 20, 64 << 20};
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16};

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        for (size_t k = 0; k < ARRAY_LEN(types); k++)
            if (sizes[i] <= r->most_bytes && sum(r, sizes[i], types[k], err) < 0)
                return err->code;
    return 0;
}

/* ---- the end ---- */

/* Copy x from rank 0 to each of the others.  Returns 0, or <0. */
static int pass_on(struct rank *r, void *x, size_t n_bytes, struct err *err)
{
    if (r->rank > 0)
        return read(r->pipes[0], x, n_bytes) == (ssize_t)n_bytes
                   ? 0
                   : err_set(err, ERR_PEER, "rank 0 has ended");
    for (int k = 1; k < r->size; k++)
        if (write(r->pipes[1], x, n_bytes) != (ssize_t)n_bytes)
            return err_set(err, ERR_IO, "the other ranks cannot be told");
    return 0;
}

/* Record several all-reduces in a row, of a size that was summed before. */
static int record_many(struct rank *r, struct err *err)
{
    const int64_t n = SMALLEST / (int64_t)dtype_size(DTYPE_F32);
    struct err other;
    int rc = 0;

    begin(r, "recording what nobody joins");
    backend_recording_free(r->b, r->recording);
    r->recording = NULL;
    if (backend_record_begin(r->b, err) < 0)
        return err->code;
    for (int i = 0; rc == 0 && i < N_LEFT; i++)
        rc = queue_reduce(r, n, DTYPE_F32, err);
    if (rc == 0)
        rc = coll_device_latch(r->coll, r->veto, err);
    if (rc == 0)
        return backend_record_end(r->b, &r->recording, err);
    (void)backend_record_end(r->b, NULL, &other);
    return err_wrap(err, "recording what nobody joins");
}

/* Rank 0 launches all-reduces that the others do not join.  Returns 0 if they ended, and the latch
 * showed that they were aborted. */
static int leave(struct rank *r, struct err *err)
{
    const int64_t start_ns = clock_mono_ns();
    struct err why;
    float veto = -1;

    begin(r, "launching what nobody joins, and an abort");
    for (int i = 0; r->rank == 0 && i < 2; i++)
        if (backend_launch(r->b, r->recording, err) < 0)
            return err->code;
    if (r->rank == 0)
        coll_abort(r->coll); /* first, so that no other rank's end can stop the all-reduces */
    if (pass_on(r, &(char){0}, 1, err) < 0)
        return err->code;
    if (r->rank > 0)
        coll_abort(r->coll);
    if (coll_device_quiesce(r->coll, STOP_MS, &why) != ERR_CANCELED)
        return err_set(err, ERR_DEVICE, "an abort was not noticed: %s", why.msg);
    if (backend_copy_out(r->b, &veto, r->veto, sizeof veto, err) < 0)
        return err->code;
    if (r->rank == 0 && veto != 1)
        return err_set(err, ERR_NUMERIC, "after an abort the latch is %g, want 1", (double)veto);
    if (r->rank == 0)
        printf("2 x %d all-reduces that nobody joined were ended in %.1f ms: %s\n", N_LEFT,
               (double)(clock_mono_ns() - start_ns) / 1e6, why.msg);
    return 0;
}

static void close_rank(struct rank *r)
{
    struct err err;

    begin(r, "closing");
    if (r->coll)
        (void)coll_device_quiesce(r->coll, STOP_MS, &err);
    if (r->b)
        backend_recording_free(r->b, r->recording);
    coll_free(r->coll);
    if (r->ops)
        coll_device_free(r->ops, r->b, r->x);
    if (r->b) {
        backend_free(r->b, r->source);
        backend_free(r->b, r->veto);
    }
    backend_close(r->b);
    free(r->host);
}

/* ---- the start ---- */

static void stuck(void *arg, const char *text)
{
    (void)arg;
    fprintf(stderr, "gpu_reduce: %s\n", text);
    _exit(1);
}

static int open_rank(struct rank *r, struct err *err)
{
    const size_t n = r->most_bytes;

    if (coll_device_of(gpu_plugin(), &r->ops, err) < 0 || gpu_open(&r->b, err) < 0)
        return err->code;
    r->host = xmalloc(n);
    if (coll_device_alloc(r->ops, r->b, n, "sums", &r->x, err) < 0 ||
        backend_alloc(r->b, n, "what is summed", &r->source, err) < 0)
        return err->code;
    return backend_alloc(r->b, sizeof *r->veto, "a flag", (void **)&r->veto, err);
}

static int connect_rank(struct rank *r, const uint8_t *ids, struct err *err)
{
    struct coll_device_options o = {.rank = r->rank,
                                    .size = r->size,
                                    .name = "gpu_reduce/1",
                                    .stop_ms = STOP_MS,
                                    .stuck = stuck};
    const int64_t start_ns = clock_mono_ns();

    if (coll_device_new(r->ops, r->b, &o, &r->coll, err) < 0 ||
        coll_device_connect(r->coll, ids, COLL_ID_BYTES, 900 * stage_s, err) < 0)
        return err->code;
    if (r->rank == 0)
        printf("%d ranks connected in %.1f ms\n", r->size,
               (double)(clock_mono_ns() - start_ns) / 1e6);
    begin(r, "registering %zu bytes", r->most_bytes);
    return coll_device_register(r->coll, r->x, r->most_bytes, err);
}

static int run(struct rank *r)
{
    uint8_t id[COLL_ID_BYTES];
    struct err err;
    int rc;

    begin(r, "opening the GPU");
    rc = open_rank(r, &err);
    if (rc == 0)
        begin(r, "connecting");
    if (rc == 0 && r->rank == 0)
        rc = coll_device_make_ids(r->ops, r->size, id, &err);
    if (rc == 0)
        rc = pass_on(r, id, sizeof id, &err);
    if (rc == 0)
        rc = connect_rank(r, id, &err);
    if (rc == 0)
        rc = sums(r, &err);
    if (rc == 0)
        rc = record_many(r, &err);
    if (rc == 0)
        rc = leave(r, &err);
    if (rc < 0)
        fprintf(stderr, "gpu_reduce: %.*s: %s\n", (int)strcspn(stage, "\n"), stage, err.msg);
    close_rank(r);
    return rc < 0;
}

/* Must be called before any library of NVIDIA's is loaded. */
static int fork_ranks(struct rank *r, pid_t *pids)
{
    for (int k = 1; k < r->size; k++) {
        pids[k] = fork();
        if (pids[k] < 0)
            return -1;
        if (pids[k] == 0) {
            r->rank = k;
            return 0;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct rank r = {.size = argc > 1 ? atoi(argv[1]) : 2,
                     .most_bytes = argc > 2 ? strtoul(argv[2], NULL, 10) : 64 << 20};
    pid_t pids[MOST_RANKS];
    int rc, status;

    if (r.size < 2 || r.size > MOST_RANKS || r.most_bytes < SMALLEST) {
        fprintf(stderr, "gpu_reduce: want 2 to %d ranks, and %d bytes or more\n", MOST_RANKS,
                SMALLEST);
        return 2;
    }
    watch_stages();
    if (pipe(r.pipes) < 0 || fork_ranks(&r, pids) < 0) {
        perror("gpu_reduce");
        return 1;
    }
    close(r.pipes[r.rank == 0 ? 0 : 1]); /* so that a rank that reads sees the end of rank 0 */
    daemon_share_gpu();
    begin(&r, "finding the GPU");
    rc = gpu_find();
    if (rc == 0)
        rc = run(&r);
    if (r.rank > 0)
        return rc;
    close(r.pipes[1]);
    begin(&r, "waiting for the other ranks to end");
    for (int k = 1; k < r.size; k++)
        rc |= waitpid(pids[k], &status, 0) == pids[k] && status == 0 ? 0 : rc ? rc : 1;
    return rc;
}
