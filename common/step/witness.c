/* witness - computes two shares of a step, compares their hashes with those of other ranks, and
 * votes where they differ.
 *
 * Both shares use the memory of a step: gradients, scalars, arena.  The other rank's comes first,
 * because the own one's gradients stay there for the strategy.  In a second round the samples of
 * the own share are read again, too, as the loader has moved on.
 *
 * The hash of a gradient is taken where a bucket is complete, before the control vector is packed
 * into the last one: that has requests of this rank alone.  Sums of losses, correct predictions and
 * weights are hashed instead.  With fixed shares each micro-batch is hashed, and the running
 * statistics that it leaves; elsewhere ranks have statistics of their own. */
#include "step/witness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "step/flip.h"
#include "step/step_impl.h"
#include "strategy/cut.h"

enum { MOST_ROUNDS = 3 };

struct answer { /* the hashes of one share */
    struct hash128 batch, gradient;
};

struct opinion { /* what a rank tells the others */
    struct answer own, other;
};

/* How a share is computed. */
struct look {
    int rank;            /* whose share */
    int is_own;          /* 1: its buckets are for the strategy */
    int round;           /* 0: the own share's samples come from the loader */
    struct hash128 *h;   /* [witness.n] of gradients */
    struct hash128 *sum; /* of samples */
};

/* ---- who looks at whom ---- */

static int witness_from(const struct witness *w, int k, int by)
{
    for (int i = 1; i < w->n_ranks; i++) {
        const int r = (k + by * i + w->n_ranks * i) % w->n_ranks;

        if (w->kind[r] == w->kind[k])
            return r;
    }
    return -1;
}

int witness_next(const struct witness *w, int k) { return witness_from(w, k, 1); }
int witness_before(const struct witness *w, int k) { return witness_from(w, k, -1); }

static int count_kind(const struct witness *w, int kind)
{
    int n = 0;

    for (int k = 0; k < w->n_ranks; k++)
        n += w->kind[k] == kind;
    return n;
}

void witness_begin(struct stepper *t, const int *kind, int n_ranks)
{
    struct witness *w = &t->witness;

    witness_fini(w);
    w->n_ranks = n_ranks;
    w->n = t->layout->n_params + 1;
    w->kind = xcalloc((size_t)n_ranks, sizeof *w->kind);
    memcpy(w->kind, kind, sizeof *kind * (size_t)n_ranks);
    w->all = xcalloc((size_t)n_ranks, sizeof *w->all);
    w->own = xcalloc(3 * (size_t)w->n, sizeof *w->own);
    w->other = w->own + w->n;
    w->voted = w->other + w->n;
}

void witness_fini(struct witness *w)
{
    free(w->kind);
    free(w->all);
    free(w->own);
    *w = (struct witness){0};
}

int witness_is_due(const struct stepper *t, int64_t step)
{
    return t->witness.kind && !t->watch.filled_ns && t->hooks.audits(t->hooks.arg, step);
}

/* ---- hashes ---- */

static void hash_bucket(const struct stepper *t, int bucket, struct hash128 *h)
{
    const struct bucket *b = &t->layout->bucket[bucket];
    const int64_t end = b->offset + cut_bucket(t->layout, bucket);
    const char *x = t->buffers->bucket[bucket];

    for (int i = 0; i < t->layout->n_params; i++) {
        const struct segment *s = &t->layout->param[i];

        if (s->offset >= b->offset && s->offset < end)
            hash_chain(&h[i], x + dtype_size(b->dtype) * (size_t)(s->offset - b->offset),
                       dtype_size(b->dtype) * (size_t)s->length);
    }
}

static void hash_sums(const struct stepper *t, struct hash128 *h)
{
    const struct buffers *b = t->buffers;

    hash_chain(h, b->numbers->metrics, sizeof b->numbers->metrics);
    if (t->sampler->n_shares > 0 && t->layout->n_state_total > 0)
        hash_chain(h, b->shadow, sizeof *b->shadow * (size_t)t->layout->n_state_total);
}

static void hash_batch(const struct stepper *t, const struct micro *m, struct hash128 *h)
{
    for (int i = 0; i < t->spec->n_fields && m->batch.n > 0; i++)
        hash_chain(h, program_input(m->program, i),
                   sample_field_bytes(&t->spec->field[i]) * (size_t)m->batch.n);
}

/* ---- computing a share ---- */

static int witness_bucket(struct stepper *t, const struct look *l, const struct micro *m, int b,
                          struct err *err)
{
    const int is_leaf = t->sampler->n_shares > 0, is_end = b == t->layout->n_buckets - 1;
    int rc = 0;

    if (!m->key.last && !is_leaf)
        return 0;
    if (t->buffers->sum)
        rc = update_round(t->update, b, err);
    if (rc == 0 && l->is_own)
        rc = flip_if_due(t, b, 0, err);
    if (rc < 0)
        return rc;
    hash_bucket(t, b, l->h);
    if (is_end)
        hash_sums(t, &l->h[t->layout->n_params]);
    if (!l->is_own)
        return 0;
    if (is_end)
        rc = update_pack(t->update, err);
    return rc == 0 && !m->key.last ? reducer_bucket(t->reducer, b, err) : rc;
}

static int run_stages(struct stepper *t, const struct look *l, const struct micro *m,
                      struct err *err)
{
    int rc = 0;

    for (int i = 0; i < program_n_stages(m->program) && rc == 0; i++) {
        const struct stage *s = program_stage(m->program, i);

        ASSERT(s->kind != STAGE_SYNC);
        step_at(t, s->backward ? PHASE_BACKWARD : PHASE_FORWARD, -1);
        if (s->kind == STAGE_RUN && s->backward && l->is_own && m->key.last)
            faults_reach(t->faults, INJECTION_AT_BACKWARD, t->queued->step);
        if (s->kind == STAGE_RUN)
            rc = program_run_stage(m->program, i, err);
        else if (s->kind == STAGE_GATHER)
            rc = step_gather(t, m->program, s->set, err);
        else
            rc = witness_bucket(t, l, m, s->bucket, err);
    }
    return rc;
}

/* Read the samples of the micro-batch into the inputs of its program. */
static int witness_read(struct stepper *t, const struct micro *m, struct err *err)
{
    const struct batch *b = &m->batch;
    const struct dataset *ds = t->dataset;
    const struct dataset_draw draw = {t->sampler->seed, b->epoch};
    const struct sampler_step at = sampler_at(t->sampler, b->step);
    void *field[SAMPLE_MAX_FIELDS] = {NULL};
    int64_t *index;
    int rc;

    if (b->n == 0)
        return 0;
    index = xcalloc((size_t)b->n, sizeof *index);
    rc = dataset_alloc(ds, b->n, field, "a batch of another rank", err);
    sampler_list(t->sampler, &at, (struct span){b->first, b->n}, index);
    if (rc == 0)
        rc = dataset_gather_drawn(ds, &draw, index, b->n, field, err);
    for (int i = 0; rc == 0 && i < t->spec->n_fields; i++)
        rc = backend_copy_in(t->backend, program_input(m->program, i), field[i],
                             sample_field_bytes(&t->spec->field[i]) * (size_t)b->n, err);
    free(field[0]);
    free(index);
    return rc < 0 ? err_wrap(err, "training data") : 0;
}

static struct micro micro_of(const struct stepper *t, const struct look *l, int micro)
{
    const struct sampler_step at = sampler_at(t->sampler, t->queued->step);
    const int n = t->witness.n_ranks, accumulate = (int)t->job->train.accumulate;
    const struct span part = sampler_micro(&at, n, l->rank, accumulate, micro);

    return (struct micro){
        .batch = {.n = part.n,
                  .step = at.step,
                  .epoch = at.epoch,
                  .micro = micro,
                  .first = part.first,
                  .n_global = at.n},
        .program = programs_find(t->programs, 1, part.n),
        .key = {.first = micro == 0,
                .last = micro == sampler_n_micros(&at, n, l->rank, accumulate) - 1}};
}

/* Bring the micro-batch's scalars and samples to its program. */
static int witness_load(struct stepper *t, const struct look *l, int micro, struct micro *m,
                        struct err *err)
{
    const int is_loaded = l->is_own && l->round == 0;
    int rc = 0;

    *m = micro_of(t, l, micro);
    if (is_loaded)
        rc = step_load(t, micro, m, err);
    if (rc == 0)
        rc = step_send_scalars(t, &m->batch, err);
    if (rc == 0)
        rc = is_loaded ? feed_put(t->feed, m->program, err) : witness_read(t, m, err);
    if (rc == 0 && l->is_own && micro == 0)
        rc = flip_batch(t, m->program, err);
    if (rc == 0)
        hash_batch(t, m, l->sum);
    return rc;
}

static int look_at_micro_batch(struct stepper *t, const struct look *l, int micro, int *is_last,
                               struct err *err)
{
    struct micro m;
    int rc = witness_load(t, l, micro, &m, err);

    *is_last = m.key.last;
    if (rc == 0)
        rc = step_begin_sums(t, &m, err);
    if (rc == 0 && l->is_own && l->round == 0)
        rc = reducer_micro_begin(t->reducer, m.key.first, m.key.last, err);
    if (rc == 0)
        rc = run_stages(t, l, &m, err);
    return rc == 0 && !m.key.last ? step_carry(t, err) : rc;
}

/* Compute the share, and note its hashes. */
static int witness_look(struct stepper *t, const struct look *l, struct answer *out,
                        struct err *err)
{
    struct witness *w = &t->witness;
    int is_last = 0, rc = 0;

    memset(l->h, 0, sizeof *l->h * (size_t)w->n);
    *out = (struct answer){{0, 0}, {0, 0}};
    w->is_looking = 1;
    w->share = l->rank;
    for (int i = 0; !is_last && rc == 0; i++)
        rc = look_at_micro_batch(t, l, i, &is_last, err);
    w->is_looking = 0;
    out->batch = *l->sum;
    out->gradient = hash_of(l->h, sizeof *l->h * (size_t)w->n);
    return rc;
}

static int look_at_other(struct stepper *t, struct answer *out, struct err *err)
{
    const int other = witness_next(&t->witness, coll_rank(t->coll));
    struct hash128 sum = {0, 0};
    const struct look l = {.rank = other, .round = 1, .h = t->witness.other, .sum = &sum};

    return other >= 0 ? witness_look(t, &l, out, err) : 0;
}

static int look_at_own(struct stepper *t, int round, struct answer *out, struct err *err)
{
    struct hash128 sum = {0, 0};
    const struct look l = {
        .rank = coll_rank(t->coll), .is_own = 1, .round = round, .h = t->witness.own, .sum = &sum};

    if (round > 0)
        reducer_forget(t->reducer);
    return witness_look(t, &l, out, err);
}

/* ---- who is right ---- */

static int is_equal(const struct answer *a, const struct answer *b)
{
    return hash_equal(a->batch, b->batch) && hash_equal(a->gradient, b->gradient);
}

static int witness_gather(struct stepper *t, const void *mine, size_t n_bytes, void *all,
                          struct err *err)
{
    return step_allgather(t, PHASE_REDUCE, mine, n_bytes, all, err);
}

/* The answer of more than half of the ranks of this kind; NULL: there is none. */
static const struct answer *find_majority(const struct witness *w, const struct answer *vote,
                                          int kind)
{
    for (int k = 0; k < w->n_ranks; k++) {
        int n = 0;

        for (int r = 0; r < w->n_ranks; r++)
            n += w->kind[k] == kind && w->kind[r] == kind && is_equal(&vote[r], &vote[k]);
        if (2 * n > count_kind(w, kind))
            return &vote[k];
    }
    return NULL;
}

/* A rank is at fault, or may be.  It is told once in a step; what is proven counts. */
static void note_found(struct stepper *t, int rank, int is_proven, enum corruption what,
                       const char *tensor)
{
    struct witness *w = &t->witness;
    struct witness_finding *f = NULL;

    for (int i = 0; i < w->n_found && !f; i++)
        if (w->found[i].rank == rank)
            f = &w->found[i];
    if (!f && w->n_found < WITNESS_MOST_FOUND)
        f = &w->found[w->n_found++];
    else if (!f || (f->is_proven && !is_proven))
        return;
    *f = (struct witness_finding){.step = t->queued->step,
                                  .rank = rank,
                                  .is_proven = is_proven,
                                  .what = what,
                                  .tensor = tensor};
}

/* vote [n_ranks]: each rank's new answer about the share of `owner`, of those of its kind. */
static void witness_judge(struct stepper *t, int owner, const struct answer *vote,
                          const char *tensor)
{
    struct witness *w = &t->witness;
    const int auditor = witness_before(w, owner);
    const struct answer *own = &w->all[owner].own, *other = &w->all[auditor].other;
    const enum corruption what =
        hash_equal(own->batch, other->batch) ? CORRUPTION_GRADIENT : CORRUPTION_BATCH;
    int owner_fails, auditor_fails, is_proven = 1;

    if (count_kind(w, w->kind[owner]) > 2) {
        const struct answer *right = find_majority(w, vote, w->kind[owner]);

        owner_fails = !right || !is_equal(own, right);
        auditor_fails = !right || !is_equal(other, right);
        is_proven = right != NULL;
    } else {
        owner_fails = !is_equal(own, &vote[owner]);
        auditor_fails = !is_equal(other, &vote[auditor]);
        if (owner_fails == auditor_fails)
            owner_fails = auditor_fails = 1, is_proven = 0;
    }
    if (owner_fails)
        note_found(t, owner, is_proven, what, tensor);
    if (auditor_fails)
        note_found(t, auditor, is_proven, what, tensor);
}

/* *tensor: the first parameter whose gradients the two ranks computed differently.  The ranks'
 * first hashes of all parameters go to all ranks. */
static int witness_find_tensor(struct stepper *t, int owner, const char **tensor, struct err *err)
{
    struct witness *w = &t->witness;
    const size_t n = (size_t)w->n;
    const int auditor = witness_before(w, owner);
    struct hash128 *pair = xcalloc(2 * n, sizeof *pair);
    int i = 0, rc;

    memcpy(pair, w->own, n * sizeof *pair);
    memcpy(pair + n, w->other, n * sizeof *pair);
    rc = coll_broadcast(t->coll, pair, n * sizeof *pair, owner, err);
    if (rc == 0)
        rc = coll_broadcast(t->coll, pair + n, n * sizeof *pair, auditor, err);
    while (i < w->n && hash_equal(pair[i], pair[n + (size_t)i]))
        i++;
    *tensor = rc == 0 && i < t->layout->n_params ? t->layout->param[i].name : NULL;
    free(pair);
    return rc;
}

/* The two answers about the share of `owner` differ: all ranks of its kind compute it, and vote. */
static int witness_vote(struct stepper *t, int owner, struct err *err)
{
    struct witness *w = &t->witness;
    const int rank = coll_rank(t->coll);
    struct answer mine = {{0, 0}, {0, 0}};
    struct answer *vote = xcalloc((size_t)w->n_ranks, sizeof *vote);
    struct hash128 sum = {0, 0};
    const struct look l = {.rank = owner, .round = 1, .h = w->voted, .sum = &sum};
    const char *tensor;
    int rc = witness_find_tensor(t, owner, &tensor, err);

    if (rc == 0 && w->kind[rank] == w->kind[owner])
        rc = witness_look(t, &l, &mine, err);
    if (rc == 0)
        rc = witness_gather(t, &mine, sizeof mine, vote, err);
    if (rc == 0)
        witness_judge(t, owner, vote, tensor);
    free(vote);
    return rc;
}

/* One round: both shares, and the votes where answers differ.  Returns the number of shares in
 * which they do, the same on all ranks. */
static int witness_round(struct stepper *t, int round, struct err *err)
{
    struct witness *w = &t->witness;
    struct opinion mine = {0};
    int n = 0, rc = look_at_other(t, &mine.other, err);

    if (rc == 0)
        rc = look_at_own(t, round, &mine.own, err);
    if (rc == 0)
        rc = witness_gather(t, &mine, sizeof mine, w->all, err);
    for (int k = 0; k < w->n_ranks && rc == 0; k++) {
        const int auditor = witness_before(w, k);

        if (auditor < 0 || is_equal(&w->all[k].own, &w->all[auditor].other))
            continue;
        n++;
        rc = witness_vote(t, k, err);
    }
    return rc < 0 ? rc : n;
}

/* ---- the outcome ---- */

static void tell_found(struct stepper *t, int is_healed)
{
    struct witness *w = &t->witness;
    int is_proven = 0;

    for (int i = 0; i < w->n_found; i++)
        is_proven |= w->found[i].is_proven;
    for (int i = 0; i < w->n_found; i++) {
        w->found[i].is_healed = is_healed;
        w->found[i].ends = !is_healed && !is_proven && i == w->n_found - 1;
        t->hooks.found(t->hooks.arg, &w->found[i]);
    }
}

/* The ranks do not agree, however often they compute it. */
static int witness_fail(struct stepper *t, struct err *err)
{
    const struct witness *w = &t->witness;

    for (int i = 0; i < w->n_found; i++)
        if (w->found[i].is_proven && w->found[i].rank == coll_rank(t->coll))
            return err_set(
                err, ERR_DEVICE,
                "this rank computes wrong gradients: in %d rounds the other ranks agreed "
                "on other ones; test its processor and its memory",
                MOST_ROUNDS);
    return err_set(err, ERR_CANCELED, "the ranks do not agree on a gradient");
}

/* The gradients of the own share are right: hand them to the strategy. */
static int hand_over(struct stepper *t, struct err *err)
{
    int rc = 0;

    for (int b = 0; b < t->layout->n_buckets && rc == 0; b++) {
        t->next_bucket = b + 1;
        rc = reducer_bucket(t->reducer, b, err);
    }
    return rc == 0 ? step_conclude(t, err) : rc;
}

int witness_step(struct stepper *t, struct err *err)
{
    int n = 1;

    t->witness.n_found = 0;
    t->next_bucket = 0;
    for (int round = 0; round < MOST_ROUNDS && n > 0; round++)
        n = witness_round(t, round, err);
    if (n >= 0 && t->witness.n_found > 0)
        tell_found(t, n == 0);
    if (n < 0)
        return err->code;
    return n == 0 ? hand_over(t, err) : witness_fail(t, err);
}
