/* zero_lost - ranks that are lost, cut off, or leave and join, while the optimizer's state is
 * divided among them: the checkpoint has the bits of an undisturbed run.
 *
 * The ranks of a job form, train, fail and form again, in one process (struct crew). */
#include "../test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "../remove_tree.h"
#include "base/alloc.h"
#include "base/util.h"
#include "ranks.h"
#include "saved.h"
#include "state/shards.h"
#include "strategy/exchange.h"
#include "train/engine.h"
#include "train/trainer_impl.h"
#include "zero_jobs.h"

enum { SHORT_BUCKET = 1000 };

/* A job whose ranks are lost and replaced: each formation gives each rank a thread of its own. */
struct crew {
    const char *job;
    const char *run_dir;
    struct member {
        struct crew *crew;
        struct trainer *trainer;
        struct coll *coll;
        int rank, rc;
        struct err err;
        enum epoch_end end;
    } member[MOST_RANKS];
    int n;
    int64_t regroup_at; /* rank 0 asks to regroup while it computes this step; 0: no */
    pthread_barrier_t prepared;
    pthread_mutex_t lock; /* guards: */
    char warning[1024];
};

static void take_report(void *arg, struct report *r)
{
    struct member *m = arg;

    if (r->kind == REPORT_WARNING) {
        pthread_mutex_lock(&m->crew->lock);
        strncat(m->crew->warning, r->warning.text,
                sizeof m->crew->warning - strlen(m->crew->warning) - 1);
        pthread_mutex_unlock(&m->crew->lock);
    }
    report_free(r);
}

static unsigned requests(void *arg)
{
    const struct member *m = arg;

    return m->rank == 0 && m->crew->regroup_at && trainer_step(m->trainer) == m->crew->regroup_at
               ? ENGINE_REQUEST_REGROUP
               : 0;
}

/* A process starts, and opens the job as this rank. */
static void join(struct crew *w, int rank)
{
    struct member *m = &w->member[rank];
    const struct trainer_options o = {.n_threads = 1,
                                      .run_dir = rank == 0 ? w->run_dir : NULL,
                                      .bucket_bytes = SHORT_BUCKET, /* two buckets */
                                      /* A checkpoint is written before the next step. */
                                      .moment_ms = 60000};
    struct trainer_hooks hooks = run_idle_hooks(m);
    struct cmd *c = cmd_new(CMD_OPEN, 1);
    struct report *r = report_new(REPORT_OPENED, 1);

    m->crew = w;
    m->rank = rank;
    hooks.report = take_report;
    hooks.requests = requests;
    m->trainer = trainer_new(&o, &hooks);
    c->open.rank = rank;
    c->open.n_ranks = w->n;
    c->open.job = blob_of(w->job, strlen(w->job));
    if (rank == 0)
        c->open.resume = xstrdup(w->run_dir);
    if (trainer_open(m->trainer, c, r, &m->err) < 0)
        fail_msg("%s", m->err.msg);
    cmd_free(c);
    report_free(r);
}

static void leave(struct crew *w, int rank)
{
    trainer_free(w->member[rank].trainer);
    w->member[rank].trainer = NULL;
}

static int newest(const struct crew *w)
{
    int best = 0;

    for (int i = 1; i < w->n; i++)
        if (trainer_step(w->member[i].trainer) > trainer_step(w->member[best].trainer))
            best = i;
    return best;
}

static int train_and_save(struct member *m, struct err *err)
{
    struct report *done = report_new(REPORT_EPOCH, 1), *saved = report_new(REPORT_CHECKPOINT, 1);
    int rc = trainer_train(m->trainer, 1, done, err);

    m->end = done->epoch.end;
    if (rc == 0)
        rc = trainer_checkpoint(m->trainer, 1, saved, err);
    report_free(done);
    report_free(saved);
    return rc;
}

static void *work(void *arg)
{
    struct member *m = arg;
    struct crew *w = m->crew;
    int source;

    m->rc = trainer_prepare(m->trainer, m->rank, w->n, w->n, w->n, &m->err);
    ring_begin(trainer_ring(m->trainer), 1);
    pthread_barrier_wait(&w->prepared);
    source = newest(w);
    pthread_barrier_wait(&w->prepared);
    trainer_take_coll(m->trainer, m->coll);
    if (m->rc == 0)
        m->rc = trainer_form(m->trainer, source, &m->err);
    if (m->rc == 0)
        m->rc = train_and_save(m, &m->err);
    if (m->rc < 0)
        trainer_leave(m->trainer); /* as the driver has all ranks do */
    return NULL;
}

/* A formation of the crew's n first members.  Returns the number of members that failed. */
static int form_and_train(struct crew *w, int victim, struct coll_fault fault)
{
    struct coll_group *g = coll_group_new(w->n);
    pthread_t thread[MOST_RANKS];
    struct err err;
    int n_failed = 0;

    pthread_barrier_init(&w->prepared, NULL, (unsigned)w->n);
    coll_local_inject(g, victim, fault);
    for (int i = 0; i < w->n; i++) {
        w->member[i].rank = i;
        assert_int_equal(coll_new_local(g, i, &w->member[i].coll, &err), 0);
    }
    for (int i = 0; i < w->n; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, work, &w->member[i]), 0);
    for (int i = 0; i < w->n; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < w->n; i++) {
        n_failed += w->member[i].rc < 0;
        trainer_leave(w->member[i].trainer); /* its coll is freed before the group */
    }
    coll_group_free(g);
    pthread_barrier_destroy(&w->prepared);
    return n_failed;
}

static void crew_begin(struct crew *w, const char *job, int n, struct dir *d)
{
    make_dir(d);
    *w = (struct crew){.job = job, .run_dir = d->path, .n = n};
    pthread_mutex_init(&w->lock, NULL);
    for (int i = 0; i < n; i++)
        join(w, i);
}

static void crew_end(struct crew *w)
{
    for (int i = 0; i < MOST_RANKS; i++)
        leave(w, i);
    pthread_mutex_destroy(&w->lock);
}

static const struct coll_fault no_fault;

static void assert_all_well(struct crew *w, const char *what)
{
    if (form_and_train(w, 0, no_fault) > 0)
        for (int i = 0; i < w->n; i++)
            if (w->member[i].rc < 0)
                fail_msg("%s: rank %d: %s", what, i, w->member[i].err.msg);
}

/* The checkpoint of an undisturbed run. */
static void undisturbed(const char *job, int n, struct dir *d)
{
    struct crew w;

    crew_begin(&w, job, n, d);
    assert_all_well(&w, "undisturbed");
    assert_int_equal(trainer_step(w.member[0].trainer), SHORT_STEPS);
    crew_end(&w);
}

/* The ranks that were left held the whole of the newest step, so no step was trained twice.  (If
 * one had been, the checkpoint would have the same bits.) */
static void assert_no_step_lost(const struct crew *w, const char *what)
{
    if (strstr(w->warning, "goes back") || strstr(w->warning, "begins again"))
        fail_msg("%s: %s", what, w->warning);
}

/* A rank is lost at each of its collectives in turn (under TSan at one in four), those of the first
 * formation and of the checkpoint included, and another takes its place.  The bits are those of an
 * undisturbed run. */
static void lose_at_each(const char *job, int n, int victim, enum coll_channel channel,
                         const struct dir *want)
{
    int64_t ticket = 1 + victim % ONE_ROW_IN;

    for (int n_failed = 1; n_failed > 0; ticket += ONE_ROW_IN) {
        const struct coll_fault fault = {.channel = channel, .at_ticket = ticket, .fail = ERR_PEER};
        struct crew w;
        struct dir got;
        char what[80];

        snprintf(what, sizeof what, "%d ranks, rank %d lost at %d of channel %d", n, victim,
                 (int)ticket, (int)channel);
        crew_begin(&w, job, n, &got);
        n_failed = form_and_train(&w, victim, fault);
        if (n_failed > 0) {
            leave(&w, victim);
            join(&w, victim);
            assert_all_well(&w, what);
        }
        if (!strstr(w.warning, "starting from the beginning") && victim == 0)
            fail_msg("%s: %s", what, w.warning);
        assert_no_step_lost(&w, what);
        crew_end(&w);
        assert_same_checkpoints(want, &got, what);
        remove_tree(got.path);
    }
    assert_true(ticket > (channel == COLL_BULK ? 4 : 1) * SHORT_STEPS);
}

static void test_a_rank_is_lost_anywhere(void **state)
{
    struct dir want;

    (void)state;
    undisturbed(SHORT ZERO, 3, &want);
    lose_at_each(SHORT ZERO, 3, 0, COLL_BULK, &want);
    lose_at_each(SHORT ZERO, 3, 2, COLL_BULK, &want);
    lose_at_each(SHORT ZERO, 3, 1, COLL_URGENT, &want);
    lose_at_each(SHORT ZERO_2, 3, 1, COLL_BULK, &want);
    lose_at_each(SHORT ZERO_2, 3, 0, COLL_URGENT, &want);
    lose_at_each(SHORT ZERO_3, 3, 1, COLL_BULK, &want);
    lose_at_each(SHORT ZERO_3, 3, 2, COLL_URGENT, &want);
    remove_tree(want.path);
    undisturbed(SHORT HALF, 3, &want);
    lose_at_each(SHORT HALF ZERO_3, 3, 1, COLL_BULK, &want);
    lose_at_each(SHORT HALF ZERO_2, 3, 1, COLL_BULK, &want);
    remove_tree(want.path);
    undisturbed(SHORT_FROZEN, 3, &want);
    lose_at_each(SHORT_FROZEN ZERO_3, 3, 0, COLL_BULK, &want);
    lose_at_each(SHORT_FROZEN ZERO_3, 3, 2, COLL_BULK, &want);
    remove_tree(want.path);
}

/* ---- ranks that differ in a step ---- */

int __real_exchange_sum_now(struct exchange *x, double *p, int64_t n, enum phase phase,
                            struct err *err);
int __wrap_exchange_sum_now(struct exchange *x, double *p, int64_t n, enum phase phase,
                            struct err *err);

static atomic_int cut_rank,
    cut_after; /* this rank's so many-th sum of checks fails; 0: none does */

/* The other ranks have the sum, and this one does not. */
int __wrap_exchange_sum_now(struct exchange *x, double *p, int64_t n, enum phase phase,
                            struct err *err)
{
    const int rc = __real_exchange_sum_now(x, p, n, phase, err);

    if (rc < 0 || phase != PHASE_REDUCE || coll_rank(exchange_coll(x)) != atomic_load(&cut_rank) ||
        atomic_load(&cut_after) == 0 || atomic_fetch_sub(&cut_after, 1) > 1)
        return rc;
    p[0] = p[1] = 1;
    return err_set(err, ERR_PEER, "cut off");
}

/* A formation that ends because `rank` is cut off in step `step`. */
static void cut_off(struct crew *w, int rank, int step)
{
    atomic_store(&cut_rank, rank);
    atomic_store(&cut_after, step + 1);
    assert_true(form_and_train(w, 0, no_fault) > 0);
    assert_true(w->member[rank].rc < 0);
    assert_int_equal(trainer_step(w->member[rank].trainer), step);
}

/* The ranks that updated their shards are one step ahead of the one that was cut off.  That one
 * makes the update later; nothing is lost, also if one of the others is.  */
static void make_the_step_later(const char *job, int victim, const struct dir *want)
{
    struct crew w;
    struct dir got;
    char what[32];

    snprintf(what, sizeof what, "then rank %d is lost", victim);
    crew_begin(&w, job, 3, &got);
    cut_off(&w, 1, 2);
    assert_int_equal(trainer_step(w.member[0].trainer), 3);
    assert_int_equal(trainer_step(w.member[2].trainer), 3);
    if (victim >= 0) {
        leave(&w, victim);
        join(&w, victim);
    }
    assert_all_well(&w, what);
    assert_no_step_lost(&w, what); /* if rank 2 is lost, rank 1 alone has its shard */
    crew_end(&w);
    assert_same_checkpoints(want, &got, what);
    remove_tree(got.path);
}

static void test_a_rank_makes_the_step_later(void **state)
{
    static const char *const job[] = {SHORT ZERO, SHORT ZERO_2, SHORT ZERO_3, SHORT_FROZEN ZERO_3};
    struct dir want, frozen;

    (void)state;
    undisturbed(SHORT ZERO, 3, &want);
    undisturbed(SHORT_FROZEN, 3, &frozen);
    for (int i = 0; i < 4; i++)
        for (int victim = -1; victim < 3; victim++)
            if (victim != 1)
                make_the_step_later(job[i], victim, i == 3 ? &frozen : &want);
    remove_tree(want.path);
    remove_tree(frozen.path);
}

/* A rank and its buddy are lost. */
static void lose_two(struct crew *w, const char *job, struct dir *d)
{
    crew_begin(w, job, 4, d);
    cut_off(w, 2, 3);
    for (int i = 1; i <= 2; i++) {
        leave(w, i);
        join(w, i);
    }
}

static void test_a_rank_and_its_buddy_are_lost(void **state)
{
    static const struct {
        const char *job, *want;
        int took_checkpoint;
    } cases[] = {
        {SHORT ZERO "checkpoint: {every_steps: 2}\n",
         "the part of rank 1 was held by the ranks 1 and 2 of 4, and both were lost: training goes "
         "back to the checkpoint of step 2",
         1},
        {SHORT ZERO, "both were lost: there is no checkpoint yet, so training begins again", 0},
        {SHORT ZERO_3, "both were lost: there is no checkpoint yet, so training begins again", 0},
    };
    struct crew w;
    struct dir want, got;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        undisturbed(cases[i].job, 4, &want);
        lose_two(&w, cases[i].job, &got);
        assert_all_well(&w, cases[i].want);
        assert_non_null(strstr(w.warning, cases[i].want));
        assert_int_equal(trainer_took_checkpoint(w.member[0].trainer), cases[i].took_checkpoint);
        crew_end(&w);
        assert_same_checkpoints(&want, &got, cases[i].want);
        remove_tree(want.path);
        remove_tree(got.path);
    }
}

/* Ranks leave where all ranks have agreed to: no copy is needed.  Then ranks join.  Each rank holds
 * its share of the state. */
static void leave_and_join(const char *job)
{
    struct crew w;
    struct dir got;
    size_t whole;

    crew_begin(&w, job, 4, &got);
    whole = shards_bytes(w.member[0].trainer->state);
    w.regroup_at = 1;
    assert_all_well(&w, "four");
    assert_int_equal(w.member[3].end, EPOCH_REGROUP);
    for (int i = 2; i < 4; i++)
        leave(&w, i);
    w.n = 2;
    w.regroup_at = 2;
    assert_all_well(&w, "two");
    w.n = 5;
    w.regroup_at = 0;
    for (int i = 2; i < 5; i++)
        join(&w, i);
    assert_all_well(&w, "five");
    assert_int_equal(trainer_step(w.member[4].trainer), SHORT_STEPS);
    for (int i = 0; i < 5; i++) {
        const size_t n = shards_bytes(w.member[i].trainer->state);

        if (n + 64 < whole / 5 || n > whole / 5 + 64)
            fail_msg("rank %d holds %zu bytes of %zu", i, n, whole);
    }
    assert_string_equal(w.warning,
                        "resume: the run has no checkpoint yet: starting from the beginning");
    crew_end(&w);
    remove_tree(got.path);
}

static void test_ranks_leave_and_join(void **state)
{
    (void)state;
    leave_and_join(SHORT "strategy: {zero: 1, buddy: false}\n");
    leave_and_join(SHORT "strategy: {zero: 2, buddy: false}\n");
    leave_and_join(SHORT "strategy: {zero: 3, buddy: false}\n");
    leave_and_join(SHORT_FROZEN "strategy: {zero: 3, buddy: false}\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_rank_is_lost_anywhere),
        cmocka_unit_test(test_a_rank_makes_the_step_later),
        cmocka_unit_test(test_a_rank_and_its_buddy_are_lost),
        cmocka_unit_test(test_ranks_leave_and_join),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
