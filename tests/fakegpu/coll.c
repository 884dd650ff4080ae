/* coll - collectives on the simulated GPU's memory, by the interface of coll/device.h.  Each is a
 * piece of work on a stream; coll/tcp does it between the processes.
 *
 * The coll has a stream of its own, which waits for the backend's (fork), and for which coll_wait
 * makes the backend's wait (join), as with NCCL.  The simulator does the work of a stream only when
 * somebody waits for it, so a collective is done as late as its join allows: memory that is read or
 * written before the join has wrong values.  The simulator records one stream alone, so collectives
 * that are recorded are in the backend's.
 *
 * As NCCL does, it wants the same call of all ranks, in the same way: done at once by all, or
 * recorded by all.  With NCCL, a rank that differs hangs the others; here it is an error.  Once a
 * collective has failed, it and all that follow leave garbage in what they should receive, as those
 * of an aborted communicator do.
 *
 * An id is the name of a folder, in which every rank leaves its endpoint. */
#include <cuda_runtime_api.h>

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/cuda/cuda.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "coll/impl.h"
#include "coll/tcp.h"
#include "fakegpu.h"
#include "host_work.h"

enum { MOST_RANKS = 8, MOST_BYTES = 256, GARBAGE = 0x5a };

struct fake_coll;

struct piece { /* a piece of work; kept as long as the coll, since recordings hold it */
    struct piece *next;
    struct fake_coll *coll;
    struct coll_job job;
    struct coll_span
        *parts;   /* [2 * size]: copies of the job's spans, which the caller owns; or NULL */
    float *veto;  /* if not NULL, the piece is a latch that sets this veto */
    int64_t call; /* 2 * the call's number in the coll, + 1 if it was recorded */
};

struct fake_coll {
    struct coll base; /* first */
    struct cuda *cuda;
    struct coll *inner;
    cudaStream_t stream;
    cudaEvent_t fork, done[COLL_RING]; /* done: by the ticket's number */
    char was_recorded[COLL_RING];      /* likewise; 1: it was queued while the backend recorded */
    struct piece *pieces;
    int64_t n_queued, n_put, n_done;
    int64_t break_at; /* the number of the collective in which the device breaks; 0: none */
    int64_t fail_at;  /* the number of the collective that fails, on a whole device; 0: none */
    int64_t lose_at;  /* the number of the one whose result the other ranks get, and this one not */
    int latency_ms;   /* the time by which each collective takes longer */
    int slow_ms;      /* the time by which each step takes longer on this device */
    atomic_int is_poisoned;
    struct err
        cause; /* the first failure.  Only the engine's thread uses fields but is_poisoned. */
    int has_failed, is_quiet, is_connected;
    char folder[COLL_ID_BYTES];
};

static atomic_int n_made; /* how many colls this process has made */

static struct fake_coll *of(struct coll *c) { return (struct fake_coll *)c; }

static int fail(struct fake_coll *f, const struct err *err)
{
    if (!f->has_failed)
        f->cause = *err;
    f->has_failed = 1;
    atomic_store(&f->is_poisoned, 1);
    return f->cause.code;
}

/* ---- queueing ---- */

static int do_inner(struct fake_coll *f, const struct coll_job *j, struct err *err)
{
    struct coll_job job = *j;
    int64_t t;

    job.tag = COLL_TAG_NONE;
    t = f->inner->ops->queue(f->inner, &job, err);
    return t < 0 ? (int)t : coll_wait(f->inner, t, err);
}

static const char *way(int64_t call) { return call % 2 ? "recorded" : "at once"; }

/* Check that all ranks are at the same call, and queued it in the same way. */
static int agree(struct fake_coll *f, int64_t call, struct err *err)
{
    int64_t all[MOST_RANKS];

    if (coll_allgather(f->inner, &call, sizeof call, all, err) < 0)
        return err->code;
    for (int r = 0; r < f->base.size; r++)
        if (all[r] != call)
            return err_set(err, ERR_DEVICE,
                           "ranks disagree: rank %d does call %lld (%s), rank %d call %lld (%s)",
                           f->base.rank, (long long)call / 2, way(call), r, (long long)all[r] / 2,
                           way(all[r]));
    return 0;
}

static void fail_alone(struct fake_coll *f, int code, const char *what)
{
    struct err err;

    err_set(&err, code, "%s in collective %lld", what, (long long)f->n_done);
    fail(f, &err);
}

/* Write garbage to all that this rank should receive. */
static void spoil(const struct piece *p)
{
    const struct coll_job *j = &p->job;
    const int rank = p->coll->base.rank, size = p->coll->base.size;

    if (j->what == COLL_ALLREDUCE || j->what == COLL_REDUCE_SCATTER ||
        (j->what == COLL_BROADCAST && j->root != rank))
        memset(j->x, GARBAGE, j->n_bytes);
    for (int r = 0; r < size; r++) {
        struct coll_part part = {NULL, 0};

        if (j->what == COLL_ALLGATHER_SPANS && r != rank)
            part = coll_part_of(j, size, r);
        else if ((j->what == COLL_EXCHANGE || j->what == COLL_ALL_TO_ALL) && r != rank)
            part = coll_part_from(j, r);
        if (part.n_bytes)
            memset(part.x, GARBAGE, part.n_bytes);
    }
}

static void do_job(struct piece *p)
{
    struct fake_coll *f = p->coll;
    struct err err;

    usleep((useconds_t)f->latency_ms * 1000);
    if (++f->n_done == f->break_at)
        sim_break();
    else if (f->n_done == f->fail_at)
        fail_alone(f, ERR_DEVICE, "the library failed");
    else if (!f->has_failed && ((p->job.what != COLL_EXCHANGE && agree(f, p->call, &err) < 0) ||
                                do_inner(f, &p->job, &err) < 0))
        fail(f, &err);
    if (f->n_done == f->lose_at)
        fail_alone(f, ERR_PEER, "a rank seems to have left");
    if (f->has_failed)
        spoil(p);
}

static void work(void *arg)
{
    struct piece *p = arg;

    if (!p->veto) {
        do_job(p);
        return;
    }
    usleep((useconds_t)p->coll->slow_ms * 1000);
    if (atomic_load(&p->coll->is_poisoned))
        *p->veto = 1;
}

static void keep_parts(struct piece *p, int size)
{
    const size_t n_bytes = (size_t)size * sizeof *p->parts;

    if (p->job.what != COLL_ALL_TO_ALL || p->veto)
        return;
    p->parts = xcalloc(2, n_bytes);
    memcpy(p->parts, p->job.give, n_bytes);
    memcpy(p->parts + size, p->job.take, n_bytes);
    p->job.give = p->parts;
    p->job.take = p->parts + size;
}

/* The stream for the next piece of work. */
static cudaStream_t stream_for(struct fake_coll *f, int is_latch)
{
    if (is_latch || f->cuda->is_recording)
        return f->cuda->stream;
    (void)cudaEventRecord(f->fork, f->cuda->stream);
    (void)cudaStreamWaitEvent(f->stream, f->fork, 0);
    return f->stream;
}

/* Queue a piece of work.  An exchange is not counted: only the ranks concerned queue it. */
static void put(struct fake_coll *f, struct piece piece)
{
    struct piece *p = xcalloc(1, sizeof *p);

    *p = piece;
    p->coll = f;
    keep_parts(p, f->base.size);
    f->n_put += piece.job.what != COLL_EXCHANGE;
    p->call = 2 * f->n_put + f->cuda->is_recording;
    p->next = f->pieces;
    f->pieces = p;
    sim_host_work(stream_for(f, p->veto != NULL), work, p);
}

static int fake_poll(struct coll *c, struct err *err)
{
    struct fake_coll *f = of(c);

    if (f->has_failed)
        *err = f->cause;
    else if (atomic_load(&f->is_poisoned))
        err_set(err, ERR_CANCELED, "the collectives were aborted");
    else
        return 0;
    return err->code;
}

/* Do a blocking collective, on memory of the host or of the device. */
static int do_now(struct fake_coll *f, const struct coll_job *j, struct err *err)
{
    if (!sim_is_device(j->x)) {
        (void)cudaStreamSynchronize(f->stream);
        return do_inner(f, j, err) < 0 ? fail(f, err) : 0;
    }
    put(f, (struct piece){.job = *j});
    (void)cudaStreamSynchronize(f->stream);
    if (backend_sync(&f->cuda->base, err) < 0)
        return fail(f, err);
    return fake_poll(&f->base, err);
}

/* 1: all memory of the collective is the device's.  NCCL takes no other. */
static int is_on_device(const struct coll_job *j, int rank, int size)
{
    int is = 1;

    if (j->what != COLL_EXCHANGE && j->what != COLL_ALL_TO_ALL)
        return j->n_bytes == 0 || sim_is_device(j->x);
    for (int r = 0; r < size; r++) {
        const struct coll_part to = coll_part_to(j, r), from = coll_part_from(j, r);

        is &= r == rank ||
              ((!to.n_bytes || sim_is_device(to.x)) && (!from.n_bytes || sim_is_device(from.x)));
    }
    return is;
}

static int64_t queue(struct coll *c, const struct coll_job *j, struct err *err)
{
    struct fake_coll *f = of(c);

    ASSERT(f->is_connected);
    if (fake_poll(c, err) < 0)
        return err->code;
    if (f->is_quiet)
        return err_set(err, ERR_ARG, "a collective after the end");
    if (!j->blocks && !is_on_device(j, c->rank, c->size))
        return err_set(err, ERR_ARG, "a collective is queued on memory of the host");
    if (!j->blocks)
        put(f, (struct piece){.job = *j});
    else if (do_now(f, j, err) < 0)
        return err->code;
    f->n_queued++;
    f->was_recorded[f->n_queued % COLL_RING] = f->cuda->is_recording != 0;
    if (!f->cuda->is_recording)
        (void)cudaEventRecord(f->done[f->n_queued % COLL_RING], f->stream);
    return coll_ticket(j->channel, f->n_queued);
}

/* As with CUDA, a recording cannot wait for what was queued outside it, and nothing outside it for
 * what it holds. */
static int join(struct coll *c, int64_t ticket, struct err *err)
{
    struct fake_coll *f = of(c);
    const int64_t number = coll_number_of(ticket);

    ASSERT(number <= f->n_queued);
    if (f->was_recorded[number % COLL_RING] != (f->cuda->is_recording != 0))
        return err_set(err, ERR_DEVICE, "collective %lld is awaited in the wrong recording",
                       (long long)number);
    if (!f->cuda->is_recording)
        (void)cudaStreamWaitEvent(f->cuda->stream, f->done[number % COLL_RING], 0);
    return fake_poll(c, err);
}

static int latch(struct coll *c, float *veto, struct err *err)
{
    (void)err;
    put(of(c), (struct piece){.veto = veto});
    return 0;
}

/* ---- ending ---- */

static void fake_abort(struct coll *c)
{
    atomic_store(&of(c)->is_poisoned, 1);
    coll_abort(of(c)->inner);
}

static int quiesce(struct coll *c, int64_t deadline_ms, struct err *err)
{
    struct fake_coll *f = of(c);
    struct err other;

    (void)deadline_ms;
    f->is_quiet = 1;
    coll_abort(f->inner); /* ends the queued work that waits for other ranks */
    (void)cudaStreamSynchronize(f->stream);
    if (backend_sync(&f->cuda->base, &other) < 0 && !f->has_failed)
        fail(f, &other);
    return fake_poll(c, err);
}

static int open_stream(struct fake_coll *f, struct err *err)
{
    int rc = cudaStreamCreateWithFlags(&f->stream, cudaStreamNonBlocking);

    if (rc == cudaSuccess)
        rc = cudaEventCreateWithFlags(&f->fork, cudaEventDisableTiming);
    for (int i = 0; rc == cudaSuccess && i < COLL_RING; i++)
        rc = cudaEventCreateWithFlags(&f->done[i], cudaEventDisableTiming);
    return rc == cudaSuccess ? 0 : err_set(err, ERR_DEVICE, "making a stream: error %d", rc);
}

static void close_stream(struct fake_coll *f)
{
    for (int i = 0; i < COLL_RING; i++)
        if (f->done[i])
            (void)cudaEventDestroy(f->done[i]);
    if (f->fork)
        (void)cudaEventDestroy(f->fork);
    if (f->stream)
        (void)cudaStreamDestroy(f->stream);
}

static void fake_free(struct coll *c)
{
    struct fake_coll *f = of(c);

    ASSERT(f->is_quiet || !f->is_connected);
    coll_free(f->inner);
    close_stream(f);
    for (struct piece *p = f->pieces, *next; p; p = next) {
        next = p->next;
        free(p->parts);
        free(p);
    }
    free(f);
}

static void fake_stats(struct coll *c, struct coll_stats *out) { coll_stats(of(c)->inner, out); }

/* ---- making and connecting ---- */

static int make_id(uint8_t id[COLL_ID_BYTES], struct err *err)
{
    char folder[COLL_ID_BYTES] = "/tmp/dptrain-fakegpu-XXXXXX";

    if (!mkdtemp(folder))
        return err_sys(err, errno, "making a folder for endpoints");
    memcpy(id, folder, COLL_ID_BYTES);
    return 0;
}

static int make(struct backend *b, const struct coll_device_options *o, struct coll **out,
                struct err *err)
{
    static const struct coll_ops ops = {.queue = queue,
                                        .wait = join,
                                        .abort = fake_abort,
                                        .free = fake_free,
                                        .stats = fake_stats,
                                        .poll = fake_poll};
    const struct coll_tcp_options to = {.rank = o->rank, .size = o->size, .bind = "127.0.0.1"};
    struct fake_coll *f = xcalloc(1, sizeof *f);

    if (open_stream(f, err) < 0 || coll_tcp_prepare(&to, &f->inner, err) < 0) {
        close_stream(f);
        free(f);
        return err->code;
    }
    coll_init(&f->base, &ops, "fake", o->rank, o->size);
    f->base.dtypes |= 1u << DTYPE_BF16 | 1u << DTYPE_F16;
    f->base.device = &fake_coll_ops;
    f->cuda = container_of(b, struct cuda, base);
    f->latency_ms = fake_number("DPTRAIN_FAKE_LATENCY", 0);
    f->slow_ms = fake_number("DPTRAIN_FAKE_SLOW", 0);
    f->break_at = fake_number("DPTRAIN_FAKE_BREAK", 0);
    if (atomic_fetch_add(&n_made, 1) == 0) {
        f->fail_at = fake_number("DPTRAIN_FAKE_FAIL", 0);
        f->lose_at = fake_number("DPTRAIN_FAKE_LOSE", 0);
    }
    *out = &f->base;
    return 0;
}

static void write_endpoint(const struct fake_coll *f, const struct buf *endpoint)
{
    char *aside = xasprintf("%s/%d-", f->folder, f->base.rank);
    char *path = xasprintf("%s/%d", f->folder, f->base.rank);
    FILE *file = fopen(aside, "wb");

    if (file) {
        fwrite(endpoint->data, 1, endpoint->len, file);
        fclose(file);
        rename(aside, path);
    }
    free(aside);
    free(path);
}

static size_t read_endpoint(const struct fake_coll *f, int rank, uint8_t *to, size_t cap)
{
    char *path = xasprintf("%s/%d", f->folder, rank);
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(to, 1, cap, file) : 0;

    if (file)
        fclose(file);
    free(path);
    return n;
}

static int gather(struct fake_coll *f, uint8_t blob[][MOST_BYTES], size_t *len, int64_t until_ns,
                  struct err *err)
{
    for (int r = 0; r < f->base.size; r++)
        while ((len[r] = read_endpoint(f, r, blob[r], MOST_BYTES)) == 0) {
            if (fake_poll(&f->base, err) < 0)
                return err->code;
            if (clock_mono_ns() > until_ns)
                return err_set(err, ERR_TIMEOUT, "no endpoint of rank %d", r);
            usleep(1000);
        }
    return 0;
}

static void remove_folder(const struct fake_coll *f)
{
    for (int r = 0; r < f->base.size; r++) {
        char *path = xasprintf("%s/%d", f->folder, r);

        unlink(path);
        free(path);
    }
    rmdir(f->folder);
}

static int connect_all(struct coll *c, const uint8_t *ids, int n_ids, int64_t deadline_ms,
                       struct err *err)
{
    enum { MOST_MS = 60000 };
    struct fake_coll *f = of(c);
    uint8_t blob[MOST_RANKS][MOST_BYTES];
    const void *blobs[MOST_RANKS];
    size_t len[MOST_RANKS];
    struct buf own = {0};
    const int64_t ms = min_i64(deadline_ms, MOST_MS);

    ASSERT(n_ids == 1 && c->size <= MOST_RANKS);
    memcpy(f->folder, ids, COLL_ID_BYTES);
    f->folder[COLL_ID_BYTES - 1] = 0;
    coll_tcp_endpoint(f->inner, &own);
    write_endpoint(f, &own);
    buf_fini(&own);
    for (int r = 0; r < c->size; r++)
        blobs[r] = blob[r];
    if (gather(f, blob, len, clock_mono_ns() + ms * 1000000, err) < 0 ||
        coll_tcp_connect(f->inner, blobs, len, ms, err) < 0)
        return fail(f, err);
    if (c->rank == 0)
        remove_folder(f); /* a connected rank has read it */
    f->is_connected = 1;
    return 0;
}

static int library(int *version, struct err *err)
{
    (void)err;
    *version = FAKE_LIBRARY;
    return 0;
}

static int alloc(struct backend *b, size_t n_bytes, const char *what, void **out, struct err *err)
{
    return backend_alloc(b, n_bytes, what, out, err);
}

static int enroll(struct coll *c, void *x, size_t n_bytes, struct err *err)
{
    (void)x, (void)n_bytes, (void)err;
    ASSERT(of(c)->is_connected);
    return 0;
}

const struct coll_device_ops fake_coll_ops = {
    .version = COLL_DEVICE_VERSION,
    .layout = COLL_DEVICE_LAYOUT,
    .name = "fake",
    .library = library,
    .make_id = make_id,
    .make = make,
    .connect = connect_all,
    .alloc = alloc,
    .free = backend_free,
    .enroll = enroll,
    .latch = latch,
    .quiesce = quiesce,
};
