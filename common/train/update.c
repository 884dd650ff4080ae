/* update - makes the small programs that end a step, and runs them.
 * Each is a few nodes over the flat spaces. */
#include "train/update.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "op/control.h"
#include "op/op.h"
#include "op/seal.h"
#include "op/update.h"
#include "optim/groups.h"
#include "optim/optimizer.h"
#include "program/program.h"

struct update {
    struct backend *backend;
    struct program *pack, *apply, *refresh;
    struct program **accumulate; /* [n_buckets]; NULL without accumulation, or for no gradients */
    struct program **round;      /* [n_buckets]; NULL where sums need not be rounded */
    int n_buckets;
    double *segments; /* [n_segments, SEGMENT_COLUMNS] (op/update.h), the backend's memory */
    int64_t n_segments;
    void *arena; /* scratch of these programs; not the model's, whose values live meanwhile */
};

/* A graph under construction whose values lie at given addresses. */
struct sketch {
    struct graph *g;
    struct {
        int value;
        void *address;
    } place[24];
    int n;
};

static int placed_as(struct sketch *s, enum dtype dtype, struct shape shape, void *address,
                     const char *name)
{
    ASSERT((size_t)s->n < ARRAY_LEN(s->place));
    s->place[s->n].value = graph_value(s->g, VALUE_INPUT, dtype, shape, name);
    s->place[s->n].address = address;
    return s->place[s->n++].value;
}

static int placed(struct sketch *s, enum dtype dtype, int64_t n, void *address, const char *name)
{
    return placed_as(s, dtype, SHAPE(n), address, name);
}

/* Make a program of the sketch.  Takes its graph. */
static int finish(struct sketch *s, struct backend *b, const struct state *st, struct program **out,
                  struct err *err)
{
    int rc = program_new(b, s->g, st->layout, out, err);

    if (rc < 0)
        return rc;
    for (int i = 0; i < s->n; i++)
        program_place(*out, s->place[i].value, s->place[i].address);
    return 0;
}

static int make_pack(struct update *u, struct backend *b, const struct state *st,
                     const struct buffers *m, struct err *err)
{
    struct sketch s = {.g = graph_new(1, 1)};
    int in[] = {[CONTROL_PACK_METRICS] = s.g->metrics, [CONTROL_PACK_SCALARS] = s.g->scalars};
    int out[] = {placed(&s, DTYPE_F32, CONTROL_LEN, m->control, "control")};
    union node_attr none = {0};

    if (graph_node(s.g, OP_control_pack, &none, in, 2, out, "pack", err) < 0) {
        graph_free(s.g);
        return err->code;
    }
    return finish(&s, b, st, &u->pack, err);
}

static int64_t bucket_elements(const struct bucket *k, const struct layout *l)
{
    return min_i64(k->length, l->n_trained - k->offset);
}

static int make_accumulate(struct program **p, const struct bucket *k, struct backend *b,
                           const struct state *st, const struct buffers *m, struct err *err)
{
    struct sketch s = {.g = graph_new(1, 1)};
    int64_t n = bucket_elements(k, st->layout);
    int in[] = {placed(&s, DTYPE_F32, n, m->sum + k->offset, "sum"),
                placed(&s, DTYPE_F32, n, m->micro + k->offset, "micro")};
    int out[] = {in[0]};
    union node_attr none = {0};

    if (graph_node(s.g, OP_add, &none, in, 2, out, "accumulate", err) < 0) {
        graph_free(s.g);
        return err->code;
    }
    return finish(&s, b, st, p, err);
}

/* Make the program that rounds n elements at `from` to another type, at `to`. */
static int make_cast(struct program **p, int64_t n, const float *from, void *to, enum dtype type,
                     struct backend *b, const struct state *st, struct err *err)
{
    struct sketch s = {.g = graph_new(1, 1)};
    int in[] = {placed(&s, DTYPE_F32, n, (void *)from, "wide")};
    int out[] = {placed(&s, type, n, to, "narrow")};
    union node_attr attr = {.cast.to = type};

    if (graph_node(s.g, OP_cast, &attr, in, 1, out, "round", err) < 0) {
        graph_free(s.g);
        return err->code;
    }
    return finish(&s, b, st, p, err);
}

/* Make the sums of micro-batches, and their rounding before they are reduced. */
static int make_sums(struct update *u, int i, struct backend *b, const struct state *st,
                     const struct buffers *m, struct err *err)
{
    const struct bucket *k = &st->layout->bucket[i];
    const int64_t n = bucket_elements(k, st->layout);
    int rc;

    if (n == 0) /* of the control vector alone */
        return 0;
    rc = make_accumulate(&u->accumulate[i], k, b, st, m, err);
    if (rc == 0 && k->dtype != DTYPE_F32)
        rc = make_cast(&u->round[i], n, m->sum + k->offset, (char *)m->grad + k->at, k->dtype, b,
                       st, err);
    return rc;
}

/* The inputs that decide whether a step is applied. */
struct verdict {
    int check, control, scaler; /* scaler: or NO_VALUE */
};

static int add_check(struct sketch *s, const struct state *st, const struct buffers *m,
                     struct verdict *v, struct err *err)
{
    int64_t n = st->layout->n_trained;
    void *scaler = state_data(st, &slot_scaler);
    int in[] = {placed(s, st->layout->grad_dtype, n, m->grad, "grad")};
    int out[] = {placed(s, DTYPE_F64, 2, m->numbers->check, "check")};
    union node_attr none = {0};

    v->check = out[0];
    v->control = placed(s, DTYPE_F32, CONTROL_LEN, m->control, "control");
    v->scaler = scaler ? placed(s, DTYPE_F32, SCALER_LEN, scaler, SCALER_NAME) : NO_VALUE;
    return graph_node(s->g, OP_grad_check, &none, in, 1, out, "check", err);
}

/* ---- the optimizer's node ---- */

/* The settings of the trained parameters, in rows of op/update.h; neighbours with equal settings
 * are one row.  Returns how many; row: room for one for each parameter. */
static int64_t list_segments(const struct job *job, const struct layout *l, double *row)
{
    int64_t n = 0;

    for (int i = 0; i < l->n_params && !l->param[i].info.frozen; i++) {
        const int is_last = i + 1 == l->n_params || l->param[i + 1].info.frozen;
        const struct settings s =
            groups_settings(&job->optimizer, l->param[i].name, l->param[i].info.kind);
        double *at = row + max_i64(n - 1, 0) * SEGMENT_COLUMNS;

        if (n == 0 || at[SEGMENT_RATE] != s.lr_scale || at[SEGMENT_DECAY] != s.decay) {
            at = row + n++ * SEGMENT_COLUMNS;
            at[SEGMENT_RATE] = s.lr_scale;
            at[SEGMENT_DECAY] = s.decay;
        }
        at[SEGMENT_END] = (double)(is_last ? l->n_trained : l->param[i + 1].offset);
    }
    return n;
}

static int make_segments(struct update *u, const struct job *job, const struct layout *l,
                         struct err *err)
{
    const size_t row_bytes = SEGMENT_COLUMNS * sizeof(double);
    double *row = xcalloc((size_t)l->n_params + 1, row_bytes);
    size_t n_bytes;
    int rc;

    u->n_segments = list_segments(job, l, row);
    n_bytes = row_bytes * (size_t)u->n_segments;
    rc = backend_alloc(u->backend, n_bytes, "settings of parameters", (void **)&u->segments, err);
    if (rc == 0)
        rc = backend_copy_in(u->backend, u->segments, row, n_bytes, err);
    free(row);
    return rc;
}

/* The operands that every optimizer has (op/update.c). */
static void add_operands(struct sketch *s, const struct update *u, const struct state *st,
                         const struct buffers *m, struct verdict v, int in[NODE_MAX_IN])
{
    const struct layout *l = st->layout;
    const int64_t n = l->n_trained;

    in[UPDATE_PARAM] = placed(s, DTYPE_F32, n, state_data(st, &slot_parameters), "param");
    in[UPDATE_GRAD] = placed(s, l->grad_dtype, n, m->grad, "grad");
    in[UPDATE_CHECK] = v.check;
    in[UPDATE_CONTROL] = v.control;
    in[UPDATE_SCALARS] = s->g->scalars;
    in[UPDATE_SEGMENTS] =
        placed_as(s, DTYPE_F64, SHAPE(u->n_segments, SEGMENT_COLUMNS), u->segments, "segments");
    in[UPDATE_COPY] = m->copy ? placed(s, l->copy_dtype, n, m->copy, "copy") : NO_VALUE;
    in[UPDATE_SCALER] = v.scaler;
}

/* Add the slot that has the operand's name; NO_VALUE if this job's optimizer keeps none. */
static int add_slot(struct sketch *s, const struct job *job, const struct state *st,
                    const char *name)
{
    const struct slot_def *slot[OPTIMIZER_MAX_SLOTS];
    const int n = optimizer_slots(&job->optimizer, slot);

    for (int i = 0; i < n; i++)
        if (!strcmp(slot[i]->name, name))
            return placed(s, slot[i]->dtype, st->layout->n_trained, state_data(st, slot[i]), name);
    return NO_VALUE;
}

/* The node of the optimizer's operator; every output is an input, updated. */
static int add_optimizer(struct sketch *s, const struct update *u, const struct job *job,
                         const struct state *st, const struct buffers *m, struct verdict v,
                         struct err *err)
{
    const struct optimizer *o = job->optimizer.kind;
    const struct op_def *op = op_get(o->op);
    union node_attr attr = {.number = {0}};
    int in[NODE_MAX_IN], out[NODE_MAX_OUT];

    o->numbers(job->optimizer.options, attr.number);
    add_operands(s, u, st, m, v, in);
    for (int i = UPDATE_SLOT; i < op->n_in; i++)
        in[i] = add_slot(s, job, st, op->in_name[i]);
    for (int i = 0; i < op->n_out; i++)
        out[i] = in[op->update[i] - 1] == NO_VALUE ? NODE_NO_OUT : in[op->update[i] - 1];
    return graph_node(s->g, o->op, &attr, in, op->n_in, out, op->name, err);
}

static int add_loss_scale(struct sketch *s, const struct job *job, struct verdict v,
                          struct err *err)
{
    const struct job_loss_scale *o = &job->loss_scale;
    union node_attr attr = {.scale = {.min = (float)o->min,
                                      .window = (int)o->window,
                                      .hysteresis = (int)o->hysteresis}};
    int in[] = {[LOSS_SCALE_SCALER] = v.scaler,
                [LOSS_SCALE_CHECK] = v.check,
                [LOSS_SCALE_CONTROL] = v.control};
    int out[] = {[LOSS_SCALE_NEW_SCALER] = v.scaler};

    return graph_node(s->g, OP_loss_scale, &attr, in, 3, out, "loss_scale", err);
}

static int add_commit(struct sketch *s, const struct state *st, const struct buffers *m,
                      struct verdict v, struct err *err)
{
    int64_t n = st->layout->n_state_total;
    int in[] = {[COMMIT_SHADOW] = placed(s, DTYPE_F32, n, m->shadow, "shadow"),
                [COMMIT_CHECK] = v.check,
                [COMMIT_CONTROL] = v.control,
                [COMMIT_SCALARS] = s->g->scalars};
    int out[] = {placed(s, DTYPE_F32, n, state_data(st, &slot_statistics), "stats")};
    union node_attr none = {0};

    return graph_node(s->g, OP_commit, &none, in, 4, out, "commit", err);
}

/* The last node of a step: it tells the host, and the next step, what came out. */
static int add_seal(struct sketch *s, const struct buffers *m, struct verdict v, struct err *err)
{
    int clean = placed(s, DTYPE_F32, 1, &m->numbers->scalars.clean, "clean");
    int results = placed(s, DTYPE_F32, SEALED_SLOTS * SEALED_LEN, m->results, "results");
    int waits = placed(s, DTYPE_I64, 2, m->numbers->waits, "waits");
    int in[] = {
        [SEAL_CLEAN] = clean,       [SEAL_RESULTS] = results,       [SEAL_CHECK] = v.check,
        [SEAL_CONTROL] = v.control, [SEAL_SCALARS] = s->g->scalars, [SEAL_METRICS] = s->g->metrics,
        [SEAL_WAITS] = waits,       [SEAL_SCALER] = v.scaler};
    int out[] = {[SEAL_NEW_CLEAN] = clean, [SEAL_NEW_RESULTS] = results};
    union node_attr none = {0};

    return graph_node(s->g, OP_seal, &none, in, 8, out, "seal", err);
}

static int make_apply(struct update *u, const struct job *job, struct backend *b,
                      const struct state *st, const struct buffers *m, struct err *err)
{
    struct sketch s = {.g = graph_new(1, 1)};
    struct verdict v;
    int rc = add_check(&s, st, m, &v, err);

    if (rc == 0)
        rc = add_optimizer(&s, u, job, st, m, v, err);
    if (rc == 0 && st->layout->n_state_total)
        rc = add_commit(&s, st, m, v, err);
    if (rc == 0 && v.scaler != NO_VALUE)
        rc = add_loss_scale(&s, job, v, err);
    if (rc == 0)
        rc = add_seal(&s, m, v, err);
    if (rc < 0) {
        graph_free(s.g);
        return rc;
    }
    return finish(&s, b, st, &u->apply, err);
}

enum { N_ALWAYS = 3 };

/* The i-th program, or NULL if there is nothing to do. */
static struct program *program_at(const struct update *u, int i)
{
    struct program *const always[N_ALWAYS] = {u->pack, u->apply, u->refresh};

    if (i < N_ALWAYS)
        return always[i];
    i -= N_ALWAYS;
    return i < u->n_buckets ? u->accumulate[i] : u->round[i - u->n_buckets];
}

static int n_programs(const struct update *u) { return N_ALWAYS + 2 * u->n_buckets; }

static int bind_all(struct update *u, const struct program_spaces *spaces, struct err *err)
{
    size_t n_bytes = 0;
    int rc = 0;

    for (int i = 0; i < n_programs(u); i++)
        if (program_at(u, i) && program_arena_bytes(program_at(u, i)) > n_bytes)
            n_bytes = program_arena_bytes(program_at(u, i));
    if (n_bytes)
        rc = backend_alloc(u->backend, n_bytes, "the optimizer's scratch", &u->arena, err);
    for (int i = 0; i < n_programs(u) && rc == 0; i++)
        rc = !program_at(u, i) ? 0 : program_bind(program_at(u, i), spaces, u->arena, err);
    return rc;
}

int update_new(const struct job *job, struct backend *b, const struct state *s,
               const struct buffers *m, struct update **out, struct err *err)
{
    struct update *u = xcalloc(1, sizeof *u);
    struct program_spaces spaces = buffers_spaces(m, s);
    int rc;

    u->backend = b;
    if (m->accumulates) {
        u->n_buckets = s->layout->n_buckets;
        u->accumulate = xcalloc((size_t)u->n_buckets, sizeof *u->accumulate);
        u->round = xcalloc((size_t)u->n_buckets, sizeof *u->round);
    }
    rc = make_segments(u, job, s->layout, err);
    if (rc == 0)
        rc = make_pack(u, b, s, m, err);
    if (rc == 0)
        rc = make_apply(u, job, b, s, m, err);
    for (int i = 0; i < u->n_buckets && rc == 0; i++)
        rc = make_sums(u, i, b, s, m, err);
    if (rc == 0 && m->copy)
        rc = make_cast(&u->refresh, s->layout->n_total, state_data(s, &slot_parameters), m->copy,
                       s->layout->copy_dtype, b, s, err);
    if (rc == 0)
        rc = bind_all(u, &spaces, err);
    if (rc < 0) {
        update_free(u);
        return err_wrap(err, "optimizer");
    }
    *out = u;
    return 0;
}

void update_free(struct update *u)
{
    if (!u)
        return;
    for (int i = 0; i < n_programs(u); i++)
        program_free(program_at(u, i));
    backend_free(u->backend, u->segments);
    backend_free(u->backend, u->arena);
    free(u->accumulate);
    free(u->round);
    free(u);
}

/* Run p.  NULL: there is nothing to do. */
static int run(struct program *p, struct err *err)
{
    int rc = 0;

    for (int i = 0; p && i < program_n_stages(p) && rc == 0; i++)
        rc = program_run_stage(p, i, err);
    return rc;
}

int update_pack(struct update *u, struct err *err) { return run(u->pack, err); }

int update_accumulate(struct update *u, int bucket, struct err *err)
{
    return run(u->accumulate[bucket], err);
}

int update_round(struct update *u, int bucket, struct err *err)
{
    return run(u->round[bucket], err);
}

int update_refresh(struct update *u, struct err *err) { return run(u->refresh, err); }

int update_apply(struct update *u, struct err *err) { return run(u->apply, err); }
