/* update - makes the small programs that end a step, and runs them.
 *
 * Each program is a few nodes over the flat parameter space.  update_apply runs either one program
 * over the whole space, or one for each part: a piece that the optimizer treats differently, or a
 * span of a shard. */
#include "step/update.h"

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
#include "program/sketch.h"
#include "state/shards.h"
#include "step/pieces.h"
#include "strategy/cut.h"
#include "strategy/strategy.h"

struct update {
    struct backend *backend;
    struct program *pack, *verify, *apply, *refresh; /* verify: NULL unless there are pieces */
    struct program *total;  /* adds up `checks`; NULL unless there are shards */
    struct program **round; /* [n_buckets]; NULL where sums need not be rounded */
    int n_buckets;
    /* The parts: spans of the shards held, or pieces that the optimizer treats differently. Without
     * parts, `apply` updates the whole space. */
    struct program **check; /* [n_parts]; NULL but for parts of the rank's own shard */
    struct program **part;  /* [n_parts]; the optimizer */
    int n_parts;
    double (*checks)[2]; /* [n_buckets]: of the rank's own shard; the backend's memory */
    struct settings_table {
        double *row; /* [n, SEGMENT_COLUMNS] (op/update.h), the backend's memory */
        int64_t n;
    } * segments; /* [1], or of each part */
    int n_tables;
    void *arena; /* scratch of these programs; not the model's, whose values live meanwhile */
};

/* An update in the making, and what it is made of. */
struct maker {
    struct update *u;
    const struct job *job;
    const struct state *state;
    const struct buffers *buffers;
};

static int update_placed(struct sketch *s, enum dtype dtype, int64_t n, void *address,
                         const char *name)
{
    return sketch_place(s, dtype, SHAPE(n), address, name);
}

static int make_pack(const struct maker *k, struct err *err)
{
    struct sketch s = sketch_begin(err);
    int in[] = {[CONTROL_PACK_METRICS] = s.g->metrics, [CONTROL_PACK_SCALARS] = s.g->scalars};
    int out[] = {update_placed(&s, DTYPE_F32, CONTROL_LEN, k->buffers->control, "control")};
    union node_attr none = {0};

    sketch_node(&s, OP_control_pack, &none, in, 2, out, "pack");
    return sketch_end(&s, k->u->backend, k->state->layout, &k->u->pack);
}

/* Make the rounding of bucket i's sum of micro-batches, before it is reduced. */
static int update_make_round(const struct maker *k, int i, struct err *err)
{
    const struct bucket *to = &k->state->layout->bucket[i];
    const int64_t n = cut_bucket(k->state->layout, i);

    if (to->dtype == DTYPE_F32)
        return 0;
    return sketch_cast(k->u->backend, n, k->buffers->sum + to->offset,
                       (char *)k->buffers->grad + to->at, to->dtype, &k->u->round[i], err);
}

/* The inputs that decide whether a step is applied. */
struct verdict {
    int check, control, scaler; /* scaler: or NO_VALUE */
};

static struct verdict add_verdict(struct sketch *s, const struct maker *k)
{
    void *scaler = state_data(k->state, &slot_scaler);

    return (struct verdict){
        .check = update_placed(s, DTYPE_F64, 2, k->buffers->numbers->check, "check"),
        .control = update_placed(s, DTYPE_F32, CONTROL_LEN, k->buffers->control, "control"),
        .scaler = scaler ? update_placed(s, DTYPE_F32, SCALER_LEN, scaler, SCALER_NAME) : NO_VALUE};
}

/* A range of the flat space of trained parameters, with its gradients and its part of each slot. */
struct range {
    int64_t at, n;
    int64_t rows; /* of the matrix that it is to the optimizer; 0: it is none */
    void *grad;
    float *param;
    void *slot[STATE_MAX_SLOTS];
};

static struct range update_whole(const struct maker *k)
{
    struct range r = {.n = k->state->layout->n_trained,
                      .grad = k->buffers->grad,
                      .param = state_data(k->state, &slot_parameters)};

    for (int i = 0; i < k->state->n_slots; i++)
        r.slot[i] = k->state->slot[i].data;
    return r;
}

static int add_check(struct sketch *s, const struct state *st, const struct range *r, int check,
                     struct err *err)
{
    int in[] = {update_placed(s, st->layout->grad_dtype, r->n, r->grad, "grad")};
    union node_attr none = {0};

    return graph_node(s->g, OP_grad_check, &none, in, 1, &check, "check", err);
}

/* ---- the optimizer's node ---- */

/* Append elements up to `end` to n rows of op/update.h, with the settings s; returns how many rows
 * there are now.  Neighbours with equal settings are one row, if they may be merged. */
static int64_t update_add_segment(double *row, int64_t n, const struct settings *s, int64_t end,
                                  int64_t shift, int merges)
{
    double *at = row + max_i64(n - 1, 0) * SEGMENT_COLUMNS;

    if (n == 0 || !merges || at[SEGMENT_RATE] != s->lr_scale || at[SEGMENT_DECAY] != s->decay) {
        at = row + n++ * SEGMENT_COLUMNS;
        at[SEGMENT_RATE] = s->lr_scale;
        at[SEGMENT_DECAY] = s->decay;
        at[SEGMENT_SHIFT] = (double)shift;
    }
    at[SEGMENT_END] = (double)end;
    return n;
}

/* The settings of the range's parameters, in rows of op/update.h.  With an eps of 0 the padding has
 * rows of its own, since its update is 0 / 0.  Returns how many; row: room for two a parameter. */
static int64_t list_segments(const struct job *job, const struct layout *l, const struct range *r,
                             double *row)
{
    const char *usual;
    const int splits = job_zero_eps(job, &usual) != NULL;
    const int merges = !job->optimizer.kind->whole_tensors && !splits;
    int64_t n = 0;

    for (int i = 0; i < l->n_params && !l->param[i].info.frozen; i++) {
        const struct segment *p = &l->param[i];
        const int is_last = i + 1 == l->n_params || l->param[i + 1].info.frozen;
        const int64_t end = is_last ? l->n_trained : l->param[i + 1].offset;
        const int64_t own_end = splits ? p->offset + p->length : end;
        const struct settings s =
            groups_settings(&job->optimizer, p->name, p->info.kind, &p->shape);

        if (own_end > r->at && p->offset < r->at + r->n)
            n = update_add_segment(row, n, &s, min_i64(own_end, r->at + r->n) - r->at, r->at,
                                   merges);
        if (own_end < end && end > r->at && own_end < r->at + r->n)
            n = update_add_segment(row, n, &s, min_i64(end, r->at + r->n) - r->at, -1, 0);
    }
    return n;
}

static int make_segments(const struct maker *k, struct settings_table *to, const struct range *r,
                         struct err *err)
{
    const struct layout *l = k->state->layout;
    const size_t row_bytes = SEGMENT_COLUMNS * sizeof(double);
    double *row = xcalloc(2 * (size_t)l->n_params + 1, row_bytes);
    size_t n_bytes;
    int rc;

    to->n = list_segments(k->job, l, r, row);
    n_bytes = row_bytes * (size_t)to->n;
    rc = backend_alloc(k->u->backend, n_bytes, "settings of parameters", (void **)&to->row, err);
    if (rc == 0)
        rc = backend_copy_in(k->u->backend, to->row, row, n_bytes, err);
    free(row);
    return rc;
}

/* The operands that every optimizer has (op/update.c). */
static void add_operands(struct sketch *s, const struct maker *k, const struct settings_table *t,
                         const struct range *r, struct verdict v, int in[NODE_MAX_IN])
{
    const struct layout *l = k->state->layout;
    char *copy = k->buffers->copy
                     ? (char *)k->buffers->copy + dtype_size(l->copy_dtype) * (size_t)r->at
                     : NULL;

    in[UPDATE_PARAM] = update_placed(s, DTYPE_F32, r->n, r->param, "param");
    in[UPDATE_GRAD] = update_placed(s, l->grad_dtype, r->n, r->grad, "grad");
    in[UPDATE_CHECK] = v.check;
    in[UPDATE_CONTROL] = v.control;
    in[UPDATE_SCALARS] = s->g->scalars;
    in[UPDATE_SEGMENTS] =
        sketch_place(s, DTYPE_F64, SHAPE(t->n, SEGMENT_COLUMNS), t->row, "segments");
    in[UPDATE_COPY] = copy ? update_placed(s, l->copy_dtype, r->n, copy, "copy") : NO_VALUE;
    in[UPDATE_SCALER] = v.scaler;
    in[UPDATE_KEPT] = update_placed(s, DTYPE_I64, KEPT_LEN, k->buffers->numbers->kept, "kept");
}

/* Add the slot that has the operand's name; NO_VALUE if this job's optimizer keeps none. */
static int update_add_slot(struct sketch *s, const struct maker *k, const struct range *r,
                           const char *name)
{
    const struct slot_def *slot[OPTIMIZER_MAX_SLOTS];
    const int n = optimizer_slots(&k->job->optimizer, slot);

    for (int i = 0; i < n; i++)
        for (int j = 0; j < k->state->n_slots; j++)
            if (!strcmp(slot[i]->name, name) && k->state->slot[j].def == slot[i])
                return update_placed(s, slot[i]->dtype, r->n, r->slot[j], name);
    return NO_VALUE;
}

/* Add the node of the optimizer's operator.  Each of its outputs updates an input in place. */
static int add_optimizer(struct sketch *s, const struct maker *k, const struct settings_table *t,
                         const struct range *r, struct verdict v, struct err *err)
{
    const struct strategy_ops *strategy = strategy_choose(&k->job->strategy);
    const struct optimizer *o = k->job->optimizer.kind;
    const enum op kind = r->rows ? o->matrices->op : o->op;
    const struct op_def *op = op_get(kind);
    union node_attr attr = {.number = {0}};
    int in[NODE_MAX_IN], out[NODE_MAX_OUT];

    if (r->rows)
        o->matrices->numbers(k->job->optimizer.options, r->rows, r->n / r->rows, attr.number);
    else
        o->numbers(k->job->optimizer.options, attr.number);
    if (strategy->means_from)
        attr.number[ADAMW_ATTR_MEANS_FROM] =
            (double)strategy_means_from(strategy, k->job->strategy.options);
    add_operands(s, k, t, r, v, in);
    for (int i = UPDATE_SLOT; i < op->n_in; i++)
        in[i] = update_add_slot(s, k, r, op->in_name[i]);
    for (int i = 0; i < op->n_out; i++)
        out[i] = in[op->update[i] - 1] == NO_VALUE ? NODE_NO_OUT : in[op->update[i] - 1];
    return graph_node(s->g, kind, &attr, in, op->n_in, out, op->name, err);
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

static int update_add_commit(struct sketch *s, const struct state *st, const struct buffers *m,
                             struct verdict v, struct err *err)
{
    int64_t n = st->layout->n_state_total;
    int in[] = {[COMMIT_SHADOW] = update_placed(s, DTYPE_F32, n, m->shadow, "shadow"),
                [COMMIT_CHECK] = v.check,
                [COMMIT_CONTROL] = v.control,
                [COMMIT_SCALARS] = s->g->scalars};
    int out[] = {update_placed(s, DTYPE_F32, n, state_data(st, &slot_statistics), "stats")};
    union node_attr none = {0};

    return graph_node(s->g, OP_commit, &none, in, 4, out, "commit", err);
}

/* Add the last node of a step, which writes the step's results for the host and the next step. */
static int add_seal(struct sketch *s, const struct buffers *m, struct verdict v, struct err *err)
{
    int clean = update_placed(s, DTYPE_F32, 1, &m->numbers->scalars.clean, "clean");
    int results = update_placed(s, DTYPE_F32, SEALED_SLOTS * SEALED_LEN, m->results, "results");
    int waits = update_placed(s, DTYPE_I64, 2, m->numbers->waits, "waits");
    int kept = update_placed(s, DTYPE_I64, KEPT_LEN, m->numbers->kept, "kept");
    int in[] = {
        [SEAL_CLEAN] = clean,       [SEAL_RESULTS] = results,       [SEAL_CHECK] = v.check,
        [SEAL_CONTROL] = v.control, [SEAL_SCALARS] = s->g->scalars, [SEAL_METRICS] = s->g->metrics,
        [SEAL_WAITS] = waits,       [SEAL_SCALER] = v.scaler,       [SEAL_KEPT] = kept};
    int out[] = {[SEAL_NEW_CLEAN] = clean, [SEAL_NEW_RESULTS] = results};
    union node_attr none = {0};

    return graph_node(s->g, OP_seal, &none, in, 9, out, "seal", err);
}

/* 1: `apply` checks and updates all parameters alike. */
static int update_is_whole(const struct update *u, const struct state *st)
{
    return !st->shards && u->n_parts == 0;
}

/* Make the program of the step's last kernels.  Without parts the check and the optimizer are the
 * first of these. */
static int update_make_apply(const struct maker *k, struct err *err)
{
    struct sketch s = sketch_begin(err);
    const struct verdict v = add_verdict(&s, k);
    const struct range all = update_whole(k);
    int rc = 0;

    if (update_is_whole(k->u, k->state))
        rc = add_check(&s, k->state, &all, v.check, err);
    if (rc == 0 && update_is_whole(k->u, k->state))
        rc = add_optimizer(&s, k, &k->u->segments[0], &all, v, err);
    if (rc == 0 && k->state->layout->n_state_total)
        rc = update_add_commit(&s, k->state, k->buffers, v, err);
    if (rc == 0 && v.scaler != NO_VALUE)
        rc = add_loss_scale(&s, k->job, v, err);
    if (rc == 0)
        rc = add_seal(&s, k->buffers, v, err);
    s.rc = rc;
    return sketch_end(&s, k->u->backend, k->state->layout, &k->u->apply);
}

/* ---- pieces ---- */

/* The range of the i-th piece.  The padding behind a matrix belongs to no piece. */
static struct range piece_at(const struct maker *k, int first)
{
    const struct layout *l = k->state->layout;
    const struct segment *from = &l->param[first];
    const struct segment *to = &l->param[first + pieces_params(k->job, l, first) - 1];
    struct range r = {.at = from->offset, .n = to->offset + to->length - from->offset};

    if (pieces_is_matrix(k->job, from))
        r.rows = from->shape.dim[0];
    r.grad = (char *)k->buffers->grad + dtype_size(l->grad_dtype) * (size_t)r.at;
    r.param = (float *)state_data(k->state, &slot_parameters) + r.at;
    for (int i = 0; i < k->state->n_slots; i++)
        if (k->state->slot[i].def->scope == SLOT_PER_TRAINED)
            r.slot[i] = (char *)k->state->slot[i].data +
                        dtype_size(k->state->slot[i].def->dtype) * (size_t)r.at;
    return r;
}

static int make_verify(const struct maker *k, struct err *err)
{
    struct sketch s = sketch_begin(err);
    const struct range all = update_whole(k);

    s.rc = add_check(&s, k->state, &all, add_verdict(&s, k).check, err);
    return sketch_end(&s, k->u->backend, k->state->layout, &k->u->verify);
}

/* ---- shards ---- */

/* The span of bucket b that the h-th shard of this rank has. */
static struct range update_range_of(const struct maker *k, int h, int bucket)
{
    const struct shard_set *set = &k->state->shards->now;
    const struct bucket *b = &k->state->layout->bucket[bucket];
    const int owner = shard_owner(set, h);
    const struct coll_span span = cut_span(k->state->layout, bucket, set->size, owner);
    struct range r = {.at = b->offset + span.at,
                      .n = span.n,
                      .grad = (char *)k->buffers->bucket[bucket] +
                              dtype_size(b->dtype) * (size_t)span.at};

    if (k->state->shards->divides_gradients)
        r.grad = (char *)set->sums[h] + cut_sums_at(k->state->layout, bucket, set->size, owner);
    for (int i = 0; i < k->state->n_slots; i++)
        if (k->state->slot[i].is_divided)
            r.slot[i] =
                (char *)set->data[i][h] + shard_offset(k->state, i, set->size, owner, bucket);
    r.param = shard_params(k->state, h, bucket);
    return r;
}

static int update_make_part(const struct maker *k, int i, const struct range *r, struct err *err)
{
    struct sketch s = sketch_begin(err);
    const struct verdict v = add_verdict(&s, k);

    s.rc = make_segments(k, &k->u->segments[i], r, err);
    if (s.rc == 0)
        s.rc = add_optimizer(&s, k, &k->u->segments[i], r, v, err);
    return sketch_end(&s, k->u->backend, k->state->layout, &k->u->part[i]);
}

static int make_check(const struct maker *k, int i, const struct range *r, struct err *err)
{
    struct sketch s = sketch_begin(err);

    s.rc =
        add_check(&s, k->state, r, update_placed(&s, DTYPE_F64, 2, k->u->checks[i], "check"), err);
    return sketch_end(&s, k->u->backend, k->state->layout, &k->u->check[i]);
}

/* The checks of spans without elements are zero. */
static int make_total(const struct maker *k, struct err *err)
{
    const int64_t n = k->state->layout->n_buckets;
    union node_attr none = {0};
    struct sketch s;
    int in, out;

    if (backend_alloc(k->u->backend, (size_t)n * sizeof *k->u->checks, "checks of gradients",
                      (void **)&k->u->checks, err) < 0)
        return err->code;
    s = sketch_begin(err);
    in = sketch_place(&s, DTYPE_F64, SHAPE(n, 2), k->u->checks, "checks");
    out = update_placed(&s, DTYPE_F64, 2, k->buffers->numbers->check, "check");
    sketch_node(&s, OP_check_sum, &none, &in, 1, &out, "check_sum");
    return sketch_end(&s, k->u->backend, k->state->layout, &k->u->total);
}

static int make_pieces(const struct maker *k, struct err *err)
{
    int rc = make_verify(k, err);

    for (int i = 0, first = 0; i < k->u->n_parts && rc == 0; i++) {
        const struct range r = piece_at(k, first);

        rc = update_make_part(k, i, &r, err);
        first += pieces_params(k->job, k->state->layout, first);
    }
    return rc;
}

static int make_shards(const struct maker *k, struct err *err)
{
    const int n_buckets = k->state->layout->n_buckets;
    int rc = make_total(k, err);

    for (int i = 0; i < k->u->n_parts && rc == 0; i++) {
        const struct range r = update_range_of(k, i / n_buckets, i % n_buckets);

        if (r.n > 0)
            rc = update_make_part(k, i, &r, err);
        if (r.n > 0 && rc == 0 && i < n_buckets)
            rc = make_check(k, i, &r, err);
    }
    return rc;
}

enum { N_ALWAYS = 5 };

/* The i-th program, or NULL if there is nothing to do. */
static struct program *program_at(const struct update *u, int i)
{
    struct program *const always[N_ALWAYS] = {u->pack, u->verify, u->apply, u->refresh, u->total};

    if (i < N_ALWAYS)
        return always[i];
    i -= N_ALWAYS;
    if (i < u->n_buckets)
        return u->round[i];
    i -= u->n_buckets;
    return i < u->n_parts ? u->check[i] : u->part[i - u->n_parts];
}

static int n_programs(const struct update *u) { return N_ALWAYS + u->n_buckets + 2 * u->n_parts; }

static int update_bind_all(struct update *u, const struct program_spaces *spaces, struct err *err)
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

static void update_make_room(struct update *u, const struct job *job, const struct state *s,
                             const struct buffers *m)
{
    u->n_parts =
        s->shards ? s->shards->now.n_held * s->layout->n_buckets : pieces_count(job, s->layout);
    u->check = xcalloc((size_t)u->n_parts, sizeof *u->check);
    u->part = xcalloc((size_t)u->n_parts, sizeof *u->part);
    u->n_tables = u->n_parts > 0 ? u->n_parts : 1;
    u->segments = xcalloc((size_t)u->n_tables, sizeof *u->segments);
    if (!m->sum)
        return;
    u->n_buckets = s->layout->n_buckets;
    u->round = xcalloc((size_t)u->n_buckets, sizeof *u->round);
}

int update_new(const struct job *job, struct backend *b, const struct state *s,
               const struct buffers *m, struct update **out, struct err *err)
{
    struct update *u = xcalloc(1, sizeof *u);
    const struct maker k = {u, job, s, m};
    const struct program_spaces spaces = buffers_spaces(m, s);
    const struct range all = update_whole(&k);
    int rc = 0;

    u->backend = b;
    update_make_room(u, job, s, m);
    if (update_is_whole(u, s))
        rc = make_segments(&k, &u->segments[0], &all, err);
    if (rc == 0)
        rc = make_pack(&k, err);
    if (rc == 0)
        rc = update_make_apply(&k, err);
    if (rc == 0)
        rc = s->shards ? make_shards(&k, err) : u->n_parts > 0 ? make_pieces(&k, err) : 0;
    for (int i = 0; i < u->n_buckets && rc == 0; i++)
        rc = update_make_round(&k, i, err);
    if (rc == 0 && m->copy)
        rc = sketch_cast(b, s->layout->n_total, state_data(s, &slot_parameters), m->copy,
                         s->layout->copy_dtype, &u->refresh, err);
    if (rc == 0)
        rc = update_bind_all(u, &spaces, err);
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
    for (int i = 0; i < u->n_tables; i++)
        backend_free(u->backend, u->segments[i].row);
    backend_free(u->backend, u->arena);
    backend_free(u->backend, u->checks);
    free(u->segments);
    free(u->check);
    free(u->part);
    free(u->round);
    free(u);
}

int update_pack(struct update *u, struct err *err) { return sketch_run(u->pack, err); }

int update_round(struct update *u, int bucket, struct err *err)
{
    return sketch_run(u->round[bucket], err);
}

int update_refresh(struct update *u, struct err *err) { return sketch_run(u->refresh, err); }

/* The order of additions is fixed: blocks within a span, then spans in the order of the buckets,
 * then ranks in their order.  So all ranks get the same sum. */
int update_check(struct update *u, struct err *err)
{
    int rc = 0;

    for (int i = 0; i < u->n_parts && rc == 0; i++)
        rc = sketch_run(u->check[i], err);
    return rc == 0 ? sketch_run(u->total, err) : rc;
}

int update_apply(struct update *u, struct err *err)
{
    int rc = sketch_run(u->verify, err);

    for (int i = 0; i < u->n_parts && rc == 0; i++)
        rc = sketch_run(u->part[i], err);
    return rc == 0 ? sketch_run(u->apply, err) : rc;
}
