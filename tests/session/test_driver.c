/* driver: refusals, phases, deadlines, ends; the simulator (sim.h) has the combinations. */
#include "rig.h"

#include "base/alloc.h"

#define LOGGED(r, part) assert_non_null(strstr(buf_cstr(&(r)->log), part))

static void assert_has(const char *text, const char *part)
{
    if (!text || !strstr(text, part))
        fail_msg("\"%s\" does not say \"%s\"", text ? text : "(nothing)", part);
}

/* ---- Hello ---- */

static void assert_refused(struct rig *r, int conn, Wire__Reason reason, const char *part)
{
    const Wire__Control *m = r->sent[conn];
    assert_non_null(m);
    assert_int_equal(m->body_case, WIRE__CONTROL__BODY_REFUSED);
    assert_int_equal(m->refused->reason, reason);
    assert_has(m->refused->text, part);
    assert_false(r->is_trusted[conn]);
    rig_wait(r, 2000); /* it is given time to read, then closed */
    assert_true(r->is_closed[conn]);
    assert_false(r->is_finished); /* the job goes on */
}

static void assert_welcome(struct rig *r, int conn, int rank)
{
    const Wire__Control *m = r->sent[conn];
    assert_non_null(m);
    assert_int_equal(m->body_case, WIRE__CONTROL__BODY_WELCOME);
    assert_int_equal(m->welcome->rank, rank);
    assert_true(r->is_trusted[conn]);
}

static void hello_is_refused_with_its_reason(void **state)
{
    static const struct {
        int rank, protocol;
        const char *version, *device, *backend;
        Wire__Reason reason;
        const char *text;
    } cases[] = {
        {1, 9, DPTRAIN_VERSION, "auto", "cpu", WIRE__REASON__REASON_VERSION, "(protocol 9)"},
        {1, 1, "9.9", "auto", "cpu", WIRE__REASON__REASON_VERSION, "this is dptrain 9.9"},
        {0, 1, DPTRAIN_VERSION, "auto", "cpu", WIRE__REASON__REASON_RANK_TAKEN,
         "rank 0 is the driver itself, h0 (pid 100)"},
        {2, 1, DPTRAIN_VERSION, "auto", "cpu", WIRE__REASON__REASON_RANK_TAKEN,
         "rank 2 is taken by h2 (pid 102)"},
        {3, 1, DPTRAIN_VERSION, "auto", "cpu", WIRE__REASON__REASON_RANK_RANGE,
         "rank 3 is out of range: this job has 3 ranks"},
        {1, 1, DPTRAIN_VERSION, "cuda:0", "cpu", WIRE__REASON__REASON_DEVICE,
         "runs on cpu, as its driver does, and not on cuda:0"},
        {1, 1, DPTRAIN_VERSION, "auto", "cuda", WIRE__REASON__REASON_DEVICE, "has no cpu"},
    };
    struct rig r;
    struct driver_options o = rig_options(3);
    (void)state;
    o.heartbeat_timeout_ms = 100000;
    rig_driver(&r, &o);
    rig_hello(&r, 2, 2);
    assert_welcome(&r, 2, 2);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        Wire__Control m = WIRE__CONTROL__INIT;
        Wire__Hello h = WIRE__HELLO__INIT;
        char host[] = "h9", version[16], device[16], backend[16], *backends[] = {backend};
        int conn = 3 + (int)i;
        snprintf(version, sizeof(version), "%s", cases[i].version);
        snprintf(device, sizeof(device), "%s", cases[i].device);
        snprintf(backend, sizeof(backend), "%s", cases[i].backend);
        h.protocol = (uint32_t)cases[i].protocol;
        h.version = version;
        h.rank = cases[i].rank;
        h.host = h.host_id = host;
        h.device = device;
        h.backends = backends;
        h.n_backends = 1;
        m.body_case = WIRE__CONTROL__BODY_HELLO;
        m.hello = &h;
        rig_connect(&r, conn, "10.0.0.9");
        rig_message(&r, conn, &m);
        assert_refused(&r, conn, cases[i].reason, cases[i].text);
    }
    rig_free(&r);
}

static int n_lines(struct rig *r, const char *part)
{
    int n = 0;
    for (const char *s = buf_cstr(&r->log); (s = strstr(s, part)); s++)
        n++;
    return n;
}

/* Anybody can connect where there is no secret: a flood of strangers is none of lines. */
static void a_flood_of_strangers_is_told_in_few_lines(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    (void)state;
    o.deadlines.gather = 100000;
    rig_driver(&r, &o);
    for (int conn = 1; conn < RIG_CONNS - 2; conn++) {
        rig_connect(&r, conn, "10.0.0.9");
        rig_close(&r, conn);
    }
    assert_int_equal(n_lines(&r, "went away before it said Hello"), 10);
    assert_int_equal(n_lines(&r, "came to nothing"), 0);
    rig_wait(&r, 10500);
    assert_int_equal(n_lines(&r, "3 more connections came to nothing within 10 s"), 1);
    rig_connect(&r, RIG_CONNS - 2, "10.0.0.9"); /* and the next ones are told again */
    rig_close(&r, RIG_CONNS - 2);
    assert_int_equal(n_lines(&r, "went away before it said Hello"), 11);
    rig_wait(&r, 20000);
    assert_int_equal(n_lines(&r, "came to nothing"), 1);
    rig_hello(&r, RIG_CONNS - 1, 1);
    assert_welcome(&r, RIG_CONNS - 1, 1);
    rig_free(&r);
}

static void a_full_job_refuses(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    (void)state;
    rig_driver(&r, &o);
    rig_hello(&r, 1, -1);
    assert_welcome(&r, 1, 1);
    rig_hello(&r, 2, -1);
    assert_refused(&r, 2, WIRE__REASON__REASON_FULL, "all its 2 ranks");
    rig_free(&r);
}

static void who_wants_any_gives_way(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(3);
    (void)state;
    rig_driver(&r, &o);
    rig_hello(&r, 1, -1);
    assert_welcome(&r, 1, 1);
    rig_hello(&r, 2, 1);
    assert_welcome(&r, 2, 1);
    for (int k = 0; k < 3; k++)
        rig_report(&r, k, rig_opened());
    assert_int_equal(r.sent[1]->body_case, WIRE__CONTROL__BODY_PREPARE);
    assert_int_equal(r.sent[1]->prepare->rank, 2);
    assert_int_equal(r.sent[2]->prepare->rank, 1);
    rig_free(&r);
}

/* From a host with two GPUs, which rank 0 is on, too. */
static void hello_with_gpus(struct rig *r, int conn, const char *wanted)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Hello h = WIRE__HELLO__INIT;
    Wire__Gpu g[2] = {WIRE__GPU__INIT, WIRE__GPU__INIT}, *gpus[] = {&g[0], &g[1]};
    char a[] = "GPU-a", b[] = "GPU-b", host[] = "h", device[16], name[] = "H200";
    char version[] = DPTRAIN_VERSION, cuda[] = "cuda", *backends[] = {cuda};
    snprintf(device, sizeof(device), "%s", wanted);
    g[0].uuid = a;
    g[1].uuid = b;
    g[1].index = 3; /* those between cannot be used */
    g[0].name = g[1].name = name;
    h.protocol = MSG_PROTOCOL;
    h.version = version;
    h.rank = -1;
    h.host = h.host_id = host;
    h.device = device;
    h.gpus = gpus;
    h.n_gpus = 2;
    h.backends = backends;
    h.n_backends = 1;
    m.body_case = WIRE__CONTROL__BODY_HELLO;
    m.hello = &h;
    rig_connect(r, conn, "10.0.0.9");
    rig_message(r, conn, &m);
}

static void gpus_are_given_once(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(4);
    (void)state;
    o.device = "cuda:0";
    o.gpu_uuid = "GPU-a";
    rig_driver(&r, &o);
    hello_with_gpus(&r, 1, "auto");
    assert_string_equal(r.sent[1]->welcome->device, "cuda:3"); /* cuda:0 is the driver's */
    LOGGED(&r, "on cuda:3; 2 of 4 here");
    hello_with_gpus(&r, 2, "cuda:3");
    assert_refused(&r, 2, WIRE__REASON__REASON_DEVICE,
                   "cuda:3 of h (H200, GPU-b) is used by rank 1 already; none of its 2 is free");
    hello_with_gpus(&r, 3, "auto");
    assert_refused(&r, 3, WIRE__REASON__REASON_DEVICE, "other ranks use all of them");
    hello_with_gpus(&r, 4, "cuda:0");
    assert_refused(&r, 4, WIRE__REASON__REASON_DEVICE, "is used by rank 0 already");
    rig_close(&r, 1); /* its place and its GPU are free again */
    hello_with_gpus(&r, 5, "cuda:0");
    assert_refused(&r, 5, WIRE__REASON__REASON_DEVICE,
                   "cuda:0 of h (H200, GPU-a) is used by rank 0 already; free there: cuda:3 (H200, "
                   "GPU-b)");
    hello_with_gpus(&r, 6, "cuda:1");
    assert_refused(&r, 6, WIRE__REASON__REASON_DEVICE,
                   "there is no cuda:1 that could be used on h; free there: cuda:3");
    hello_with_gpus(&r, 7, "cpu");
    assert_refused(&r, 7, WIRE__REASON__REASON_DEVICE, "runs on cuda:0, as its driver does");
    hello_with_gpus(&r, 8, "cuda");
    assert_welcome(&r, 8, 1);
    assert_string_equal(r.sent[8]->welcome->device, "cuda:3");
    rig_free(&r);
}

/* Places are given from the lowest, also after some were left. */
static void free_places_are_found(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(5);
    (void)state;
    rig_driver(&r, &o);
    for (int conn = 1; conn < 5; conn++) {
        rig_hello(&r, conn, -1);
        assert_welcome(&r, conn, conn);
    }
    LOGGED(&r, "on cpu; 5 of 5 here");
    rig_close(&r, 3);
    rig_close(&r, 1);
    rig_hello(&r, 5, -1);
    assert_welcome(&r, 5, 1);
    LOGGED(&r, "on cpu; 4 of 5 here");
    rig_hello(&r, 6, -1);
    assert_welcome(&r, 6, 3);
    rig_hello(&r, 7, -1);
    assert_refused(&r, 7, WIRE__REASON__REASON_FULL, "all its 5 ranks");
    rig_free(&r);
}

/* --test-shared-gpu: the free one first, then again from the first on. */
static void gpus_are_shared_for_tests(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(4);
    (void)state;
    o.device = "cuda:0";
    o.gpu_uuid = "GPU-a";
    o.shares_gpus = 1;
    rig_driver(&r, &o);
    hello_with_gpus(&r, 1, "auto");
    hello_with_gpus(&r, 2, "cuda:3");
    hello_with_gpus(&r, 3, "auto");
    assert_string_equal(r.sent[1]->welcome->device, "cuda:3");
    assert_string_equal(r.sent[2]->welcome->device, "cuda:3"); /* which it asked for */
    assert_string_equal(r.sent[3]->welcome->device, "cuda:0");
    rig_close(&r, 1); /* of two on one GPU */
    hello_with_gpus(&r, 4, "cuda:3");
    assert_welcome(&r, 4, 1);
    rig_free(&r);
}

static void strangers_must_say_hello(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Goodbye g = WIRE__GOODBYE__INIT;
    (void)state;
    rig_driver(&r, &o);
    rig_connect(&r, 1, "10.0.0.1");
    rig_wait(&r, 9000);
    assert_false(r.is_closed[1]);
    rig_wait(&r, 1500);
    assert_true(r.is_closed[1]);
    m.body_case = WIRE__CONTROL__BODY_GOODBYE;
    m.goodbye = &g;
    rig_connect(&r, 2, "10.0.0.2");
    rig_message(&r, 2, &m);
    assert_true(r.is_closed[2]);
    LOGGED(&r, "its first message is Goodbye, want Hello");
    rig_free(&r);
}

/* ---- Ready ---- */

static void what_differs_is_refused(void **state)
{
    static const struct {
        int what;
        Wire__Reason reason;
        const char *text;
    } cases[] = {
        {0, WIRE__REASON__REASON_LAYOUT, "rank 1 (h1): the model differs: tensor conv1.bias has"},
        {1, WIRE__REASON__REASON_LAYOUT, "tensor 2 is other on it and fc.weight on the driver"},
        {2, WIRE__REASON__REASON_LAYOUT,
         "2 tensors on it and 3 on the driver; the first without "
         "its like is fc.weight"},
        {3, WIRE__REASON__REASON_SAMPLES, "99 training and 12 validation samples on it, 100 and"},
        {4, WIRE__REASON__REASON_DATA, "as many samples, but fingerprint"},
    };
    (void)state;
    for (size_t i = 0; i < 2 * ARRAY_LEN(cases); i++) { /* before and after rank 0's own */
        struct rig r;
        struct driver_options o = rig_options(2);
        struct report *p = rig_opened();
        int what = cases[i / 2].what;
        rig_driver(&r, &o);
        rig_hello(&r, 1, 1);
        if (what <= 2)
            p->opened.layout.lo++;
        if (what == 0)
            p->opened.tensor[1].hash.lo++;
        if (what == 1)
            strcpy(p->opened.tensor[2].name, "other");
        if (what == 2)
            free(p->opened.tensor[--p->opened.n_tensors].name);
        if (what == 3)
            p->opened.n_train--;
        if (what == 4)
            p->opened.data.hi++;
        if (i % 2)
            rig_report(&r, 0, rig_opened());
        rig_report(&r, 1, p);
        if (i % 2 == 0)
            rig_report(&r, 0, rig_opened());
        r.is_trusted[1] = 0;
        assert_refused(&r, 1, cases[i / 2].reason, cases[i / 2].text);
        rig_hello(&r, 2, 1); /* the seat is free for a better one */
        rig_report(&r, 2, rig_opened());
        assert_int_equal(r.command->kind, CMD_PREPARE);
        rig_free(&r);
    }
}

static void who_leaves_early_frees_the_seat(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    (void)state;
    rig_driver(&r, &o);
    rig_report(&r, 0, rig_opened());
    rig_hello(&r, 1, 1);
    rig_close(&r, 1);
    LOGGED(&r, "rank 1 (h1) left before training began");
    rig_hello(&r, 2, 1);
    assert_welcome(&r, 2, 1);
    rig_wait(&r, 6000); /* silent: lost */
    assert_true(r.is_closed[2]);
    LOGGED(&r, "no sign of life");
    rig_hello(&r, 3, 1);
    struct report *f = report_new(REPORT_FAULT, 0);
    err_set(&f->fault.err, ERR_IO, "no such file");
    rig_report(&r, 3, f);
    LOGGED(&r, "rank 1 (h3) left before training began: no such file");
    rig_hello(&r, 4, 1);
    rig_report(&r, 4, rig_opened());
    assert_int_equal(r.command->kind, CMD_PREPARE);
    assert_int_equal(rig_count(&r, EVENT_LOST), 0);
    rig_free(&r);
}

static void missing_ranks_are_named(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(4);
    (void)state;
    o.heartbeat_timeout_ms = 100000;
    rig_driver(&r, &o);
    rig_hello(&r, 2, 2);
    rig_wait(&r, 4900);
    assert_null(strstr(buf_cstr(&r.log), "waiting for"));
    rig_wait(&r, 300);
    LOGGED(&r, "waiting for rank 1, rank 3 to join: 2 of 4 here");
    rig_free(&r);
}

/* ---- prepare ---- */

static void addresses_reach_all(void **state)
{
    static const struct {
        const char *peer1, *peer2, *advertise;
        const char *want0, *want1, *want2;
    } cases[] = {
        {"127.0.0.1", "127.0.0.1", NULL, "10.0.0.100", "10.0.0.100", "10.0.0.100"},
        {"127.0.0.1", "10.0.0.2", NULL, "10.0.0.100", "10.0.0.100", "10.0.0.2"},
        {"::ffff:10.0.0.1", "::1", NULL, "10.0.0.100", "10.0.0.1", "10.0.0.100"},
        {"127.0.0.1", "10.0.0.2", "192.168.0.1", "192.168.0.1", "192.168.0.1", "10.0.0.2"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig r;
        struct driver_options o = rig_options(3);
        o.advertise = cases[i].advertise;
        rig_driver(&r, &o);
        rig_connect(&r, 1, cases[i].peer1);
        rig_connect(&r, 2, cases[i].peer2);
        for (int k = 1; k < 3; k++) {
            Wire__Control m = WIRE__CONTROL__INIT;
            Wire__Hello h = WIRE__HELLO__INIT;
            char version[] = DPTRAIN_VERSION, host[] = "machine0", device[] = "cpu";
            char cpu[] = "cpu", *backends[] = {cpu};
            h.protocol = MSG_PROTOCOL;
            h.version = version;
            h.rank = k;
            h.host = h.host_id = host;
            h.device = device;
            h.backends = backends;
            h.n_backends = 1;
            m.body_case = WIRE__CONTROL__BODY_HELLO;
            m.hello = &h;
            rig_message(&r, k, &m);
        }
        for (int k = 0; k < 3; k++)
            rig_report(&r, k, rig_opened());
        assert_string_equal(r.command->prepare.address, cases[i].want0);
        assert_string_equal(r.sent[1]->prepare->address, cases[i].want1);
        assert_string_equal(r.sent[2]->prepare->address, cases[i].want2);
        for (int k = 1; k < 3; k++) { /* all on one machine */
            assert_int_equal(r.sent[k]->prepare->local, k);
            assert_int_equal(r.sent[k]->prepare->n_local, 3);
        }
        rig_free(&r);
    }
}

/* ---- what ranks connect by ---- */

static struct report *prepared_by(const char *library)
{
    struct report *r = report_new(REPORT_PREPARED, 1);
    r->prepared.library = library ? xstrdup(library) : NULL;
    return r;
}

/* Rank 0's ids go to all, and nobody's endpoint. */
static void ids_reach_all(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(3);
    struct report *own = prepared_by("nccl 2.28.9");
    const Wire__Form *f;
    char id[MSG_ID];
    (void)state;
    memset(id, 7, sizeof(id));
    own->prepared.ids = blob_of(id, sizeof(id));
    rig_driver(&r, &o);
    rig_gather(&r, 3);
    rig_report(&r, 0, own);
    rig_report(&r, 1, prepared_by("nccl 2.28.9"));
    rig_report(&r, 2, prepared_by("nccl 2.28.9"));
    assert_int_equal(r.command->kind, CMD_FORM);
    assert_int_equal(r.command->form.n_endpoints, 0);
    assert_int_equal(r.command->form.ids.len, MSG_ID);
    assert_memory_equal(r.command->form.ids.data, id, MSG_ID);
    f = r.sent[2]->form;
    assert_int_equal(r.sent[2]->body_case, WIRE__CONTROL__BODY_FORM);
    assert_int_equal(f->n_endpoints, 0);
    assert_int_equal(f->n_ids, 1);
    assert_memory_equal(f->ids[0].data, id, MSG_ID);
    rig_free(&r);
}

/* NCCL of two versions hangs or crashes: refused before anybody connects. */
static void libraries_must_be_equal(void **state)
{
    static const struct {
        const char *own, *other, *text;
    } cases[] = {
        {"nccl 2.28.9", "nccl 2.27.3", "rank 1 (h1) communicates by nccl 2.27.3, rank 0 by nccl"},
        {"nccl 2.28.9", NULL, "by something else, rank 0 by nccl 2.28.9: install the same"},
        {NULL, "gloo", "rank 1 (h1) communicates by gloo, rank 0 by something else"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig r;
        struct driver_options o = rig_options(2);
        rig_driver(&r, &o);
        rig_gather(&r, 2);
        rig_report(&r, 0, prepared_by(cases[i].own));
        rig_report(&r, 1, prepared_by(cases[i].other));
        assert_int_equal(r.sent[1]->body_case, WIRE__CONTROL__BODY_ABORT);
        assert_has(r.sent[1]->abort->text, cases[i].text);
        assert_false(r.sent[1]->abort->recover);
        rig_free(&r);
    }
}

/* ---- a whole job ---- */

static void a_job_runs_to_its_end(void **state)
{
    static const enum cmd_kind wanted[] = {CMD_PREPARE,    CMD_FORM,  CMD_TRAIN,    CMD_VALIDATE,
                                           CMD_CHECKPOINT, CMD_TRAIN, CMD_VALIDATE, CMD_CHECKPOINT};
    struct rig r;
    struct driver_options o = rig_options(2);
    (void)state;
    rig_driver(&r, &o);
    rig_gather(&r, 2);
    assert_int_equal(rig_count(&r, EVENT_START), 1);
    assert_int_equal(rig_event(&r, EVENT_START)->n_parameters, 1000);
    assert_int_equal(rig_event(&r, EVENT_JOIN)->rank, 1);
    assert_string_equal(rig_event(&r, EVENT_JOIN)->host, "h1");
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        assert_int_equal(r.command->kind, wanted[i]);
        assert_int_equal(r.command->generation, 1);
        rig_answer_all(&r, 2);
    }
    assert_int_equal(r.command->kind, CMD_STOP);
    assert_int_equal(r.sent[1]->body_case, WIRE__CONTROL__BODY_STOP);
    assert_int_equal(r.sent[1]->stop->outcome, WIRE__OUTCOME__OUTCOME_FINISHED);
    rig_close(&r, 1);
    assert_false(r.is_finished);
    rig_report(&r, 0, report_new(REPORT_STOPPED, 1));
    assert_true(r.is_finished);
    assert_int_equal(r.status, STATUS_OK);
    assert_int_equal(rig_count(&r, EVENT_EPOCH), 2);
    assert_int_equal(rig_count(&r, EVENT_CHECKPOINT), 2);
    const struct session_event *e = rig_event(&r, EVENT_DONE);
    assert_int_equal(e->epoch.epoch, 2);
    assert_int_equal(e->step, 8);
    assert_true(e->epoch.is_validated);
    assert_true(e->epoch.validation_loss == 3.0 / 12);
    assert_true(e->epoch.validation_accuracy == 0.5);
    assert_int_equal(r.n_aborts, 0);
    rig_free(&r);
}

static void the_step_held_decides_what_is_left(void **state)
{
    static const struct {
        int64_t step, n_epochs, max_steps, every;
        int64_t want_epoch; /* 0: nothing to do */
    } cases[] = {
        {0, 2, 0, 1, 1}, {3, 2, 0, 1, 1}, {4, 2, 0, 1, 2}, {6, 2, 0, 1, 2}, {8, 2, 0, 1, 0},
        {9, 2, 0, 1, 0}, {0, 0, 0, 1, 0}, {5, 9, 5, 1, 0}, {5, 9, 6, 1, 2},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig r;
        struct driver_options o = rig_options(1);
        struct report *p = rig_opened();
        o.n_epochs = cases[i].n_epochs;
        o.max_steps = cases[i].max_steps;
        p->opened.step = cases[i].step;
        rig_driver(&r, &o);
        rig_report(&r, 0, p);
        if (cases[i].want_epoch == 0) {
            assert_int_equal(r.command->kind, CMD_STOP);
            rig_report(&r, 0, report_new(REPORT_STOPPED, 0));
            assert_int_equal(r.status, STATUS_OK);
            assert_has(r.text, "nothing to do");
            assert_int_equal(rig_count(&r, EVENT_DONE), 1);
            assert_int_equal(rig_event(&r, EVENT_DONE)->step, cases[i].step);
        } else {
            rig_answer_all(&r, 1);
            struct report *f = rig_answer(r.command);
            f->formed.step = cases[i].step;
            rig_report(&r, 0, f);
            assert_int_equal(r.command->kind, CMD_TRAIN);
            assert_int_equal(r.command->train.epoch, cases[i].want_epoch);
        }
        rig_free(&r);
    }
}

/* The job of n ranks has come to this command. */
static void go_on_to(struct rig *r, int n, enum cmd_kind kind)
{
    while (r->command->kind != kind)
        rig_answer_all(r, n);
}

static void go_to(struct rig *r, int n, enum cmd_kind kind)
{
    rig_gather(r, n);
    go_on_to(r, n, kind);
}

/* Everybody closes and the engine stops. */
static void let_end(struct rig *r, int n)
{
    for (int k = 1; k < n; k++)
        if (!r->is_closed[k])
            rig_close(r, k);
    rig_report(r, 0, report_new(REPORT_STOPPED, 1));
    assert_true(r->is_finished);
}

static void deadlines_name_the_missing(void **state)
{
    static const struct {
        enum cmd_kind at;
        int64_t ms;
        const char *text;
    } cases[] = {
        {CMD_PREPARE, 21000,
         "prepare took longer than 21 s (cluster.deadlines.prepare): rank 0 (h0, pid 100) is in "
         "prepare "
         "for 21.0 s, rank 2 likewise; rank 1 waits for them"},
        {CMD_TRAIN, 23000,
         "no progress for 23 s (cluster.deadlines.step): rank 2 (h2, pid 102) is in load of step 0 "
         "for "
         "23.0 s, silent for 23.0 s; ranks 0 1 wait for it"},
        {CMD_VALIDATE, 24000,
         "(cluster.deadlines.validate): rank 0 (h0, pid 100) is in validate for 24.0 s"},
        {CMD_CHECKPOINT, 25000,
         "(cluster.deadlines.checkpoint): rank 0 (h0, pid 100) is in checkpoint for 25.0 s"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig r;
        struct driver_options o = rig_options(3);
        o.heartbeat_timeout_ms = 100000;
        rig_driver(&r, &o);
        go_to(&r, 3, cases[i].at);
        rig_report(&r, 1, rig_answer(r.command));
        struct progress p = {.generation = 1, .phase = PHASE_REDUCE, .step = 0, .bucket = 0};
        if (cases[i].at == CMD_TRAIN)
            driver_progress(r.d, r.now, &p);
        rig_wait(&r, cases[i].ms - 10);
        assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
        rig_wait(&r, 300);
        assert_has(rig_event(&r, EVENT_ERROR)->text, cases[i].text);
        assert_int_equal(r.sent[1]->body_case, WIRE__CONTROL__BODY_ABORT);
        assert_string_equal(r.sent[1]->abort->text, rig_event(&r, EVENT_ERROR)->text);
        let_end(&r, 3);
        assert_int_equal(r.status, STATUS_FAILED);
        rig_free(&r);
    }
}

static void gathering_has_its_deadlines(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(3);
    (void)state;
    o.heartbeat_timeout_ms = 100000;
    rig_driver(&r, &o);
    rig_hello(&r, 1, 1);
    rig_wait(&r, 60100);
    assert_has(rig_event(&r, EVENT_ERROR)->text,
               "gather took longer than 60 s (cluster.deadlines.gather); missing: rank 2");
    rig_free(&r);

    rig_driver(&r, &o);
    rig_hello(&r, 1, 1);
    rig_wait(&r, 30000);
    rig_hello(&r, 2, 2);
    rig_report(&r, 0, rig_opened());
    rig_report(&r, 1, rig_opened());
    rig_wait(&r, 20100);
    assert_has(
        rig_event(&r, EVENT_ERROR)->text,
        "ready took longer than 20 s (cluster.deadlines.ready); missing: rank 2 (h2: in open");
    rig_free(&r);
}

/* ---- causes ---- */

static struct report *fault(int is_consequence, const char *text)
{
    struct report *f = report_new(REPORT_FAULT, 1);
    err_set(&f->fault.err, is_consequence ? ERR_PEER : ERR_DEVICE, "%s", text);
    f->fault.phase = PHASE_REDUCE;
    f->fault.step = 3;
    f->fault.is_consequence = is_consequence;
    return f;
}

static void a_consequence_is_no_first_cause(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(3);
    (void)state;
    rig_driver(&r, &o);
    go_to(&r, 3, CMD_TRAIN);
    rig_report(&r, 0, fault(1, "a peer left"));
    rig_report(&r, 1, fault(1, "a peer left"));
    rig_wait(&r, 400);
    assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
    rig_report(&r, 2, fault(0, "bad memory"));
    assert_string_equal(rig_event(&r, EVENT_ERROR)->text,
                        "rank 2 (h2) failed in reduce of step 3: bad memory");
    assert_int_equal(rig_event(&r, EVENT_ERROR)->rank, 2);
    assert_int_equal(rig_count(&r, EVENT_LOST), 0);
    rig_free(&r);

    rig_driver(&r, &o); /* nobody explains it: all try again, but not for ever */
    go_to(&r, 3, CMD_TRAIN);
    rig_report(&r, 1, fault(1, "a peer left"));
    for (int i = 0; i < 20; i++) {
        Wire__Control m = WIRE__CONTROL__INIT;
        Wire__Heartbeat h = WIRE__HEARTBEAT__INIT;
        m.body_case = WIRE__CONTROL__BODY_HEARTBEAT;
        m.heartbeat = &h;
        rig_wait(&r, 100);
        for (int k = 1; k < 3; k++)
            rig_message(&r, k, &m);
    }
    assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
    LOGGED(&r, "rank 1 (h1) failed in reduce of step 3: a peer left");
    assert_int_equal(r.command->kind, CMD_PREPARE);
    assert_int_equal(r.command->generation, 2);
    assert_int_equal(r.command->prepare.n_ranks, 3);
    rig_free(&r);
}

/* Who hangs while all form cannot be seen; that it does not follow when they form again can. */
static void a_formation_that_hangs_is_tried_again(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(3);
    (void)state;
    o.heartbeat_timeout_ms = 100000;
    rig_driver(&r, &o);
    go_to(&r, 3, CMD_FORM);
    rig_wait(&r, 22300);
    LOGGED(&r, "(cluster.deadlines.form): all that have not finished wait for each other");
    assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
    assert_int_equal(r.command->kind, CMD_PREPARE);
    rig_report(&r, 1, rig_answer(r.command));
    rig_report(&r, 0, rig_answer(r.command));
    rig_wait(&r, 21300);
    assert_has(rig_event(&r, EVENT_ERROR)->text,
               "cluster.deadlines.prepare): rank 2 (h2, pid 102) is in prepare");
    rig_free(&r);
}

static void protocol_is_kept_or_the_job_fails(void **state)
{
    static const struct {
        int what;
        const char *text; /* NULL: nothing happens */
    } cases[] = {
        {0, "rank 1 (h1) broke the protocol during train: unexpected message Train"},
        {1, "unexpected report \"formed\""},
        {2, "EpochDone of generation 2, want at most 1"},
        {3, NULL},                          /* of an older generation */
        {4, "unexpected report \"epoch\""}, /* another epoch */
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig r;
        struct driver_options o = rig_options(2);
        rig_driver(&r, &o);
        go_to(&r, 2, CMD_TRAIN);
        if (cases[i].what == 0) {
            Wire__Control m = WIRE__CONTROL__INIT;
            Wire__Train t = WIRE__TRAIN__INIT;
            t.epoch = 1;
            m.generation = 1;
            m.body_case = WIRE__CONTROL__BODY_TRAIN;
            m.train = &t;
            rig_message(&r, 1, &m);
        } else {
            struct report *p =
                cases[i].what == 1 ? report_new(REPORT_FORMED, 1) : rig_answer(r.command);
            p->generation += cases[i].what == 2 ? 1 : cases[i].what == 3 ? -1 : 0;
            if (cases[i].what == 4)
                p->epoch.epoch = 2;
            rig_report(&r, 1, p);
        }
        if (cases[i].text)
            assert_has(rig_event(&r, EVENT_ERROR)->text, cases[i].text);
        else
            assert_int_equal(rig_count(&r, EVENT_ERROR), 0);
        rig_free(&r);
    }
}

static void a_replica_that_differs_is_named(void **state)
{
    (void)state;
    for (int first = 0; first < 4; first++) { /* whoever answers first */
        struct rig r;
        struct driver_options o = rig_options(4);
        rig_driver(&r, &o);
        go_to(&r, 4, CMD_TRAIN);
        struct cmd *c = r.command;
        r.command = NULL;
        for (int i = 0; i < 4; i++) {
            int k = (first + i) % 4;
            struct report *p = rig_answer(c);
            if (k == 2)
                p->epoch.replica.lo = p->epoch.tensor[1].hash.lo = 1;
            rig_report(&r, k, p);
        }
        cmd_free(c);
        assert_string_equal(rig_event(&r, EVENT_ERROR)->text,
                            "the replicas differ after epoch 1 (step 4): rank 2 (h2) differs from "
                            "rank 0 (h0) in conv1.bias");
        assert_int_equal(rig_count(&r, EVENT_EPOCH), 1); /* what was learnt is told */
        rig_free(&r);
    }
}

/* ---- stops and checkpoints ---- */

static void a_polite_stop_saves(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    (void)state;
    rig_driver(&r, &o);
    go_to(&r, 2, CMD_TRAIN);
    driver_stop(r.d, r.now, "SIGINT");
    rig_drain(&r);
    assert_int_equal(r.n_requests, 1);
    assert_int_equal(r.command->kind, CMD_TRAIN);
    struct cmd *c = r.command;
    r.command = NULL;
    for (int k = 0; k < 2; k++) {
        struct report *p = rig_answer(c);
        p->epoch.step = 3;
        p->epoch.end = EPOCH_STOPPED;
        rig_report(&r, k, p);
    }
    cmd_free(c);
    assert_int_equal(r.command->kind, CMD_CHECKPOINT);
    assert_int_equal(r.command->checkpoint.step, 3);
    rig_answer_all(&r, 2);
    assert_int_equal(r.sent[1]->stop->outcome, WIRE__OUTCOME__OUTCOME_STOPPED);
    let_end(&r, 2);
    assert_int_equal(r.status, STATUS_STOPPED);
    assert_string_equal(r.text, "stopped by SIGINT after step 3 (epoch 1); resume with: dpdriver "
                                "--resume");
    rig_free(&r);
}

static void stops_before_and_at_once(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    (void)state;
    rig_driver(&r, &o);
    rig_hello(&r, 1, 1);
    driver_stop(r.d, r.now, "SIGTERM");
    rig_drain(&r);
    let_end(&r, 2);
    assert_int_equal(r.status, STATUS_STOPPED);
    assert_string_equal(r.text, "stopped by SIGTERM before training began");
    rig_free(&r);

    rig_driver(&r, &o);
    go_to(&r, 2, CMD_VALIDATE);
    for (int i = 0; i < 2; i++)
        driver_stop(r.d, r.now, "SIGTERM");
    rig_drain(&r);
    assert_int_equal(r.n_aborts, 1);
    assert_int_equal(r.sent[1]->body_case, WIRE__CONTROL__BODY_ABORT);
    rig_wait(&r, 1000); /* neither engine nor follower answer */
    assert_true(r.is_finished);
    assert_true(r.is_engine_stuck);
    assert_int_equal(r.status, STATUS_STOPPED);
    rig_free(&r);
}

static struct report *unasked(int64_t step, const char *path, const char *error)
{
    struct report *p = report_new(REPORT_CHECKPOINT, 1);
    p->checkpoint.step = step;
    p->checkpoint.path = path ? xstrdup(path) : NULL;
    p->checkpoint.error = error ? xstrdup(error) : NULL;
    p->checkpoint.is_unasked = 1;
    return p;
}

/* Written beside training: what becomes of it is told in whatever stage, once. */
static void checkpoints_are_written_beside(void **state)
{
    static const enum cmd_kind when[] = {CMD_TRAIN, CMD_VALIDATE, CMD_CHECKPOINT};
    (void)state;
    for (size_t i = 0; i < 2 * ARRAY_LEN(when); i++) {
        const char *error = i % 2 ? "no space left" : NULL;
        struct rig r;
        struct driver_options o = rig_options(2);
        rig_driver(&r, &o);
        go_to(&r, 2, CMD_CHECKPOINT);
        assert_false(r.command->checkpoint.is_last);
        rig_report(&r, 0, rig_answer(r.command)); /* the state is copied, no more */
        rig_report(&r, 1, rig_answer(r.command));
        go_on_to(&r, 2, when[i / 2]);
        assert_int_equal(rig_count(&r, EVENT_CHECKPOINT), 0);
        rig_report(&r, 0, unasked(4, error ? NULL : "p", error));
        assert_int_equal(rig_count(&r, EVENT_CHECKPOINT), !error);
        assert_int_equal(rig_count(&r, EVENT_ERROR), error != NULL);
        go_on_to(&r, 2, CMD_CHECKPOINT);
        assert_true(r.command->checkpoint.is_last); /* of the second and last epoch */
        rig_answer_all(&r, 2);
        let_end(&r, 2);
        assert_int_equal(r.status, STATUS_OK);
        rig_free(&r);
    }
}

/* Asked to stop while the state is copied: the end waits for what is being written. */
static void stops_when_the_checkpoint_is_written(void **state)
{
    (void)state;
    for (int fails = 0; fails < 2; fails++) {
        struct rig r;
        struct driver_options o = rig_options(1);
        rig_driver(&r, &o);
        go_to(&r, 1, CMD_CHECKPOINT);
        struct cmd *c = r.command;
        r.command = NULL;
        driver_stop(r.d, r.now, "SIGTERM");
        rig_report(&r, 0, rig_answer(c));
        cmd_free(c);
        assert_int_equal(r.command->kind, CMD_CHECKPOINT);
        assert_int_equal(r.command->checkpoint.step, 4);
        assert_true(r.command->checkpoint.is_last);
        struct report *p = rig_answer(r.command);
        if (fails)
            p->checkpoint.error = xstrdup("no space left");
        else
            rig_report(&r, 0, unasked(4, "p", NULL)); /* was under way, is not written twice */
        rig_report(&r, 0, p);
        rig_report(&r, 0, report_new(REPORT_STOPPED, 1));
        assert_int_equal(r.status, fails ? STATUS_FAILED : STATUS_STOPPED);
        assert_int_equal(rig_count(&r, EVENT_CHECKPOINT), !fails);
        rig_free(&r);
    }
}

/* Another rank's failure leaves rank 0 the time to finish a checkpoint, if it says that it does so;
 * the operator's second signal does not. */
static void a_failure_waits_for_what_is_written(void **state)
{
    (void)state;
    for (int is_saving = 0; is_saving < 2; is_saving++) {
        struct rig r;
        struct driver_options o = rig_options(2);
        rig_driver(&r, &o);
        go_to(&r, 2, CMD_TRAIN);
        rig_close(&r, 1);
        assert_int_equal(r.command->kind, CMD_STOP);
        struct progress p = {.generation = 1, .epoch = 1, .phase = PHASE_CHECKPOINT, .bucket = -1};
        if (is_saving)
            driver_progress(r.d, r.now, &p);
        rig_wait(&r, 1000);
        assert_int_equal(r.is_finished, !is_saving);
        if (is_saving) {
            rig_wait(&r, 20000);
            assert_false(r.is_finished);
            rig_report(&r, 0, unasked(4, "p", NULL));
            rig_report(&r, 0, report_new(REPORT_STOPPED, 1));
            assert_true(r.is_finished);
            assert_int_equal(rig_count(&r, EVENT_CHECKPOINT), 1);
        }
        assert_int_equal(r.is_engine_stuck, !is_saving);
        assert_int_equal(r.status, STATUS_FAILED);
        rig_free(&r);
    }
}

static void checkpoints_may_fail_but_the_last(void **state)
{
    (void)state;
    for (int when = 1; when <= 2; when++) {
        struct rig r;
        struct driver_options o = rig_options(1);
        rig_driver(&r, &o);
        rig_report(&r, 0, rig_opened());
        for (int epoch = 1; epoch <= 2; epoch++) {
            while (r.command->kind != CMD_CHECKPOINT)
                rig_answer_all(&r, 1);
            struct report *p = rig_answer(r.command);
            if (epoch == when)
                p->checkpoint.error = xstrdup("no space left");
            else
                p->checkpoint.path = xstrdup("p");
            rig_report(&r, 0, p);
        }
        assert_int_equal(rig_count(&r, EVENT_ERROR), 1);
        assert_int_equal(rig_count(&r, EVENT_DONE), when == 1);
        rig_report(&r, 0, report_new(REPORT_STOPPED, 1));
        assert_int_equal(r.status, when == 1 ? STATUS_OK : STATUS_FAILED);
        if (when == 2)
            assert_has(buf_cstr(&r.log), "trained to step 8, but the final checkpoint could not be "
                                         "written: no space left\n");
        rig_free(&r);
    }
}

static void what_is_saved_is_not_saved_again(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(1);
    (void)state;
    o.validate_every = 0;
    rig_driver(&r, &o);
    rig_report(&r, 0, rig_opened());
    while (r.command->kind != CMD_TRAIN)
        rig_answer_all(&r, 1);
    rig_report(&r, 0, unasked(4, "p", NULL)); /* checkpoint.every_steps */
    rig_answer_all(&r, 1);
    assert_int_equal(r.command->kind, CMD_TRAIN);
    assert_int_equal(r.command->train.epoch, 2);
    assert_int_equal(rig_count(&r, EVENT_CHECKPOINT), 1);
    rig_free(&r);
}

static void nonfinite_saves_and_fails(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(1);
    (void)state;
    rig_driver(&r, &o);
    rig_report(&r, 0, rig_opened());
    while (r.command->kind != CMD_TRAIN)
        rig_answer_all(&r, 1);
    struct report *p = rig_answer(r.command);
    p->epoch.step = 2;
    p->epoch.end = EPOCH_NONFINITE;
    p->epoch.note = xstrdup("conv1 gave inf");
    rig_report(&r, 0, p);
    assert_int_equal(r.command->kind, CMD_CHECKPOINT);
    rig_answer_all(&r, 1);
    rig_report(&r, 0, report_new(REPORT_STOPPED, 1));
    assert_int_equal(r.status, STATUS_FAILED);
    assert_string_equal(
        r.text,
        "step 2 was not applied: rank 0 (h0): conv1 gave inf; the state before it is in step-2");
    rig_free(&r);
}

static void own_input_errors_are_usage(void **state)
{
    static const struct {
        int code, status;
    } cases[] = {{ERR_CORRUPT, STATUS_USAGE},
                 {ERR_IO, STATUS_USAGE},
                 {ERR_DEVICE, STATUS_FAILED},
                 {ERR_NOMEM, STATUS_FAILED}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig r;
        struct driver_options o = rig_options(2);
        struct report *f = report_new(REPORT_FAULT, 0);
        rig_driver(&r, &o);
        err_set(&f->fault.err, cases[i].code, "data: bad magic");
        f->fault.phase = PHASE_OPEN;
        rig_report(&r, 0, f);
        rig_report(&r, 0, report_new(REPORT_STOPPED, 0));
        assert_int_equal(r.status, cases[i].status);
        assert_string_equal(r.text, "rank 0 (h0) failed in open: data: bad magic");
        rig_free(&r);
    }
}

/* ---- time ---- */

static void silence_and_stalls_are_told_apart(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    (void)state;
    rig_driver(&r, &o);
    go_to(&r, 2, CMD_TRAIN);
    int beats = r.n_beats;
    rig_wait(&r, 3000);
    assert_in_range(r.n_beats - beats, 2, 4); /* one a second */
    r.now += INT64_C(60000) * MS;             /* our own loop was stuck */
    driver_tick(r.d, r.now);
    rig_drain(&r);
    rig_wait(&r, 1000);
    assert_int_equal(rig_count(&r, EVENT_LOST), 0);
    rig_wait(&r, 2000);
    assert_int_equal(rig_event(&r, EVENT_LOST)->rank, 1);
    assert_has(rig_event(&r, EVENT_LOST)->text,
               "rank 1 (h1) was lost, last seen in load of step 0: no sign");
    rig_free(&r);
}

static void who_comes_late_is_told(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    (void)state;
    rig_driver(&r, &o);
    go_to(&r, 2, CMD_TRAIN);
    rig_close(&r, 1);
    assert_int_equal(rig_count(&r, EVENT_LOST), 1);
    rig_hello(&r, 3, 1);
    assert_int_equal(r.sent[3]->refused->reason, WIRE__REASON__REASON_ENDING);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hello_is_refused_with_its_reason),
        cmocka_unit_test(a_flood_of_strangers_is_told_in_few_lines),
        cmocka_unit_test(a_full_job_refuses),
        cmocka_unit_test(who_wants_any_gives_way),
        cmocka_unit_test(gpus_are_given_once),
        cmocka_unit_test(gpus_are_shared_for_tests),
        cmocka_unit_test(free_places_are_found),
        cmocka_unit_test(strangers_must_say_hello),
        cmocka_unit_test(what_differs_is_refused),
        cmocka_unit_test(who_leaves_early_frees_the_seat),
        cmocka_unit_test(missing_ranks_are_named),
        cmocka_unit_test(addresses_reach_all),
        cmocka_unit_test(ids_reach_all),
        cmocka_unit_test(libraries_must_be_equal),
        cmocka_unit_test(a_job_runs_to_its_end),
        cmocka_unit_test(the_step_held_decides_what_is_left),
        cmocka_unit_test(deadlines_name_the_missing),
        cmocka_unit_test(gathering_has_its_deadlines),
        cmocka_unit_test(a_consequence_is_no_first_cause),
        cmocka_unit_test(a_formation_that_hangs_is_tried_again),
        cmocka_unit_test(protocol_is_kept_or_the_job_fails),
        cmocka_unit_test(a_replica_that_differs_is_named),
        cmocka_unit_test(a_polite_stop_saves),
        cmocka_unit_test(stops_before_and_at_once),
        cmocka_unit_test(checkpoints_are_written_beside),
        cmocka_unit_test(stops_when_the_checkpoint_is_written),
        cmocka_unit_test(a_failure_waits_for_what_is_written),
        cmocka_unit_test(checkpoints_may_fail_but_the_last),
        cmocka_unit_test(what_is_saved_is_not_saved_again),
        cmocka_unit_test(nonfinite_saves_and_fails),
        cmocka_unit_test(own_input_errors_are_usage),
        cmocka_unit_test(silence_and_stalls_are_told_apart),
        cmocka_unit_test(who_comes_late_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
