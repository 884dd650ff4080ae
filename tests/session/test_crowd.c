/* driver: very many ranks lost at once.  The cost grows with their number, not with its square.
 * It is counted in messages and lines, which do not depend on the machine; the time is printed.
 *
 *     test_crowd                       all of it, with a few schedules of random losses
 *     test_crowd SCHEDULES [FIRST]     so many schedules alone, by their seeds
 *
 * It is built for 4,096 ranks, and with -DMANY for 100,000.
 *
 * Every schedule begins where the crowd has formed and trains.  That takes as long as a schedule,
 * so it is done once, and each schedule is a child process that has its own copy of it all. */
#include "rig.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "base/util.h"
#include "session/convert.h"

#ifdef MANY
enum { CROWD = 100000, LOST = 50000, FORMATIONS = 3 };
#else
enum { CROWD = 4096, LOST = 2048, FORMATIONS = 3 };
#endif
enum {
    GPUS = 8 /* of a host */,
    SETTLED_MS = 1100 /* from then on no more losses are waited for */
};

struct crowd {
    struct driver *d;
    struct driver_options o;
    int64_t now;
    struct cmd *command; /* last to rank 0's engine */
    int n_sent, n_logged, n_formed, n_lost, n_prepared, n_ticked;
    int n_told;         /* how many frames held all of rank 0's ids */
    struct frame *told; /* the newest of them, which all ranks share */
    char *last_line;
};

enum { IDS = MSG_MAX_IDS * MSG_ID }; /* a crowd has as many as there may be */

static uint8_t byte_of_id(int i) { return (uint8_t)(i / MSG_ID * 31 + i % MSG_ID); }

static int holds_all_ids(const struct frame *f)
{
    uint8_t ids[IDS];

    if (f->len <= IDS)
        return 0;
    for (int i = 0; i < IDS; i++)
        ids[i] = byte_of_id(i);
    return memmem(f->data, f->len, ids, IDS) != NULL;
}

static int is_told(struct crowd *c, struct frame *f)
{
    if (f == c->told)
        return 1;
    if (!holds_all_ids(f))
        return 0;
    frame_unref(c->told);
    c->told = frame_ref(f);
    return 1;
}

static void count(struct crowd *c)
{
    struct action a;

    while (driver_next(c->d, &a)) {
        c->n_sent += a.kind == ACTION_SEND;
        c->n_told += a.kind == ACTION_SEND && is_told(c, a.send.frame);
        c->n_logged += a.kind == ACTION_LOG;
        c->n_formed += a.kind == ACTION_EVENT && a.event.kind == EVENT_FORM;
        c->n_lost += a.kind == ACTION_EVENT && a.event.kind == EVENT_LOST;
        if (a.kind == ACTION_COMMAND) {
            cmd_free(c->command);
            c->command = a.command;
            a.command = NULL;
            c->n_prepared += c->command->kind == CMD_PREPARE;
        }
        action_fini(&a);
    }
}

static void say(struct crowd *c, int conn, Wire__Control *m)
{
    driver_message(c->d, c->now, conn, m);
    count(c);
}

/* Without GPUs each rank has a host of its own. */
static void hello(struct crowd *c, int conn)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Hello h = WIRE__HELLO__INIT;
    Wire__Gpu gpu[GPUS], *gpus[GPUS];
    char host[16], version[] = DPTRAIN_VERSION, device[] = "auto", name[] = "a card", bus[] = "";
    char cpu[] = "cpu", cuda[] = "cuda", *all[] = {cpu, cuda}, uuid[GPUS][32];
    const int has_gpus = c->o.gpu_uuid != NULL;

    snprintf(host, sizeof(host), "h%d", has_gpus ? conn / GPUS : conn);
    for (int i = 0; i < GPUS; i++) {
        snprintf(uuid[i], sizeof uuid[i], "GPU-%s-%d", host, i);
        wire__gpu__init(&gpu[i]);
        gpu[i].index = i;
        gpu[i].uuid = uuid[i];
        gpu[i].name = name;
        gpu[i].bus = bus;
        gpus[i] = &gpu[i];
    }
    driver_connected(c->d, c->now, conn, "10.0.0.1", "10.0.0.2", host);
    h.protocol = MSG_PROTOCOL;
    h.version = version;
    h.rank = -1;
    h.host = h.host_id = host;
    h.pid = conn;
    h.device = device;
    h.backends = all;
    h.n_backends = has_gpus ? 2 : 1;
    h.gpus = gpus;
    h.n_gpus = has_gpus ? GPUS : 0;
    m.body_case = WIRE__CONTROL__BODY_HELLO;
    m.hello = &h;
    say(c, conn, &m);
}

/* The message that a rank sends for this report; takes r. */
static Wire__Control *message_of(struct report *r)
{
    struct err err;
    struct frame *f = convert_report(r, &err);
    Wire__Control *m = NULL;

    assert_non_null(f);
    assert_int_equal(msg_unpack(f->data + FRAME_HEADER, f->len - FRAME_HEADER, &m, &err), 0);
    frame_unref(f);
    report_free(r);
    return m;
}

static void report(struct crowd *c, struct report *r)
{
    driver_report(c->d, c->now, r);
    count(c);
}

/* Rank 0 and the ranks on the connections first..last-1, but those that are gone (NULL: none is),
 * answer one command.  The others' answers are the same message. */
static void answer(struct crowd *c, int first, int last, const uint8_t *is_gone)
{
    struct cmd *to = c->command;
    struct report *own = rig_answer(to);
    Wire__Control *m = message_of(rig_answer(to));

    if (to->kind == CMD_PREPARE) { /* as NCCL does, whatever the number of ranks */
        own->prepared.ids.len = IDS;
        own->prepared.ids.data = xcalloc(1, IDS);
        for (int i = 0; i < IDS; i++)
            ((uint8_t *)own->prepared.ids.data)[i] = byte_of_id(i);
    }
    c->command = NULL;
    report(c, own);
    for (int conn = first; conn < last; conn++)
        if (!is_gone || !is_gone[conn])
            say(c, conn, m);
    msg_free(m);
    cmd_free(to);
}

/* They answer until they train. */
static void form(struct crowd *c, int first, int last)
{
    while (c->command->kind != CMD_TRAIN)
        answer(c, first, last, NULL);
}

static void open_crowd(struct crowd *c, const struct driver_options *o)
{
    Wire__Control *opened = message_of(rig_opened());

    *c = (struct crowd){.o = *o, .now = 1000 * (int64_t)MS};
    c->d = driver_new(o, c->now);
    driver_start(c->d, c->now);
    count(c);
    report(c, rig_opened());
    for (int conn = 1; conn < CROWD; conn++)
        hello(c, conn);
    for (int conn = 1; conn < CROWD; conn++)
        say(c, conn, opened);
    msg_free(opened);
    form(c, 1, o->n_ranks);
    c->n_sent = c->n_logged = c->n_formed = c->n_prepared = 0;
}

static void close_crowd(struct crowd *c)
{
    cmd_free(c->command);
    frame_unref(c->told);
    driver_free(c->d);
}

static void wait_ms(struct crowd *c, int64_t ms)
{
    int64_t until = c->now + ms * MS;

    while (driver_deadline(c->d) <= until) {
        c->now = driver_deadline(c->d) > c->now ? driver_deadline(c->d) : c->now;
        driver_tick(c->d, c->now);
        c->n_ticked++;
        count(c);
    }
    c->now = until;
}

static void lose(struct crowd *c, int n)
{
    clock_t start = clock();

    for (int conn = 1; conn <= n; conn++) {
        driver_closed(c->d, c->now, conn, NULL);
        count(c);
    }
    printf("  %d of %d lost: %.3f s of CPU time, %d messages, %d lines, %d formations begun\n", n,
           CROWD, (double)(clock() - start) / CLOCKS_PER_SEC, c->n_sent, c->n_logged,
           c->n_prepared);
}

static struct driver_options options(int64_t replace_timeout_ms)
{
    struct driver_options o = rig_options(CROWD);

    o.cluster.heartbeat_timeout_ms = 100000;
    o.cluster.min_ranks = 2;
    o.cluster.replace_timeout_ms = replace_timeout_ms;
    return o;
}

/* Each rank that is left is told once.  So are the engine and each lost rank whose connection is
 * open. */
static void assert_work(const struct crowd *c, int n_lost, int n_formed)
{
    assert_int_equal(c->n_lost, n_lost);
    assert_int_equal(c->n_formed, n_formed);
    assert_int_equal(c->n_prepared, n_formed);
    assert_in_range(c->n_sent, CROWD - n_lost, 6 * CROWD); /* Abort, Prepare, Form, Train */
    assert_in_range(c->n_logged, n_lost, 2 * n_lost + 10);
}

static void they_may_be_replaced(void **state)
{
    struct crowd c;
    struct driver_options o = options(3000);

    (void)state;
    open_crowd(&c, &o);
    lose(&c, LOST);
    wait_ms(&c, 2900);
    assert_int_equal(c.n_prepared, 0);
    assert_in_range(c.n_logged, LOST, LOST + 10);
    wait_ms(&c, 200);
    form(&c, LOST + 1, CROWD);
    assert_work(&c, LOST, 1);
    close_crowd(&c);
}

/* No replacement is waited for: the ranks form once for all that are lost together, and the
 * number of losses is not held against those that are left. */
static void the_others_go_on_at_once(void **state)
{
    struct crowd c;
    struct driver_options o = options(0);

    (void)state;
    open_crowd(&c, &o);
    lose(&c, LOST);
    wait_ms(&c, SETTLED_MS);
    form(&c, LOST + 1, CROWD);
    assert_work(&c, LOST, 1);
    close_crowd(&c);
}

static void as_many_wait_as_spares(void **state)
{
    struct crowd c;
    struct driver_options o = options(30000);

    (void)state;
    o.n_ranks = LOST + 1;
    o.cluster.spares = CROWD - o.n_ranks;
    open_crowd(&c, &o);
    lose(&c, o.cluster.spares);
    wait_ms(&c, SETTLED_MS);
    form(&c, o.cluster.spares + 1, CROWD);
    assert_work(&c, o.cluster.spares, 1);
    close_crowd(&c);
}

/* Each look reads the seats of all ranks, so it is rarer where heartbeats are. */
static void quiet_costs_little(void **state)
{
    enum { QUIET_S = 20, BEAT_MS = 1000 * ((CROWD + 999) / 1000) };
    const int each_ms = BEAT_MS / 100 > 250 ? BEAT_MS / 100 : 250;
    struct crowd c;
    struct driver_options o = options(0);

    (void)state;
    open_crowd(&c, &o);
    wait_ms(&c, 1000 * QUIET_S);
    assert_in_range(c.n_ticked, QUIET_S / 2, 1000 * QUIET_S / each_ms + 10);
    close_crowd(&c);
}

/* Losses never stop.  The others do not wait for ever. */
static void one_after_the_other(void **state)
{
    struct crowd c;
    struct driver_options o = options(0);

    (void)state;
    open_crowd(&c, &o);
    for (int conn = 1; conn <= 200; conn++) {
        driver_closed(c.d, c.now, conn, NULL);
        count(&c);
        wait_ms(&c, 10);
    }
    assert_int_equal(c.n_lost, 200);
    assert_in_range(c.n_prepared, 1, 3); /* in two seconds */
    close_crowd(&c);
}

/* More ranks than CPUs can join, as GPUs, eight to a host: all of them join, are told rank 0's
 * ids, form and train, and form again after a loss. */
static void on_gpus(void **state)
{
    struct crowd c;
    struct driver_options o = options(0);

    (void)state;
    o.device = "cuda:0";
    o.gpu_uuid = "GPU-h0-0";
    o.host = o.host_id = "h0";
    open_crowd(&c, &o);
    assert_int_equal(c.command->kind, CMD_TRAIN);
    assert_int_equal(c.n_told, CROWD - 1);
    for (int rank = 0; rank < CROWD; rank++) {
        struct status s;
        char want[16];

        if (rank % 97) /* the table of all ranks costs something */
            continue;
        driver_status(c.d, c.now, &s);
        snprintf(want, sizeof want, "cuda:%d", rank % GPUS);
        assert_int_equal(s.n, CROWD);
        assert_string_equal(s.rank[rank].device, want);
        status_fini(&s);
    }
    lose(&c, GPUS);
    wait_ms(&c, SETTLED_MS);
    form(&c, GPUS + 1, CROWD);
    assert_work(&c, GPUS, 1);
    close_crowd(&c);
}

/* ---- schedules ---- */

static int n_schedules = 2;
static uint64_t first_seed = 1;

/* One machine, a rack, or a twentieth of all: connections from a random one on, which is there
 * yet, close one after another. */
static int lose_some(struct crowd *c, struct rng_stream *r, uint8_t *is_gone)
{
    static const int sizes[] = {1, GPUS, 64 * GPUS, CROWD / 20};
    const int n = sizes[rng_next_below(r, ARRAY_LEN(sizes))];
    int from, n_lost = 0;

    do
        from = 1 + (int)rng_next_below(r, CROWD - 1);
    while (is_gone[from]);
    for (int conn = from; conn < from + n && conn < CROWD; conn++) {
        if (is_gone[conn])
            continue;
        is_gone[conn] = 1;
        n_lost++;
        driver_closed(c->d, c->now, conn, NULL);
        count(c);
    }
    return n_lost;
}

/* Ranks are lost in training, and while the others form; whatever the order, those that are left
 * train in the end, and each loss was told once. */
static int run_schedule(struct crowd *c, uint64_t seed)
{
    struct rng_stream r;
    uint8_t *is_gone = xcalloc(CROWD, 1);
    struct status s;
    int n_lost = 0, is_right;

    rng_stream_init(&r, seed, RNG_TEST, 0);
    for (int i = 0; i < FORMATIONS; i++) {
        n_lost += lose_some(c, &r, is_gone);
        wait_ms(c, 2000);
        while (c->command && c->command->kind != CMD_TRAIN && rng_next_below(&r, 3) == 0) {
            answer(c, 1, (int)rng_next_below(&r, CROWD), is_gone);
            n_lost += lose_some(c, &r, is_gone);
            wait_ms(c, 2000);
        }
        while (c->command && c->command->kind != CMD_TRAIN)
            answer(c, 1, CROWD, is_gone);
    }
    driver_status(c->d, c->now, &s);
    is_right = c->n_lost == n_lost && s.n == CROWD - n_lost && c->command;
    if (!is_right)
        printf("seed %llu: %d of %d losses were told, and %d ranks are left, want %d\n",
               (unsigned long long)seed, c->n_lost, n_lost, s.n, CROWD - n_lost);
    status_fini(&s);
    free(is_gone);
    return is_right;
}

static void schedules(void **state)
{
    struct driver_options o = options(0);
    struct crowd c;
    int n_bad = 0;

    (void)state;
    open_crowd(&c, &o);
    for (int i = 0; i < n_schedules; i++) {
        const uint64_t seed = first_seed + (uint64_t)i;
        pid_t child;
        int status = 0;

        fflush(stdout);
        child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            status = !run_schedule(&c, seed);
            fflush(stdout);
            _exit(status);
        }
        assert_true(waitpid(child, &status, 0) == child);
        n_bad += status != 0;
        if (status)
            printf("see it: test_crowd 1 %llu\n", (unsigned long long)seed);
    }
    close_crowd(&c);
    printf("%d schedules of %d ranks, %d failed\n", n_schedules, CROWD, n_bad);
    assert_int_equal(n_bad, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_may_be_replaced),
        cmocka_unit_test(the_others_go_on_at_once),
        cmocka_unit_test(as_many_wait_as_spares),
        cmocka_unit_test(one_after_the_other),
        cmocka_unit_test(quiet_costs_little),
        cmocka_unit_test(on_gpus),
        cmocka_unit_test(schedules),
    };

    if (argc > 1) {
        n_schedules = atoi(argv[1]);
        cmocka_set_test_filter("schedules");
    }
    if (argc > 2)
        first_seed = strtoull(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
