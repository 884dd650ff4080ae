/* inspect - compares the ranks' replicas, judges by majority, and mends the state of the minority.
 *
 * Happy path: each rank hashes a part of its state, and one gathering of 16 bytes a rank shows that
 * all hashes are equal.
 *
 * A difference: the ranks hash all tensors and gather these hashes, too.  So every rank knows who
 * differs from whom, and in which tensor first.  More than half of the ranks have to agree, else
 * nobody knows which state is right.  When ranks form again, those alone vote that hold the step
 * from which all go on. */
#include "train/inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "audit/ballot.h"
#include "audit/jury.h"
#include "base/alloc.h"
#include "base/rng.h"
#include "base/util.h"
#include "state/shards.h"
#include "train/kinds.h"
#include "train/trainer_impl.h"

/* Numbers of the draws of one step. */
enum { DRAW_REPLICA, DRAW_GRADIENT };

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

static void free_names(struct tensor_hash *own, int n)
{
    for (int i = 0; own && i < n; i++)
        free(own[i].name);
    free(own);
}

/* Gather the hashes of all tensors and count; t->inspect.all has what the ranks compared.  *own:
 * this rank's hashes, with the names of the tensors, for free_names(). */
static int inspect_vote(struct trainer *t, struct ballot *b, struct tensor_hash **own,
                        struct err *err)
{
    struct hash128 whole, *mine;
    int rc = state_hash(t->state, own, &whole, err);

    if (rc < 0)
        return rc;
    ballot_begin(b, t->n_ranks, state_n_hashes(t->state));
    mine = xcalloc((size_t)b->n_tensors, sizeof *mine);
    for (int i = 0; i < b->n_tensors; i++)
        mine[i] = (*own)[i].hash;
    rc = step_allgather(&t->step, PHASE_UPDATE, mine, sizeof *mine * (size_t)b->n_tensors, b->told,
                        err);
    free(mine);
    if (rc == 0)
        ballot_count(b, t->inspect.all);
    return rc;
}

/* Report each rank that is named. */
static void inspect_tell(struct trainer *t, const struct ballot *b, const struct tensor_hash *own,
                         enum corruption what, int heals)
{
    for (int k = 0; k < t->n_ranks && t->rank == 0; k++) {
        const int tensor = ballot_tensor(b, k);

        if (ballot_names(b, k))
            t->hooks.report(t->hooks.arg, ballot_report(b, k, what, t->state->at.step, heals,
                                                        tensor < 0 ? NULL : own[tensor].name));
    }
}

/* All ranks take the state of the good rank.  If that breaks off because a rank is lost, a rank
 * whose state is wrong fails, too, as it might be the source when the others form again. */
static int inspect_heal(struct trainer *t, const struct ballot *b, struct err *err)
{
    int rc = state_broadcast(t->state, t->step.coll, b->good, err);

    ASSERT(rc <= 0); /* no slot is divided */
    t->inspect.is_wrong = ballot_names(b, t->rank);
    rc = inspect_took(t, rc, b->good, err);
    return rc == 0 ? trainer_reread(t, err) : rc;
}

/* The ranks differ.  Running statistics of a rank's own are made equal before, as at an epoch's
 * end, so that they count as no difference. */
static int inspect_judge(struct trainer *t, enum corruption what, struct err *err)
{
    struct ballot b = {0};
    struct tensor_hash *own = NULL;
    int heals;
    int rc = has_equal_statistics(t) ? 0 : state_broadcast_stats(t->state, t->step.coll, err);

    if (rc == 0)
        rc = inspect_vote(t, &b, &own, err);
    heals = ballot_has_majority(&b) && !t->state->shards &&
            t->job->cluster.on_divergence == CLUSTER_ON_DIVERGENCE_HEAL;
    if (rc == 0)
        inspect_tell(t, &b, own, what, heals);
    if (rc == 0 && heals)
        rc = inspect_heal(t, &b, err);
    else if (rc == 0)
        rc = err_set(err, ERR_CANCELED, "the ranks hold different states after step %lld",
                     (long long)t->state->at.step);
    free_names(own, b.n_tensors);
    ballot_fini(&b);
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

/* With strategy.zero parameters that a step has sent may still be on their way. */
static int await_params(struct trainer *t, struct err *err)
{
    int rc = 0;

    for (int b = 0; b < t->layout->n_buckets && rc == 0 && t->layout->awaits_params; b++)
        rc = reducer_gathered(t->step.reducer, b, err);
    return rc;
}

int inspect_before_step(struct trainer *t, struct err *err)
{
    const int64_t step = t->state->at.step + 1;

    t->inspect.before_of = 0;
    if (backend_queues(t->backend) || !inspect_compares_after(t, step))
        return 0;
    if (await_params(t, err) < 0)
        return err_wrap(err, "comparing replicas");
    t->inspect.before_of = step;
    return hash_part(t, step, &t->inspect.before, err);
}

/* Compare what each rank holds as a whole, and the control vector by which it counts the step.
 * Where state is divided each rank has other sums, and what is whole comes from the shards. */
static int inspect_whole(struct trainer *t, struct err *err)
{
    struct compared mine = {.before = t->inspect.before};
    struct compared *all = xcalloc((size_t)t->n_ranks, sizeof *all);
    const int64_t step = t->state->at.step;
    const int knows_before = t->inspect.before_of == step && t->step.summed_of == step;
    int rc = hash_part(t, step, &mine.after, err);

    if (t->step.summed_of == step)
        mine.control = t->step.summed_control;
    if (!t->state->shards)
        mine.summed = t->step.summed[0];
    if (rc == 0)
        rc = step_allgather(&t->step, PHASE_UPDATE, &mine, sizeof mine, all, err);
    for (int k = 0; k < t->n_ranks; k++)
        t->inspect.all[k] = ballot_compared(&all[k]);
    if (rc == 0 && ballot_differs(all, t->n_ranks))
        rc = inspect_judge(t, ballot_what(all, t->n_ranks, knows_before), err);
    free(all);
    return rc;
}

/* ---- divided state ---- */

/* differs [n_ranks]: as shards_compare fills it.  Returns the number of ranks that are named. */
static int tell_shards(struct trainer *t, const int *differs)
{
    int n = 0;

    for (int k = 0; k < t->n_ranks; k++) {
        const int is_named = ballot_names_holder(differs, t->n_ranks, k);

        n += is_named;
        if (is_named && t->rank == 0)
            t->hooks.report(t->hooks.arg,
                            ballot_report_holder(differs, t->n_ranks, k, t->state->at.step));
    }
    return n;
}

/* The hashes that a rank tells of the sums that its update read. */
struct held_sums {
    int64_t of; /* as stepper.summed_of */
    struct hash128 of_shard[SHARDS_HELD];
};

/* Compare the sums of each copy with those of its original.  differs: as shards_compare fills it.
 * A device has no hashes of them. */
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

/* ---- forming again ---- */

/* A rank tells this of its state before all take that of the source. */
struct held {
    int64_t step;
    /* The formation in which the rank has trained last: others may have done the step anew without
     * a rank that was cut off.  -1: its state is of no formation. */
    int64_t generation;
};

/* 1: all ranks that hold a step, and formed together before, have the same numbers there.  A
 * validation's result and the averaged weights' statistics come at an epoch's end, which may have
 * broken off on some ranks. */
static int is_same_on_holders(const struct trainer *t, const struct slot_def *d)
{
    return d != &slot_loop && d != &slot_average_statistics &&
           (d != &slot_statistics || has_equal_statistics(t));
}

/* Hashes of the tensors that are the same on all holders; zeros for the others.  *sum: of all of
 * them, and of the number of updates. */
static int hash_holding(const struct trainer *t, struct tensor_hash **own, struct hash128 *sum,
                        struct err *err)
{
    struct hash128 whole;
    const int rc = state_hash(t->state, own, &whole, err);

    *sum = (struct hash128){0, 0};
    hash_chain(sum, &t->state->at.n_updates, sizeof t->state->at.n_updates);
    for (int i = 0; rc == 0 && i < state_n_hashes(t->state); i++) {
        if (!is_same_on_holders(t, state_hashed_slot(t->state, i)))
            (*own)[i].hash = (struct hash128){0, 0};
        hash_chain(sum, &(*own)[i].hash, sizeof(*own)[i].hash);
    }
    return rc;
}

/* The ranks that trained with the source and hold its step. */
struct holders {
    int *rank; /* [n] */
    int n;
    int64_t step;
};

static int find_holders_of(const struct trainer *t, int source, struct holders *out,
                           struct err *err)
{
    const struct held mine = {t->state->at.step, t->met_step < 0 ? -1 : t->met_generation};
    struct held *all = xcalloc((size_t)t->n_ranks, sizeof *all);
    const int rc = coll_allgather(t->step.coll, &mine, sizeof mine, all, err);

    *out = (struct holders){xcalloc((size_t)t->n_ranks, sizeof *out->rank), 0, all[source].step};
    for (int k = 0; k < t->n_ranks && rc == 0 && all[source].generation >= 0; k++)
        if (all[k].step == all[source].step && all[k].generation == all[source].generation)
            out->rank[out->n++] = k;
    free(all);
    return rc;
}

/* The holders' hashes, as a ballot of their own.  b->told is filled. */
static int gather_holders(struct trainer *t, const struct tensor_hash *own, const struct holders *h,
                          struct ballot *b, struct err *err)
{
    const size_t n = (size_t)state_n_hashes(t->state), size = n * sizeof *b->told;
    struct hash128 *mine = xcalloc(n, sizeof *mine);
    struct hash128 *all = xcalloc(n * (size_t)t->n_ranks, sizeof *all);
    int rc;

    for (size_t i = 0; i < n; i++)
        mine[i] = own[i].hash;
    rc = coll_allgather(t->step.coll, mine, size, all, err);
    ballot_begin(b, h->n, (int)n);
    for (int i = 0; i < h->n; i++)
        memcpy(b->told + (size_t)i * n, all + (size_t)h->rank[i] * n, size);
    free(all);
    free(mine);
    return rc;
}

/* Report each holder that is named. */
static void tell_holders(struct trainer *t, const struct ballot *b, const struct tensor_hash *own,
                         const struct holders *h, int heals)
{
    for (int i = 0; i < b->n_ranks && t->rank == 0; i++) {
        const int tensor = ballot_tensor(b, i);
        struct report *r;

        if (!ballot_names(b, i))
            continue;
        r = ballot_report(b, i, CORRUPTION_STATE, h->step, heals,
                          tensor < 0 ? NULL : own[tensor].name);
        r->corruption.rank = h->rank[i];
        t->hooks.report(t->hooks.arg, r);
    }
}

/* The holders differ.  compared [h->n]: the hashes that do.  own: hashes of this rank's tensors. */
static int judge_holders(struct trainer *t, const struct holders *h, const struct hash128 *compared,
                         const struct tensor_hash *own, int *source, struct err *err)
{
    struct ballot b = {0};
    int rc = gather_holders(t, own, h, &b, err), heals = 0;

    if (rc == 0) {
        ballot_count(&b, compared);
        heals =
            ballot_has_majority(&b) && t->job->cluster.on_divergence == CLUSTER_ON_DIVERGENCE_HEAL;
        tell_holders(t, &b, own, h, heals);
    }
    for (int i = 0; i < h->n && heals; i++)
        t->inspect.is_wrong |= h->rank[i] == t->rank && ballot_names(&b, i);
    if (rc == 0 && heals)
        *source = h->rank[b.good];
    else if (rc == 0)
        rc = err_set(err, ERR_CANCELED, "the ranks that hold step %lld hold different states",
                     (long long)h->step);
    ballot_fini(&b);
    return rc;
}

/* Two ranks at least hold the step.  The others hash their states, too, as nobody waits for that:
 * they have the names. */
static int compare_holders(struct trainer *t, const struct holders *h, int *source, struct err *err)
{
    struct hash128 mine, *all = xcalloc((size_t)t->n_ranks, sizeof *all);
    struct tensor_hash *own = NULL;
    int differs = 0, rc = hash_holding(t, &own, &mine, err);

    if (rc == 0)
        rc = coll_allgather(t->step.coll, &mine, sizeof mine, all, err);
    for (int i = 0; i < h->n && rc == 0; i++) {
        all[i] = all[h->rank[i]]; /* rank[i] >= i */
        differs |= !hash_equal(all[i], all[0]);
    }
    if (differs)
        rc = judge_holders(t, h, all, own, source, err);
    free_names(own, state_n_hashes(t->state));
    free(all);
    return rc;
}

int inspect_source(struct trainer *t, int *source, struct err *err)
{
    struct holders h;
    int rc;

    t->inspect.is_wrong = 0;
    if (!has_replicas(t) || t->job->train.audit <= 0)
        return 0;
    rc = find_holders_of(t, *source, &h, err);
    if (rc == 0 && h.n > 1)
        rc = compare_holders(t, &h, source, err);
    free(h.rank);
    return rc < 0 ? err_wrap(err, "comparing what the ranks hold") : 0;
}

int inspect_took(struct trainer *t, int rc, int source, struct err *err)
{
    const struct err why = *err;

    if (rc >= 0 || !t->inspect.is_wrong)
        return rc;
    return err_set(err, ERR_DEVICE,
                   "this rank holds a wrong state, and could not take that of rank %d: %s", source,
                   why.msg);
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

const char *inspect_obstacle(const struct trainer *t)
{
    if (t->n_ranks == 1)
        return "there is only one rank";
    if (backend_queues(t->backend))
        return "ranks on GPUs are not audited";
    if (!has_equal_params(t))
        return "the ranks' parameters differ between two meetings (strategy.name)";
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

/* Warn of ranks that are the only ones of their kind.  all [n_ranks]. */
static void warn_alone(struct trainer *t, struct kind *all)
{
    int n = 0, first = -1;

    for (int k = 0; k < t->n_ranks; k++)
        if (jury_next(&t->step.witness.jury, k) < 0 && n++ == 0)
            first = k;
    if (n > 0) {
        char *text = xasprintf("train.audit: %d of %d ranks, first rank %d (%s), have a processor, "
                               "libraries or a number of threads like no other rank, so nobody can "
                               "compute their gradients again; want equal ones, and an equal "
                               "--threads",
                               n, t->n_ranks, first, kinds_text(&all[first]));

        trainer_warn(t, text);
        free(text);
    }
}

static int inspect_begin_witness(struct trainer *t, struct err *err)
{
    const struct kind mine = kinds_mine(t, t->n_threads);
    struct kind *all = xcalloc((size_t)t->n_ranks, sizeof *all);
    int *kind = xcalloc((size_t)t->n_ranks, sizeof *kind);
    const int rc = step_allgather(&t->step, PHASE_FORM, &mine, sizeof mine, all, err);

    for (int k = 0; k < t->n_ranks && rc == 0; k++)
        while (!hash_equal(all[kind[k]].hash, all[k].hash))
            kind[k]++;
    if (rc == 0)
        witness_begin(&t->step, kind, t->n_ranks);
    if (rc == 0 && t->rank == 0)
        warn_alone(t, all);
    free(kind);
    free(all);
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
