/* resume - rank 0 takes the run's newest checkpoint.
 *
 * The data must be those of the run.  The strategy may be another one: the parameters, the
 * optimizer's slots and the position go on, and the slots of the strategy before are dropped.
 * Those of the new one begin as in a new run.  Followers take all of that from rank 0. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "train/trainer_impl.h"

/* The job of the run as its job.yaml has it, which the driver renews only later; for job_free().
 * NULL: it cannot be read. */
static struct job *former_job(const char *run_dir)
{
    char *path = xasprintf("%s/job.yaml", run_dir);
    struct job *old = NULL;
    struct err ignored;

    (void)job_load(path, NULL, 0, &old, &ignored);
    free(path);
    return old;
}

/* The data folder of the former job, if the present job names another one; for free().  NULL: the
 * two are the same, or the former job names none or is not known. */
static char *former_data_path(const struct trainer *t, const char *run_dir)
{
    const char *const *now = job_field(t->job, "data.path"), *const * then;
    struct job *old = former_job(run_dir);
    char *former = NULL;

    then = old ? job_field(old, "data.path") : NULL;
    if (then && *then && !(now && *now && !strcmp(*then, *now)))
        former = xstrdup(*then);
    job_free(old);
    return former;
}

/* The data may lie in another folder now, but they must be those with which the run was trained. */
static int resume_check_data(const struct trainer *t, const struct ckpt *c, const char *run_dir,
                             struct err *err)
{
    static const struct hash128 unknown = {0};
    char want[HASH_TEXT_LEN], seen[HASH_TEXT_LEN], *former;

    if (c->state.steps_per_epoch != t->steps_per_epoch)
        return err_set(
            err, ERR_CONFIG,
            "%s: was trained with %lld steps an epoch, these data give %lld; resume with "
            "the data and global_batch of the run",
            c->path, (long long)c->state.steps_per_epoch, (long long)t->steps_per_epoch);
    if (hash_equal(c->state.data, t->fingerprint) || hash_equal(c->state.data, unknown))
        return 0;
    hash_to_text(c->state.data, want);
    hash_to_text(t->fingerprint, seen);
    former = former_data_path(t, run_dir);
    err_set(err, ERR_CONFIG,
            "%s: was trained with other data: their fingerprint is %.8s, that of the data now is "
            "%.8s; resume with the run's data%s%s, or start a new run from its weights "
            "(model.init.name=file, model.init.path=%s/model.safetensors)",
            c->path, want, seen, former ? ", which were in " : "", former ? former : "", c->path);
    free(former);
    return err->code;
}

/* Append "strategy was {...} and is now {...}" if that is known to be so; returns 1 then. */
static int append_strategies(const struct trainer *t, const char *run_dir, struct buf *text)
{
    struct job *old = former_job(run_dir);
    struct buf then = {0}, now = {0};
    int differ = 0;

    if (old) {
        job_write_section(old, "strategy", &then);
        job_write_section(t->job, "strategy", &now);
        differ = strcmp(buf_cstr(&then), buf_cstr(&now)) != 0;
    }
    if (differ)
        buf_printf(text, "strategy was %s and is now %s", buf_cstr(&then), buf_cstr(&now));
    buf_fini(&then);
    buf_fini(&now);
    job_free(old);
    return differ;
}

/* Append the strategy's slots that no checkpoint holds.  They begin anew whenever a run is resumed,
 * so they are told only where the strategy is new. */
static void append_unsaved(const struct trainer *t, struct buf *names)
{
    const struct strategy_ops *s = trainer_strategy(t);

    for (int i = 0; i < s->n_slots; i++)
        if (!slot_is_saved(s->slot[i]))
            buf_printf(names, "%s%s", names->len ? ", " : "", s->slot[i]->name);
}

/* Tell the user if the run goes on under another strategy, and which slots are dropped, or begin
 * anew, because of that. */
static void tell_change(struct trainer *t, const struct ckpt *c, const char *run_dir)
{
    struct buf text = {0}, dropped = {0}, begun = {0};

    state_list_dropped(t->state, c, &dropped);
    state_list_begun(t->state, c, &begun);
    if (append_strategies(t, run_dir, &text))
        append_unsaved(t, &begun);
    if (dropped.len)
        buf_printf(&text, "%sdropped from the checkpoint: %s", text.len ? "; " : "",
                   buf_cstr(&dropped));
    if (begun.len)
        buf_printf(&text, "%snot in the checkpoint, so begun as in a new run: %s",
                   text.len ? "; " : "", buf_cstr(&begun));
    if (text.len) {
        char *all = xasprintf("resume: %s", buf_cstr(&text));

        trainer_warn_at(t, t->state->at.step, all);
        free(all);
    }
    buf_fini(&text);
    buf_fini(&dropped);
    buf_fini(&begun);
}

/* A checkpoint of a version that did not write where its mean of weights begins: by the limits that
 * the run had, if its job can be read. */
static void find_average(struct trainer *t, const struct job *former)
{
    struct ckpt_state *at = &t->state->at;
    const int64_t n = schedule_total(&former->schedule, job_steps(former, t->steps_per_epoch));
    const int64_t first = average_first_step(former, t->steps_per_epoch, n);

    if (average_is_wanted(t->job) && at->average_first == 0 && at->step >= first)
        at->average_first = first;
}

/* Append where the mean of train.average begins, if the limits move that, or would have moved it
 * had it not begun; returns 1 then. */
static int append_average(const struct trainer *t, const struct job *former, struct buf *text)
{
    const int64_t spe = t->steps_per_epoch, begun = t->state->at.average_first;
    const int64_t then =
        average_first_step(former, spe, schedule_total(&former->schedule, job_steps(former, spe)));
    const int64_t now =
        average_first_step(t->job, spe, schedule_total(&t->job->schedule, t->total_steps));

    if (!average_is_wanted(t->job) || then == now)
        return 0;
    buf_printf(text, "%sthe mean of train.average ", text->len ? "; " : "");
    if (begun)
        buf_printf(text, "began with the weights after step %lld and goes on", (long long)begun);
    else
        buf_printf(text, "begins with the weights after step %lld, not %lld", (long long)now,
                   (long long)then);
    return 1;
}

/* Tell the user if other limits give the rest of the run another course. */
static void tell_course(struct trainer *t, const char *run_dir)
{
    const struct course at = {t->state->at.step, t->steps_per_epoch, t->n_ranks};
    struct job *former = former_job(run_dir);
    struct buf text = {0};
    int is_new = 0;

    if (former) {
        find_average(t, former);
        is_new = course_compare(former, t->job, &at, &text);
        is_new |= append_average(t, former, &text);
    }
    if (is_new) {
        char *all = xasprintf("resume: %s", buf_cstr(&text));

        trainer_warn_at(t, at.step, all);
        free(all);
    }
    buf_fini(&text);
    job_free(former);
}

static int train_resume(struct trainer *t, const char *run_dir, struct err *err)
{
    struct ckpt *c = NULL;
    int rc = ckpt_load_latest(run_dir, trainer_warn, t, &c, err);

    if (rc == CKPT_NONE) {
        trainer_warn(t, "resume: the run has no checkpoint yet: starting from the beginning");
        return state_init(t->state, t->job, err);
    }
    if (rc == 0)
        rc = resume_check_data(t, c, run_dir, err);
    if (rc == 0)
        rc = state_init_unsaved(t->state, t->job, err);
    if (rc == 0)
        rc = state_load(t->state, c, err);
    if (rc == 0)
        rc = state_take_base(t->state, t->job, c->state.base, err);
    if (rc == 0)
        t->state->at.data = t->fingerprint; /* an old checkpoint has none */
    if (rc == 0) {
        t->loaded_step = t->state->at.step;
        spike_make_due(t);
        tell_change(t, c, run_dir);
        tell_course(t, run_dir);
    }
    ckpt_close(c);
    return rc < 0 ? err_wrap(err, "resume") : 0;
}

int trainer_begin(struct trainer *t, const char *run_dir, struct err *err)
{
    const int rc = run_dir ? train_resume(t, run_dir, err) : state_init(t->state, t->job, err);

    if (rc == 0 && t->o.run_dir)
        ckpt_check_links(t->o.run_dir, trainer_warn, t);
    return rc;
}
