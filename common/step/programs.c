/* programs - the table of programs, by purpose and batch size.
 *
 * The batch sizes that a rank will meet follow from the sampler; a program is made for each of them
 * ahead, and all are bound to one arena.
 *
 * A formation keeps those programs of the former one that it wants, too.  They stay bound, because
 * a kernel gets its addresses only once.  So they are kept only if no address has moved, and they
 * are made anew if the arena must grow. */
#include "step/programs.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "program/base.h"
#include "state/shards.h"

/* A validation batch is large enough to compute efficiently, and small enough for small machines.
 * It is the whole part if that is smaller.  No value of its program is larger than
 * VALIDATION_BYTES, unless one sample's is: the logits of 64 samples would be 13 GB in GPT-2. */
enum {
    VALIDATION_BATCH_LEAST = 64,
    VALIDATION_BATCH_MOST = 512,
    VALIDATION_BYTES = 256 << 20,
};

enum { EVALUATION = 0, TRAINING = 1, STATISTICS }; /* the first two as programs_find has them */

struct entry {
    int purpose;
    int64_t batch;
    struct program *program;
    int is_kept; /* from the former formation, and bound */
};

/* All that a program depends on, besides its purpose and batch size, and that may change from one
 * formation to the next. */
struct setting {
    int n_threads, syncs;
    struct program_spaces training, evaluation;
};

struct programs {
    struct entry *entry;
    int n;
    struct setting setting;
    int64_t validation_batch, validation_unit, statistics_batch;
};

static struct entry *programs_find_kept(const struct programs *p, int purpose, int64_t batch)
{
    for (int i = 0; i < p->n; i++)
        if (p->entry[i].purpose == purpose && p->entry[i].batch == batch)
            return &p->entry[i];
    return NULL;
}

static void programs_want(struct programs *p, int purpose, int64_t batch)
{
    if (programs_find_kept(p, purpose, batch))
        return;
    p->entry = xrealloc(p->entry, sizeof *p->entry * (size_t)(p->n + 1));
    p->entry[p->n++] = (struct entry){.purpose = purpose, .batch = batch};
}

static void want_training_of(struct programs *p, const struct programs_options *o,
                             const struct sampler_step *at, int rank)
{
    const int accumulate = (int)o->job->train.accumulate;

    for (int m = 0, n = sampler_n_micros(at, o->n_ranks, rank, accumulate); m < n; m++)
        programs_want(p, TRAINING, sampler_micro(at, o->n_ranks, rank, accumulate, m).n);
}

/* A rank's batch sizes depend only on whether a step is a full one or the last of its epoch, so
 * looking at two steps finds them all. */
static void want_training(struct programs *p, const struct programs_options *o)
{
    int64_t last = sampler_steps_per_epoch(o->sampler) - 1;

    for (int i = 0; i < 2; i++) {
        struct sampler_step at = sampler_at(o->sampler, i ? last : 0);

        for (int r = 0; r < o->n_ranks; r++)
            if (r == o->rank || o->audits)
                want_training_of(p, o, &at, r);
    }
}

/* The size of the largest value that one sample needs in validation. */
static int largest_value(const struct programs_options *o, int64_t *out, struct err *err)
{
    struct graph *g = NULL;
    const int rc = model_build(&o->job->model, o->spec, 1, 0, 0, &g, err);

    *out = 1;
    for (int v = 0; rc == 0 && v < g->n_values; v++)
        if (g->value[v].role == VALUE_TEMP || g->value[v].role == VALUE_INPUT)
            *out = max_i64(*out, shape_elements(&g->value[v].shape) *
                                     (int64_t)dtype_size(g->value[v].dtype));
    graph_free(g);
    return rc;
}

static void want_validation(struct programs *p, const struct programs_options *o, int64_t each)
{
    const struct span all = {0, o->n_validation};
    struct span part;
    int64_t largest = sampler_largest_micro(o->sampler, o->n_ranks, (int)o->job->train.accumulate);

    p->validation_batch = min_i64(max_i64(largest, VALIDATION_BATCH_LEAST), VALIDATION_BATCH_MOST);
    p->validation_batch = max_i64(min_i64(p->validation_batch, VALIDATION_BYTES / each), 1);
    if (o->job->model.contrasts) /* losses of groups, which must not depend on the ranks */
        p->validation_batch =
            max_i64(min_i64(min_i64(o->sampler->global_batch, VALIDATION_BATCH_MOST),
                            VALIDATION_BYTES / each),
                    1);
    p->validation_unit = o->sampler->n_shares || o->job->model.contrasts ? p->validation_batch : 1;
    part = span_part_of_pieces(all, p->validation_unit, o->n_ranks, o->rank);
    if (part.n >= p->validation_batch)
        programs_want(p, EVALUATION, p->validation_batch);
    if (part.n % p->validation_batch)
        programs_want(p, EVALUATION, part.n % p->validation_batch);
    if (o->gathers && o->n_validation > 0)
        programs_want(p, EVALUATION, 0);
}

/* A global batch, or less of it where that would need much memory.  It must not depend on the
 * number of ranks. */
static void want_statistics(struct programs *p, const struct programs_options *o, int64_t each)
{
    const int64_t most = min_i64(VALIDATION_BATCH_MOST, max_i64(VALIDATION_BYTES / each, 1));

    if (!o->statistics)
        return;
    p->statistics_batch = min_i64(min_i64(o->sampler->global_batch, o->sampler->n_samples), most);
    programs_want(p, STATISTICS, p->statistics_batch);
}

/* Make the next running statistics those of the batch alone. */
static void forget_running(struct graph *g)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (g->node[i].op == OP_batch_norm)
            g->node[i].attr.norm.momentum = 1;
}

struct program_precision programs_precision(const struct job *job, int accumulates)
{
    static const enum dtype type[] = {[PRECISION_FLOAT32] = DTYPE_F32,
                                      [PRECISION_BFLOAT16] = DTYPE_BF16,
                                      [PRECISION_FLOAT16] = DTYPE_F16};
    const int is_half = job->train.grad_dtype == GRAD_BFLOAT16 && !accumulates;

    return (struct program_precision){type[job->precision], is_half ? DTYPE_BF16 : DTYPE_F32};
}

int programs_set_types(struct graph *g, const struct job *job, int accumulates, struct err *err)
{
    static const enum dtype form[] = {
        [BASE_FLOAT32] = DTYPE_F32, [BASE_BFLOAT16] = DTYPE_BF16, [BASE_INT8] = DTYPE_I8};
    const struct program_precision p = programs_precision(job, accumulates);
    const int rc = program_pack_base(g, form[job->model.base], p.compute, err);

    return rc == 0 ? program_set_precision(g, p, err) : rc;
}

/* Append the gradients' nodes.  With sums of micro-batches they add to these.  Gradients that are
 * divided have memory only for a short time. */
static int programs_differentiate(struct graph *g, const struct state *s, const struct buffers *m,
                                  struct err *err)
{
    int rc;

    g->grads_at_once = s->shards && s->shards->divides_gradients;
    rc = program_differentiate(g, err);
    if (rc == 0 && m->sum)
        program_accumulate(g);
    return rc;
}

/* MODEL_SYNC_NORMS and MODEL_SYNC_LOSS, where there are several ranks and the job wants them. */
static int programs_syncs(const struct programs_options *o)
{
    return (o->job->model.sync_batch_norm && o->n_ranks > 1 ? MODEL_SYNC_NORMS : 0) |
           (o->job->model.contrasts && o->n_ranks > 1 ? MODEL_SYNC_LOSS : 0);
}

/* 1: batch norm sums its statistics over all ranks. */
static int programs_sync_norms(const struct programs_options *o)
{
    return (programs_syncs(o) & MODEL_SYNC_NORMS) != 0;
}

/* The samples over which batch norm sums in one full micro-batch: this rank's, or those of all
 * ranks. */
static int64_t n_normalised(const struct programs_options *o)
{
    const struct sampler_step full = sampler_at(o->sampler, 0);
    const int accumulate = (int)o->job->train.accumulate;
    int64_t n = 0;

    for (int k = 0; k < o->n_ranks && programs_sync_norms(o); k++)
        n += sampler_micro(&full, o->n_ranks, k, accumulate, 0).n;
    return programs_sync_norms(o) ? n : sampler_largest_micro(o->sampler, o->n_ranks, accumulate);
}

/* Refuse a batch norm that would have one value per channel in each full micro-batch.  It would
 * give its bias for every sample, and nothing before it would learn.  A shorter batch, such as an
 * epoch's last one, may have one value: it leaves the running statistics alone (op/batch_norm.c).
 */
static int check_norms(const struct graph *g, const struct programs_options *o, struct err *err)
{
    const int64_t n_samples = n_normalised(o);

    for (int i = 0; i < g->n_nodes; i++) {
        const struct node *n = &g->node[i];
        const struct shape *x = &g->value[n->in[0]].shape;

        if (n->op != OP_batch_norm || g->batch == 0 || n_samples > 1 ||
            shape_elements(x) / x->dim[x->n - 1] / g->batch > 1)
            continue;
        return err_set(
            err, ERR_CONFIG,
            "%s: batch norm has 1 value per channel in a micro-batch%s, whose variance is "
            "0, so that nothing is learned; want 2 or more: train.global_batch is %lld, "
            "train.accumulate %lld, with %d rank%s%s",
            n->name, programs_sync_norms(o) ? " of all ranks" : "",
            (long long)o->sampler->global_batch, (long long)o->job->train.accumulate, o->n_ranks,
            o->n_ranks == 1 ? "" : "s",
            o->n_ranks > 1 && !programs_syncs(o) ? ", model.sync_batch_norm is false" : "");
    }
    return 0;
}

int programs_check_norms(const struct programs_options *o, struct err *err)
{
    struct graph *g = NULL;
    int rc = model_build(&o->job->model, o->spec, 1, 1, programs_syncs(o), &g, err);

    if (rc == 0)
        rc = check_norms(g, o, err);
    graph_free(g);
    return rc;
}

static int programs_make(struct entry *e, const struct programs_options *o, struct backend *b,
                         const struct state *s, const struct buffers *m, struct err *err)
{
    static const enum graph_recompute recompute[] = {[RECOMPUTE_NONE] = GRAPH_RECOMPUTE_NONE,
                                                     [RECOMPUTE_SELECTIVE] =
                                                         GRAPH_RECOMPUTE_SELECTIVE,
                                                     [RECOMPUTE_BLOCKS] = GRAPH_RECOMPUTE_BLOCKS};
    struct graph *g = NULL;
    const int training = e->purpose == TRAINING;
    int rc = model_build(&o->job->model, o->spec, e->batch, e->purpose != EVALUATION,
                         training ? programs_syncs(o) : 0, &g, err);

    if (rc == 0 && e->purpose == STATISTICS)
        forget_running(g);
    if (rc == 0 && training)
        rc = check_norms(g, o, err);
    if (rc == 0)
        g->recompute = recompute[o->job->train.recompute];
    if (rc == 0 && training)
        rc = groups_freeze(&o->job->optimizer, g, err);
    if (rc == 0 && training)
        rc = programs_differentiate(g, s, m, err);
    if (rc == 0)
        rc = programs_set_types(g, o->job, o->job->train.accumulate > 1, err);
    if (rc == 0)
        return program_new(b, g, s->layout, &e->program, err);
    graph_free(g);
    return rc;
}

/* Note the buckets that must have memory at the same time: of two sets of buckets in sequence, the
 * second is gathered while the first is read. */
static void note_sets(const struct program *p, int n_buckets, char *apart)
{
    for (int i = 0; i < program_n_sets(p); i++) {
        int bucket[2 * PROGRAM_MOST_IN_SET], n[2] = {0};
        const int *first = program_set(p, i, &n[0]), *second = NULL;

        if (i + 1 < program_n_sets(p))
            second = program_set(p, i + 1, &n[1]);
        for (int k = 0; k < n[0] + n[1]; k++)
            bucket[k] = k < n[0] ? first[k] : second[k - n[0]];
        for (int a = 0; a < n[0] + n[1]; a++)
            for (int b = 0; b < n[0] + n[1]; b++)
                apart[bucket[a] * n_buckets + bucket[b]] = 1;
    }
}

static int programs_fit_params(const struct programs *p, const struct layout *l, struct buffers *m,
                               struct err *err)
{
    char *apart;
    int rc;

    if (!l->gathers)
        return 0;
    apart = xcalloc((size_t)l->n_param_buckets * (size_t)l->n_param_buckets, 1);
    for (int i = 0; i < p->n; i++)
        note_sets(p->entry[i].program, l->n_param_buckets, apart);
    rc = buffers_fit_params(m, l, apart, err);
    free(apart);
    return rc;
}

/* Make the programs that are not there yet. */
static int make_missing(struct programs *p, const struct programs_options *o, struct backend *b,
                        const struct state *s, const struct buffers *m, struct err *err)
{
    int rc = 0;

    for (int i = 0; i < p->n && rc == 0; i++)
        if (!p->entry[i].program)
            rc = programs_make(&p->entry[i], o, b, s, m, err);
    return rc;
}

static size_t arena_bytes(const struct programs *p)
{
    size_t n_bytes = 0;

    for (int i = 0; i < p->n; i++)
        if (program_arena_bytes(p->entry[i].program) > n_bytes)
            n_bytes = program_arena_bytes(p->entry[i].program);
    return n_bytes;
}

static int programs_bind_all(struct programs *p, const struct state *s, struct buffers *m,
                             struct err *err)
{
    int most_open = 0, rc;

    for (int i = 0; i < p->n; i++)
        most_open = (int)max_i64(most_open, program_most_open(p->entry[i].program));
    rc = buffers_fit(m, arena_bytes(p), err);
    if (rc == 0)
        rc = buffers_fit_buckets(m, s->layout, most_open, err);
    if (rc == 0)
        rc = programs_fit_params(p, s->layout, m, err);
    for (int i = 0; i < p->n && rc == 0; i++)
        if (!p->entry[i].is_kept)
            rc = program_bind(p->entry[i].program,
                              p->entry[i].purpose == TRAINING ? &p->setting.training
                                                              : &p->setting.evaluation,
                              m->arena, err);
    return rc;
}

/* ---- keeping ---- */

static struct setting setting_of(const struct programs_options *o, const struct state *s,
                                 const struct buffers *m)
{
    struct setting now = {.n_threads = o->n_threads, .syncs = programs_syncs(o)};

    now.training = now.evaluation = buffers_spaces(m, s);
    now.evaluation.state = state_data(s, &slot_statistics);
    return now;
}

/* 1: the same but for `syncs`, on which training alone depends. */
static int programs_is_equal(const struct setting *a, const struct setting *b)
{
    return a->n_threads == b->n_threads &&
           !memcmp(&a->training, &b->training, sizeof a->training) &&
           !memcmp(&a->evaluation, &b->evaluation, sizeof a->evaluation);
}

/* Where gradients or parameters are divided, the buckets' addresses are new in each formation.  On
 * a device nothing is kept, because this has not been tried on one. */
static int may_keep(const struct backend *b, const struct state *s)
{
    return !backend_queues(b) && !s->layout->gathers &&
           !(s->shards && s->shards->divides_gradients);
}

static void programs_keep(struct programs *p, struct programs *former)
{
    for (int i = 0; i < p->n; i++) {
        struct entry *e = &p->entry[i], *f = programs_find_kept(former, e->purpose, e->batch);

        if (!f || (e->purpose == TRAINING && p->setting.syncs != former->setting.syncs))
            continue;
        e->program = f->program;
        e->is_kept = 1;
        f->program = NULL;
    }
}

static void drop_kept(struct programs *p)
{
    for (int i = 0; i < p->n; i++) {
        struct entry *e = &p->entry[i];

        if (!e->is_kept)
            continue;
        program_free(e->program);
        e->program = NULL;
        e->is_kept = 0;
    }
}

/* ---- new, free, find ---- */

int programs_new(const struct programs_options *o, struct backend *b, const struct state *s,
                 struct buffers *m, struct programs **out, struct err *err)
{
    struct programs *p = xcalloc(1, sizeof *p);
    int64_t each;
    int rc = largest_value(o, &each, err);

    p->setting = setting_of(o, s, m);
    want_training(p, o);
    want_validation(p, o, each);
    want_statistics(p, o, each);
    if (o->former && may_keep(b, s) && programs_is_equal(&p->setting, &o->former->setting))
        programs_keep(p, o->former);
    programs_free(o->former);
    if (rc == 0)
        rc = make_missing(p, o, b, s, m, err);
    if (rc == 0 && arena_bytes(p) > m->arena_bytes) {
        drop_kept(p);
        rc = make_missing(p, o, b, s, m, err);
    }
    if (rc == 0)
        rc = programs_bind_all(p, s, m, err);
    if (rc < 0) {
        programs_free(p);
        return rc;
    }
    *out = p;
    return 0;
}

void programs_free(struct programs *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n; i++)
        program_free(p->entry[i].program);
    free(p->entry);
    free(p);
}

struct program *programs_find(const struct programs *p, int training, int64_t batch)
{
    struct entry *e = programs_find_kept(p, training ? TRAINING : EVALUATION, batch);

    ASSERT(e);
    return e->program;
}

struct program *programs_statistics(const struct programs *p)
{
    struct entry *e = programs_find_kept(p, STATISTICS, p->statistics_batch);

    ASSERT(e);
    return e->program;
}

int64_t programs_statistics_batch(const struct programs *p) { return p->statistics_batch; }

int64_t programs_validation_batch(const struct programs *p) { return p->validation_batch; }
int64_t programs_validation_unit(const struct programs *p) { return p->validation_unit; }
