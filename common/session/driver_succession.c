/* The standby of this driver, and the votes that decide which of the two leads (voters.h).
 *
 * A standby says Hello like a follower, and is welcomed with the job, the run and the term.  It
 * takes no part in training: the followers have the state, so it must know only the newest
 * formation.  The followers are told its address.  It becomes a voter with the next formation, for
 * which the driver asks at the end of a step.  When the standby is gone for good, a formation
 * without it follows in the same way.
 *
 * Before the driver sends Form, it makes sure that the standby cannot lead the run by an older
 * formation.  Either so many followers of the formation before take part that the others could not
 * make the standby the leader.  Or the standby acknowledges the new formation, and from then on
 * leads by no older one.  If neither is so, the ranks wait.  After cluster.driver_timeout the
 * driver ends, because the standby may lead by then.
 *
 * When a formation breaks off after Form was sent, Form may have reached some ranks and not others.
 * Ranks that it reached name this formation, and the others name the one before.  So all formations
 * count since the last one that all ranks entered, or that the standby acknowledged.
 *
 * A driver that was the standby obeys the other side of the same rule in its first formation: the
 * followers that obey it must let it lead.  Followers that do not come soon were lost together with
 * the driver before, and are replaced like any lost rank (recover_absent). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/driver_impl.h"

/* ---- formations that count ---- */

static const struct voters *succession_newest(const struct succession *s)
{
    static const struct voters none = {.generation = 0};
    return s->n ? &s->voters[s->n - 1] : &none;
}

static void forget_formations(struct membership *m)
{
    m->succession.n = m->succession.is_overfull = 0;
    for (int k = 0; k < m->n_seats; k++)
        m->seats[k].votes_in = 0;
}

/* The index of the formation among those that count; -1: it does not count. */
static int find_formation(const struct succession *s, const struct voters *v)
{
    for (int i = 0; i < s->n; i++)
        if (voters_are_equal(&s->voters[i], v))
            return i;
    return -1;
}

/* Add a formation, in order.  If there are more than MOST_FORMATIONS, is_overfull is set, and from
 * then on only the standby's acknowledgement lets ranks form. */
static int add_formation(struct membership *m, const struct voters *v)
{
    const struct driver *d = m->d;
    struct succession *s = &m->succession;
    ASSERT(v->generation > 0 && find_formation(s, v) < 0);
    if (s->n == MOST_FORMATIONS) {
        s->is_overfull = 1;
        return -1;
    }
    int at = s->n++;
    for (; at > 0 && voters_are_newer(&s->voters[at - 1], v); at--)
        s->voters[at] = s->voters[at - 1];
    s->voters[at] = *v;
    if (!d->formation.has_formed && !voters_are_equal(v, &s->next))
        s->formed = max_i64(s->formed, v->generation);
    unsigned below = (1u << at) - 1;
    for (int k = 0; k < m->n_seats; k++) {
        unsigned in = m->seats[k].votes_in;
        m->seats[k].votes_in = (in & below) | (in & ~below) << 1;
    }
    return at;
}

void succession_seated(struct membership *m, int rank, const Wire__Hello *h)
{
    struct voters v = voters_of(h->form_term, h->form_generation, h->form_ranks, h->form_standby);
    ASSERT(rank > 0 && m->seats[rank].is_taken && m->seats[rank].votes_in == 0);
    if (v.generation == 0 || v.n_ranks < 1)
        return;
    int at = find_formation(&m->succession, &v);
    if (at < 0)
        at = add_formation(m, &v);
    v = voters_of(h->term, h->formed, 0, NULL); /* the formation that it was told to prepare last */
    int prepared = find_formation(&m->succession, &v);
    m->seats[rank].votes_in = (at < 0 ? 0 : 1u << at) | (prepared < 0 ? 0 : 1u << prepared);
}

/* ---- votes ---- */

static int n_voters_here(const struct driver *d, int formation, int n_seats, int is_ready)
{
    int n = 0;
    ASSERT(formation >= 0 && formation < d->membership.succession.n);
    for (int k = 1; k < n_seats; k++)
        n += (!is_ready || seat_is_ready(&d->seats[k])) && (d->seats[k].votes_in >> formation & 1);
    return n;
}

/* 1: this driver was the standby, and no formation of its own has shown yet that it may lead. After
 * that its followers obey no driver of a lower term, so the old votes do not matter any more. */
static int is_candidate(const struct driver *d)
{
    return d->o.standby_id && !d->membership.succession.is_elected;
}

/* 1: the followers on the first n_seats seats are enough to form without the standby's
 * acknowledgement. */
static int are_enough(const struct driver *d, int n_seats, int is_ready)
{
    const struct succession *s = &d->membership.succession;
    if (is_candidate(d))
        return s->n > 0 && !strcmp(succession_newest(s)->standby, d->o.standby_id) &&
               voters_let_standby_lead(succession_newest(s),
                                       n_voters_here(d, s->n - 1, n_seats, is_ready));
    for (int i = 0; i < s->n; i++) {
        const struct voters *v = &s->voters[i];
        int n_away = v->n_ranks - 1 - n_voters_here(d, i, n_seats, is_ready);
        if (*v->standby && voters_let_standby_lead(v, n_away))
            return 0;
    }
    return !s->is_overfull;
}

/* 0: this driver was the standby, which holds no state before its first formation, and no follower
 * that is ready holds the newest step that followers named, or the step before that. */
static int succession_has_the_state(const struct driver *d)
{
    int64_t most = d->seats[0].at.step;
    for (int k = 1; k < d->n_seats; k++)
        if (seat_is_ready(&d->seats[k]))
            most = max_i64(most, d->seats[k].kept);
    return !d->o.standby_id || d->formation.has_formed || most + 1 >= d->membership.lead.newest;
}

static int is_state_prepared(const struct driver *d)
{
    int64_t most = 0;
    for (int k = 0; k < d->membership.n_ranks; k++)
        most = max_i64(most, d->seats[k].answer->prepared.step);
    return !d->o.standby_id || d->formation.has_formed || most + 1 >= d->membership.lead.newest;
}

/* 1: the connected standby is the one that may lead, so its acknowledgement would allow the
 * formation. */
static int can_be_asked(const struct driver *d)
{
    const struct succession *s = &d->membership.succession;
    for (int i = 0; i < s->n; i++)
        if (*s->voters[i].standby && strcmp(s->voters[i].standby, s->id) != 0)
            return 0;
    return s->conn != NULL && !is_candidate(d);
}

int succession_all_are_here(const struct driver *d)
{
    const struct succession *s = &d->membership.succession;
    return is_candidate(d) && s->n > 0 &&
           n_voters_here(d, s->n - 1, d->n_seats, 1) == succession_newest(s)->n_ranks - 1;
}

int succession_is_here(const struct driver *d)
{
    return d->membership.succession.conn || !*d->o.led.voters.standby;
}

/* 1: this driver was the standby, enough of its followers are here, and the others have had the
 * time to come.  A follower notices the loss of the driver within an interval of heartbeats. */
int succession_waits_no_more(const struct driver *d)
{
    enum { COME_MS = 2000 };
    return is_candidate(d) && d->seats[0].opened &&
           d->now_ms - d->stage_ms >= d->beat_ms + COME_MS && succession_has_the_state(d) &&
           are_enough(d, d->n_seats, 1);
}

int succession_n_ranks(const struct driver *d)
{
    return succession_newest(&d->membership.succession)->n_ranks;
}

/* End, because neither the standby nor enough followers came, so the standby may lead by now. */
static struct decision succession_give_up(const struct driver *d)
{
    const char *told = d->membership.succession.told;
    const char *where = d->o.standby_id ? d->o.led_by : told ? told : "an address not known here";
    struct decision x = decide(DECIDE_UNELECTED);
    x.text = xasprintf("the %s at %s", d->o.standby_id ? "driver before" : "standby", where);
    x.remedy = d->o.standby_id ? ""
                               : "; it may be started again, and asks anew; if that standby and "
                                 "the followers are gone for good, resume with --set "
                                 "cluster.driver_timeout=0";
    return x;
}

int64_t succession_give_up_ms(const struct driver *d)
{
    const int64_t since_ms = d->membership.succession.lacking_ms;

    return since_ms < 0 ? INT64_MIN : since_ms + d->o.cluster.driver_timeout_ms;
}

int succession_holds_up(struct membership *m, struct decision *out)
{
    const struct driver *d = m->d;
    struct succession *s = &m->succession;
    ASSERT(d->stage == STAGE_GATHER || d->stage == STAGE_WAIT);
    if (succession_has_the_state(d) && (are_enough(d, m->n_seats, 1) || can_be_asked(d))) {
        s->lacking_ms = -1;
        return 0;
    }
    if (s->lacking_ms < 0) {
        s->lacking_ms = d->now_ms;
        queue_log(
            d->out, LOG_WARN,
            succession_has_the_state(d)
                ? "the %s may lead this run, as too few ranks of the last formation are here; "
                  "waiting for it, or for more of them"
                : "the %s, or a rank that is not here, holds the newest state; waiting for it",
            d->o.standby_id ? "driver before" : "standby");
    }
    if (d->ending.n_stops > 0) /* no ranks may form, so no checkpoint can be written */
        *out = decide(DECIDE_AT_ONCE);
    else if (d->now_ms >= succession_give_up_ms(d))
        *out = succession_give_up(d);
    return 1;
}

/* ---- forming ---- */

const char *succession_id(const struct driver *d)
{
    return d->membership.succession.conn ? d->membership.succession.id : NULL;
}

int succession_votes(const struct driver *d)
{
    const struct succession *s = &d->membership.succession;
    return s->conn != NULL && d->formation.has_formed &&
           !strcmp(succession_newest(s)->standby, s->id);
}

int succession_would_lead(const struct driver *d, int n_followers)
{
    return succession_votes(d) && n_followers > 0 &&
           voters_let_standby_lead(succession_newest(&d->membership.succession), n_followers);
}

static void send_voters(const struct driver *d, const struct voters *v)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Voters x = WIRE__VOTERS__INIT;
    struct arena a;
    ASSERT(d->membership.succession.conn && v->generation >= 1);

    arena_init(&a);
    x.term = v->term;
    x.generation = v->generation;
    x.n_ranks = v->n_ranks;
    x.standby = msg_text(&a, v->standby, VOTERS_ID);
    x.formed = d->membership.succession.formed;
    m.generation = d->formation.generation;
    m.body_case = WIRE__CONTROL__BODY_VOTERS;
    m.voters = &x;
    driver_send(d, d->membership.succession.conn, &m);
    arena_fini(&a);
}

void succession_prepare(struct membership *m)
{
    const struct driver *d = m->d;
    struct succession *s = &m->succession;
    ASSERT(d->stage == STAGE_GATHER || d->stage == STAGE_WAIT);
    s->next = voters_of(d->o.term, d->formation.generation, m->n_ranks, succession_id(d));
    s->is_asked = s->is_acknowledged = 0;
    ASSERT(s->next.generation >= 1 && s->next.n_ranks == m->n_ranks);
}

/* The ranks have prepared the next formation.  From now on the standby may lead by it. */
static void add_next(struct membership *m)
{
    struct succession *s = &m->succession;
    if (find_formation(s, &s->next) >= 0)
        return;
    int at = add_formation(m, &s->next);
    for (int k = 1; at >= 0 && k < m->n_ranks; k++)
        m->seats[k].votes_in |= 1u << at;
}

static void succession_ask(struct membership *m)
{
    const struct driver *d = m->d;
    ASSERT(m->succession.conn && m->succession.next.generation == d->formation.generation);
    if (!m->succession.is_asked)
        send_voters(d, &m->succession.next);
    m->succession.is_asked = 1;
    add_next(m);
}

static void say_voters(const struct driver *d)
{
    const struct succession *s = &d->membership.succession;
    if (!*s->next.standby && !*succession_newest(s)->standby)
        return;
    driver_event(d, &(struct session_event){.kind = EVENT_STANDBY,
                                            .rank = -1,
                                            .step = -1,
                                            .phase = PHASE_COUNT,
                                            .standby = s->next,
                                            .text = s->conn ? xstrdup(s->told) : NULL});
}

struct decision succession_lets_form(struct membership *m)
{
    const struct driver *d = m->d;
    struct succession *s = &m->succession;
    int is_held = is_state_prepared(d);
    ASSERT(d->stage == STAGE_PREPARE && d->formation.n_answers == m->n_ranks);
    ASSERT(s->next.generation == d->formation.generation);
    if (is_held && (s->is_acknowledged || are_enough(d, m->n_ranks, 0))) {
        say_voters(d);
        if (s->is_acknowledged || is_candidate(d))
            forget_formations(m);
        s->is_elected = d->o.standby_id != NULL;
        add_next(m);
        return decide(DECIDE_FORM);
    }
    if (is_held && can_be_asked(d)) {
        succession_ask(m);
        return decide(DECIDE_NOTHING);
    }
    return decide_accuse((struct cause){.rank = -1,
                                        .code = ERR_PEER,
                                        .phase = PHASE_PREPARE,
                                        .step = d->run.step,
                                        .is_consequence = 1},
                         "%s was lost while the ranks formed",
                         is_held ? "the standby, which may lead this run," : "the newest state");
}

/* All ranks have got Form, so none will name an older formation. */
void succession_formed(struct membership *m)
{
    struct succession *s = &m->succession;
    ASSERT(m->d->stage == STAGE_FORM && s->next.generation == m->d->formation.generation);
    forget_formations(m);
    add_next(m);
    s->formed = s->next.generation;
    if (s->conn && !s->is_asked)
        succession_ask(m); /* tell the standby of the formation by which it may lead */
    ASSERT(s->n >= 1);
}

/* A standby that comes to a run without one gets its vote at once.  The vote of a standby that
 * goes, or is replaced, is taken away at most once per join_interval, so that a standby which comes
 * and goes costs little. */
int succession_wants_regroup(const struct driver *d)
{
    const char *votes = succession_newest(&d->membership.succession)->standby,
               *id = succession_id(d);
    int64_t age_ms = d->now_ms - d->formation.formed_ms;
    return strcmp(votes, id ? id : "") != 0 && (!*votes || age_ms >= d->o.cluster.join_interval_ms);
}

/* ---- the standby's connection ---- */

static int succession_is_loopback(const char *address)
{
    return !strncmp(address, "127.", 4) || !strcmp(address, "::1");
}

/* The standby's address as the peer of `c` reaches it: a standby on this machine is where this
 * driver is. */
static char *succession_address_for(const struct driver *d, const struct conn *c)
{
    const struct succession *s = &d->membership.succession;
    const char *at = s->advertise                            ? s->advertise
                     : succession_is_loopback(s->conn->peer) ? c->local
                                                             : s->conn->peer;
    ASSERT(s->conn);
    return xasprintf(strchr(at, ':') ? "[%s]:%d" : "%s:%d", at, s->port);
}

char *succession_address(const struct driver *d, const struct conn *c)
{
    return d->membership.succession.conn ? succession_address_for(d, c) : xstrdup("");
}

static void tell_followers(const struct driver *d)
{
    for (int k = 1; k < d->n_seats; k++) {
        Wire__Control m = WIRE__CONTROL__INIT;
        Wire__Standby x = WIRE__STANDBY__INIT;
        if (!d->seats[k].is_taken)
            continue;
        x.address = succession_address(d, d->seats[k].conn);
        m.generation = d->formation.generation;
        m.body_case = WIRE__CONTROL__BODY_STANDBY;
        m.standby = &x;
        driver_send(d, d->seats[k].conn, &m);
        free(x.address);
    }
}

static void succession_send_welcome(const struct driver *d, const struct conn *c)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Welcome w = WIRE__WELCOME__INIT;
    struct arena a;

    arena_init(&a);
    gather_fill_welcome(d, &w, &a);
    w.n_ranks = d->o.n_ranks;
    w.device = msg_text(&a, strncmp(d->o.device, "cuda", 4) != 0 ? "cpu" : "cuda", 64);
    w.standby = succession_address_for(d, c);
    m.body_case = WIRE__CONTROL__BODY_WELCOME;
    m.welcome = &w;
    driver_send(d, c, &m);
    queue_trust(d->out, c->id);
    free(w.standby);
    arena_fini(&a);
}

static void drop_standby(struct membership *m)
{
    struct succession *s = &m->succession;
    s->conn = NULL;
    free(s->advertise);
    s->advertise = NULL;
}

/* The reason why the process that sent this Hello cannot be the standby, or NULL. */
static char *why_not(const struct driver *d, const Wire__Hello *h)
{
    const struct succession *s = &d->membership.succession;
    if (d->o.cluster.driver_timeout_ms == 0 || !d->o.run)
        return xstrdup("no follower keeps its state without the driver, as cluster.driver_timeout "
                       "is 0: a standby would have nothing to go on from");
    if (s->conn && strcmp(s->id, h->standby) != 0)
        return xasprintf("the job has a standby already, at %s", s->told);
    return NULL;
}

struct decision succession_hello(struct membership *m, struct conn *c, const Wire__Hello *h)
{
    const struct driver *d = m->d;
    struct succession *s = &m->succession;
    char *why = why_not(d, h);
    ASSERT(c->state == CONN_STRANGER);
    if (why) {
        gather_refuse(m, c, WIRE__REASON__REASON_FULL, why);
        free(why);
        return decide(DECIDE_NOTHING);
    }
    if (s->conn) { /* the same one: its connection before is broken */
        queue_close(d->out, s->conn->id, "the standby has come again");
        conn_drop(m, s->conn);
    }
    drop_standby(m);
    c->state = CONN_STANDBY;
    c->rank = -1;
    s->conn = c;
    s->port = h->port;
    s->pid = h->pid;
    s->advertise = *h->advertise ? xstrdup(h->advertise) : NULL;
    s->heard_ms = d->now_ms;
    snprintf(s->id, sizeof s->id, "%s", h->standby);
    free(s->host);
    s->host = xstrdup(h->host);
    free(s->told);
    s->told = succession_address_for(d, c);
    s->is_asked = s->is_acknowledged = 0;
    struct voters v = voters_of(h->form_term, h->form_generation, h->form_ranks, h->form_standby);
    if (v.generation > 0 && find_formation(s, &v) < 0 && m->lead.is_taking_over)
        add_formation(m, &v);
    return (struct decision){.kind = DECIDE_JOINED, .rank = -1, .generation = v.generation};
}

/* 1: the ranks are prepared, and the formation waits for the standby alone. */
static int succession_is_awaited(const struct driver *d)
{
    return d->stage == STAGE_PREPARE && d->formation.n_answers == d->membership.n_ranks;
}

struct decision succession_welcome(struct membership *m)
{
    const struct driver *d = m->d;
    const struct succession *s = &m->succession;
    ASSERT(s->conn && s->conn->state == CONN_STANDBY && d->stage < STAGE_ENDING);
    succession_send_welcome(d, s->conn);
    queue_log(d->out, LOG_INFO,
              "the standby joined: %s (pid %lld) from %s; it leads from %s if "
              "this driver is lost",
              s->host, (long long)s->pid, s->conn->from, s->told);
    tell_followers(d);
    if (s->n && !strcmp(succession_newest(s)->standby, s->id) && d->formation.has_formed)
        send_voters(d, succession_newest(s));
    if (d->stage == STAGE_WAIT)
        return decide(DECIDE_TRY);
    /* It may have been asked on the connection before. */
    return decide(succession_is_awaited(d) ? DECIDE_ANSWERED : DECIDE_NOTHING);
}

struct decision succession_lost(struct membership *m, struct conn *c, const char *why)
{
    const struct driver *d = m->d;
    int was_asked = m->succession.is_asked && d->stage == STAGE_PREPARE;
    if (m->succession.conn != c)
        return decide(DECIDE_NOTHING);
    drop_standby(m);
    if (d->stage >= STAGE_ENDING)
        return decide(DECIDE_NOTHING);
    queue_log(d->out, LOG_WARN, "the standby at %s was lost: %s; the job goes on without it",
              m->succession.told, why);
    tell_followers(d);
    return decide(was_asked && succession_is_awaited(d) ? DECIDE_ANSWERED : DECIDE_NOTHING);
}

static int has_votes(const struct succession *s)
{
    for (int i = 0; i < s->n; i++)
        if (*s->voters[i].standby)
            return 1;
    return s->is_overfull;
}

static void say_no_standby(const struct driver *d)
{
    driver_event(d, &(struct session_event){
                        .kind = EVENT_STANDBY, .rank = -1, .step = -1, .phase = PHASE_COUNT});
}

/* It has ended, and its id never comes again, so no formation can make it the leader. */
void succession_resign(struct membership *m)
{
    struct succession *s = &m->succession;
    int had_votes = has_votes(s);
    ASSERT(s->conn && s->id[0]);
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->voters[i].standby, s->id))
            s->voters[i].standby[0] = '\0';
    if (!strcmp(s->next.standby, s->id))
        s->next.standby[0] = '\0';
    if (had_votes && !has_votes(s))
        say_no_standby(m->d);
}

struct decision succession_heard(struct membership *m, const Wire__Control *msg)
{
    struct succession *s = &m->succession;
    ASSERT(s->conn);
    s->heard_ms = m->d->now_ms;
    if (msg->body_case != WIRE__CONTROL__BODY_VOTERS || msg->voters->term != s->next.term ||
        msg->voters->generation != s->next.generation || s->is_acknowledged)
        return decide(DECIDE_NOTHING);
    s->is_acknowledged = 1;
    return decide(succession_is_awaited(m->d) ? DECIDE_ANSWERED : DECIDE_NOTHING);
}

/* The job ends.  Either the standby was told so, or so many followers were told that the others
 * could not make it the leader.  So nobody leads the run any more, and any driver may resume it. */
void succession_release(const struct driver *d)
{
    const struct succession *s = &d->membership.succession;
    if (has_votes(s) && !is_candidate(d) && (s->conn || are_enough(d, d->n_seats, 0)))
        say_no_standby(d);
}

/* ---- life ---- */

void succession_init(struct membership *m)
{
    m->succession.lacking_ms = -1;
    if (m->d->o.led.voters.generation > 0 && m->d->o.cluster.driver_timeout_ms > 0)
        add_formation(m, &m->d->o.led.voters);
}

void succession_say_leader(const struct driver *d)
{
    if (!d->o.standby_id)
        return;
    driver_event(d, &(struct session_event){.kind = EVENT_LEADER,
                                            .rank = -1,
                                            .step = -1,
                                            .phase = PHASE_COUNT,
                                            .leader = {.term = d->o.term},
                                            .host = xstrdup(d->o.led_by),
                                            .text = xstrdup(d->o.leads_at)});
}

void succession_fini(struct membership *m)
{
    drop_standby(m);
    free(m->succession.host);
    free(m->succession.told);
}
