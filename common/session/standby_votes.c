/* standby_votes - the followers that come to a standby when the driver is lost, and the count of
 * their votes, which makes the standby the leader. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/standby_impl.h"

void standby_send_back(struct standby *s, const char *why)
{
    for (int i = 0; i < s->n_held; i++)
        standby_refuse(s, s->held[i].conn, WIRE__REASON__REASON_FULL, why);
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
    ASSERT(s->n_held >= 0);
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
static int standby_votes_hold_state(const struct standby *s)
{
    for (int i = 0; i < s->n_held; i++)
        if (rank_in_newest(s, &s->held[i]) > 0 && s->held[i].entered > 0 &&
            s->held[i].entered >= s->formed)
            return 1;
    return 0;
}

static void standby_votes_lead(struct standby *s, int n)
{
    ASSERT(s->run && s->why && s->is_able && n > 0);
    ASSERT(s->stage == STAGE_SEEK || s->stage == STAGE_HELLO);
    queue_log(&s->out, LOG_WARN,
              "leading the run from here on, as %d of its %d followers came: the driver at %s is "
              "gone: %s",
              n, s->newest.n_ranks - 1, s->o.driver, s->why);
    if (s->stage == STAGE_HELLO)
        queue_close(&s->out, DRIVER, "this standby leads");
    standby_set_stage(s, STAGE_OVER);
    queue_put(&s->out, &(struct action){.kind = ACTION_FINISHED,
                                        .finished = {.is_leader = 1, .text = xstrdup("")}});
}

void standby_count(struct standby *s)
{
    int n = n_votes(s), is_alone = s->stage == STAGE_SEEK || s->stage == STAGE_HELLO;
    if (is_alone && s->is_able && s->why && s->newest.generation > 0 &&
        !strcmp(s->newest.standby, s->o.id) && voters_let_standby_lead(&s->newest, n) &&
        standby_votes_hold_state(s))
        standby_votes_lead(s, n);
}

void standby_note_formation(struct standby *s, const struct voters *v)
{
    if (v->generation > 0 && voters_are_newer(v, &s->newest))
        s->newest = *v;
    ASSERT(!voters_are_newer(v, &s->newest) || v->generation <= 0);
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
        s->told = xrealloc(s->told, (size_t)s->cap_told * sizeof *s->told);
    }
    s->told[s->n_told++] = c;
    if (x->form.generation > 0)
        snprintf(who, sizeof who, "rank %d", x->form_rank);
    queue_log(&s->out, LOG_INFO, "a follower on %s (%s) lost the driver and came here", h->host,
              who);
}

static void standby_votes_hold(struct standby *s, int64_t conn, const Wire__Hello *h)
{
    ASSERT(s->run && !standby_holds(s, conn));
    if (s->n_held == s->cap_held) {
        s->cap_held = s->cap_held ? 2 * s->cap_held : 16;
        s->held = xrealloc(s->held, (size_t)s->cap_held * sizeof *s->held);
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
    standby_note_formation(s, &x->form);
    say_came(s, h, x);
    standby_count(s);
}

void standby_forget_follower(struct standby *s, int64_t conn)
{
    for (int i = 0; i < s->n_held; i++)
        if (s->held[i].conn == conn)
            s->held[i] = s->held[--s->n_held];
}

void standby_follower(struct standby *s, int64_t conn, const Wire__Control *m)
{
    const Wire__Hello *h = m->hello;
    char *here =
        xasprintf("this is the standby of the driver at %s, which takes followers in", s->o.driver);
    if (m->body_case != WIRE__CONTROL__BODY_HELLO) {
        standby_forget_follower(s, conn);
        queue_close(&s->out, conn, "it says no Hello");
    } else if (h->protocol != MSG_PROTOCOL || strcmp(h->version, DPTRAIN_VERSION) != 0)
        standby_refuse(s, conn, WIRE__REASON__REASON_VERSION,
                       "the standby is dptrain " DPTRAIN_VERSION
                       ": install the same version everywhere");
    else if (*h->standby || !s->run || strcmp(h->run, s->run) != 0)
        standby_refuse(s, conn, WIRE__REASON__REASON_FULL, here);
    else if (!standby_holds(s, conn))
        standby_votes_hold(s, conn, h);
    free(here);
}
