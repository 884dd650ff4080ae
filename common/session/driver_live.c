/* Requests of the operator to a run while it trains: a checkpoint, a pause, another learning rate.
 *
 * A checkpoint is a request of rank 0's engine, on which all ranks act after the same step.  A
 * pause and a setting need the driver between two commands: the ranks regroup (driver_recover.c),
 * which ends training after the same step on all of them.  A pause then stays in STAGE_WAIT, where
 * ranks may be lost, drained and replaced.  A setting travels with each command to train from the
 * next formation on, and the event `form` keeps it for a driver that resumes the run. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/driver_impl.h"

static void live_say(const struct driver *d, enum event_kind kind, double lr)
{
    driver_event(d, &(struct session_event){.kind = kind,
                                            .rank = -1,
                                            .step = d->run.step,
                                            .phase = PHASE_COUNT,
                                            .live = {.lr = lr}});
}

/* ---- the pause ---- */

static void pause_ask(struct formation *f) { f->is_pausing = 1; }

static void pause_end(struct formation *f)
{
    const struct driver *d = f->d;
    if (f->is_pause_said) {
        queue_log(d->out, LOG_INFO, "going on after step %lld, by the operator",
                  (long long)d->run.step);
        live_say(d, EVENT_GO, 0);
    }
    f->is_pausing = f->is_pause_said = 0;
}

int pause_is_on(const struct driver *d)
{
    return d->formation.is_pausing && d->ending.n_stops == 0 && !d->ending.hands_over;
}

int pause_holds(struct formation *f)
{
    const struct driver *d = f->d;
    ASSERT(d->stage == STAGE_WAIT);
    if (!pause_is_on(d))
        return 0;
    if (!f->is_pause_said) {
        queue_log(d->out, LOG_INFO,
                  "paused after step %lld, by the operator: the ranks keep their state until "
                  "\"dpdriver go\"",
                  (long long)d->run.step);
        live_say(d, EVENT_PAUSE, 0);
    }
    f->is_pause_said = 1;
    return 1;
}

/* ---- a setting ---- */

static void run_set_live(struct run *r, double lr)
{
    ASSERT(lr > 0);
    r->live_lr = lr;
    r->is_live_new = 1;
}

void run_take_live(struct run *r)
{
    if (!r->is_live_new)
        return;
    r->is_live_new = 0;
    r->live_step = r->step;
    queue_log(r->d->out, LOG_INFO, "optimizer.lr is %.9g from step %lld on, by the operator",
              r->live_lr, (long long)r->step);
    live_say(r->d, EVENT_LIVE, r->live_lr);
}

/* The setting's value: of optimizer.lr, the one key that may change so far. */
static int live_parse(const char *setting, double *lr, struct err *err)
{
    static const char key[] = "optimizer.lr=";
    char *end;

    if (strncmp(setting, key, sizeof key - 1) != 0)
        return err_set(err, ERR_ARG,
                       "%.100s: only optimizer.lr can change while the job trains; want "
                       "optimizer.lr=VALUE",
                       setting);
    *lr = strtod(setting + sizeof key - 1, &end);
    if (end != setting + sizeof key - 1 && *end == '\0' && *lr > 0 && *lr <= 1e6)
        return 0;
    return err_set(err, ERR_ARG, "%.100s: want a number above 0, at most 1e6", setting);
}

/* ---- asking ---- */

static int live_check(const struct driver *d, struct err *err)
{
    if (d->o.evaluate)
        return err_set(err, ERR_REFUSED, "nothing is trained here");
    if (d->stage >= STAGE_ENDING || d->ending.n_stops > 0)
        return err_set(err, ERR_REFUSED, "the job is ending");
    if (notice_hands_over(d))
        return err_set(err, ERR_REFUSED,
                       "the standby at %s is to lead after this step; ask again when it leads",
                       d->membership.succession.told);
    if (!d->formation.has_formed)
        return err_set(err, ERR_REFUSED, "training has not begun; try again when the ranks train");
    return 0;
}

int driver_save(struct driver *d, int64_t now_ns, struct err *err)
{
    driver_enter(d, now_ns);
    int rc = live_check(d, err);
    if (rc == 0 && d->stage != STAGE_TRAIN)
        rc = err_set(err, ERR_REFUSED,
                     "no step is trained now, but %s; ask again when the ranks train",
                     d->formation.is_pause_said ? "the job is paused" : stage_name(d->stage));
    if (rc == 0)
        queue_put(d->out, &(struct action){.kind = ACTION_REQUEST, .request = REQUEST_CHECKPOINT});
    driver_leave(d);
    return rc;
}

int driver_pause(struct driver *d, int64_t now_ns, struct err *err)
{
    driver_enter(d, now_ns);
    int rc = live_check(d, err);
    if (rc == 0 && d->formation.is_pausing)
        rc = err_set(err, ERR_REFUSED, "the job is paused already, or will be after this step");
    if (rc == 0) {
        pause_ask(&d->formation);
        driver_let_leave(d);
    }
    driver_leave(d);
    return rc;
}

int driver_go(struct driver *d, int64_t now_ns, struct err *err)
{
    driver_enter(d, now_ns);
    int rc = live_check(d, err);
    if (rc == 0 && !d->formation.is_pausing)
        rc = err_set(err, ERR_REFUSED, "the job is not paused");
    if (rc == 0) {
        pause_end(&d->formation);
        if (d->stage == STAGE_WAIT)
            recover_wait(&d->formation, d->formation.recovery.is_orderly);
        driver_let_leave(d);
    }
    driver_leave(d);
    return rc;
}

int driver_set_live(struct driver *d, int64_t now_ns, const char *setting, struct err *err)
{
    double lr = 0;
    driver_enter(d, now_ns);
    int rc = live_parse(setting, &lr, err);
    if (rc == 0)
        rc = live_check(d, err);
    if (rc == 0) {
        run_set_live(&d->run, lr);
        driver_let_leave(d);
    }
    driver_leave(d);
    return rc;
}
