/* coll - collectives on the simulated GPU's memory, by the interface of coll/device.h.  Each is a
 * piece of work on a stream; coll/tcp does it between the processes.
 *
 * Each channel has a stream of its own, which waits for the backend's (fork), and for which
 * coll_wait makes the backend's wait (join), as with NCCL.  The simulator does the work of a stream
 * only when somebody waits for it, so a collective is done as late as its join allows: memory that
 * is read or written before the join has wrong values.  The simulator records one stream alone, so
 * collectives that are recorded are in the backend's.
 *
 * An urgent collective that is not recorded is two pieces of work.  The first one hands a copy of
 * the memory to the urgent channel of coll/tcp.  The second one takes the result.  It is done when
 * somebody joins, or when coll_device_passed finds that the result is there.  So the two channels
 * do not wait for each other.
 *
 * As NCCL does, it wants the same call of all ranks, in the same way: done at once by all, or
 * recorded by all.  With NCCL, a rank that differs hangs the others; here it is an error, unless
 * the collective is an urgent one in two pieces, whose rank waits for ever.  Once a collective has
 * failed, it and all that follow leave garbage in what they should receive, as those of an aborted
 * communicator do.
 *
 * Ranks find each other by endpoints.c. */
#include <cuda_runtime_api.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/cuda.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "coll/impl.h"
#include "coll/tcp.h"
#include "endpoints.h"
#include "fakegpu.h"
#include "host_work.h"

enum { MOST_RANKS = 8, GARBAGE = 0x5a };

struct fake_coll;

struct piece { /* a piece of work; kept as long as the coll, since recordings hold it */
    struct piece *next;
    struct fake_coll *coll;
    struct coll_job job;
    struct coll_span
        *parts;   /* [2 * size]: copies of the job's spans, which the caller owns; or NULL */
    float *veto;  /* if not NULL, the piece is a latch that sets this veto */
    int64_t call; /* 2 * the call's number in the coll, + 1 if it was recorded */
    /* Of a collective in two pieces. */
    int is_apart;
    void *copy;           /* of the job's memory, in the host's; NULL: the first piece failed */
    int64_t ticket;       /* of the inner coll */
    int64_t ready_ns;     /* it takes at least until this moment */
    atomic_int has_ended; /* set by the inner coll's thread */
};

struct fake_channel {
    cudaStream_t stream;
    cudaEvent_t done[COLL_RING];    /* by the ticket's number */
    char was_recorded[COLL_RING];   /* likewise; 1: it was queued while the backend recorded */
    struct piece *apart[COLL_RING]; /* likewise; the collective in two pieces, or NULL */
    int64_t n_queued;
};

struct fake_coll {
    struct coll base; /* first */
    struct cuda *cuda;
    struct coll *inner;
    struct fake_channel channel[COLL_CHANNELS];
    cudaEvent_t fork, started; /* started: behind the newest first piece of two */
    struct piece *pieces;
    int64_t n_put, n_done;
    int64_t break_at; /* the number of the collective in which the device breaks; 0: none */
    int64_t fail_at;  /* the number of the collective that fails, on a whole device; 0: none */
    int64_t lose_at;  /* the number of the one whose result the other ranks get, and this one not */
    int latency_ms;   /* the time by which each collective takes longer */
    int apart_ms;     /* the time by which each collective in two pieces takes longer still */
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

/* Count a collective that is about to be done, and break or fail in it if that was asked for.  1:
 * it can be done. */
static int count(const struct piece *p)
{
    struct fake_coll *f = p->coll;

    if (++f->n_done == f->break_at)
        sim_break();
    else if (f->n_done == f->fail_at)
        fail_alone(f, ERR_DEVICE,
                   p->is_apart ? "the library failed beside the steps" : "the library failed");
    return f->n_done != f->break_at && !f->has_failed;
}

static void do_job(struct piece *p)
{
    struct fake_coll *f = p->coll;
    struct err err;

    usleep((useconds_t)f->latency_ms * 1000);
    if (count(p) && ((p->job.what != COLL_EXCHANGE && agree(f, p->call, &err) < 0) ||
                     do_inner(f, &p->job, &err) < 0))
        fail(f, &err);
    if (f->n_done == f->lose_at)
        fail_alone(f, ERR_PEER, "a rank seems to have left");
    if (f->has_failed)
        spoil(p);
}

/* ---- collectives in two pieces ---- */

/* The inner coll's function for coll_watch; the tag is the piece. */
static void follow(void *arg, int64_t tag, enum coll_moment moment, int64_t now_ns)
{
    (void)arg, (void)now_ns;
    if (moment != COLL_BEGINS)
        atomic_store(&((struct piece *)(intptr_t)tag)->has_ended, 1);
}

static void start_apart(void *arg)
{
    struct piece *p = arg;
    struct fake_coll *f = p->coll;
    struct coll_job job = p->job;
    struct err err;

    if (!count(p))
        return;
    p->ready_ns = clock_mono_ns() + (f->latency_ms + f->apart_ms) * INT64_C(1000000);
    p->copy = job.x = xmalloc(job.n_bytes);
    memcpy(p->copy, p->job.x, job.n_bytes);
    job.tag = (int64_t)(intptr_t)p;
    p->ticket = f->inner->ops->queue(f->inner, &job, &err);
    if (p->ticket < 0)
        fail(f, &err);
}

static int is_there(const struct piece *p)
{
    return p->coll->has_failed ||
           (p->copy && atomic_load(&p->has_ended) && clock_mono_ns() >= p->ready_ns);
}

static void finish_apart(void *arg)
{
    struct piece *p = arg;
    struct fake_coll *f = p->coll;
    struct err err;

    if (p->copy && p->ticket > 0 && coll_wait(f->inner, p->ticket, &err) < 0)
        fail(f, &err);
    while (!is_there(p))
        usleep(1000);
    if (f->has_failed)
        spoil(p);
    else
        memcpy(p->job.x, p->copy, p->job.n_bytes);
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
static cudaStream_t stream_for(struct fake_coll *f, const struct piece *p)
{
    const cudaStream_t stream = f->channel[p->job.channel].stream;

    if (p->veto || f->cuda->is_recording)
        return f->cuda->stream;
    (void)cudaEventRecord(f->fork, f->cuda->stream);
    (void)cudaStreamWaitEvent(stream, f->fork, 0);
    return stream;
}

/* 1: the collective is two pieces of work. */
static int is_apart(const struct fake_coll *f, const struct piece *p)
{
    return !p->veto && !f->cuda->is_recording && p->job.channel == COLL_URGENT &&
           p->job.what == COLL_ALLREDUCE;
}

/* Queue a piece of work.  These are not counted: an exchange, because only the ranks concerned
 * queue it, and a collective in two pieces, because its place among the others varies. */
static struct piece *put(struct fake_coll *f, struct piece piece)
{
    struct piece *p = xcalloc(1, sizeof *p);
    cudaStream_t stream;

    *p = piece;
    p->coll = f;
    p->is_apart = is_apart(f, p);
    keep_parts(p, f->base.size);
    f->n_put += piece.job.what != COLL_EXCHANGE && !p->is_apart;
    p->call = 2 * f->n_put + f->cuda->is_recording;
    p->next = f->pieces;
    f->pieces = p;
    stream = stream_for(f, p);
    sim_host_work(stream, p->is_apart ? start_apart : work, p);
    if (p->is_apart) {
        (void)cudaEventRecord(f->started, stream);
        sim_host_work(stream, finish_apart, p);
    }
    return p;
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
        (void)cudaStreamSynchronize(f->channel[j->channel].stream);
        return do_inner(f, j, err) < 0 ? fail(f, err) : 0;
    }
    (void)put(f, (struct piece){.job = *j});
    (void)cudaStreamSynchronize(f->channel[j->channel].stream);
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
    struct fake_channel *ch = &f->channel[j->channel];
    struct piece *piece = NULL;

    ASSERT(f->is_connected);
    if (fake_poll(c, err) < 0)
        return err->code;
    if (f->is_quiet)
        return err_set(err, ERR_ARG, "a collective after the end");
    if (!j->blocks && !is_on_device(j, c->rank, c->size))
        return err_set(err, ERR_ARG, "a collective is queued on memory of the host");
    if (!j->blocks)
        piece = put(f, (struct piece){.job = *j});
    else if (do_now(f, j, err) < 0)
        return err->code;
    ch->n_queued++;
    ch->was_recorded[ch->n_queued % COLL_RING] = f->cuda->is_recording != 0;
    ch->apart[ch->n_queued % COLL_RING] = piece && piece->is_apart ? piece : NULL;
    if (!f->cuda->is_recording)
        (void)cudaEventRecord(ch->done[ch->n_queued % COLL_RING], ch->stream);
    return coll_ticket(j->channel, ch->n_queued);
}

/* As with CUDA, a recording cannot wait for what was queued outside it, and nothing outside it for
 * what it holds. */
static int join(struct coll *c, int64_t ticket, struct err *err)
{
    struct fake_coll *f = of(c);
    struct fake_channel *ch = &f->channel[coll_channel_of(ticket)];
    const int64_t number = coll_number_of(ticket);

    ASSERT(number <= ch->n_queued);
    if (ch->was_recorded[number % COLL_RING] != (f->cuda->is_recording != 0))
        return err_set(err, ERR_DEVICE, "collective %lld is awaited in the wrong recording",
                       (long long)number);
    if (!f->cuda->is_recording)
        (void)cudaStreamWaitEvent(f->cuda->stream, ch->done[number % COLL_RING], 0);
    return fake_poll(c, err);
}

/* Start what is queued, and take the result once it is there. */
static int passed(struct coll *c, int64_t ticket, struct err *err)
{
    struct fake_coll *f = of(c);
    struct fake_channel *ch = &f->channel[coll_channel_of(ticket)];
    const int64_t number = coll_number_of(ticket);
    const struct piece *p = ch->apart[number % COLL_RING];

    ASSERT(number <= ch->n_queued && number + COLL_RING > ch->n_queued && p);
    if (!p->copy && !f->has_failed && cudaEventSynchronize(f->started) != cudaSuccess) {
        err_set(err, ERR_DEVICE, "the device is broken");
        return fail(f, err);
    }
    if (fake_poll(c, err) < 0)
        return err->code;
    if (!is_there(p))
        return 1;
    (void)cudaEventSynchronize(ch->done[number % COLL_RING]);
    return fake_poll(c, err);
}

static int latch(struct coll *c, float *veto, struct err *err)
{
    (void)err;
    (void)put(of(c), (struct piece){.veto = veto});
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
    for (int i = 0; i < COLL_CHANNELS; i++)
        (void)cudaStreamSynchronize(f->channel[i].stream);
    if (backend_sync(&f->cuda->base, &other) < 0 && !f->has_failed)
        fail(f, &other);
    return fake_poll(c, err);
}

static int make_event(cudaEvent_t *out)
{
    return (int)cudaEventCreateWithFlags(out, cudaEventDisableTiming);
}

static int open_streams(struct fake_coll *f, struct err *err)
{
    int rc = make_event(&f->fork);

    for (int k = 0; rc == cudaSuccess && k < COLL_CHANNELS; k++) {
        struct fake_channel *ch = &f->channel[k];

        rc = cudaStreamCreateWithFlags(&ch->stream, cudaStreamNonBlocking);
        for (int i = 0; rc == cudaSuccess && i < COLL_RING; i++)
            rc = make_event(&ch->done[i]);
    }
    if (rc == cudaSuccess)
        rc = make_event(&f->started);
    return rc == cudaSuccess ? 0 : err_set(err, ERR_DEVICE, "making a stream: error %d", rc);
}

static void close_event(cudaEvent_t e)
{
    if (e)
        (void)cudaEventDestroy(e);
}

static void close_streams(struct fake_coll *f)
{
    for (int k = 0; k < COLL_CHANNELS; k++) {
        for (int i = 0; i < COLL_RING; i++)
            close_event(f->channel[k].done[i]);
        if (f->channel[k].stream)
            (void)cudaStreamDestroy(f->channel[k].stream);
    }
    close_event(f->fork);
    close_event(f->started);
}

static void fake_free(struct coll *c)
{
    struct fake_coll *f = of(c);

    ASSERT(f->is_quiet || !f->is_connected);
    coll_free(f->inner);
    close_streams(f);
    for (struct piece *p = f->pieces, *next; p; p = next) {
        next = p->next;
        free(p->parts);
        free(p->copy);
        free(p);
    }
    free(f);
}

static void fake_stats(struct coll *c, struct coll_stats *out) { coll_stats(of(c)->inner, out); }

/* ---- making and connecting ---- */

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

    if (open_streams(f, err) < 0 || coll_tcp_prepare(&to, &f->inner, err) < 0) {
        close_streams(f);
        free(f);
        return err->code;
    }
    coll_init(&f->base, &ops, "fake", o->rank, o->size);
    f->base.dtypes |= 1u << DTYPE_BF16 | 1u << DTYPE_F16;
    f->base.device = &fake_coll_ops;
    f->cuda = container_of(b, struct cuda, base);
    coll_watch(f->inner, follow, NULL);
    f->latency_ms = fake_number("DPTRAIN_FAKE_LATENCY", 0);
    f->apart_ms = fake_number("DPTRAIN_FAKE_APART", 0);
    f->slow_ms = fake_number("DPTRAIN_FAKE_SLOW", 0);
    f->break_at = fake_number("DPTRAIN_FAKE_BREAK", 0);
    if (atomic_fetch_add(&n_made, 1) == 0) {
        f->fail_at = fake_number("DPTRAIN_FAKE_FAIL", 0);
        f->lose_at = fake_number("DPTRAIN_FAKE_LOSE", 0);
    }
    *out = &f->base;
    return 0;
}

static int connect_all(struct coll *c, const uint8_t *ids, int n_ids, int64_t deadline_ms,
                       struct err *err)
{
    enum { MOST_MS = 60000 };
    struct fake_coll *f = of(c);
    uint8_t blob[MOST_RANKS][ENDPOINT_BYTES];
    const void *blobs[MOST_RANKS];
    size_t len[MOST_RANKS];
    struct buf own = {0};
    const int64_t ms = min_i64(deadline_ms, MOST_MS);

    ASSERT(n_ids == 1 && c->size <= MOST_RANKS);
    memcpy(f->folder, ids, COLL_ID_BYTES);
    f->folder[COLL_ID_BYTES - 1] = 0;
    coll_tcp_endpoint(f->inner, &own);
    endpoints_write(f->folder, c->rank, &own);
    buf_fini(&own);
    for (int r = 0; r < c->size; r++)
        blobs[r] = blob[r];
    if (endpoints_gather(f->folder, c, ms, blob, len, err) < 0 ||
        coll_tcp_connect(f->inner, blobs, len, ms, err) < 0)
        return fail(f, err);
    if (c->rank == 0)
        endpoints_remove(f->folder, c->size); /* a connected rank has read it */
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
    .make_id = endpoints_make,
    .make = make,
    .connect = connect_all,
    .alloc = alloc,
    .free = backend_free,
    .enroll = enroll,
    .latch = latch,
    .passed = passed,
    .quiesce = quiesce,
};
