/* state - the table of a job's slots: its rows, their memory, and their initial values.
 *
 * Hashes are in replica.c, broadcasts in broadcast.c, checkpoints in snapshot.c, shards in
 * shards.c. */
#include "state/state.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/pool.h"
#include "op/scaler.h"
#include "state/base.h"
#include "state/shards.h"
#include "state/weights.h"

/* ---- the rows of every job ---- */

static void init_parameter(const struct job *job, const struct layout *l, int i, int64_t first,
                           int64_t n, void *to)
{
    static const enum init_rule rule[] = {[INIT_PYTORCH] = INIT_RULE_OWN,
                                          [INIT_NORMAL] = INIT_RULE_NORMAL,
                                          [INIT_FILE] = INIT_RULE_OWN,
                                          [INIT_KAIMING] = INIT_RULE_KAIMING_NORMAL,
                                          [INIT_XAVIER] = INIT_RULE_XAVIER_UNIFORM,
                                          [INIT_KAIMING_NORMAL] = INIT_RULE_KAIMING_NORMAL,
                                          [INIT_KAIMING_UNIFORM] = INIT_RULE_KAIMING_UNIFORM,
                                          [INIT_XAVIER_NORMAL] = INIT_RULE_XAVIER_NORMAL,
                                          [INIT_XAVIER_UNIFORM] = INIT_RULE_XAVIER_UNIFORM,
                                          [INIT_TRUNC_NORMAL] = INIT_RULE_TRUNC_NORMAL,
                                          [INIT_RANDOM] = INIT_RULE_OWN,
                                          [INIT_IMPORT] = INIT_RULE_OWN};
    const struct layout_init init = {rule[job->model.init.name], job->model.init.std};

    layout_init_param(l, i, (uint64_t)job->train.seed, init, first, n, to);
}

static void state_init_statistic(const struct job *job, const struct layout *l, int i, void *to)
{
    float *x = to;

    (void)job;
    for (int64_t e = 0; e < l->state[i].length; e++)
        x[e] = l->state[i].init_state;
}

static void init_scaler(const struct job *job, const struct layout *l, int i, void *to)
{
    float *scaler = to;

    (void)l, (void)i;
    scaler[SCALER_SCALE] = (float)job->loss_scale.initial;
    scaler[SCALER_HYSTERESIS] = (float)job->loss_scale.hysteresis;
}

const struct slot_def slot_parameters = {.name = "parameters",
                                         .suffix = "",
                                         .scope = SLOT_PER_PARAMETER,
                                         .dtype = DTYPE_F32,
                                         .file = SLOT_IN_MODEL,
                                         .is_hashed = 1,
                                         .is_broadcast = 1,
                                         .init_part = init_parameter};

const struct slot_def slot_statistics = {.name = "running statistics",
                                         .suffix = "",
                                         .scope = SLOT_PER_STATISTIC,
                                         .dtype = DTYPE_F32,
                                         .file = SLOT_IN_MODEL,
                                         .is_hashed = 1,
                                         .is_broadcast = 1,
                                         .init = state_init_statistic};

const struct slot_def slot_scaler = {.name = "loss scale",
                                     .suffix = SCALER_NAME,
                                     .scope = SLOT_PER_JOB,
                                     .length = SCALER_LEN,
                                     .dtype = DTYPE_F32,
                                     .file = SLOT_IN_OPTIMIZER,
                                     .is_hashed = 1,
                                     .is_broadcast = 1,
                                     .init = init_scaler};

const struct slot_def slot_base = {.name = "frozen base",
                                   .suffix = "",
                                   .scope = SLOT_PER_BASE,
                                   .dtype = DTYPE_U8,
                                   .file = SLOT_IN_BASE,
                                   .is_hashed = 1,
                                   .is_broadcast = 1};

/* ---- tensors ---- */

static int n_trained(const struct layout *l)
{
    int n = 0;

    while (n < l->n_params && !l->param[n].info.frozen) /* frozen ones stand last */
        n++;
    return n;
}

int slot_n_tensors(const struct layout *l, const struct slot_def *d)
{
    switch (d->scope) {
    case SLOT_PER_PARAMETER:
        return l->n_params;
    case SLOT_PER_TRAINED:
        return n_trained(l);
    case SLOT_PER_STATISTIC:
        return l->n_states;
    case SLOT_PER_BASE:
        return l->n_base;
    case SLOT_PER_JOB:
        return 1;
    }
    return 0;
}

struct slot_tensor slot_tensor(const struct layout *l, const struct slot_def *d, int i)
{
    const size_t size = dtype_size(d->dtype);
    const struct segment *s = d->scope == SLOT_PER_STATISTIC ? &l->state[i]
                              : d->scope == SLOT_PER_BASE    ? &l->base[i]
                                                             : &l->param[i];

    ASSERT(i >= 0 && i < slot_n_tensors(l, d));
    if (d->scope == SLOT_PER_JOB)
        return (struct slot_tensor){
            .base = "", .shape = SHAPE(d->length), .n_bytes = size * (size_t)d->length};
    return (struct slot_tensor){
        .base = s->name,
        .shape = s->shape,
        .at = size * (size_t)s->offset,
        .n_bytes = (d->scope == SLOT_PER_BASE ? dtype_size(s->dtype) : size) * (size_t)s->length};
}

/* ---- memory ---- */

static int64_t n_elements(const struct layout *l, const struct slot_def *d)
{
    switch (d->scope) {
    case SLOT_PER_PARAMETER:
        return l->n_total;
    case SLOT_PER_TRAINED:
        return l->n_trained;
    case SLOT_PER_STATISTIC:
        return l->n_state_total;
    case SLOT_PER_BASE:
        return l->n_base_bytes;
    case SLOT_PER_JOB:
        return d->length;
    }
    return 0;
}

int state_alloc(const struct state *s, int k, size_t n_bytes, void **out, struct err *err)
{
    const struct slot *slot = &s->slot[k];

    ASSERT(k >= 0 && k < STATE_MAX_SLOTS && slot->def);
    return slot->is_offloaded ? backend_host_alloc(s->backend, n_bytes, slot->def->name, out, err)
                              : backend_alloc(s->backend, n_bytes, slot->def->name, out, err);
}

void state_release(const struct state *s, int k, void *p)
{
    if (s->slot[k].is_offloaded)
        backend_host_free(s->backend, p);
    else
        backend_free(s->backend, p);
}

static int state_add_slot(struct state *s, const struct slot_def *d, int is_divided,
                          int is_offloaded, struct err *err)
{
    struct slot *slot = &s->slot[s->n_slots];

    ASSERT(s->n_slots < STATE_MAX_SLOTS);
    for (int k = 0; k < s->n_slots; k++)
        ASSERT(s->slot[k].def != d);
    slot->def = d;
    slot->n_bytes = dtype_size(d->dtype) * (size_t)n_elements(s->layout, d);
    slot->is_divided = is_divided;
    slot->is_offloaded = is_offloaded && backend_is_apart(s->backend);
    if (!is_divided && state_alloc(s, s->n_slots, slot->n_bytes, &slot->data, err) < 0)
        return err->code;
    s->n_slots++;
    return 0;
}

int state_new(struct backend *b, const struct layout *l, const struct slot_def *const *more,
              int n_more, struct state **out, struct err *err)
{
    return state_new_divided(b, l, more, n_more, &(struct state_division){0}, out, err);
}

int state_new_divided(struct backend *b, const struct layout *l, const struct slot_def *const *more,
                      int n_more, const struct state_division *d, struct state **out,
                      struct err *err)
{
    struct state *s = xcalloc(1, sizeof *s);
    int rc;

    s->backend = b;
    s->layout = l;
    ASSERT(d->params || !d->offloads_params);
    ASSERT(d->n_divided >= 0 && d->n_divided <= n_more && d->n_offloaded <= n_more);
    ASSERT(d->n_holders > 0 || (!d->gradients && !d->params));
    rc = state_add_slot(s, &slot_parameters, d->params, d->offloads_params, err);
    if (rc == 0)
        rc = state_add_slot(s, &slot_statistics, 0, 0, err);
    if (rc == 0 && l->has_scaler)
        rc = state_add_slot(s, &slot_scaler, 0, 0, err);
    if (rc == 0 && l->n_base > 0)
        rc = state_add_slot(s, &slot_base, 0, 0, err);
    for (int i = 0; i < n_more && rc == 0; i++)
        rc = state_add_slot(s, more[i], d->n_holders > 0 && i < d->n_divided, i < d->n_offloaded,
                            err);
    if (rc == 0 && d->n_holders > 0)
        rc = shards_new(s, d, err);
    if (rc < 0) {
        state_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void state_free(struct state *s)
{
    if (!s)
        return;
    shards_free(s);
    for (int i = 0; i < s->n_slots; i++)
        if (!s->slot[i].is_divided)
            state_release(s, i, s->slot[i].data);
    free(s);
}

void *state_data(const struct state *s, const struct slot_def *d)
{
    for (int i = 0; i < s->n_slots; i++)
        if (s->slot[i].def == d)
            return s->slot[i].data;
    return NULL;
}

/* ---- initial values ---- */

static int64_t tensor_elements(const struct state *s, const struct slot_def *d, int i)
{
    return (int64_t)(slot_tensor(s->layout, d, i).n_bytes / dtype_size(d->dtype));
}

/* A tensor whose initial values are made part by part. */
struct making {
    const struct slot_def *def;
    const struct job *job;
    const struct layout *layout;
    int i;
    int64_t n; /* elements */
    char *to;
};

static void state_make_part(void *arg, int64_t k)
{
    const struct making *m = arg;
    const int64_t first = k * SLOT_PART;

    m->def->init_part(m->job, m->layout, m->i, first, min_i64(m->n - first, SLOT_PART),
                      m->to + dtype_size(m->def->dtype) * (size_t)first);
}

static void state_make_parts(struct making *m, struct pool *pool)
{
    const int64_t n_parts = ceil_div_i64(m->n, SLOT_PART);

    if (pool && n_parts > 1)
        pool_run(pool, state_make_part, m, n_parts);
    else
        for (int64_t k = 0; k < n_parts; k++)
            state_make_part(m, k);
}

/* The rows that get initial values. */
enum which {
    ALL_ROWS,
    UNSAVED_ROWS,      /* those that no checkpoint holds */
    ROWS_BESIDE_MODEL, /* those that a checkpoint's file of the model does not hold */
};

/* The making of initial values. */
struct beginning {
    struct state *s;
    const struct job *job;
    enum which which;
    struct weights *weights; /* the file that gives some of the tensors; NULL: there is none */
    struct pool *pool;       /* NULL: the calling thread makes all parts */
    char *host; /* room for the largest tensor; NULL: the backend's memory is the host's */
};

/* 1: the i-th tensor of slot k gets its initial values here. */
static int is_made(const struct beginning *b, int k, int i)
{
    const struct slot *slot = &b->s->slot[k];

    if (!slot->data || (b->weights && weights_has(b->weights, k, i)))
        return 0;
    if (b->which == UNSAVED_ROWS)
        return !slot_is_saved(slot->def);
    return b->which == ALL_ROWS || slot->def->file != SLOT_IN_MODEL;
}

static int init_tensor(const struct beginning *b, int k, int i, struct err *err)
{
    const struct slot *slot = &b->s->slot[k];
    const struct slot_def *d = slot->def;
    const struct slot_tensor t = slot_tensor(b->s->layout, d, i);
    char *data = (char *)slot->data + t.at, *to = b->host ? b->host : data;
    struct making m = {d, b->job, b->s->layout, i, tensor_elements(b->s, d, i), to};

    ASSERT(t.at + t.n_bytes <= slot->n_bytes);
    if (d->init_part)
        state_make_parts(&m, b->pool);
    else if (b->host)
        memset(to, 0, t.n_bytes);
    else if (backend_zero_start(b->s->backend, to, t.n_bytes, err) < 0)
        return err->code;
    if (d->init)
        d->init(b->job, b->s->layout, i, to);
    return b->host ? backend_copy_in(b->s->backend, data, b->host, t.n_bytes, err) : 0;
}

/* Make the threads that make parts, as far as there are parts for them. */
static int state_make_pool(struct beginning *b, struct err *err)
{
    const struct state *s = b->s;
    int64_t n = 1;

    for (int k = 0; k < s->n_slots; k++)
        for (int i = 0; s->slot[k].def->init_part && i < slot_n_tensors(s->layout, s->slot[k].def);
             i++)
            n += is_made(b, k, i) ? tensor_elements(s, s->slot[k].def, i) / SLOT_PART : 0;
    n = min_i64(n, min_i64(s->n_threads, POOL_MAX_THREADS));
    if (n <= 1 || pool_new(&b->pool, (int)n, err) == 0)
        return 0;
    return err_wrap(err, "to draw initial values (set --threads lower)");
}

static size_t largest_tensor(const struct state *s)
{
    size_t most = 0;

    for (int k = 0; k < s->n_slots; k++)
        for (int i = 0; i < slot_n_tensors(s->layout, s->slot[k].def); i++) {
            const size_t n_bytes = slot_tensor(s->layout, s->slot[k].def, i).n_bytes;

            most = n_bytes > most ? n_bytes : most;
        }
    return most;
}

static int init_rows(struct state *s, const struct job *job, enum which which,
                     struct weights *weights, struct err *err)
{
    struct beginning b = {.s = s, .job = job, .which = which, .weights = weights};
    int rc = 0;

    if (backend_is_apart(s->backend))
        rc = try_alloc((void **)&b.host, largest_tensor(s), "a tensor's initial values", err);
    if (rc == 0)
        rc = state_make_pool(&b, err);
    for (int k = 0; k < s->n_slots; k++)
        for (int i = 0; i < slot_n_tensors(s->layout, s->slot[k].def) && rc == 0; i++)
            if (is_made(&b, k, i))
                rc = init_tensor(&b, k, i, err);
    pool_free(b.pool);
    free(b.host);
    return rc;
}

int state_init(struct state *s, const struct job *job, struct err *err)
{
    struct weights *weights = NULL;
    const enum init_name from = job->model.init.name;
    int rc = from == INIT_FILE || from == INIT_IMPORT ? weights_open(s, job, &weights, err) : 0;

    if (rc == 0)
        rc = init_rows(s, job, ALL_ROWS, weights, err);
    if (rc == 0 && weights)
        rc = weights_take(weights, err);
    if (rc == 0 && state_data(s, &slot_base))
        rc = base_hash(s, &s->at.base, err);
    weights_close(weights);
    return rc;
}

/* Refuse a base that the run did not begin with.  wanted 0: a run from before this was kept. */
static int state_check_base(struct state *s, struct hash128 wanted, struct err *err)
{
    char seen[HASH_TEXT_LEN], want[HASH_TEXT_LEN];

    if (base_hash(s, &s->at.base, err) < 0)
        return err->code;
    if (hash_equal(wanted, (struct hash128){0}) || hash_equal(wanted, s->at.base))
        return 0;
    hash_to_text(s->at.base, seen);
    hash_to_text(wanted, want);
    return err_set(
        err, ERR_CONFIG,
        "the file of model.init has other weights than when the run began (their hash is "
        "%s, the checkpoint wants %s); put the former file there",
        seen, want);
}

int state_take_base(struct state *s, const struct job *job, struct hash128 wanted, struct err *err)
{
    struct weights *weights = NULL;
    int rc;

    if (!state_data(s, &slot_base))
        return 0;
    rc = weights_open_base(s, job, &weights, err);
    if (rc == 0)
        rc = weights_take(weights, err);
    if (rc == 0)
        rc = state_check_base(s, wanted, err);
    weights_close(weights);
    return rc < 0 ? err_wrap(err, "the frozen base, which checkpoints do not have") : 0;
}

int state_init_beside_model(struct state *s, const struct job *job, struct err *err)
{
    return init_rows(s, job, ROWS_BESIDE_MODEL, NULL, err);
}

int state_init_unsaved(struct state *s, const struct job *job, struct err *err)
{
    return init_rows(s, job, UNSAVED_ROWS, NULL, err);
}
