/* feed - brings batches from the loader to the programs' inputs, in one of three ways.
 *
 * A slot of the loader is held from the moment when its batch is taken until the copy out of the
 * slot is done.  The mark SENT + k shows that it is done (k is the batch's number modulo 2), or
 * feed_done.  At most two slots are held, so the loader, which has four, goes on reading.
 *
 * FEED_STREAM: the mark TAKEN + k comes after the copy that empties buffer k; LANE_COPY waits for
 * the mark before it fills the buffer again. */
#include "step/feed.h"

#include <sched.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "ir/graph.h"
#include "op/gather.h"

enum { LOADER_SLOTS = 4, N_BUFFERS = 2, UPLOAD_SAMPLES = 1024 };

enum { SENT = 0, TAKEN = 2 }; /* marks, from the feed's first */

/* Gathers one program's batch, four fields by one kernel. */
struct gatherer {
    const struct program *target;
    struct program *program;
};

struct feed {
    struct backend *backend;
    const struct dataset *dataset;
    struct loader *loader;
    enum feed_kind kind;
    int first_mark;
    int64_t largest; /* samples that the buffers hold */

    struct batch now;        /* the one that feed_next gave */
    int64_t number;          /* now's, counted from 0 */
    int64_t n_taken, n_free; /* batches taken from the loader, and given back */
    int64_t waited_ns;       /* feed_waited_ns */
    int is_ahead, ahead_rc;  /* 1: the next batch is taken; rc<0: that failed */
    struct batch ahead;
    struct err ahead_err;

    void *buffer[N_BUFFERS][SAMPLE_MAX_FIELDS]; /* FEED_STREAM */
    void *table[SAMPLE_MAX_FIELDS];             /* FEED_RESIDENT: the data set */
    int64_t *index;                             /* FEED_RESIDENT: the batch's samples */
    void *arena;                                /* of the gatherers' programs */
    struct gatherer *gatherer;
    int n_gatherers;
};

static const struct sample_spec *spec_of(const struct feed *f) { return &f->dataset->spec; }

/* The size of field i of n samples. */
static size_t field_bytes(const struct feed *f, int i, int64_t n)
{
    return sample_field_bytes(&spec_of(f)->field[i]) * (size_t)n;
}

/* Memory of n samples' fields on the backend. */
static int alloc_fields(struct feed *f, int64_t n, const char *what, void **field, struct err *err)
{
    int rc = 0;

    for (int i = 0; rc == 0 && i < spec_of(f)->n_fields; i++)
        rc = backend_alloc(f->backend, field_bytes(f, i, n), what, &field[i], err);
    return rc;
}

static void free_fields(struct feed *f, void **field)
{
    for (int i = 0; i < SAMPLE_MAX_FIELDS; i++) {
        backend_free(f->backend, field[i]);
        field[i] = NULL;
    }
}

/* ---- making ---- */

static int upload_piece(struct feed *f, int64_t first, int64_t n, void *const *piece,
                        struct err *err)
{
    int64_t index[UPLOAD_SAMPLES];
    int rc;

    for (int64_t i = 0; i < n; i++)
        index[i] = first + i;
    rc = dataset_gather(f->dataset, index, n, piece, err);
    for (int i = 0; rc == 0 && i < spec_of(f)->n_fields; i++)
        rc = backend_copy_in(f->backend, (char *)f->table[i] + field_bytes(f, i, first), piece[i],
                             field_bytes(f, i, n), err);
    return rc;
}

static int feed_upload(struct feed *f, struct err *err)
{
    const int64_t n = f->dataset->n_samples;
    void *piece[SAMPLE_MAX_FIELDS];
    int rc = dataset_alloc(f->dataset, UPLOAD_SAMPLES, piece, "samples on their way", err);

    if (rc < 0)
        return rc;
    for (int64_t at = 0; rc == 0 && at < n; at += UPLOAD_SAMPLES)
        rc = upload_piece(f, at, min_i64(UPLOAD_SAMPLES, n - at), piece, err);
    free(piece[0]);
    return rc;
}

/* Keep the data set on the device.  If memory is short, batches travel instead. */
static int feed_keep(struct feed *f, struct err *err)
{
    const int64_t n = f->dataset->n_samples;
    int rc = alloc_fields(f, n, "the data set", f->table, err);

    if (rc == 0)
        rc = feed_upload(f, err);
    if (rc == 0)
        f->kind = FEED_RESIDENT;
    else
        free_fields(f, f->table);
    return rc == ERR_NOMEM ? 0 : rc;
}

static int feed_choose(struct feed *f, int64_t keep_bytes, struct err *err)
{
    size_t most = (size_t)keep_bytes;
    int rc = 0;

    if (!backend_is_apart(f->backend))
        return 0;
    f->kind = FEED_STREAM;
    if (dataset_draws(f->dataset) || f->dataset->is_slow)
        return 0;
    if (keep_bytes < 0) {
        rc = backend_room(f->backend, &most, err);
        most /= 4;
    }
    if (rc == 0 && sample_place(spec_of(f), f->dataset->n_samples, NULL, NULL) <= most)
        rc = feed_keep(f, err);
    return rc;
}

static int alloc_pinned(void *arg, size_t n_bytes, const char *what, void **out, struct err *err)
{
    return backend_host_alloc(arg, n_bytes, what, out, err);
}

static void free_pinned(void *arg, void *p) { backend_host_free(arg, p); }

static int make_loader(struct feed *f, struct err *err)
{
    const struct loader_memory pinned = {alloc_pinned, free_pinned, f->backend};
    const struct loader_options o = {.dataset = f->dataset,
                                     .max_batch = 1,
                                     .n_slots = LOADER_SLOTS,
                                     .indices_only = f->kind == FEED_RESIDENT,
                                     .memory = &pinned};

    return loader_new(&f->loader, &o, err);
}

int feed_new(struct backend *b, const struct dataset *ds, int first_mark, int64_t keep_bytes,
             struct feed **out, struct err *err)
{
    struct feed *f = xcalloc(1, sizeof *f);
    int rc;

    ASSERT(first_mark >= 0 && first_mark + FEED_MARKS <= BACKEND_MARKS);
    f->backend = b;
    f->dataset = ds;
    f->first_mark = first_mark;
    rc = feed_choose(f, keep_bytes, err);
    if (rc == 0)
        rc = make_loader(f, err);
    if (rc < 0) {
        feed_free(f);
        return rc;
    }
    *out = f;
    return 0;
}

void feed_record(struct feed *f, struct spans_track *track) { loader_record(f->loader, track); }

enum feed_kind feed_kind(const struct feed *f) { return f->kind; }

static void drop_buffers(struct feed *f)
{
    for (int i = 0; i < f->n_gatherers; i++)
        program_free(f->gatherer[i].program);
    f->n_gatherers = 0;
    for (int k = 0; k < N_BUFFERS; k++)
        free_fields(f, f->buffer[k]);
    backend_free(f->backend, f->index);
    backend_free(f->backend, f->arena);
    f->index = f->arena = NULL;
    f->largest = 0;
}

void feed_free(struct feed *f)
{
    if (!f)
        return;
    loader_free(f->loader);
    drop_buffers(f);
    free_fields(f, f->table);
    free(f->gatherer);
    free(f);
}

int feed_fit(struct feed *f, int64_t largest, struct err *err)
{
    static const char what[] = "batches on their way";
    int rc = 0;

    drop_buffers(f);
    for (int k = 0; rc == 0 && f->kind == FEED_STREAM && k < N_BUFFERS; k++)
        rc = alloc_fields(f, largest, what, f->buffer[k], err);
    if (f->kind == FEED_RESIDENT)
        rc = backend_alloc(f->backend, sizeof *f->index * (size_t)largest, what, (void **)&f->index,
                           err);
    if (rc == 0 && f->kind == FEED_STREAM) /* zeroed by LANE_MAIN, filled by LANE_COPY */
        rc = backend_sync(f->backend, err);
    f->largest = rc == 0 ? largest : 0;
    return rc;
}

/* ---- batches ---- */

static int mark_of(const struct feed *f, int which, int64_t number)
{
    return f->first_mark + which + (int)(number % N_BUFFERS);
}

/* Wait for the copies out of the loader's slots, because the loader is about to fill all of them
 * again. */
static void forget_work(struct feed *f)
{
    struct err err;

    for (; f->n_free < f->n_taken; f->n_free++)
        while (backend_passed(f->backend, mark_of(f, SENT, f->n_free), &err) == 1)
            sched_yield();
    f->n_taken = f->n_free = f->is_ahead = f->ahead_rc = 0;
}

int feed_start_train(struct feed *f, const struct sampler *s, int accumulate, int n_ranks, int rank,
                     int64_t first_step, int64_t end_step, struct err *err)
{
    forget_work(f);
    return loader_start_train(f->loader, s, accumulate, n_ranks, rank, first_step, end_step, err);
}

int feed_start_pass(struct feed *f, int64_t batch, int64_t unit, int n_ranks, int rank,
                    struct err *err)
{
    forget_work(f);
    return loader_start_pass(f->loader, batch, unit, n_ranks, rank, err);
}

int feed_start_turns(struct feed *f, const struct sampler *s, int n_ranks, int rank, int64_t end,
                     struct err *err)
{
    forget_work(f);
    return loader_start_turns(f->loader, s, n_ranks, rank, end, err);
}

void feed_done(struct feed *f)
{
    for (; f->n_free < f->n_taken - f->is_ahead; f->n_free++)
        loader_release(f->loader);
}

/* No more than two batches are held: wait for the copy of the oldest one, and give its slot
 * back. */
static int feed_make_room(struct feed *f, struct err *err)
{
    int rc;

    if (f->n_taken - f->n_free < N_BUFFERS)
        return 0;
    while ((rc = backend_passed(f->backend, mark_of(f, SENT, f->n_free), err)) == 1)
        sched_yield();
    if (rc < 0)
        return rc;
    loader_release(f->loader);
    f->n_free++;
    return 0;
}

/* Queue the copy of a batch into the buffer of its number. */
static int send_batch(struct feed *f, const struct batch *b, int64_t number, struct err *err)
{
    const int k = (int)(number % N_BUFFERS);
    int rc = backend_follow(f->backend, LANE_COPY, mark_of(f, TAKEN, number), err);

    ASSERT(b->n <= f->largest);
    for (int i = 0; rc == 0 && i < spec_of(f)->n_fields; i++)
        rc = backend_put(f->backend, LANE_COPY, f->buffer[k][i], b->field[i],
                         field_bytes(f, i, b->n), err);
    return rc == 0 ? backend_mark(f->backend, LANE_COPY, mark_of(f, SENT, number), err) : rc;
}

/* 1: all that was queued is done.  An error of the device is left for a later call to find. */
static int is_backend_idle(const struct feed *f)
{
    struct err err;

    return backend_poll(f->backend, &err) == 0;
}

/* Take the loader's next batch, and add to waited_ns how long the backend was idle meanwhile.  When
 * a look at the backend finds it idle, the time until the next look counts as idle. */
static int next_batch(struct feed *f, const struct batch **out, struct err *err)
{
    int64_t since_ns = clock_mono_ns();
    int rc = loader_next_within(f->loader, 0, out, err);

    while (rc == LOADER_LATE) {
        const int was_idle = is_backend_idle(f);
        int64_t now_ns;

        rc = loader_next_within(f->loader, FEED_LOOK_NS, out, err);
        now_ns = clock_mono_ns();
        f->waited_ns += was_idle ? now_ns - since_ns : 0;
        since_ns = now_ns;
    }
    return rc;
}

int64_t feed_waited_ns(const struct feed *f) { return f->waited_ns; }

struct effort feed_effort(const struct feed *f) { return loader_effort(f->loader); }

static int feed_take(struct feed *f, struct batch *out, struct err *err)
{
    const struct batch *b;
    int rc = feed_make_room(f, err);

    if (rc == 0)
        rc = next_batch(f, &b, err);
    if (rc != 0)
        return rc;
    *out = *b;
    f->n_taken++;
    return f->kind == FEED_STREAM ? send_batch(f, b, f->n_taken - 1, err) : 0;
}

void feed_ahead(struct feed *f)
{
    if (f->kind != FEED_STREAM || f->is_ahead || f->ahead_rc < 0)
        return;
    f->ahead_rc = feed_take(f, &f->ahead, &f->ahead_err);
    f->is_ahead = f->ahead_rc == 0;
}

int feed_next(struct feed *f, struct batch *out, struct err *err)
{
    int rc = 0;

    if (f->ahead_rc < 0)
        *err = f->ahead_err;
    if (f->ahead_rc < 0)
        return f->ahead_rc;
    if (f->is_ahead)
        f->now = f->ahead;
    else
        rc = feed_take(f, &f->now, err);
    f->is_ahead = 0;
    f->number = f->n_taken - 1;
    *out = f->now;
    return rc;
}

void feed_again(const struct feed *f, struct batch *out) { *out = f->now; }

static int put_copy(struct feed *f, struct program *p, struct err *err)
{
    int rc = 0;

    for (int i = 0; rc == 0 && i < spec_of(f)->n_fields; i++)
        rc = backend_copy_in(f->backend, program_input(p, i), f->now.field[i],
                             field_bytes(f, i, f->now.n), err);
    return rc;
}

static int put_stream(struct feed *f, struct program *p, struct err *err)
{
    const int64_t k = f->number % N_BUFFERS;
    int rc = backend_follow(f->backend, LANE_MAIN, mark_of(f, SENT, f->number), err);

    for (int i = 0; rc == 0 && i < spec_of(f)->n_fields; i++)
        rc = backend_copy(f->backend, program_input(p, i), f->buffer[k][i],
                          field_bytes(f, i, f->now.n), err);
    return rc == 0 ? backend_mark(f->backend, LANE_MAIN, mark_of(f, TAKEN, f->number), err) : rc;
}

static int put_index(struct feed *f, struct err *err)
{
    int rc;

    ASSERT(f->now.n <= f->largest);
    rc = backend_put(f->backend, LANE_MAIN, f->index, f->now.index,
                     sizeof *f->index * (size_t)f->now.n, err);
    return rc == 0 ? backend_mark(f->backend, LANE_MAIN, mark_of(f, SENT, f->number), err) : rc;
}

/* ---- gathering ---- */

/* Append the node that gathers the fields from `first` on, at most `most` of them; their tables and
 * rows are values[2 * field] and [2 * field + 1]. */
static int append_gather(const struct feed *f, struct graph *g, int index, int first, int *value,
                         struct err *err)
{
    const int n = (int)min_i64(spec_of(f)->n_fields - first, NODE_MAX_OUT);
    int in[NODE_MAX_IN], out[NODE_MAX_OUT];

    for (int i = 0; i < NODE_MAX_IN; i++)
        in[i] = NO_VALUE;
    in[GATHER_INDEX] = index;
    for (int k = 0; k < NODE_MAX_OUT; k++)
        out[k] = NODE_NEW_OUT;
    for (int k = 0; k < n; k++) {
        const struct sample_field *field = &spec_of(f)->field[first + k];

        in[gather_table_of(k)] = value[2 * (first + k)] =
            graph_value(g, VALUE_INPUT, field->dtype,
                        sample_batch_shape(field, f->dataset->n_samples), "table");
        out[k] = value[2 * (first + k) + 1] = graph_value(
            g, VALUE_INPUT, field->dtype, sample_batch_shape(field, g->batch), field->name);
    }
    return graph_node(g, OP_gather, NULL, in, op_get(OP_gather)->n_in, out, "gather", err);
}

/* Make the program that gathers the batch of `target`. */
static int make_gather(struct feed *f, const struct program *target, struct program **made,
                       struct err *err)
{
    struct graph *g = graph_new(program_batch(target), 0);
    int index = graph_value(g, VALUE_INPUT, DTYPE_I64, SHAPE(g->batch), "index");
    int value[2 * SAMPLE_MAX_FIELDS], rc = 0;

    for (int i = 0; rc == 0 && i < spec_of(f)->n_fields; i += NODE_MAX_OUT)
        rc = append_gather(f, g, index, i, value, err);
    if (rc < 0) {
        graph_free(g);
        return rc;
    }
    rc = program_new(f->backend, g, NULL, made, err);
    if (rc < 0)
        return rc;
    program_place(*made, index, f->index);
    for (int i = 0; i < spec_of(f)->n_fields; i++) {
        program_place(*made, value[2 * i], f->table[i]);
        program_place(*made, value[2 * i + 1], program_input(target, i));
    }
    return 0;
}

static int bind_gather(struct feed *f, struct program *p, struct err *err)
{
    const struct program_spaces none = {0};
    int rc = 0;

    if (!f->arena) /* these programs have neither temporaries nor scratch: all need the same */
        rc = backend_alloc(f->backend, program_arena_bytes(p), "gathering", &f->arena, err);
    return rc == 0 ? program_bind(p, &none, f->arena, err) : rc;
}

/* The gatherer of `target`, made when it is first wanted. */
static int gather_for(struct feed *f, const struct program *target, struct program **out,
                      struct err *err)
{
    struct program *p = NULL;
    int rc;

    for (int i = 0; i < f->n_gatherers; i++)
        if (f->gatherer[i].target == target) {
            *out = f->gatherer[i].program;
            return 0;
        }
    rc = make_gather(f, target, &p, err);
    if (rc == 0)
        rc = bind_gather(f, p, err);
    if (rc < 0) {
        program_free(p);
        return err_wrap(err, "gathering batches");
    }
    f->gatherer = xrealloc(f->gatherer, sizeof *f->gatherer * (size_t)(f->n_gatherers + 1));
    f->gatherer[f->n_gatherers++] = (struct gatherer){target, p};
    *out = p;
    return 0;
}

int feed_put(struct feed *f, struct program *p, struct err *err)
{
    struct program *gather;
    int rc = 0;

    if (f->kind == FEED_RESIDENT && f->now.n > 0)
        rc = gather_for(f, p, &gather, err);
    if (rc < 0)
        return rc;
    if (f->kind == FEED_RESIDENT)
        return put_index(f, err);
    if (f->kind == FEED_STREAM)
        return put_stream(f, p, err);
    return f->now.n > 0 ? put_copy(f, p, err) : 0;
}

int feed_gather(struct feed *f, struct program *p, struct err *err)
{
    struct program *gather;
    int rc;

    if (f->kind != FEED_RESIDENT || f->now.n == 0)
        return 0;
    rc = gather_for(f, p, &gather, err);
    for (int i = 0; rc == 0 && i < program_n_stages(gather); i++)
        rc = program_run_stage(gather, i, err);
    return rc;
}
