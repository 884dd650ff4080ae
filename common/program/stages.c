/* stages - cuts a program's steps into stages: between two stages ranks meet in a collective.
 *
 * A bucket is announced once all its gradients are written and all earlier buckets are announced.
 * So every rank reduces buckets in the same order, whatever its backend fuses.  But the position of
 * a SYNC stage among the buckets does depend on fusion, so can_fuse must not look at the batch
 * size, which differs between ranks. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "program/impl.h"

struct cutter {
    struct program *p;
    int cap;
    int from;           /* first step not yet in a stage */
    int bucket;         /* the next one to announce */
    int *ready_at;      /* [n_buckets]: the last step that writes into it */
    int n_forward_sets; /* sets of buckets that begin in the forward part */
    /* [n_values]: the bucket of the parameter, or working copy, that the value is; -1: it is none,
     * or nothing has to be done before it is read */
    int *read;
};

int program_bucket_of(const struct layout *l, int64_t offset)
{
    const int is_frozen = offset >= l->n_trained;
    const int last = (is_frozen ? l->n_param_buckets : l->n_buckets) - 1;
    int b = is_frozen ? l->n_buckets : 0;

    while (b < last && offset >= l->bucket[b].offset + l->bucket[b].length)
        b++;
    return b;
}

/* The bucket that output v belongs to, or -1. */
static int output_bucket(const struct program *p, int v)
{
    if (v == NO_VALUE || p->graph->value[v].role != VALUE_GRAD)
        return -1;
    return program_bucket_of(p->layout,
                             (int64_t)(p->place[v].offset / dtype_size(p->graph->value[v].dtype)));
}

/* The last bucket that the steps [from, to) write, or -1. */
static int last_bucket(const struct program *p, int from, int to)
{
    int last = -1;

    for (int s = from; s < to; s++) {
        const struct node *n = &p->graph->node[p->step[s].node];

        for (int i = 0; i < n->n_out; i++) {
            const int b = output_bucket(p, n->out[i]);

            last = b > last ? b : last;
        }
    }
    return last;
}

static struct stage *add_stage(struct cutter *c, struct stage s)
{
    struct program *p = c->p;

    if (p->n_stages == c->cap) {
        c->cap = c->cap ? 2 * c->cap : 16;
        p->stage = xrealloc(p->stage, (size_t)c->cap * sizeof *p->stage);
        p->sync_value = xrealloc(p->sync_value, (size_t)c->cap * sizeof *p->sync_value);
    }
    p->sync_value[p->n_stages] = NO_VALUE;
    p->stage[p->n_stages] = s;
    return &p->stage[p->n_stages++];
}

/* Make a RUN stage of all steps before `to` that are not in a stage yet. */
static void close_run(struct cutter *c, int to)
{
    if (to > c->from)
        add_stage(c, (struct stage){.kind = STAGE_RUN,
                                    .from = c->from,
                                    .to = to,
                                    .last_bucket = last_bucket(c->p, c->from, to),
                                    .backward = c->from >= c->p->n_forward_steps});
    c->from = to;
}

static void announce_buckets(struct cutter *c, int done)
{
    const struct layout *l = c->p->layout;

    while (c->bucket < l->n_buckets && c->ready_at[c->bucket] < done) {
        close_run(c, done);
        add_stage(c, (struct stage){.kind = STAGE_BUCKET, .bucket = c->bucket++, .backward = 1});
    }
}

static void add_sync(struct cutter *c, int k, int step)
{
    const int v = c->p->graph->node[k].in[0];

    close_run(c, step);
    add_stage(c, (struct stage){.kind = STAGE_SYNC,
                                .n_sync = shape_elements(&c->p->graph->value[v].shape),
                                .backward = step >= c->p->n_forward_steps});
    c->p->sync_value[c->p->n_stages - 1] = v;
}

/* Find the step after which each bucket is complete; returns how many gradients are written.  The
 * last bucket ends with the control vector, which the engine packs once the loss is known, so that
 * bucket is not complete before the forward part ends. */
static int find_ready(struct cutter *c)
{
    const struct graph *g = c->p->graph;
    char *is_written = xcalloc((size_t)g->n_values, 1);
    int n_written = 0;

    c->ready_at[c->p->layout->n_buckets - 1] = c->p->n_forward_steps - 1;
    for (int s = 0; s < c->p->n_steps; s++) {
        const struct node *n = &g->node[c->p->step[s].node];

        for (int i = 0; i < n->n_out; i++) {
            int b = output_bucket(c->p, n->out[i]);

            if (b < 0)
                continue;
            c->ready_at[b] = s;
            n_written += !is_written[g->value[n->out[i]].partner];
            is_written[g->value[n->out[i]].partner] = 1;
        }
    }
    free(is_written);
    return n_written;
}

static int n_trained_segments(const struct layout *l)
{
    int n = 0;

    while (n < l->n_params && !l->param[n].info.frozen)
        n++;
    return n;
}

/* Check that a differentiated graph writes every gradient of the layout. */
static int check_complete(const struct program *p, int n_written, struct err *err)
{
    if (p->layout && n_written != n_trained_segments(p->layout))
        return err_set(err, ERR_ARG, "the program writes %d gradients, the layout has %d",
                       n_written, n_trained_segments(p->layout));
    return 0;
}

/* ---- sets of buckets that are read ---- */

/* The bucket to gather, or to wait for, before v is read, or -1.  Where all parameters have memory,
 * frozen ones are always there. */
static int bucket_to_read(const struct program *p, int v)
{
    const struct value *value = &p->graph->value[v];
    const int64_t offset = (int64_t)(p->place[v].offset / dtype_size(value->dtype));

    if (value->role != VALUE_PARAM && value->role != VALUE_COPY)
        return -1;
    return p->layout->gathers || offset < p->layout->n_trained
               ? program_bucket_of(p->layout, offset)
               : -1;
}

static int *find_params(const struct program *p)
{
    const struct graph *g = p->graph;
    int *read = xcalloc((size_t)g->n_values, sizeof *read);

    for (int v = 0; v < g->n_values; v++)
        read[v] = bucket_to_read(p, v);
    for (int k = 0; k < g->n_nodes; k++)
        if (op_get(g->node[k].op)->flags & OP_ALIAS)
            read[g->node[k].out[0]] = read[g->node[k].in[0]];
    return read;
}

static int has_bucket(const struct bucket_set *s, int bucket)
{
    for (int i = 0; i < s->n; i++)
        if (s->bucket[i] == bucket)
            return 1;
    return 0;
}

static struct bucket_set set_of(const struct cutter *c, const struct node *n)
{
    struct bucket_set s = {.n = 0};

    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] != NO_VALUE && c->read[n->in[i]] >= 0 && !has_bucket(&s, c->read[n->in[i]]))
            s.bucket[s.n++] = c->read[n->in[i]];
    return s;
}

/* The buckets of s that are not in the i-th set; all of them, if there is no such set. */
static struct bucket_set stages_without(const struct program *p, const struct bucket_set *s, int i)
{
    struct bucket_set rest = {.n = 0};

    for (int k = 0; k < s->n; k++)
        if (i < 0 || !has_bucket(&p->set[i], s->bucket[k]))
            rest.bucket[rest.n++] = s->bucket[k];
    return rest;
}

/* The last set lacks `more`.  If the set before it has them, keep them in memory through the last
 * set, too.  So layers that read two buckets in turns gather each of them once, and need the memory
 * of both.  `first`: the first set of the pass.  Nothing is kept if the last set is of the pass
 * before: at that turn it would save no more than one gathering in a step.  Returns 0 if nothing is
 * kept. */
static int keep_in_last_set(struct program *p, const struct bucket_set *more, int first)
{
    struct bucket_set *last;

    if (p->n_sets < 2 || p->n_sets - 1 < first || stages_without(p, more, p->n_sets - 2).n > 0)
        return 0;
    last = &p->set[p->n_sets - 1];
    if (last->n + more->n > PROGRAM_MOST_IN_SET)
        return 0;
    for (int i = 0; i < more->n; i++)
        last->bucket[last->n++] = more->bucket[i];
    return 1;
}

/* Begin a new set where node k reads a bucket that is not in the set before.  That depends on the
 * nodes alone, not on which of them have steps. */
static void add_gather(struct cutter *c, int k, int step)
{
    struct program *p = c->p;
    const int backward = k >= p->graph->n_forward && p->graph->n_forward > 0;
    const struct bucket_set s = set_of(c, &p->graph->node[k]),
                            more = stages_without(p, &s, p->n_sets - 1);

    if (more.n == 0 || (op_get(p->graph->node[k].op)->flags & OP_ALIAS) ||
        keep_in_last_set(p, &more, backward ? c->n_forward_sets : 0))
        return;
    p->set = xrealloc(p->set, (size_t)(p->n_sets + 1) * sizeof *p->set);
    p->set[p->n_sets++] = s;
    if (!backward)
        c->n_forward_sets = p->n_sets;
    close_run(c, step);
    add_stage(c, (struct stage){.kind = STAGE_GATHER, .set = p->n_sets - 1, .backward = backward});
}

static void stages_cut(struct cutter *c, int has_buckets)
{
    const struct program *p = c->p;
    int step = 0;

    for (int k = 0; k < p->graph->n_nodes; k++) {
        if (op_get(p->graph->node[k].op)->flags & OP_ENGINE)
            add_sync(c, k, step);
        if (c->read)
            add_gather(c, k, step);
        if (step == p->n_steps || p->step[step].node != k)
            continue;
        if (step == p->n_forward_steps)
            close_run(c, step);
        step++;
        if (has_buckets)
            announce_buckets(c, step);
    }
    close_run(c, step);
    if (has_buckets) /* for a program without steps */
        announce_buckets(c, step);
}

int program_make_stages(struct program *p, struct err *err)
{
    const int has_buckets = p->graph->n_forward > 0 && p->layout;
    struct cutter c = {.p = p};
    int rc = 0;

    c.ready_at = xcalloc((size_t)(p->layout ? p->layout->n_buckets : 0) + 1, sizeof *c.ready_at);
    if (has_buckets)
        rc = check_complete(p, find_ready(&c), err);
    if (rc == 0 && p->layout && (p->layout->gathers || p->layout->awaits_params))
        c.read = find_params(p);
    if (rc == 0) {
        stages_cut(&c, has_buckets);
        ASSERT(!has_buckets || c.bucket == p->layout->n_buckets);
    }
    free(c.ready_at);
    free(c.read);
    return rc;
}
