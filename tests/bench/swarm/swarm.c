/* swarm - plays thousands of followers in one process against one driver, and measures the driver's
 * cost.
 *
 *   join    all members connect and take part up to the first step: until the driver has heard that
 *           every rank has formed, and has told each to train
 *   beat    only heartbeats, for --beat seconds
 *   lose    (with --spare) one rank is lost, the others must leave their collective, and all form
 *           anew with the spare in its place
 *   abort   another rank is lost, for which there is no spare: the job ends everywhere
 *
 * The result is one JSON object on standard output; times in seconds on one clock, the driver's
 * CPU time and memory from /proc.  Exit status 0: all stages passed (no time is judged); 1: one
 * failed, and standard error says why. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "daemon/args.h"
#include "member.h"
#include "usage.h"

/* Members are looked after in turn, so that a look at 100,000 does not hold up the others' news. */
enum { TICK_MS = 20, TICKED = 8192, SETTLE_MS = 2000 };

struct options {
    int64_t n, port, driver_pid, at_once, beat_s, patience_s, relayed;
    int spare;
    const char *secret, *events;
};

enum stage {
    STAGE_JOIN,
    STAGE_SETTLE,
    STAGE_BEAT,
    STAGE_LOSE,
    STAGE_NOTED, /* until the driver has written that it has recovered */
    STAGE_ABORT,
    STAGE_END
};

/* The moments of the result, in their order. */
enum moment { BEFORE, JOINED, SETTLED, BEATEN, LOST, RECOVERED, LOST_AGAIN, ABORTED, MOMENT_COUNT };

static const char *const moment_names[] = {"before", "joined",    "settled",    "beaten",
                                           "lost",   "recovered", "lost_again", "aborted"};

static const char *const heard_names[] = {"open", "welcome", "form", "train", "pause", "finished"};

struct mark {
    int64_t at_ns; /* 0: the moment did not come */
    struct swarm_usage driver, own;
};

struct tally { /* counts one kind of news since the stage began */
    int n;
    int64_t last_ns;
};

struct swarm {
    struct crowd crowd; /* first */
    struct options options;
    struct tls_context *tls;
    struct member *member; /* [options.n] */
    uv_timer_t tick;
    enum stage stage;
    int n_started, n_shaking;
    int next_ticked;
    int n_ranks;    /* members that are ranks */
    int lost_rank;  /* the rank lost last */
    int n_expected; /* how often the news must come that ends this stage */
    struct tally tally[STAGE_END][HEARD_COUNT];
    struct mark mark[MOMENT_COUNT];
    int64_t until_ns, give_up_ns; /* the earliest and the latest end of this stage */
    char *failure;                /* NULL: none */
    long n_seen;                  /* bytes of the driver's events that were searched */
};

#define SECOND INT64_C(1000000000)

#define AT(field) offsetof(struct options, field)

static const struct arg args[] = {
    {{"n", OPT_INT, AT(n), NULL, 3, 131071, .help = "followers"}, "N"},
    {{"port", OPT_INT, AT(port), NULL, 1, 65535, .help = "of the driver, on 127.0.0.1"}, "PORT"},
    {{"driver-pid", OPT_INT, AT(driver_pid), NULL, 1, INT32_MAX, .help = "to see what it uses"},
     "PID"},
    {{"at-once", OPT_INT, AT(at_once), NULL, 1, 65535, .help = "handshakes under way (1000)"}, "N"},
    {{"beat", OPT_INT, AT(beat_s), NULL, 0, 3600, .help = "of heartbeats alone (0)"}, "SECONDS"},
    {{"patience", OPT_INT, AT(patience_s), NULL, 1, 3600, .help = "for each stage (60)"},
     "SECONDS"},
    {{"relayed", OPT_INT, AT(relayed), NULL, 0, MUX_MAX_CHANNELS,
      .help = "members that share a connection, as by an agent (0: none does)"},
     "K"},
    {{"spare", OPT_BOOL, AT(spare), .help = "one of them is a spare: lose a rank first"}, NULL},
    {{"events", OPT_STRING, AT(events), .help = "the driver's events.jsonl"}, "F"},
    {{"secret-file", OPT_STRING, AT(secret), .help = "the driver's; without it no TLS"}, "F"},
};

static void mark(struct swarm *s, enum moment m)
{
    s->mark[m].at_ns = clock_mono_ns();
    usage_of((int)s->options.driver_pid, &s->mark[m].driver);
    usage_of(0, &s->mark[m].own);
}

static void fail(struct swarm *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void fail(struct swarm *s, const char *fmt, ...)
{
    va_list ap;

    if (s->stage == STAGE_END)
        return;
    va_start(ap, fmt);
    if (vasprintf(&s->failure, fmt, ap) < 0)
        ASSERT(!"out of memory");
    va_end(ap);
    s->stage = STAGE_END;
}

/* ---- the stages ---- */

static void enter(struct swarm *s, enum stage stage, int n_expected, int64_t lasts_ns)
{
    s->stage = stage;
    s->n_expected = n_expected;
    s->until_ns = clock_mono_ns() + lasts_ns;
    s->give_up_ns = s->until_ns + s->options.patience_s * SECOND;
}

static void lose_one(struct swarm *s, enum moment m)
{
    int i = (int)s->options.n / 2;

    while (s->member[i].is_finished || !s->member[i].training_since_ns)
        i = (i + 1) % (int)s->options.n;
    s->lost_rank = follower_rank(s->member[i].follower);
    mark(s, m);
    member_leave(&s->member[i]);
}

static void next_stage(struct swarm *s)
{
    switch (s->stage) {
    case STAGE_JOIN:
        mark(s, JOINED);
        enter(s, STAGE_SETTLE, 0, SETTLE_MS * INT64_C(1000000));
        break;
    case STAGE_SETTLE:
        mark(s, SETTLED);
        enter(s, STAGE_BEAT, 0, s->options.beat_s * SECOND);
        break;
    case STAGE_BEAT:
        mark(s, BEATEN);
        if (s->options.spare) {
            enter(s, STAGE_LOSE, s->n_ranks, 0);
            lose_one(s, LOST);
            break;
        }
        enter(s, STAGE_ABORT, s->n_ranks - 1, 0);
        lose_one(s, LOST_AGAIN);
        break;
    case STAGE_LOSE:
        mark(s, RECOVERED);
        if (s->tally[STAGE_LOSE][HEARD_PAUSE].n != s->n_ranks - 1)
            fail(s, "%d ranks heard that one was lost, want %d",
                 s->tally[STAGE_LOSE][HEARD_PAUSE].n, s->n_ranks - 1);
        else
            enter(s, STAGE_NOTED, 0, 0);
        break;
    case STAGE_NOTED:
        enter(s, STAGE_ABORT, s->n_ranks - 1, 0);
        lose_one(s, LOST_AGAIN);
        break;
    case STAGE_ABORT:
        mark(s, ABORTED);
        s->stage = STAGE_END;
        break;
    case STAGE_END:
        break;
    }
}

/* ---- news ---- */

static void start_more(struct swarm *s)
{
    while (s->n_started < s->options.n && s->n_shaking < s->options.at_once &&
           s->stage == STAGE_JOIN) {
        s->n_shaking++;
        s->n_started++;
        member_start(&s->member[s->n_started - 1], &s->crowd, s->n_started);
    }
}

/* Check the end of a member: all must be told the same, and which rank was lost. */
static void check_end(struct swarm *s, const struct member *m)
{
    char *who = xasprintf("rank %d (", s->lost_rank);

    if (s->stage != STAGE_ABORT)
        fail(s, "follower %d ended too early: %s", m->number, m->text);
    else if (m->status != STATUS_FAILED || strncmp(m->text, who, strlen(who)) != 0)
        fail(s, "follower %d ended with status %d and \"%s\", want %d and \"%s...\"", m->number,
             m->status, m->text, STATUS_FAILED, who);
    free(who);
}

static enum heard awaited(enum stage s)
{
    return s == STAGE_ABORT                     ? HEARD_FINISHED
           : s == STAGE_JOIN || s == STAGE_LOSE ? HEARD_TRAIN
                                                : HEARD_COUNT;
}

static void on_heard(struct crowd *c, struct member *m, enum heard what)
{
    struct swarm *s = (struct swarm *)c;
    struct tally *t = &s->tally[s->stage < STAGE_END ? s->stage : STAGE_ABORT][what];

    if (s->stage == STAGE_END || m->has_left)
        return;
    t->n++;
    t->last_ns = clock_mono_ns();
    if (what == HEARD_OPEN)
        s->n_shaking--;
    if (what == HEARD_FINISHED)
        check_end(s, m);
    if (what == awaited(s->stage) && t->n == s->n_expected)
        next_stage(s);
}

/* The event that the driver must have written before this stage may end; NULL: nothing. */
static const char *awaited_event(enum stage s)
{
    return s == STAGE_SETTLE ? "\"first_step\"" : s == STAGE_NOTED ? "\"recovered\"" : NULL;
}

/* The events are read once, on from where the last search ended: with many ranks they are long. */
static int is_noted(struct swarm *s)
{
    const char *what = awaited_event(s->stage);
    char line[4096];
    int is_found = !what;
    FILE *f = is_found ? NULL : fopen(s->options.events, "r");

    if (f && fseek(f, s->n_seen, SEEK_SET) < 0)
        fail(s, "%s cannot be searched", s->options.events);
    while (f && !is_found && fgets(line, sizeof line, f)) {
        is_found = strstr(line, what) != NULL;
        if (strchr(line, '\n'))
            s->n_seen = ftell(f);
    }
    if (f)
        fclose(f);
    return is_found;
}

static void give_up(struct swarm *s)
{
    if (awaited_event(s->stage))
        fail(s, "%s does not say %s", s->options.events, awaited_event(s->stage));
    else
        fail(s, "%d of %d followers heard \"%s\" within %d s",
             s->tally[s->stage][awaited(s->stage)].n, s->n_expected, heard_names[awaited(s->stage)],
             (int)s->options.patience_s);
}

static int is_over(struct swarm *s, int64_t now)
{
    return awaited(s->stage) == HEARD_COUNT && now >= s->until_ns && is_noted(s);
}

static void tick_some(struct swarm *s, int64_t now)
{
    const int n = (int)min_i64(s->n_started, TICKED);

    for (int i = 0; i < n; i++) {
        s->next_ticked = (s->next_ticked + 1) % s->n_started;
        member_tick(&s->member[s->next_ticked], now);
    }
}

static void on_tick(uv_timer_t *timer)
{
    struct swarm *s = timer->data;
    int64_t now = clock_mono_ns();

    tick_some(s, now);
    if (s->stage == STAGE_END)
        return;
    if (is_over(s, now))
        next_stage(s);
    else if (now >= s->give_up_ns)
        give_up(s);
}

/* ---- the result ---- */

static double since_start(const struct swarm *s, int64_t at_ns)
{
    return 1e-9 * (double)(at_ns - s->mark[BEFORE].at_ns);
}

static void tell_moments(const struct swarm *s)
{
    for (int i = 0; i < MOMENT_COUNT; i++) {
        const struct mark *m = &s->mark[i];

        if (m->at_ns)
            printf(",\n \"%s\": {\"at\": %.4f, \"driver_cpu\": %.4f, \"driver_mib\": %.3f, "
                   "\"driver_files\": %d, \"own_cpu\": %.4f}",
                   moment_names[i], since_start(s, m->at_ns), m->driver.cpu_s, m->driver.rss_mib,
                   m->driver.n_files, m->own.cpu_s);
    }
}

/* Print when the last member heard each kind of news. */
static void tell_news(const struct swarm *s)
{
    static const char *const stages[] = {"join", "settle", "beat", "lose", "noted", "abort"};

    for (int i = 0; i < STAGE_END; i++)
        for (int k = 0; k < HEARD_COUNT; k++)
            if (s->tally[i][k].n)
                printf(",\n \"%s_%s\": {\"n\": %d, \"last\": %.4f}", stages[i], heard_names[k],
                       s->tally[i][k].n, since_start(s, s->tally[i][k].last_ns));
}

static void tell(const struct swarm *s)
{
    printf("{\"followers\": %d, \"ranks\": %d, \"relayed\": %d, \"tls\": %s", (int)s->options.n,
           s->n_ranks + 1, (int)s->options.relayed, s->tls ? "true" : "false");
    tell_moments(s);
    tell_news(s);
    printf("}\n");
}

/* ---- life ---- */

static int open_tls(struct swarm *s, struct err *err)
{
    static const struct tls_texts texts = {"no copy of the driver's", "--secret-file is missing"};
    struct secret secret;
    int rc;

    if (!s->options.secret)
        return 0;
    rc = secret_read(s->options.secret, &secret, err);
    if (rc == 0)
        rc = tls_context_new(&secret, 1, TLS_FOLLOWER, &texts, &s->tls, err);
    secret_wipe(&secret);
    s->crowd.tls = s->tls;
    return rc;
}

static int n_relays(const struct swarm *s)
{
    return s->options.relayed ? (int)ceil_div_i64(s->options.n, s->options.relayed) : 0;
}

static int setup(struct swarm *s, int argc, char **argv, struct err *err)
{
    struct arg_group group = {"swarm", args, ARRAY_LEN(args), &s->options};
    struct rlimit files;
    int rc;

    s->options = (struct options){.at_once = 1000, .patience_s = 60};
    rc = args_parse(&group, 1, argc, argv, NULL, err);
    if (rc == 0 &&
        (!s->options.n || !s->options.port || !s->options.driver_pid || !s->options.events))
        rc = err_set(err, ERR_ARG, "--n, --port, --driver-pid and --events are needed");
    if (rc < 0)
        return rc;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    s->n_ranks = (int)s->options.n - s->options.spare;
    s->member = xcalloc((size_t)s->options.n, sizeof(*s->member));
    s->crowd.heard = on_heard;
    s->crowd.n_relayed = (int)s->options.relayed;
    s->crowd.relay = xcalloc((size_t)n_relays(s), sizeof(struct relay));
    uv_ip4_addr("127.0.0.1", (int)s->options.port, (struct sockaddr_in *)&s->crowd.driver);
    return open_tls(s, err);
}

static void run(struct swarm *s)
{
    uv_loop_init(&s->crowd.loop);
    uv_timer_init(&s->crowd.loop, &s->tick);
    s->tick.data = s;
    uv_timer_start(&s->tick, on_tick, TICK_MS, TICK_MS);
    mark(s, BEFORE);
    enter(s, STAGE_JOIN, s->n_ranks, 0);
    while (s->stage != STAGE_END) {
        start_more(s);
        uv_run(&s->crowd.loop, UV_RUN_ONCE);
    }
    uv_close((uv_handle_t *)&s->tick, NULL);
    for (int i = 0; i < s->n_started; i++)
        member_fini(&s->member[i]);
    for (int i = 0; i < n_relays(s); i++)
        relay_fini(&s->crowd.relay[i]);
    uv_run(&s->crowd.loop, UV_RUN_DEFAULT);
    ASSERT(uv_loop_close(&s->crowd.loop) == 0);
}

int main(int argc, char **argv)
{
    static struct swarm s;
    struct err err;

    log_init("swarm", LOG_TEXT, LOG_INFO);
    if (setup(&s, argc, argv, &err) < 0) {
        log_error("%s", err.msg);
        return STATUS_USAGE;
    }
    run(&s);
    if (s.failure)
        log_error("%s", s.failure);
    else
        tell(&s);
    tls_context_free(s.tls);
    free(s.member);
    free(s.crowd.relay);
    free(s.failure);
    return s.failure ? STATUS_FAILED : STATUS_OK;
}
