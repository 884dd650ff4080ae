/* The session machine of a standby (standby.h): the driver's messages, the followers that come when
 * the driver is lost, and the count of votes that makes the standby the leader. */
#include "session/standby.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/convert.h"
#include "session/queue.h"

/* The standby adds this to the driver's term when it leads.  A driver that is started again adds 1
 * to the term in its run directory, which the standby may not see.  So the two never have the same
 * term. */
enum { TERMS = 1000 };

enum { DRIVER = 0, WELCOME_MS = 10000, CHECK_MS = 250 };

enum stage {
    STAGE_SEEK,   /* there is no connection with a driver; the caller looks for one */
    STAGE_HELLO,  /* waits for Welcome */
    STAGE_JOINED, /* the driver lives */
    STAGE_OVER
};

struct held { /* a follower that lost the driver */
    int64_t conn;
    struct voters form;     /* the newest formation whose Form it has */
    struct voters prepared; /* the formation that it was told to prepare last */
    int form_rank, rank;    /* its ranks in `form` and in `prepared` */
    int64_t entered;        /* generation of the newest formation whose state it took */
};

struct caller { /* a follower that the log has named */
    struct hash128 machine;
    int64_t pid, pid_space;
};

struct standby {
    struct standby_options o; /* its texts are ours */
    struct action_queue out;
    struct session_clock clock;
    int64_t now_ms;

    enum stage stage;
    int64_t beat_ms, timeout_ms;
    int64_t heard_ms, next_beat_ms;
    int64_t until_ms; /* the end of the search for a lost driver; INT64_MAX: none was lost */
    char *why;        /* how the driver was lost */
    char *said;       /* why the last driver that was found is of no use; NULL: none was */

    struct blob job;
    char *run, *leads_at, *device;
    char job_hash[HASH_TEXT_LEN];
    int64_t term, driver_timeout_ms;
    int n_ranks;
    int is_able;          /* 1: this process could lead the job */
    struct voters newest; /* the newest formation that the driver or a follower has named */
    int64_t formed; /* generation of the newest that all its ranks entered, as the driver says */
    struct held *held;
    int n_held, cap_held;
    struct caller *told; /* the followers that the log has named since the driver was lost */
    int n_told, cap_told;
};

/* ---- life ---- */

static void enter(struct standby *s, int64_t now_ns)
{
    s->now_ms = session_enter_ms(&s->clock, now_ns);
}

static void leave(struct standby *s)
{
    int64_t due = INT64_MAX;
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

static void seek(struct standby *s, int is_again)
{
    s->stage = STAGE_SEEK;
    queue_put(&s->out, &(struct action){.kind = ACTION_SEEK, .seek = {.is_again = is_again}});
}

struct standby *standby_new(const struct standby_options *o, int64_t now_ns)
{
    struct standby *s = xcalloc(1, sizeof(*s));
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
    enter(s, now_ns);
    seek(s, 0);
    leave(s);
    return s;
}

static void drop(const void *p) { free((void *)(uintptr_t)p); }

static void forget_run(struct standby *s)
{
    drop(s->job.data);
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
    drop(s->o.id);
    drop(s->o.host);
    drop(s->o.host_id);
    drop(s->o.device);
    drop(s->o.advertise);
    drop(s->o.driver);
    queue_fini(&s->out);
    free(s);
}

/* ---- messages out ---- */

static struct frame *hello(const struct standby *s, int64_t term)
{
    char device[8], *backend = device;
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Hello h = WIRE__HELLO__INIT;
    struct arena a;
    struct err err;

    arena_init(&a);
    snprintf(device, sizeof(device), "%s", strncmp(s->o.device, "cuda", 4) ? "cpu" : "cuda");
    h.protocol = MSG_PROTOCOL;
    h.version = msg_text(&a, DPTRAIN_VERSION, 64);
    h.rank = -1;
    h.host = msg_text(&a, s->o.host, MSG_MAX_NAME);
    h.host_id = msg_text(&a, s->o.host_id, 64);
    h.pid = s->o.pid;
    h.pid_space = s->o.pid_space;
    h.device = device;
    h.n_backends = 1;
    h.backends = &backend;
    h.advertise = msg_text(&a, s->o.advertise, 64);
    h.standby = msg_text(&a, s->o.id, VOTERS_ID);
    h.port = s->o.port;
    if (s->run) {
        h.run = msg_text(&a, s->run, 64);
        h.run_job = msg_text(&a, s->job_hash, HASH_TEXT_LEN);
        h.term = term;
        h.leader = msg_text(&a, s->leads_at, MSG_MAX_NAME);
    }
    /* Once this process leads, it sends no votes.  Otherwise a driver that has taken the run over
     * from it, in the same run directory, would wait for the ranks of that old formation. */
    if (s->run && term == s->term) {
        h.form_term = s->newest.term;
        h.form_generation = s->newest.generation;
        h.form_ranks = s->newest.n_ranks;
        h.form_standby = msg_text(&a, s->newest.standby, VOTERS_ID);
    }
    m.body_case = WIRE__CONTROL__BODY_HELLO;
    m.hello = &h;
    struct frame *f = msg_frame(&m, &err);
    ASSERT(f);
    arena_fini(&a);
    return f;
}

struct frame *standby_claim(const struct standby *s) { return hello(s, s->term + TERMS); }

static void send(struct standby *s, int64_t conn, const Wire__Control *m)
{
    struct err err;
    struct frame *f = msg_frame(m, &err);
    ASSERT(f);
    queue_send(&s->out, conn, f);
}

static void send_beat(struct standby *s)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Heartbeat h = WIRE__HEARTBEAT__INIT;
    h.bucket = -1;
    m.body_case = WIRE__CONTROL__BODY_HEARTBEAT;
    m.heartbeat = &h;
    s->next_beat_ms = s->now_ms + s->beat_ms;
    send(s, DRIVER, &m);
}

static void acknowledge(struct standby *s, const Wire__Voters *v)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Voters same = *v;
    m.body_case = WIRE__CONTROL__BODY_VOTERS;
    m.voters = &same;
    send(s, DRIVER, &m);
}

static void refuse(struct standby *s, int64_t conn, Wire__Reason reason, const char *text)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Refused r = WIRE__REFUSED__INIT;
    struct arena a;

    arena_init(&a);
    r.reason = reason;
    r.text = msg_text(&a, text, MSG_MAX_TEXT);
    r.run = arena_strdup(&a, s->run ? s->run : "");
    m.body_case = WIRE__CONTROL__BODY_REFUSED;
    m.refused = &r;
    send(s, conn, &m);
    queue_close(&s->out, conn, text);
    arena_fini(&a);
}

/* ---- the followers that wait ---- */

static void send_back(struct standby *s, const char *why)
{
    for (int i = 0; i < s->n_held; i++)
        refuse(s, s->held[i].conn, WIRE__REASON__REASON_FULL, why);
    s->n_held = 0;
}

int standby_holds(const struct standby *s, int64_t conn)
{
    for (int i = 0; i < s->n_held; i++)
        if (s->held[i].conn == conn)
            return 1;
    return 0;
}

/* The follower's rank in the newest formation, or -1. */
static int rank_in_newest(const struct standby *s, const struct held *h)
{
    if (voters_are_equal(&h->form, &s->newest))
        return h->form_rank;
    return voters_are_equal(&h->prepared, &s->newest) ? h->rank : -1;
}

/* The number of followers that let this standby lead.  A follower whose old connection is still
 * open counts once. */
static int n_votes(const struct standby *s)
{
    int n = 0, n_ranks = s->newest.n_ranks;
    char *has_voted = xcalloc((size_t)max_i64(1, n_ranks), 1);
    for (int i = 0; i < s->n_held; i++) {
        int rank = rank_in_newest(s, &s->held[i]);
        if (rank <= 0 || rank >= n_ranks)
            continue;
        n += !has_voted[rank];
        has_voted[rank] = 1;
    }
    free(has_voted);
    return n;
}

/* 1: one of the followers that count was in the formation that did the newest steps.  A follower
 * that has only the Form or the Prepare of a formation may be new to the job. */
static int has_the_state(const struct standby *s)
{
    for (int i = 0; i < s->n_held; i++)
        if (rank_in_newest(s, &s->held[i]) > 0 && s->held[i].entered > 0 &&
            s->held[i].entered >= s->formed)
            return 1;
    return 0;
}

static void lead(struct standby *s, int n)
{
    queue_log(&s->out, LOG_WARN,
              "leading the run from here on, as %d of its %d followers came: the driver at %s is "
              "gone: %s",
              n, s->newest.n_ranks - 1, s->o.driver, s->why);
    if (s->stage == STAGE_HELLO)
        queue_close(&s->out, DRIVER, "this standby leads");
    s->stage = STAGE_OVER;
    queue_put(&s->out, &(struct action){.kind = ACTION_FINISHED,
                                        .finished = {.is_leader = 1, .text = xstrdup("")}});
}

static void count(struct standby *s)
{
    int n = n_votes(s), is_alone = s->stage == STAGE_SEEK || s->stage == STAGE_HELLO;
    if (is_alone && s->is_able && s->why && s->newest.generation > 0 &&
        !strcmp(s->newest.standby, s->o.id) && voters_let_standby_lead(&s->newest, n) &&
        has_the_state(s))
        lead(s, n);
}

static void note_formation(struct standby *s, const struct voters *v)
{
    if (v->generation > 0 && voters_are_newer(v, &s->newest))
        s->newest = *v;
}

/* Log that a follower came, but only once: it comes and goes while it also looks for the driver. */
static void say_came(struct standby *s, const Wire__Hello *h, const struct held *x)
{
    struct caller c = {hash_of(h->host_id, strlen(h->host_id)), h->pid, h->pid_space};
    char who[32] = "no rank yet";
    for (int i = 0; i < s->n_told; i++)
        if (hash_equal(s->told[i].machine, c.machine) && s->told[i].pid == c.pid &&
            s->told[i].pid_space == c.pid_space)
            return;
    if (s->n_told == s->cap_told) {
        s->cap_told = s->cap_told ? 2 * s->cap_told : 16;
        s->told = xrealloc(s->told, (size_t)s->cap_told * sizeof(*s->told));
    }
    s->told[s->n_told++] = c;
    if (x->form.generation > 0)
        snprintf(who, sizeof(who), "rank %d", x->form_rank);
    queue_log(&s->out, LOG_INFO, "a follower on %s (%s) lost the driver and came here", h->host,
              who);
}

static void hold(struct standby *s, int64_t conn, const Wire__Hello *h)
{
    if (s->n_held == s->cap_held) {
        s->cap_held = s->cap_held ? 2 * s->cap_held : 16;
        s->held = xrealloc(s->held, (size_t)s->cap_held * sizeof(*s->held));
    }
    struct held *x = &s->held[s->n_held++];
    *x = (struct held){
        .conn = conn,
        .form = voters_of(h->form_term, h->form_generation, h->form_ranks, h->form_standby),
        .prepared = voters_of(h->term, h->formed, 0, NULL),
        .form_rank = h->form_rank,
        .rank = h->rank,
        .entered = h->entered};
    s->term = max_i64(s->term, h->term);
    note_formation(s, &x->form);
    say_came(s, h, x);
    count(s);
}

static void forget_follower(struct standby *s, int64_t conn)
{
    for (int i = 0; i < s->n_held; i++)
        if (s->held[i].conn == conn)
            s->held[i] = s->held[--s->n_held];
}

static void on_follower(struct standby *s, int64_t conn, const Wire__Control *m)
{
    const Wire__Hello *h = m->hello;
    char *here =
        xasprintf("this is the standby of the driver at %s, which takes followers in", s->o.driver);
    if (m->body_case != WIRE__CONTROL__BODY_HELLO) {
        forget_follower(s, conn);
        queue_close(&s->out, conn, "it says no Hello");
    } else if (h->protocol != MSG_PROTOCOL || strcmp(h->version, DPTRAIN_VERSION) != 0)
        refuse(s, conn, WIRE__REASON__REASON_VERSION,
               "the standby is dptrain " DPTRAIN_VERSION ": install the same version everywhere");
    else if (*h->standby || !s->run || strcmp(h->run, s->run) != 0)
        refuse(s, conn, WIRE__REASON__REASON_FULL, here);
    else if (!standby_holds(s, conn))
        hold(s, conn, h);
    free(here);
}

/* ---- the driver ---- */

static void finish(struct standby *s, int status, int is_closed, const char *text)
{
    if (!is_closed)
        queue_close(&s->out, DRIVER, text);
    for (int i = 0; i < s->n_held; i++)
        refuse(s, s->held[i].conn, WIRE__REASON__REASON_FULL, text);
    s->n_held = 0;
    s->stage = STAGE_OVER;
    queue_put(&s->out, &(struct action){.kind = ACTION_FINISHED,
                                        .finished = {.status = status, .text = xstrdup(text)}});
}

/* The process that was found does not lead the run now: seek on. */
static void seek_on(struct standby *s, int is_closed, const char *why)
{
    if (!s->said || strcmp(s->said, why) != 0) {
        queue_log(&s->out, LOG_INFO, "the driver at %s is of no use yet: %s", s->o.driver, why);
        free(s->said);
        s->said = xstrdup(why);
    }
    if (!is_closed)
        queue_close(&s->out, DRIVER, why);
    seek(s, 1);
    count(s);
}

static void lost_driver(struct standby *s, int is_closed, const char *why)
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
    seek(s, 0);
    count(s);
}

static void take_job(struct standby *s, const Wire__Welcome *w)
{
    char hash[HASH_TEXT_LEN];
    hash_to_text(hash_of(w->job.data, w->job.len), hash);
    if (strcmp(hash, s->job_hash) != 0)
        s->is_able = !s->o.checks_job;
    drop(s->job.data);
    s->job = blob_of(w->job.data, w->job.len);
    strcpy(s->job_hash, hash);
}

static void on_welcome(struct standby *s, const Wire__Welcome *w)
{
    if (s->run && (strcmp(s->run, w->run) != 0 || w->term < s->term)) {
        seek_on(s, 0, "it leads another run, or not any more");
        return;
    }
    take_job(s, w);
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
    s->stage = STAGE_JOINED;
    s->until_ms = INT64_MAX;
    queue_log(&s->out, LOG_INFO,
              "joined the driver at %s (%s) as its standby: followers that lose it come to %s",
              s->o.driver, w->host, s->leads_at);
    s->n_told = 0;
    send_back(s, "the driver is there again");
}

static void on_refused(struct standby *s, const Wire__Refused *r)
{
    char *text = xasprintf("refused by the driver at %s: %s", s->o.driver, r->text);
    int is_later = s->run || r->reason == WIRE__REASON__REASON_ENDING;
    if (r->reason == WIRE__REASON__REASON_STALE) { /* that driver has another run */
        forget_run(s);
        send_back(s, r->text);
    }
    if (r->reason == WIRE__REASON__REASON_FINISHED)
        finish(s, STATUS_OK, 0, r->text);
    else if (is_later)
        seek_on(s, 0, r->text);
    else
        finish(s, STATUS_REFUSED, 0, text);
    free(text);
}

static void on_stop(struct standby *s, const Wire__Stop *m)
{
    int status = m->outcome == WIRE__OUTCOME__OUTCOME_FINISHED  ? STATUS_OK
                 : m->outcome == WIRE__OUTCOME__OUTCOME_STOPPED ? STATUS_STOPPED
                                                                : STATUS_FAILED;
    finish(s, status, 0, m->text);
}

static void on_voters(struct standby *s, const Wire__Voters *m)
{
    struct voters v = voters_of(m->term, m->generation, m->n_ranks, m->standby);
    note_formation(s, &v);
    s->formed = max_i64(s->formed, m->formed);
    acknowledge(s, m);
}

static void on_joined(struct standby *s, const Wire__Control *m)
{
    send_back(s, "the driver is there");
    if (m->body_case == WIRE__CONTROL__BODY_VOTERS)
        on_voters(s, m->voters);
    else if (m->body_case == WIRE__CONTROL__BODY_STOP)
        on_stop(s, m->stop);
    else if (m->body_case == WIRE__CONTROL__BODY_ABORT && !m->abort->recover)
        finish(s, STATUS_FAILED, 0, m->abort->text);
}

static void on_driver(struct standby *s, const Wire__Control *m)
{
    s->heard_ms = s->now_ms;
    if (s->stage == STAGE_JOINED)
        on_joined(s, m);
    else if (m->body_case == WIRE__CONTROL__BODY_WELCOME)
        on_welcome(s, m->welcome);
    else if (m->body_case == WIRE__CONTROL__BODY_REFUSED)
        on_refused(s, m->refused);
    else
        seek_on(s, 0, "it broke the protocol: want Welcome or Refused first");
}

/* ---- events ---- */

void standby_connected(struct standby *s, int64_t now_ns)
{
    enter(s, now_ns);
    if (s->stage == STAGE_SEEK) {
        s->stage = STAGE_HELLO;
        s->heard_ms = s->now_ms;
        s->timeout_ms = s->o.welcome_ms > 0 ? s->o.welcome_ms : WELCOME_MS;
        queue_send(&s->out, DRIVER, hello(s, s->term));
    } else {
        queue_close(&s->out, DRIVER, "the search for a driver has ended");
    }
    leave(s);
}

void standby_message(struct standby *s, int64_t now_ns, int64_t conn, const Wire__Control *m)
{
    enter(s, now_ns);
    if (s->stage == STAGE_OVER)
        ;
    else if (conn != DRIVER)
        on_follower(s, conn, m);
    else if (s->stage != STAGE_SEEK)
        on_driver(s, m);
    leave(s);
}

void standby_closed(struct standby *s, int64_t now_ns, int64_t conn, const struct err *why)
{
    enter(s, now_ns);
    if (conn != DRIVER)
        forget_follower(s, conn);
    if (conn == DRIVER && (s->stage == STAGE_JOINED || s->stage == STAGE_HELLO))
        lost_driver(s, 1, session_reason(why));
    leave(s);
}

/* The standby ends of its own accord: say Goodbye, so that the driver takes its vote back. */
static void say_goodbye(struct standby *s, int status, char *text)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Goodbye g = WIRE__GOODBYE__INIT;
    g.text = text;
    m.body_case = WIRE__CONTROL__BODY_GOODBYE;
    m.goodbye = &g;
    if (s->stage == STAGE_JOINED)
        send(s, DRIVER, &m);
    finish(s, status, s->stage == STAGE_SEEK, text);
}

void standby_checked(struct standby *s, int64_t now_ns, const char *why)
{
    enter(s, now_ns);
    if (s->stage != STAGE_OVER && why) {
        char *text = xasprintf("the standby cannot lead this job: %s", why);
        say_goodbye(s, STATUS_USAGE, text);
        free(text);
    } else if (s->stage != STAGE_OVER) {
        s->is_able = 1;
        count(s);
    }
    leave(s);
}

void standby_stop(struct standby *s, int64_t now_ns, const char *why)
{
    enter(s, now_ns);
    if (s->stage != STAGE_OVER) {
        char *text = xasprintf("stopped by %s", why);
        say_goodbye(s, STATUS_STOPPED, text);
        free(text);
    }
    leave(s);
}

static void check_silence(struct standby *s)
{
    int64_t silent_ms = s->now_ms - s->heard_ms;
    if ((s->stage != STAGE_JOINED && s->stage != STAGE_HELLO) || silent_ms < s->timeout_ms)
        return;
    char *why = xasprintf("no sign of life from the driver for %.1f s", 1e-3 * (double)silent_ms);
    lost_driver(s, 0, why);
    free(why);
}

static void check_search(struct standby *s)
{
    if (s->stage == STAGE_JOINED || s->stage == STAGE_OVER || s->now_ms < s->until_ms)
        return;
    char *text = xasprintf("lost the driver at %s: %s; neither it nor enough of its followers came "
                           "within %g s (cluster.driver_timeout)",
                           s->o.driver, s->why, 1e-3 * (double)s->driver_timeout_ms);
    finish(s, STATUS_FAILED, s->stage == STAGE_SEEK, text);
    free(text);
}

void standby_tick(struct standby *s, int64_t now_ns)
{
    enter(s, now_ns);
    check_silence(s);
    check_search(s);
    if (s->stage == STAGE_JOINED && s->now_ms >= s->next_beat_ms)
        send_beat(s);
    leave(s);
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
