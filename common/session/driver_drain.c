/* Draining: the operator wants a machine, or a rank's place on it, for something else.
 *
 * Happy path: the ranks and spares that are meant are found, enough ranks are left without them,
 * and they are marked.  A rank then goes like one that asked to leave (driver_recover.c), and a
 * spare goes at once.  A request is carried out as a whole or not at all: if one of those meant
 * cannot go, the answer says why, and none goes.
 *
 * Each follower is told at once (Drain), so that it stays away however it ends: hung, lost with the
 * driver, or with the job.  A follower that cannot be reached any more, or that is killed and
 * started anew, does not know of the drain and may join again.  Then the operator has to drain it
 * once more.
 *
 * A rank that has not left yet is taken back if others are lost in the meantime and the job would
 * end for want of ranks. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/driver_impl.h"

/* ---- who is meant ---- */

/* The text behind `prefix`, or NULL if `text` does not begin with it. */
static const char *text_after_prefix(const char *text, const char *prefix)
{
    size_t n = strlen(prefix);
    return !strncmp(text, prefix, n) ? text + n : NULL;
}

/* The number that `text` is, or -1. */
static int drain_number_of(const char *text)
{
    enum { MOST_DIGITS = 6 };
    size_t n = strspn(text, "0123456789");
    return n > 0 && n <= MOST_DIGITS && text[n] == '\0' ? atoi(text) : -1;
}

/* "2" or "rank:2" gives "2"; NULL: it is neither. */
static const char *rank_in(const char *who)
{
    return drain_number_of(who) >= 0 ? who : text_after_prefix(who, "rank:");
}

/* "spare1" or "spare:1" gives "1"; NULL: it is neither. */
static const char *spare_in(const char *who)
{
    const char *number = text_after_prefix(who, "spare");
    return number && drain_number_of(number) >= 0 ? number : text_after_prefix(who, "spare:");
}

/* The seat that `who` names.  -1: `who` names neither a rank nor a spare.  n_seats: there is no
 * rank or spare with that number. */
static int seat_named(const struct driver *d, const char *who)
{
    const char *rank = rank_in(who), *spare = spare_in(who);
    int k = rank ? drain_number_of(rank) : spare ? drain_number_of(spare) : -1;
    if (rank)
        return k >= 0 && k < d->membership.n_ranks ? k : d->n_seats;
    if (spare)
        return k > 0 ? d->membership.n_ranks - 1 + k : d->n_seats;
    return -1;
}

static int refuse_driver(struct err *err, const char *who)
{
    return err_set(err, ERR_REFUSED,
                   "%s cannot be drained: the driver itself runs there; to stop the job send it "
                   "SIGTERM, and go on elsewhere by --resume",
                   who);
}

static int find_seat(const struct driver *d, const char *who, int seat, struct meant *out,
                     struct err *err)
{
    if (seat == 0)
        return refuse_driver(err, "rank 0");
    if (seat >= d->n_seats || !d->seats[seat].is_taken)
        return err_set(err, ERR_REFUSED,
                       "%s cannot be drained: there is no such rank or spare now (--status)", who);
    out->seat[out->n++] = seat;
    return 0;
}

/* `host` is `who` without the prefix. */
static int find_host(const struct driver *d, const char *who, const char *host, struct meant *out,
                     struct err *err)
{
    if (!strcmp(host, d->o.host))
        return refuse_driver(err, who);
    for (int k = 1; k < d->n_seats; k++)
        if (d->seats[k].is_taken && !strcmp(d->seats[k].host, host))
            out->seat[out->n++] = k;
    if (out->n == 0)
        return err_set(err, ERR_REFUSED, "%s cannot be drained: %s (--status)", who,
                       host == who ? "neither a rank, nor a spare, nor the host of one"
                                   : "no rank or spare runs on a host of that name");
    return 0;
}

static int drain_find_seats(const struct driver *d, const char *who, struct meant *out,
                            struct err *err)
{
    const char *host = text_after_prefix(who, "host:");
    int seat = host ? -1 : seat_named(d, who);
    return seat >= 0 ? find_seat(d, who, seat, out, err)
                     : find_host(d, who, host ? host : who, out, err);
}

/* ---- whether they can go ---- */

static int n_left(const struct driver *d, const struct meant *m)
{
    int n = recover_n_ready(d);
    for (int i = 0; i < m->n; i++)
        n -= seat_is_ready(&d->seats[m->seat[i]]);
    return n;
}

/* 1: one of those meant is a member of the formation.  A spare leaves no gap. */
static int has_rank(const struct driver *d, const struct meant *m)
{
    for (int i = 0; i < m->n; i++)
        if (d->seats[m->seat[i]].is_member && !d->seats[m->seat[i]].leaving)
            return 1;
    return 0;
}

static int drain_has_room(const struct driver *d)
{
    for (int k = 1; k < d->n_seats; k++)
        if (!d->seats[k].is_taken)
            return 1;
    return 0;
}

static int refuse_too_few(const struct driver *d, const char *who, int left, struct err *err)
{
    const char *s = left == 1 ? "" : "s";
    int least = recover_min_ranks(d);
    if (drain_has_room(d))
        return err_set(err, ERR_REFUSED,
                       "%s cannot be drained: %d rank%s would be left, and the job needs %d "
                       "(cluster.min_ranks); start another follower first",
                       who, left, s, least);
    return err_set(err, ERR_REFUSED,
                   "%s cannot be drained: %d rank%s would be left, and the job needs %d "
                   "(cluster.min_ranks) and lets in no other before one leaves (cluster.spares)",
                   who, left, s, least);
}

static int drain_check(const struct driver *d, const char *who, const struct meant *m,
                       struct err *err)
{
    int left = n_left(d, m);
    if (d->stage >= STAGE_ENDING || d->ending.n_stops > 0)
        return err_set(err, ERR_REFUSED, "%s cannot be drained: the job is ending", who);
    if (!d->formation.has_formed)
        return err_set(err, ERR_REFUSED,
                       "%s cannot be drained: training has not begun; end that follower itself, "
                       "another one may take its place",
                       who);
    return has_rank(d, m) && left < recover_min_ranks(d) ? refuse_too_few(d, who, left, err) : 0;
}

/* ---- the way out ---- */

/* 1: the epoch is in its last two steps.  Ranks agree on a regroup one step ahead, so it may come
 * too late then. */
static int is_near_the_end(const struct driver *d)
{
    int64_t begin = (d->run.epoch - 1) * d->run.steps_per_epoch;
    return d->formation.n_answers > 0 || d->seats[0].at.step + 2 > begin + d->run.steps_per_epoch;
}

struct moment {
    const char *when, *text;
};

static struct moment drain_moment(const struct driver *d, const struct seat *s)
{
    static const struct moment moments[STAGE_COUNT] = {
        [STAGE_WAIT] = {"now", "at once"},
        [STAGE_PREPARE] = {"formed", "as soon as the ranks have formed again"},
        [STAGE_FORM] = {"formed", "as soon as the ranks have formed again"},
        [STAGE_TRAIN] = {"step", "when the step under way is done"},
        [STAGE_VALIDATE] = {"epoch", "when this epoch's validation and checkpoint are done"},
        [STAGE_CHECKPOINT] = {"epoch", "when this epoch's checkpoint is done"},
    };
    if (!s->is_member)
        return moments[STAGE_WAIT];
    if (d->stage == STAGE_TRAIN && is_near_the_end(d))
        return (struct moment){"epoch", "at the end of this epoch, when its validation and "
                                        "checkpoint are done, if not before"};
    if (!moments[d->stage].text)
        return (struct moment){"epoch", "when this epoch is done"};
    return moments[d->stage];
}

static const struct leaver *put_leaver(const struct driver *d, int seat, struct drained *out)
{
    const struct seat *s = &d->seats[seat];
    const struct moment m = drain_moment(d, s);
    struct leaver *l = &out->leaver[out->n++];
    int is_spare = seat >= d->membership.n_ranks,
        number = is_spare ? seat - d->membership.n_ranks + 1 : seat;
    ASSERT(seat > 0 && s->is_taken);
    *l = (struct leaver){.rank = is_spare ? -1 : number,
                         .spare = is_spare ? number : 0,
                         .host = xstrdup(s->host),
                         .pid = s->pid,
                         .when = m.when};
    l->line = xasprintf("%s %d (%s, pid %lld) leaves %s%s", is_spare ? "spare" : "rank", number,
                        s->host, (long long)s->pid, s->leaving ? "already, " : "", m.text);
    return l;
}

static void drain_say(const struct driver *d, const struct leaver *l)
{
    driver_event(d, &(struct session_event){.kind = EVENT_DRAIN,
                                            .rank = l->rank,
                                            .drain = {.spare = l->spare, .pid = l->pid},
                                            .host = xstrdup(l->host),
                                            .step = -1,
                                            .phase = PHASE_COUNT,
                                            .text = xstrdup(l->when)});
}

/* Report those that leave.  This comes before any rank goes, because numbers change then.  A rank
 * that was already leaving makes no event. */
void drain_tell(const struct driver *d, const struct meant *m, struct drained *out)
{
    ASSERT(m->n > 0 && !out->leaver && out->n == 0);
    out->leaver = xcalloc((size_t)m->n, sizeof *out->leaver);
    for (int i = 0; i < m->n; i++) {
        const struct leaver *l = put_leaver(d, m->seat[i], out);
        queue_log(d->out, LOG_INFO, "drained by the operator: %s", l->line);
        if (!d->seats[m->seat[i]].leaving)
            drain_say(d, l);
    }
}

void drained_fini(struct drained *x)
{
    for (int i = 0; i < x->n; i++) {
        free(x->leaver[i].host);
        free(x->leaver[i].line);
    }
    free(x->leaver);
    *x = (struct drained){.n = 0};
}

static void send_drain(const struct driver *d, const struct seat *s, int is_taken_back)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Drain drain = WIRE__DRAIN__INIT;
    ASSERT(s->conn && s->conn->state == CONN_MEMBER);

    drain.taken_back = is_taken_back;
    drain.wrong = s->is_wrong;
    m.generation = d->formation.generation;
    m.body_case = WIRE__CONTROL__BODY_DRAIN;
    m.drain = &drain;
    driver_send(d, s->conn, &m);
}

void drain_tell_wrong(const struct driver *d, int seat) { send_drain(d, &d->seats[seat], 1); }

int drain_seat(struct formation *f, int seat, const char *why)
{
    const struct seat *s = &f->seats[seat];
    ASSERT(seat > 0 && s->is_taken && s->conn);
    send_drain(f->d, s, 0);
    if (s->is_member && !s->leaving)
        recover_leave(f, seat, xstrdup(why), 1);
    return s->is_member;
}

int drain_find(const struct driver *d, const char *who, struct meant *out, struct err *err)
{
    *out = (struct meant){.seat = xcalloc((size_t)d->n_seats, sizeof(int))};
    int rc = drain_find_seats(d, who, out, err);
    return rc < 0 ? rc : drain_check(d, who, out, err);
}

static void take_back(struct formation *f, int rank, int n_left)
{
    const struct driver *d = f->d;
    const struct seat *s = &d->seats[rank];
    char *who = driver_label(d, rank);
    ASSERT(s->is_drained && s->leaving);
    queue_log(d->out, LOG_WARN,
              "%s was drained, and stays after all: %d rank%s would be left now, and the job needs "
              "%d (cluster.min_ranks)",
              who, n_left, n_left == 1 ? "" : "s", recover_min_ranks(d));
    drain_say(d,
              &(struct leaver){.rank = rank, .host = s->host, .pid = s->pid, .when = "taken_back"});
    recover_leave(f, rank, NULL, 0);
    send_drain(d, s, 1);
    free(who);
}

void drain_take_back(struct formation *f)
{
    const struct driver *d = f->d;
    int n_left = recover_n_ready(d);
    if (d->ending.n_stops > 0 ||
        n_left >= recover_min_ranks(d)) /* to end in order there is no minimum of ranks */
        return;
    for (int k = 1; k < d->membership.n_ranks; k++)
        if (d->seats[k].is_drained)
            take_back(f, k, n_left);
}
