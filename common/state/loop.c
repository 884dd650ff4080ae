/* loop - the rules of train.best and train.early_stop, and the slot with their counts.
 *
 * A schedule has its own rule for what a validation changes (optim/schedule.h). */
#include "state/loop.h"

#include <math.h>
#include <string.h>

#include "base/util.h"

static void loop_init(const struct job *job, const struct layout *l, int i, void *to)
{
    double *v = to;

    (void)l, (void)i;
    v[LOOP_STOP_BEST] = INFINITY;
    if (job->schedule.kind->begin)
        job->schedule.kind->begin(v + LOOP_SCHEDULE);
}

const struct slot_def slot_loop = {.name = "the loop's decisions",
                                   .suffix = "loop",
                                   .scope = SLOT_PER_JOB,
                                   .length = LOOP_LEN,
                                   .dtype = DTYPE_F64,
                                   .file = SLOT_IN_OPTIMIZER,
                                   .is_hashed = 1,
                                   .is_broadcast = 1,
                                   .init = loop_init};

const char *loop_wanted_by(const struct job *job)
{
    return job->train.best.goal != GOAL_NONE    ? "train.best"
           : job->train.early_stop.patience > 0 ? "train.early_stop"
           : job->schedule.kind->validated      ? "schedule.name plateau"
                                                : NULL;
}

int loop_is_wanted(const struct job *job) { return loop_wanted_by(job) != NULL; }

/* ---- reading the slot: a checkpoint may hold any numbers, so each is checked ---- */

static int is_count(double v, double most) { return v >= 0 && v <= most && v == floor(v); }

static int loop_check(const double v[LOOP_LEN], struct err *err)
{
    static const int counts[] = {LOOP_STEP, LOOP_STOP_BAD, LOOP_SCHEDULE + 1, LOOP_SCHEDULE + 2,
                                 LOOP_SCHEDULE + 3};
    const double most = 9007199254740992; /* 2^53: up to here a double holds every integer */

    for (size_t i = 0; i < ARRAY_LEN(counts); i++)
        if (!is_count(v[counts[i]], most))
            return err_set(err, ERR_CORRUPT,
                           "the checkpoint's \"loop\" has %g as number %d, want a count",
                           v[counts[i]], counts[i]);
    if (!is_count(v[LOOP_N_BEST], CKPT_MOST_BEST))
        return err_set(err, ERR_CORRUPT,
                       "the checkpoint's \"loop\" lists %g best steps, want 0 to %d",
                       v[LOOP_N_BEST], CKPT_MOST_BEST);
    for (int i = 0; i < (int)v[LOOP_N_BEST]; i++)
        if (!is_count(v[LOOP_BEST + 2 * i], most))
            return err_set(err, ERR_CORRUPT,
                           "the checkpoint's \"loop\" has %g among its best steps, want a step",
                           v[LOOP_BEST + 2 * i]);
    return 0;
}

int loop_read(struct loop *l, const struct state *s, struct err *err)
{
    const void *slot = state_data(s, &slot_loop);
    int rc;

    *l = (struct loop){{0}};
    if (!slot)
        return 0;
    rc = backend_copy_out(s->backend, l->v, slot, sizeof l->v, err);
    return rc == 0 ? loop_check(l->v, err) : rc;
}

/* ---- train.best ---- */

/* Put the step into the list, which is sorted by score.  Of equal scores the earlier step's is the
 * better one.  A step whose score is NaN is not listed. */
static void note_best(double v[LOOP_LEN], int64_t keep, int64_t step, double score)
{
    double *best = v + LOOP_BEST;
    int n = (int)v[LOOP_N_BEST], at = n;

    ASSERT(n >= 0 && n <= CKPT_MOST_BEST && keep >= 1 && keep <= CKPT_MOST_BEST);
    if (isnan(score))
        return;
    while (at > 0 && score < best[2 * (at - 1) + 1])
        at--;
    if (at >= keep)
        return;
    if (n >= keep) /* a resume may have lowered train.best.keep */
        n = (int)keep - 1;
    memmove(best + 2 * (at + 1), best + 2 * at, sizeof *best * 2 * (size_t)(n - at));
    best[2 * at] = (double)step;
    best[2 * at + 1] = score;
    v[LOOP_N_BEST] = n + 1;
    ASSERT(n < keep && at <= n);
}

int loop_best(const double v[LOOP_LEN], int64_t step[CKPT_MOST_BEST])
{
    const int n = (int)v[LOOP_N_BEST];

    ASSERT(n >= 0 && n <= CKPT_MOST_BEST); /* loop_read has checked it */
    for (int i = 0; i < n; i++)
        step[i] = (int64_t)v[LOOP_BEST + 2 * i];
    return n;
}

int loop_keeps(const struct loop *l, int64_t step)
{
    int64_t best[CKPT_MOST_BEST];
    int n = loop_best(l->v, best);

    while (n > 0 && best[n - 1] != step)
        n--;
    return n > 0;
}

int loop_is_best(const struct loop *l, int64_t step)
{
    return l->v[LOOP_N_BEST] > 0 && l->v[LOOP_BEST] == (double)step;
}

/* ---- train.early_stop ---- */

static void note_progress(double v[LOOP_LEN], const struct job_early_stop *o, double score)
{
    if (score < v[LOOP_STOP_BEST] - o->min_delta) {
        v[LOOP_STOP_BEST] = score;
        v[LOOP_STOP_BAD] = 0;
    } else {
        v[LOOP_STOP_BAD]++;
    }
}

int loop_stops(const struct loop *l, const struct job *job)
{
    const int64_t patience = job->train.early_stop.patience;

    return patience > 0 && l->v[LOOP_STOP_BAD] >= (double)patience;
}

/* ---- all of it ---- */

/* 1: the validation of this step is one of train.validate_every's.  0: it was made because the job
 * ends here; a longer job would have gone on without it. */
static int is_regular(const struct job *job, const struct ckpt_state *at)
{
    const int64_t every = job->train.validate_every;

    return every > 0 && at->step % at->steps_per_epoch == 0 &&
           at->step / at->steps_per_epoch % every == 0;
}

int loop_decide(struct loop *l, const struct job *job, struct state *s, const struct validated *v,
                struct err *err)
{
    const struct job_best *best = &job->train.best;
    const struct job_early_stop *stop = &job->train.early_stop;
    const int counts = is_regular(job, &s->at);

    if (l->v[LOOP_STEP] == (double)s->at.step)
        return 0;
    l->v[LOOP_STEP] = (double)s->at.step;
    if (best->goal != GOAL_NONE)
        note_best(l->v, best->keep, s->at.step, goal_score(best->goal, v));
    if (counts && stop->patience > 0)
        note_progress(l->v, stop, goal_score(stop->goal, v));
    if (counts && job->schedule.kind->validated)
        job->schedule.kind->validated(job->schedule.options, v, l->v + LOOP_SCHEDULE);
    return backend_copy_in(s->backend, state_data(s, &slot_loop), l->v, sizeof l->v, err);
}
