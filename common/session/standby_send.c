/* standby_send - the messages that a standby sends: to the driver, whose life it watches, and to
 * followers that it sends back. */
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "session/standby_impl.h"

struct frame *standby_hello(const struct standby *s, int64_t term)
{
    char device[8], *backend = device;
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Hello h = WIRE__HELLO__INIT;
    struct arena a;
    struct err err;

    arena_init(&a);
    snprintf(device, sizeof device, "%s", strncmp(s->o.device, "cuda", 4) != 0 ? "cpu" : "cuda");
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

struct frame *standby_claim(const struct standby *s) { return standby_hello(s, s->term + TERMS); }

static void standby_send(struct standby *s, int64_t conn, const Wire__Control *m)
{
    struct err err;
    struct frame *f = msg_frame(m, &err);
    ASSERT(f);
    queue_send(&s->out, conn, f);
}

void standby_beat(struct standby *s)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Heartbeat h = WIRE__HEARTBEAT__INIT;
    ASSERT(s->stage == STAGE_JOINED);
    h.bucket = -1;
    m.body_case = WIRE__CONTROL__BODY_HEARTBEAT;
    m.heartbeat = &h;
    s->next_beat_ms = s->now_ms + s->beat_ms;
    standby_send(s, DRIVER, &m);
}

void standby_acknowledge(struct standby *s, const Wire__Voters *v)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Voters same = *v;
    m.body_case = WIRE__CONTROL__BODY_VOTERS;
    m.voters = &same;
    standby_send(s, DRIVER, &m);
}

void standby_refuse(struct standby *s, int64_t conn, Wire__Reason reason, const char *text)
{
    Wire__Control m;
    Wire__Refused r;
    struct arena a;

    arena_init(&a);
    msg_refuse(&m, &r, &a, reason, text, s->run);
    standby_send(s, conn, &m);
    queue_close(&s->out, conn, text);
    arena_fini(&a);
}

void standby_goodbye(struct standby *s, char *text)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Goodbye g = WIRE__GOODBYE__INIT;
    g.text = text;
    m.body_case = WIRE__CONTROL__BODY_GOODBYE;
    m.goodbye = &g;
    standby_send(s, DRIVER, &m);
}
