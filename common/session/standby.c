/* The session machine of a standby (standby.h): the driver's messages, and the search for a driver
 * that was lost.  standby_impl.h names the files that the machine consists of. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/standby_impl.h"

enum { WELCOME_MS = 10000, CHECK_MS = 250 };

/* ---- what is always true ---- */

/* From any stage but the last one the search may begin (again), and the job may end. */
void standby_set_stage(struct standby *s, enum stage stage)
{
    ASSERT(s->stage != STAGE_OVER);
    ASSERT(stage != STAGE_HELLO || s->stage == STAGE_SEEK);
    ASSERT(stage != STAGE_JOINED || s->stage == STAGE_HELLO);
    s->stage = stage;
}

/* At both ends of an event. */
static void standby_check_state(const struct standby *s)
{
    ASSERT(s->stage <= STAGE_OVER);
    ASSERT(s->n_held >= 0 && s->n_held <= s->cap_held);
    ASSERT(s->n_told >= 0 && s->n_told <= s->cap_told);
    ASSERT(s->stage != STAGE_JOINED || (s->run && s->leads_at && s->device && s->job.len));
    ASSERT(s->run || (s->newest.generation == 0 && s->n_held == 0));
    ASSERT(s->until_ms == INT64_MAX || (s->run && s->why));
}

/* ---- life ---- */

static void standby_enter(struct standby *s, int64_t now_ns)
{
    s->now_ns = now_ns;
    s->now_ms = session_enter_ms(&s->clock, now_ns);
    standby_check_state(s);
}

static void standby_leave(struct standby *s)
{
    int64_t due = INT64_MAX;
    standby_check_state(s);
    if (s->stage == STAGE_HELLO || s->stage == STAGE_JOINED)
        due = min_i64(s->heard_ms + s->timeout_ms, s->now_ms + CHECK_MS);
    if (s->stage == STAGE_JOINED)
        due = min_i64(due, s->next_beat_ms);
    if (s->stage == STAGE_SEEK && s->until_ms < INT64_MAX)
        due = min_i64(s->until_ms, s->now_ms + CHECK_MS);
    session_leave(&s->clock, due);
}

int64_t standby_deadline(const struct standby *s) { return s->clock.due_ns; }

int standby_next(struct standby *s, struct action *out) { return queue_take(&s->out, out); }

static const char *dup_or_null(const char *text) { return text ? xstrdup(text) : NULL; }

static void standby_seek(struct standby *s, int is_again)
{
    standby_set_stage(s, STAGE_SEEK);
    queue_put(&s->out, &(struct action){.kind = ACTION_SEEK, .seek = {.is_again = is_again}});
}

struct standby *standby_new(const struct standby_options *o, int64_t now_ns)
{
    struct standby *s = xcalloc(1, sizeof *s);
    s->o = *o;
    s->o.id = xstrdup(o->id);
    s->o.host = xstrdup(o->host && *o->host ? o->host : "?");
    s->o.host_id = xstrdup(o->host_id && *o->host_id ? o->host_id : s->o.host);
    s->o.device = xstrdup(o->device);
    s->o.advertise = dup_or_null(o->advertise);
    s->o.driver = xstrdup(o->driver);
    s->until_ms = INT64_MAX;
    s->is_able = !o->checks_job;
    queue_init(&s->out);
    s->clock.due_ns = INT64_MAX;
    standby_enter(s, now_ns);
    standby_seek(s, 0);
    standby_leave(s);
    return s;
}

static void standby_drop(const void *p) { free((void *)(uintptr_t)p); }

static void forget_run(struct standby *s)
{
    standby_drop(s->job.data);
    s->job = (struct blob){0};
    free(s->run);
    s->run = NULL;
    s->newest = (struct voters){0};
    s->term = s->formed = 0;
    s->until_ms = INT64_MAX;
}

void standby_free(struct standby *s)
{
    if (!s)
        return;
    forget_run(s);
    free(s->leads_at);
    free(s->device);
    free(s->why);
    free(s->said);
    free(s->held);
    free(s->told);
    standby_drop(s->o.id);
    standby_drop(s->o.host);
    standby_drop(s->o.host_id);
    standby_drop(s->o.device);
    standby_drop(s->o.advertise);
    standby_drop(s->o.driver);
    queue_fini(&s->out);
    free(s);
}

/* ---- the driver ---- */

static void standby_finish(struct standby *s, int status, int is_closed, const char *text)
{
    ASSERT(s->stage != STAGE_OVER && text);
    if (!is_closed)
        queue_close(&s->out, DRIVER, text);
    standby_send_back(s, text);
    standby_set_stage(s, STAGE_OVER);
    queue_put(&s->out, &(struct action){.kind = ACTION_FINISHED,
                                        .finished = {.status = status, .text = xstrdup(text)}});
    ASSERT(s->n_held == 0);
}

/* The process that was found does not lead the run now: seek on. */
static void seek_on(struct standby *s, int is_closed, const char *why)
{
    queue_log_useless(&s->out, s->o.driver, why, &s->said);
    if (!is_closed)
        queue_close(&s->out, DRIVER, why);
    standby_seek(s, 1);
    standby_count(s);
}

static void standby_lost_driver(struct standby *s, int is_closed, const char *why)
{
    if (s->stage != STAGE_JOINED) {
        seek_on(s, is_closed, why);
        return;
    }
    free(s->why);
    s->why = xstrdup(why);
    s->until_ms = s->now_ms + s->driver_timeout_ms;
    queue_log(&s->out, LOG_WARN,
              "lost the driver at %s: %s; looking for it and for its followers for %g s "
              "(cluster.driver_timeout)",
              s->o.driver, why, 1e-3 * (double)s->driver_timeout_ms);
    if (!is_closed)
        queue_close(&s->out, DRIVER, why);
    standby_seek(s, 0);
    standby_count(s);
}

static void standby_take_its_job(struct standby *s, const Wire__Welcome *w)
{
    char hash[HASH_TEXT_LEN];
    ASSERT(s->stage == STAGE_HELLO);
    hash_to_text(hash_of(w->job.data, w->job.len), hash);
    if (strcmp(hash, s->job_hash) != 0)
        s->is_able = !s->o.checks_job;
    standby_drop(s->job.data);
    s->job = blob_of(w->job.data, w->job.len);
    strcpy(s->job_hash, hash);
}

static void standby_on_welcome(struct standby *s, const Wire__Welcome *w)
{
    if (s->run && (strcmp(s->run, w->run) != 0 || w->term < s->term)) {
        seek_on(s, 0, "it leads another run, or not any more");
        return;
    }
    standby_take_its_job(s, w);
    if (!s->run)
        s->run = xstrdup(w->run);
    free(s->leads_at);
    s->leads_at = xstrdup(w->standby);
    free(s->device);
    s->device = xstrdup(w->device);
    s->term = w->term;
    s->n_ranks = w->n_ranks;
    s->driver_timeout_ms = w->driver_timeout_ms;
    s->beat_ms = w->heartbeat_ms;
    s->timeout_ms = w->heartbeat_timeout_ms;
    s->next_beat_ms = s->now_ms + s->beat_ms;
    standby_set_stage(s, STAGE_JOINED);
    s->until_ms = INT64_MAX;
    queue_log(&s->out, LOG_INFO,
              "joined the driver at %s (%s) as its standby: followers that lose it come to %s",
              s->o.driver, w->host, s->leads_at);
    s->n_told = 0;
    standby_send_back(s, "the driver is there again");
}

static void standby_on_refused(struct standby *s, const Wire__Refused *r)
{
    char *text = xasprintf("refused by the driver at %s: %s", s->o.driver, r->text);
    int is_later = s->run || r->reason == WIRE__REASON__REASON_ENDING;
    if (r->reason == WIRE__REASON__REASON_STALE) { /* that driver has another run */
        forget_run(s);
        standby_send_back(s, r->text);
    }
    if (r->reason == WIRE__REASON__REASON_FINISHED)
        standby_finish(s, STATUS_OK, 0, r->text);
    else if (is_later)
        seek_on(s, 0, r->text);
    else
        standby_finish(s, STATUS_REFUSED, 0, text);
    free(text);
}

static void standby_on_stop(struct standby *s, const Wire__Stop *m)
{
    int status = m->outcome == WIRE__OUTCOME__OUTCOME_FINISHED  ? STATUS_OK
                 : m->outcome == WIRE__OUTCOME__OUTCOME_STOPPED ? STATUS_STOPPED
                                                                : STATUS_FAILED;
    standby_finish(s, status, 0, m->text);
}

static void on_voters(struct standby *s, const Wire__Voters *m)
{
    struct voters v = voters_of(m->term, m->generation, m->n_ranks, m->standby);
    standby_note_formation(s, &v);
    s->formed = max_i64(s->formed, m->formed);
    standby_acknowledge(s, m);
}

static void standby_on_beat(struct standby *s, const Wire__Heartbeat *h)
{
    if (account_read(h->account, h->n_account, &s->account))
        s->account_ns = s->now_ns;
    s->energy =
        (struct energy_sums){.mj = {[ENERGY_PACKAGE] = h->package_mj, [ENERGY_GPU] = h->gpu_mj}};
}

static void standby_on_joined(struct standby *s, const Wire__Control *m)
{
    ASSERT(s->stage == STAGE_JOINED);
    standby_send_back(s, "the driver is there");
    if (m->body_case == WIRE__CONTROL__BODY_VOTERS)
        on_voters(s, m->voters);
    else if (m->body_case == WIRE__CONTROL__BODY_HEARTBEAT)
        standby_on_beat(s, m->heartbeat);
    else if (m->body_case == WIRE__CONTROL__BODY_STOP)
        standby_on_stop(s, m->stop);
    else if (m->body_case == WIRE__CONTROL__BODY_ABORT && !m->abort->recover)
        standby_finish(s, m->abort->stopped ? STATUS_STOPPED : STATUS_FAILED, 0, m->abort->text);
}

static void on_driver(struct standby *s, const Wire__Control *m)
{
    s->heard_ms = s->now_ms;
    if (s->stage == STAGE_JOINED)
        standby_on_joined(s, m);
    else if (m->body_case == WIRE__CONTROL__BODY_WELCOME)
        standby_on_welcome(s, m->welcome);
    else if (m->body_case == WIRE__CONTROL__BODY_REFUSED)
        standby_on_refused(s, m->refused);
    else
        seek_on(s, 0, "it broke the protocol: want Welcome or Refused first");
}

/* ---- events ---- */

void standby_connected(struct standby *s, int64_t now_ns)
{
    standby_enter(s, now_ns);
    if (s->stage == STAGE_SEEK) {
        standby_set_stage(s, STAGE_HELLO);
        s->heard_ms = s->now_ms;
        s->timeout_ms = s->o.welcome_ms > 0 ? s->o.welcome_ms : WELCOME_MS;
        queue_send(&s->out, DRIVER, standby_hello(s, s->term));
    } else {
        queue_close(&s->out, DRIVER, "the search for a driver has ended");
    }
    standby_leave(s);
}

void standby_message(struct standby *s, int64_t now_ns, int64_t conn, const Wire__Control *m)
{
    standby_enter(s, now_ns);
    if (s->stage == STAGE_OVER)
        ;
    else if (conn != DRIVER)
        standby_follower(s, conn, m);
    else if (s->stage != STAGE_SEEK)
        on_driver(s, m);
    standby_leave(s);
}

void standby_closed(struct standby *s, int64_t now_ns, int64_t conn, const struct err *why)
{
    standby_enter(s, now_ns);
    if (conn != DRIVER)
        standby_forget_follower(s, conn);
    if (conn == DRIVER && (s->stage == STAGE_JOINED || s->stage == STAGE_HELLO))
        standby_lost_driver(s, 1, session_reason(why));
    standby_leave(s);
}

/* The standby ends of its own accord. */
static void standby_end(struct standby *s, int status, char *text)
{
    if (s->stage == STAGE_JOINED)
        standby_goodbye(s, text);
    standby_finish(s, status, s->stage == STAGE_SEEK, text);
}

void standby_checked(struct standby *s, int64_t now_ns, const char *why)
{
    standby_enter(s, now_ns);
    if (s->stage != STAGE_OVER && why) {
        char *text = xasprintf("the standby cannot lead this job: %s", why);
        standby_end(s, STATUS_USAGE, text);
        free(text);
    } else if (s->stage != STAGE_OVER) {
        s->is_able = 1;
        standby_count(s);
    }
    standby_leave(s);
}

void standby_stop(struct standby *s, int64_t now_ns, const char *why)
{
    standby_enter(s, now_ns);
    if (s->stage != STAGE_OVER) {
        char *text = xasprintf("stopped by %s", why);
        standby_end(s, STATUS_STOPPED, text);
        free(text);
    }
    standby_leave(s);
}

static void standby_check_silence(struct standby *s)
{
    int64_t silent_ms = s->now_ms - s->heard_ms;
    if ((s->stage != STAGE_JOINED && s->stage != STAGE_HELLO) || silent_ms < s->timeout_ms)
        return;
    char *why = xasprintf("no sign of life from the driver for %.1f s", 1e-3 * (double)silent_ms);
    standby_lost_driver(s, 0, why);
    free(why);
}

static void check_search(struct standby *s)
{
    if (s->stage == STAGE_JOINED || s->stage == STAGE_OVER || s->now_ms < s->until_ms)
        return;
    char *text = xasprintf("lost the driver at %s: %s; neither it nor enough of its followers came "
                           "within %g s (cluster.driver_timeout)",
                           s->o.driver, s->why, 1e-3 * (double)s->driver_timeout_ms);
    standby_finish(s, STATUS_FAILED, s->stage == STAGE_SEEK, text);
    free(text);
}

void standby_tick(struct standby *s, int64_t now_ns)
{
    standby_enter(s, now_ns);
    standby_check_silence(s);
    check_search(s);
    if (s->stage == STAGE_JOINED && s->now_ms >= s->next_beat_ms)
        standby_beat(s);
    standby_leave(s);
}

/* ---- telling ---- */

struct legacy standby_legacy(const struct standby *s)
{
    return (struct legacy){.job = s->job,
                           .run = s->run,
                           .term = s->term + TERMS,
                           .n_ranks = s->n_ranks,
                           .device = s->device,
                           .driver_timeout_ms = s->driver_timeout_ms,
                           .voters = s->newest,
                           .account = s->account,
                           .account_ns = s->account_ns,
                           .energy = s->energy,
                           .led_by = s->o.driver,
                           .leads_at = s->leads_at};
}

void standby_describe(const struct standby *s, int64_t now_ns, struct buf *out)
{
    (void)now_ns;
    if (s->stage == STAGE_JOINED)
        buf_printf(out, "standby of the driver at %s: generation %lld of %d ranks", s->o.driver,
                   (long long)s->newest.generation, s->newest.n_ranks);
    else
        buf_printf(out, "standby, looking for the driver at %s; %d followers here", s->o.driver,
                   s->n_held);
}
