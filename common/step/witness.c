/* witness - computes two shares of a step, hashes them, and gathers what the jury wants to hear.
 *
 * Both shares use the memory of a step: gradients, scalars, arena.  The other rank's comes first,
 * because the own one's gradients stay there for the strategy.  Where it cannot, because it needs
 * sums of the own one, what the own one leaves is copied, and copied back.  In a second round the
 * samples of the own share are read again, too, as the loader has moved on.
 *
 * Where gradients are divided no rank has memory for all of its own.  So the own share's buckets go
 * to the strategy as in any other step, each once it is hashed.  If the ranks do not agree, their
 * sums are computed again, in the same memory, and no update has read them.  The other share's
 * buckets are hashed alone.  Where parameters are divided, each share that any rank computes needs
 * all ranks to gather them: a rank that computes none takes part in that (witness_attend).
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

/* How a share is computed. */
struct look {
    int rank;            /* whose share */
    int is_own;          /* 1: its buckets are for the strategy */
    int round;           /* 0: the own share's samples come from the loader */
    struct hash128 *h;   /* [witness.n] of gradients */
    struct hash128 *sum; /* of samples */
};

void witness_begin(struct stepper *t, const int *kind, int n_ranks)
{
    struct witness *w = &t->witness;

    witness_fini(w);
    jury_begin(&w->jury, kind, n_ranks);
    w->n = t->layout->n_params + 1;
    w->all = xcalloc((size_t)n_ranks, sizeof *w->all);
    w->vote = xcalloc((size_t)n_ranks, sizeof *w->vote);
    w->own = xcalloc(3 * (size_t)w->n, sizeof *w->own);
    w->other = w->own + w->n;
    w->voted = w->other + w->n;
}

void witness_fini(struct witness *w)
{
    jury_fini(&w->jury);
    free(w->all);
    free(w->vote);
    free(w->own);
    free(w->sums);
    *w = (struct witness){0};
}

int witness_is_due(const struct stepper *t, int64_t step)
{
    return t->witness.jury.kind && !t->watch.filled_ns && !sights_is_due(t, step) &&
           t->hooks.audits(t->hooks.arg, step);
}

static int witness_is_divided(const struct stepper *t)
{
    return reducer_promises(t->reducer)->gradients_are_divided;
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

/* Note the sum that the own share's program has just made. */
static void note_sum(struct witness *w, const double *sum, int64_t n)
{
    if (w->n_sums + n > w->cap_sums) {
        w->cap_sums = 2 * (w->n_sums + n);
        w->sums = xrealloc(w->sums, sizeof *w->sums * (size_t)w->cap_sums);
    }
    memcpy(w->sums + w->n_sums, sum, sizeof *sum * (size_t)n);
    w->n_sums += n;
}

/* A SYNC stage.  Another share's numbers are hashed, and the kept sum, of which they are part,
 * comes in their place. */
static int witness_sync(struct stepper *t, const struct look *l, const struct stage *s,
                        struct err *err)
{
    struct witness *w = &t->witness;
    const size_t n_bytes = sizeof *w->sums * (size_t)s->n_sync;
    int rc = 0;

    hash_chain(&l->h[t->layout->n_params], s->sync, n_bytes);
    if (l->is_own) {
        rc = reducer_sum(t->reducer, s, err);
        if (rc == 0)
            note_sum(w, s->sync, s->n_sync);
        return rc;
    }
    ASSERT(w->n_taken + s->n_sync <= w->n_sums); /* all ranks have as many micro-batches */
    memcpy(s->sync, w->sums + w->n_taken, n_bytes);
    w->n_taken += s->n_sync;
    return 0;
}

/* A bucket of the own share is hashed.  It goes to the strategy at once if its memory is needed for
 * other gradients: those of the next micro-batch, or of other buckets. */
static int pass_on(struct stepper *t, const struct micro *m, int b, struct err *err)
{
    const int is_divided = witness_is_divided(t);
    int rc = 0;

    if (b == t->layout->n_buckets - 1 && (m->key.last || !is_divided))
        rc = update_pack(t->update, err);
    return rc == 0 && (is_divided || !m->key.last) ? reducer_hand_over(t->reducer, b, err) : rc;
}

static int witness_bucket(struct stepper *t, const struct look *l, const struct micro *m, int b,
                          struct err *err)
{
    const int is_divided = witness_is_divided(t), is_leaf = t->sampler->n_shares > 0 || is_divided;
    int rc = 0;

    if (!m->key.last && !is_leaf)
        return 0;
    if (t->buffers->sum)
        rc = update_round(t->update, b, err);
    if (rc == 0 && l->is_own && is_divided)
        rc = buffers_clear_padding(t->buffers, t->layout, b, err);
    if (rc == 0 && l->is_own)
        rc = flip_if_due(t, b, 0, err);
    if (rc < 0)
        return rc;
    hash_bucket(t, b, l->h);
    if (b == t->layout->n_buckets - 1)
        hash_sums(t, &l->h[t->layout->n_params]);
    return l->is_own ? pass_on(t, m, b, err) : 0;
}

static int run_stages(struct stepper *t, const struct look *l, const struct micro *m,
                      struct err *err)
{
    const int opens = l->is_own && witness_is_divided(t);
    int rc = 0;

    t->n_opened = 0;
    for (int i = 0; i < program_n_stages(m->program) && rc == 0; i++) {
        const struct stage *s = program_stage(m->program, i);

        step_at(t, s->backward ? PHASE_BACKWARD : PHASE_FORWARD, -1);
        if (s->kind == STAGE_RUN && s->backward && l->is_own && m->key.last)
            faults_reach(t->faults, INJECTION_AT_BACKWARD, t->queued->step);
        if (s->kind == STAGE_RUN)
            rc = opens && step_open_buckets(t, s, err) < 0 ? err->code
                                                           : program_run_stage(m->program, i, err);
        else if (s->kind == STAGE_GATHER)
            rc = step_gather(t, m->program, s->set, err);
        else if (s->kind == STAGE_SYNC)
            rc = witness_sync(t, l, s, err);
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
    const int n = t->witness.jury.n_ranks, accumulate = (int)t->job->train.accumulate;
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
    if (rc == 0 && l->is_own)
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
    w->n_taken = 0;
    if (l->is_own)
        w->n_sums = 0;
    for (int i = 0; !is_last && rc == 0; i++)
        rc = look_at_micro_batch(t, l, i, &is_last, err);
    w->is_looking = 0;
    out->batch = *l->sum;
    out->gradient = hash_of(l->h, sizeof *l->h * (size_t)w->n);
    return rc;
}

/* Other ranks compute a share, and this one does not: do its part of gathering parameters. */
static int witness_attend(struct stepper *t, struct err *err)
{
    const struct look l = {.rank = coll_rank(t->coll)};
    struct micro m = {.key = {.last = 0}};
    int rc = 0;

    for (int k = 0; !m.key.last && rc == 0; k++) {
        m = micro_of(t, &l, k);
        for (int i = 0; i < program_n_stages(m.program) && rc == 0; i++)
            if (program_stage(m.program, i)->kind == STAGE_GATHER)
                rc = step_gather(t, m.program, program_stage(m.program, i)->set, err);
    }
    return rc;
}

static int look_at_other(struct stepper *t, struct answer *out, struct err *err)
{
    const int other = jury_next(&t->witness.jury, coll_rank(t->coll));
    struct hash128 sum = {0, 0};
    const struct look l = {.rank = other, .round = 1, .h = t->witness.other, .sum = &sum};

    return other >= 0 ? witness_look(t, &l, out, err) : witness_attend(t, err);
}

static int look_at_own(struct stepper *t, int round, struct answer *out, struct err *err)
{
    struct hash128 sum = {0, 0};
    const struct look l = {
        .rank = coll_rank(t->coll), .is_own = 1, .round = round, .h = t->witness.own, .sum = &sum};
    int rc;

    if (round > 0)
        reducer_forget(t->reducer);
    rc = witness_look(t, &l, out, err);
    for (int b = 0; b < t->layout->n_buckets && witness_is_divided(t) && rc == 0; b++)
        rc = reducer_release(t->reducer, b, err);
    return rc;
}

/* ---- a turn of the jury ---- */

static int witness_gather(struct stepper *t, const void *mine, size_t n_bytes, void *all,
                          struct err *err)
{
    return step_allgather(t, PHASE_REDUCE, mine, n_bytes, all, err);
}

/* 1: the programs of the step sum numbers over all ranks.  Those of all batch sizes do alike. */
static int witness_sums(const struct stepper *t)
{
    const struct look l = {.rank = coll_rank(t->coll)};
    const struct micro m = micro_of(t, &l, 0);
    int sums = 0;

    for (int i = 0; i < program_n_stages(m.program); i++)
        sums |= program_stage(m.program, i)->kind == STAGE_SYNC;
    return sums;
}

/* Memory in which the own share leaves something for strategy and update. */
struct left {
    void *at;
    size_t n_bytes;
};

enum { MOST_LEFT = 5 };

static int list_left(const struct stepper *t, struct left *out)
{
    const struct buffers *b = t->buffers;
    const size_t stats = sizeof(float) * (size_t)t->layout->n_state_total;
    const size_t grads =
        b->grad ? layout_grad_bytes(t->layout, t->layout->grad_dtype) : sizeof(float) * CONTROL_LEN;
    const struct left all[MOST_LEFT] = {
        {b->grad ? b->grad : (void *)b->control, grads},
        {b->numbers, sizeof *b->numbers},
        {b->shadow, stats},
        {b->work, stats},
        {(void *)b->sum == b->grad ? NULL : b->sum, sizeof(float) * (size_t)t->layout->n_grad}};
    int n = 0;

    for (int i = 0; i < MOST_LEFT; i++)
        if (all[i].at && all[i].n_bytes)
            out[n++] = all[i];
    return n;
}

/* Compute the other share without a change of what the own one has left. */
static int look_aside(struct stepper *t, struct answer *out, struct err *err)
{
    struct left left[MOST_LEFT];
    const int n = list_left(t, left);
    size_t n_bytes = 0, at = 0;
    char *copy = NULL;
    int rc;

    for (int i = 0; i < n; i++)
        n_bytes += left[i].n_bytes;
    rc = try_alloc((void **)&copy, n_bytes, "a copy of the gradients for train.audit", err);
    for (int i = 0; i < n && rc == 0; at += left[i++].n_bytes)
        memcpy(copy + at, left[i].at, left[i].n_bytes);
    if (rc == 0)
        rc = look_at_other(t, out, err);
    at = 0;
    for (int i = 0; i < n && rc == 0; at += left[i++].n_bytes)
        memcpy(left[i].at, copy + at, left[i].n_bytes);
    free(copy);
    return rc;
}

/* Compute both shares, and tell the jury. */
static int turn_look(struct stepper *t, struct err *err)
{
    struct witness *w = &t->witness;
    const int sums = witness_sums(t);
    struct opinion mine = {0};
    int rc = sums ? 0 : look_at_other(t, &mine.other, err);

    if (rc == 0)
        rc = look_at_own(t, w->jury.round, &mine.own, err);
    if (rc == 0 && sums)
        rc = look_aside(t, &mine.other, err);
    if (rc == 0)
        rc = witness_gather(t, &mine, sizeof mine, w->all, err);
    if (rc == 0)
        jury_hear_opinions(&w->jury, w->all);
    return rc;
}

/* *tensor: the first parameter whose gradients the two ranks computed differently.  The ranks'
 * first hashes of all parameters go to all ranks. */
static int witness_find_tensor(struct stepper *t, int owner, const char **tensor, struct err *err)
{
    struct witness *w = &t->witness;
    const size_t n = (size_t)w->n;
    const int auditor = jury_before(&w->jury, owner);
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

/* The two answers about a share differ: all ranks of its owner's kind compute it, and vote. */
static int turn_vote(struct stepper *t, struct err *err)
{
    struct witness *w = &t->witness;
    const int rank = coll_rank(t->coll), owner = w->jury.owner;
    struct answer mine = {{0, 0}, {0, 0}};
    struct hash128 sum = {0, 0};
    const struct look l = {.rank = owner, .round = 1, .h = w->voted, .sum = &sum};
    const char *tensor;
    int rc = witness_find_tensor(t, owner, &tensor, err);

    if (rc == 0)
        rc = w->jury.kind[rank] == w->jury.kind[owner] ? witness_look(t, &l, &mine, err)
                                                       : witness_attend(t, err);
    if (rc == 0)
        rc = witness_gather(t, &mine, sizeof mine, w->vote, err);
    if (rc == 0)
        jury_hear_votes(&w->jury, w->vote, tensor);
    return rc;
}

/* ---- the outcome ---- */

/* A rank that fails ends the others' collectives.  So it waits until all have heard the last votes,
 * above all rank 0, which reports the verdict.  A loss meanwhile changes nothing. */
static void await_all(struct stepper *t)
{
    const uint8_t mine = 1;
    uint8_t *all = xcalloc((size_t)t->witness.jury.n_ranks, 1);
    struct err ignored;

    (void)witness_gather(t, &mine, sizeof mine, all, &ignored);
    free(all);
}

/* The ranks do not agree, however often they compute it. */
static int witness_fail(struct stepper *t, struct err *err)
{
    await_all(t);
    if (jury_condemns(&t->witness.jury, coll_rank(t->coll)))
        return err_set(err, ERR_DEVICE,
                       "this rank computes wrong gradients: the step was computed %d times, and "
                       "the last time this rank got other ones than the other ranks; test its "
                       "processor and its memory",
                       JURY_ROUNDS);
    return err_set(err, ERR_CANCELED, "the ranks do not agree on a gradient");
}

/* The gradients of the own share are right: hand them to the strategy, unless it has them. */
static int hand_over(struct stepper *t, struct err *err)
{
    int rc = 0;

    for (int b = 0; b < t->layout->n_buckets && !witness_is_divided(t) && rc == 0; b++) {
        t->next_bucket = b + 1;
        rc = reducer_hand_over(t->reducer, b, err);
    }
    return rc == 0 ? step_conclude(t, err) : rc;
}

int witness_step(struct stepper *t, struct err *err)
{
    const struct jury *j = &t->witness.jury;
    int rc = 0;

    jury_open(&t->witness.jury, t->queued->step);
    t->next_bucket = 0;
    while (rc == 0 && j->turn <= JURY_VOTE)
        rc = j->turn == JURY_LOOK ? turn_look(t, err) : turn_vote(t, err);
    for (int i = 0; i < j->n_found && rc == 0; i++)
        t->hooks.found(t->hooks.arg, &j->found[i]);
    if (rc < 0)
        return rc;
    return j->turn == JURY_AGREED ? hand_over(t, err) : witness_fail(t, err);
}
