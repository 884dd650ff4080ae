/* inspect - compares the ranks' replicas, judges by majority, and mends the state of the minority.
 *
 * Happy path: each rank hashes a part of its state, and one gathering of 16 bytes a rank shows that
 * all hashes are equal.
 *
 * A difference: the ranks hash all tensors and gather these hashes, too.  So every rank knows who
 * differs from whom, and in which tensor first.  More than half of the ranks have to agree, else
 * nobody knows which state is right. */
#include "train/inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "audit/jury.h"
#include "base/alloc.h"
#include "base/rng.h"
#include "base/util.h"
#include "state/shards.h"
#include "train/kinds.h"
#include "train/trainer_impl.h"

/* Numbers of the draws of one step. */
enum { DRAW_REPLICA, DRAW_GRADIENT };

/* All ranks' hashes of all tensors, and who is right. */
struct verdict {
    struct tensor_hash *own; /* [n] this rank's, with the names */
    struct hash128 *all;     /* [n_ranks][n] */
    struct hash128 *digest;  /* [n_ranks] of what the ranks compared and of all tensors */
    int n, good, n_votes;    /* good: a rank whose state most ranks have, n_votes of them */
};

static void inspect_drop(struct verdict *v)
{
    for (int i = 0; v->own && i < v->n; i++)
        free(v->own[i].name);
    free(v->own);
    free(v->all);
    free(v->digest);
    *v = (struct verdict){0};
}

void inspect_free(struct inspect *a)
{
    free(a->all);
    *a = (struct inspect){0};
}

/* ---- when ---- */

static struct rng_block inspect_draw(const struct trainer *t, int64_t step, int check)
{
    return rng_draw((uint64_t)t->job->train.seed, RNG_AUDIT, (uint64_t)step, (uint64_t)check);
}

static int inspect_is_drawn(struct rng_block draw, double part)
{
    return (double)draw.v[0] < part * 0x1p32;
}

/* 1: after each step all ranks hold the same parameters, or parts of the same ones. */
static int has_equal_params(const struct trainer *t)
{
    const struct strategy_promises *p = reducer_promises(t->step.reducer);

    return t->n_ranks > 1 && p->replicas_are_equal && !p->updates_are_own;
}

/* 1: after each step all ranks hold the same state, as a whole. */
static int has_replicas(const struct trainer *t)
{
    return has_equal_params(t) && !t->state->shards;
}

int inspect_compares_after(const struct trainer *t, int64_t step)
{
    return has_equal_params(t) &&
           inspect_is_drawn(inspect_draw(t, step, DRAW_REPLICA), t->job->train.replica_check);
}

/* 1: running statistics are equal after each step, too. */
static int has_equal_statistics(const struct trainer *t)
{
    return t->job->model.sync_batch_norm || t->shares.n > 0;
}

/* ---- who is right ---- */

static int inspect_votes_for(const struct trainer *t, const struct verdict *v, int rank)
{
    int n = 0;

    for (int k = 0; k < t->n_ranks; k++)
        n += hash_equal(v->digest[k], v->digest[rank]);
    return n;
}

/* Fill the verdict; t->inspect.all has what the ranks compared. */
static int inspect_vote(struct trainer *t, struct verdict *v, struct err *err)
{
    const size_t size = (size_t)t->n_ranks;
    struct hash128 whole, *mine;
    int rc = state_hash(t->state, &v->own, &whole, err);

    if (rc < 0)
        return rc;
    v->n = state_n_hashes(t->state);
    mine = xcalloc((size_t)v->n, sizeof *mine);
    v->all = xcalloc(size * (size_t)v->n, sizeof *v->all);
    v->digest = xcalloc(size, sizeof *v->digest);
    for (int i = 0; i < v->n; i++)
        mine[i] = v->own[i].hash;
    rc = step_allgather(&t->step, PHASE_UPDATE, mine, sizeof *mine * (size_t)v->n, v->all, err);
    free(mine);
    for (int k = 0; k < t->n_ranks && rc == 0; k++) {
        v->digest[k] = t->inspect.all[k];
        hash_chain(&v->digest[k], v->all + (size_t)k * (size_t)v->n, sizeof whole * (size_t)v->n);
    }
    for (int k = 0; k < t->n_ranks && rc == 0; k++)
        if (inspect_votes_for(t, v, k) > v->n_votes) {
            v->good = k;
            v->n_votes = inspect_votes_for(t, v, k);
        }
    return rc;
}

/* The first tensor in which rank k differs from the good rank, or from any rank if it is the good
 * one; NULL: none does. */
static const char *inspect_tensor_of(const struct trainer *t, const struct verdict *v, int k)
{
    for (int r = 0; r < t->n_ranks; r++) {
        const struct hash128 *a = v->all + (size_t)k * (size_t)v->n;
        const struct hash128 *b = v->all + (size_t)(k == v->good ? r : v->good) * (size_t)v->n;

        for (int i = 0; i < v->n; i++)
            if (!hash_equal(a[i], b[i]))
                return v->own[i].name;
    }
    return NULL;
}

static int inspect_has_majority(const struct trainer *t, const struct verdict *v)
{
    return v->n_votes > t->n_ranks / 2;
}

/* Report each rank that differs; all of them, if no state has a majority. */
static void inspect_tell(struct trainer *t, const struct verdict *v, enum corruption what,
                         int heals)
{
    const int has_majority = inspect_has_majority(t, v);
    int last = 0;

    for (int k = 0; k < t->n_ranks; k++)
        if (!has_majority || !hash_equal(v->digest[k], v->digest[v->good]))
            last = k;
    for (int k = 0; k <= last && t->rank == 0; k++) {
        const char *tensor = inspect_tensor_of(t, v, k);
        struct report *r;

        if (has_majority && hash_equal(v->digest[k], v->digest[v->good]))
            continue;
        r = report_new(REPORT_CORRUPTION, 0);
        r->corruption.step = t->state->at.step - (what == CORRUPTION_UPDATE);
        r->corruption.rank = k;
        r->corruption.is_proven = has_majority;
        r->corruption.what = what;
        r->corruption.is_healed = heals;
        r->corruption.ends = !heals && k == last;
        r->corruption.tensor = tensor ? xstrdup(tensor) : NULL;
        t->hooks.report(t->hooks.arg, r);
    }
}

/* All ranks take the state of the good rank. */
static int inspect_heal(struct trainer *t, int good, struct err *err)
{
    int rc = state_broadcast(t->state, t->step.coll, good, err);

    ASSERT(rc <= 0); /* no slot is divided */
    return rc == 0 ? trainer_reread(t, err) : rc;
}

/* The ranks differ.  Running statistics of a rank's own are made equal before, as at an epoch's
 * end, so that they count as no difference. */
static int inspect_judge(struct trainer *t, enum corruption what, struct err *err)
{
    struct verdict v = {0};
    int heals;
    int rc = has_equal_statistics(t) ? 0 : state_broadcast_stats(t->state, t->step.coll, err);

    if (rc == 0)
        rc = inspect_vote(t, &v, err);
    heals = inspect_has_majority(t, &v) && !t->state->shards &&
            t->job->cluster.on_divergence == CLUSTER_ON_DIVERGENCE_HEAL;
    if (rc == 0)
        inspect_tell(t, &v, what, heals);
    if (rc == 0 && heals)
        rc = inspect_heal(t, v.good, err);
    else if (rc == 0)
        rc = err_set(err, ERR_CANCELED, "the ranks hold different states after step %lld",
                     (long long)t->state->at.step);
    inspect_drop(&v);
    return rc;
}

/* ---- comparing ---- */

/* 1: the ranks' hashes differ. */
static int inspect_gather(struct trainer *t, const struct hash128 *mine, struct err *err)
{
    int differs = 0;
    const int rc = step_allgather(&t->step, PHASE_UPDATE, mine, sizeof *mine, t->inspect.all, err);

    for (int k = 1; k < t->n_ranks && rc == 0; k++)
        differs |= !hash_equal(t->inspect.all[k], t->inspect.all[0]);
    return rc < 0 ? rc : differs;
}

/* The hash of the part of the state that is compared after `step`. */
static int hash_part(const struct trainer *t, int64_t step, struct hash128 *out, struct err *err)
{
    return state_hash_part(t->state, inspect_draw(t, step, DRAW_REPLICA).v[1],
                           has_equal_statistics(t), out, err);
}

int inspect_before_step(struct trainer *t, struct err *err)
{
    const int64_t step = t->state->at.step + 1;

    t->inspect.before_of = 0;
    if (backend_queues(t->backend) || t->state->shards || !inspect_compares_after(t, step))
        return 0;
    t->inspect.before_of = step;
    return hash_part(t, step, &t->inspect.before, err);
}

/* The hashes that a rank tells of a step after which the replicas are compared. */
struct compared {
    struct hash128 before, summed, control, after;
};

/* The ranks differ after a step.  all [n_ranks]: what each one tells of it. */
static enum corruption inspect_find_what(const struct trainer *t, const struct compared *all)
{
    const int64_t step = t->state->at.step;
    int is_update = t->inspect.before_of == step && t->step.summed_of == step;

    for (int k = 1; k < t->n_ranks; k++)
        is_update &= hash_equal(all[k].before, all[0].before) &&
                     hash_equal(all[k].summed, all[0].summed) &&
                     hash_equal(all[k].control, all[0].control);
    return is_update ? CORRUPTION_UPDATE : CORRUPTION_STATE;
}

/* Compare what each rank holds as a whole, and the control vector by which it counts the step. */
static int inspect_whole(struct trainer *t, struct err *err)
{
    struct compared mine = {.before = t->inspect.before, .summed = t->step.summed[0]};
    struct compared *all = xcalloc((size_t)t->n_ranks, sizeof *all);
    int differs = 0, rc = hash_part(t, t->state->at.step, &mine.after, err);

    if (t->step.summed_of == t->state->at.step)
        mine.control = t->step.summed_control;
    if (rc == 0)
        rc = step_allgather(&t->step, PHASE_UPDATE, &mine, sizeof mine, all, err);
    for (int k = 0; k < t->n_ranks && rc == 0; k++) {
        t->inspect.all[k] = all[k].after;
        hash_chain(&t->inspect.all[k], &all[k].control, sizeof all[k].control);
        differs |= !hash_equal(t->inspect.all[k], t->inspect.all[0]);
    }
    if (rc == 0 && differs)
        rc = inspect_judge(t, inspect_find_what(t, all), err);
    free(all);
    return rc;
}

/* ---- divided state ---- */

/* Parameters that the step has sent may still be on their way. */
static int await_params(struct trainer *t, struct err *err)
{
    int rc = 0;

    for (int b = 0; b < t->layout->n_buckets && rc == 0 && t->layout->awaits_params; b++)
        rc = reducer_gathered(t->step.reducer, b, err);
    return rc;
}

/* differs [n_ranks]: as shards_compare fills it.  Returns the number of ranks that are named. */
static int tell_shards(struct trainer *t, const int *differs)
{
    const int size = t->n_ranks;
    int n = 0, n_told = 0;

    for (int k = 0; k < size; k++)
        n += differs[k] || differs[(k + 1) % size];
    for (int k = 0; k < size && t->rank == 0; k++) {
        struct report *r;

        if (!differs[k] && !differs[(k + 1) % size])
            continue;
        r = report_new(REPORT_CORRUPTION, 0);
        r->corruption.step = t->state->at.step;
        r->corruption.rank = k;
        r->corruption.what = CORRUPTION_STATE;
        r->corruption.ends = ++n_told == n;
        t->hooks.report(t->hooks.arg, r);
    }
    return n;
}

/* The hashes that a rank tells of the sums that its update read. */
struct held_sums {
    int64_t of; /* as stepper.summed_of */
    struct hash128 of_shard[SHARDS_HELD];
};

/* Compare the sums of each copy with those of its original.  differs: as shards_compare fills it.
 * A rank that made its update later, after a loss, has no hashes of them. */
static int compare_sums(struct trainer *t, int *differs, struct err *err)
{
    const int n = t->n_ranks, n_held = t->state->shards->now.n_held;
    struct held_sums mine = {.of = t->step.summed_of}, *all = xcalloc((size_t)n, sizeof *all);
    int rc;

    memcpy(mine.of_shard, t->step.summed, sizeof mine.of_shard[0] * (size_t)n_held);
    rc = step_allgather(&t->step, PHASE_UPDATE, &mine, sizeof mine, all, err);
    for (int k = 0; k < n && rc == 0 && n_held > 1; k++) {
        const struct held_sums *before = &all[(k + n - 1) % n];

        if (before->of == t->state->at.step && all[k].of == t->state->at.step)
            differs[k] |= !hash_equal(before->of_shard[SHARD_OWN], all[k].of_shard[SHARD_COPY]);
    }
    free(all);
    return rc;
}

/* Compare the copies of one bucket's spans with their originals, and the sums that both read. */
static int inspect_shards(struct trainer *t, struct err *err)
{
    const uint32_t draw = inspect_draw(t, t->state->at.step, DRAW_REPLICA).v[2];
    const int n =
        t->state->shards->divides_params ? t->layout->n_param_buckets : t->layout->n_buckets;
    const int bucket = (int)(draw % (uint32_t)n);
    int *differs = xcalloc((size_t)t->n_ranks, sizeof *differs);
    int rc = shards_compare(t->state, t->step.coll, bucket, differs, err);

    if (rc == 0)
        rc = compare_sums(t, differs, err);
    if (rc == 0 && tell_shards(t, differs) > 0)
        rc = err_set(err, ERR_CANCELED,
                     "copies of parts of the state differ from their originals after step %lld",
                     (long long)t->state->at.step);
    free(differs);
    return rc;
}

int inspect_replicas(struct trainer *t, struct err *err)
{
    int rc;

    if (!inspect_compares_after(t, t->state->at.step))
        return 0;
    rc = await_params(t, err);
    if (rc == 0)
        rc = inspect_whole(t, err);
    if (rc == 0 && t->state->shards)
        rc = inspect_shards(t, err);
    return rc < 0 ? err_wrap(err, "comparing replicas") : 0;
}

static void forget_hashes(struct report *r)
{
    for (int i = 0; i < r->epoch.n_tensors; i++)
        free(r->epoch.tensor[i].name);
    free(r->epoch.tensor);
    r->epoch.tensor = NULL;
    r->epoch.n_tensors = 0;
}

static int hash_whole(const struct trainer *t, struct report *r, struct err *err)
{
    const int rc = state_hash(t->state, &r->epoch.tensor, &r->epoch.replica, err);

    r->epoch.n_tensors = rc < 0 ? 0 : state_n_hashes(t->state);
    return rc;
}

int inspect_epoch_end(struct trainer *t, struct report *r, struct err *err)
{
    int rc;

    if (!reducer_promises(t->step.reducer)->replicas_are_equal)
        return 0; /* nothing to compare */
    rc = hash_whole(t, r, err);
    if (rc < 0 || !has_replicas(t) || t->job->cluster.on_divergence != CLUSTER_ON_DIVERGENCE_HEAL)
        return rc;
    rc = inspect_gather(t, &r->epoch.replica, err);
    if (rc == 0)
        return 0;
    forget_hashes(r);
    if (rc > 0)
        rc = inspect_judge(t, CORRUPTION_STATE, err);
    if (rc == 0)
        rc = hash_whole(t, r, err);
    return rc < 0 ? err_wrap(err, "comparing replicas") : 0;
}

/* ---- gradients ---- */

/* 1: a step's programs sum numbers over all ranks (batch norm, a contrastive loss).  Those of all
 * batch sizes are alike in that. */
static int sums_inside(const struct trainer *t)
{
    const struct sampler_step at = sampler_at(&t->sampler, 0);
    const struct span part =
        sampler_micro(&at, t->n_ranks, t->rank, (int)t->job->train.accumulate, 0);
    const struct program *p = programs_find(t->step.programs, 1, part.n);
    int sums = 0;

    for (int i = 0; i < program_n_stages(p); i++)
        sums |= program_stage(p, i)->kind == STAGE_SYNC;
    return sums;
}

const char *inspect_obstacle(const struct trainer *t)
{
    if (t->n_ranks == 1)
        return "there is only one rank";
    if (backend_queues(t->backend))
        return "ranks on GPUs are not audited";
    if (!has_equal_params(t))
        return "the ranks' parameters differ between two meetings (strategy.name)";
    if (t->step.programs && sums_inside(t))
        return "the network sums over all ranks within a step; want model.sync_batch_norm: false, "
               "or strategy.shards";
    return NULL;
}

int inspect_looks_at(const struct trainer *t, int64_t step)
{
    return inspect_is_drawn(inspect_draw(t, step, DRAW_GRADIENT), t->job->train.audit);
}

void inspect_found(struct trainer *t, const struct jury_finding *f)
{
    if (t->rank == 0)
        t->hooks.report(t->hooks.arg, jury_report(f, 0));
}

/* Warn of ranks that are the only ones of their kind. */
static void warn_alone(struct trainer *t)
{
    int n = 0, first = -1;

    for (int k = 0; k < t->n_ranks; k++)
        if (jury_next(&t->step.witness.jury, k) < 0 && n++ == 0)
            first = k;
    if (n > 0) {
        char *text = xasprintf("train.audit: %d of %d ranks, first rank %d, have a processor or a "
                               "number of threads like no other rank, so nobody can compute their "
                               "gradients again; want equal processors, and an equal --threads",
                               n, t->n_ranks, first);

        trainer_warn(t, text);
        free(text);
    }
}

static int inspect_begin_witness(struct trainer *t, struct err *err)
{
    const struct hash128 mine = kinds_hash(t);
    const int rc = step_allgather(&t->step, PHASE_FORM, &mine, sizeof mine, t->inspect.all, err);
    int *kind = xcalloc((size_t)t->n_ranks, sizeof *kind);

    for (int k = 0; k < t->n_ranks && rc == 0; k++)
        while (!hash_equal(t->inspect.all[kind[k]], t->inspect.all[k]))
            kind[k]++;
    if (rc == 0)
        witness_begin(&t->step, kind, t->n_ranks);
    if (rc == 0 && t->rank == 0)
        warn_alone(t);
    free(kind);
    return rc;
}

int inspect_form(struct trainer *t, struct err *err)
{
    const char *why = t->job->train.audit > 0 ? inspect_obstacle(t) : NULL;
    char *text;

    free(t->inspect.all);
    t->inspect.all = xcalloc((size_t)t->n_ranks, sizeof *t->inspect.all);
    if (t->job->train.audit > 0 && !why)
        return inspect_begin_witness(t, err);
    if (why && t->rank == 0) {
        text = xasprintf("train.audit is %g, and no gradient is audited: %s", t->job->train.audit,
                         why);
        trainer_warn(t, text);
        free(text);
    }
    return 0;
}
