/* rig - takes the actions of the session under test, keeps the last ones for comparison, and makes
 * the messages of the processes that the test plays. */
#include "rig.h"

#include "base/alloc.h"
#include "session/convert.h"

struct driver_options rig_options(int n_ranks)
{
    return (struct driver_options){
        .n_ranks = n_ranks,
        .job = "name: x",
        .job_len = 7,
        .host = "h0",
        .host_id = "machine0",
        .pid = 100,
        .device = "cpu",
        .how_to_resume = "dpdriver --resume",
        .n_epochs = 2,
        .validate_every = 1,
        .checkpoint_every_epochs = 1,
        .cluster = {.heartbeat_timeout_ms = 5000,
                    .deadlines = {60000, 20000, 21000, 22000, 23000, 24000, 25000}}};
}

void rig_drain(struct rig *r)
{
    struct action a;
    while (r->d ? driver_next(r->d, &a) : r->s ? standby_next(r->s, &a) : follower_next(r->f, &a)) {
        int64_t c = a.conn;
        assert_false(r->is_finished);
        assert_in_range(c, 0, RIG_CONNS - 1);
        if (a.kind == ACTION_SEND) {
            Wire__Control *m;
            struct err err;
            assert_false(r->is_closed[c]);
            assert_int_equal(msg_unpack(a.send.frame->data + FRAME_HEADER,
                                        a.send.frame->len - FRAME_HEADER, &m, &err),
                             0);
            if (m->body_case == WIRE__CONTROL__BODY_HEARTBEAT) {
                r->n_beats++;
                r->beat = *m->heartbeat;
                msg_free(m);
            } else if (m->body_case == WIRE__CONTROL__BODY_DRAIN) {
                r->is_drained[c] = !m->drain->taken_back;
                r->is_wrong[c] |= m->drain->wrong;
                msg_free(m);
            } else {
                msg_free(r->sent[c]);
                r->has_state[c] |= m->body_case == WIRE__CONTROL__BODY_FORM;
                r->sent[c] = m;
                r->n_sent[c]++;
            }
        } else if (a.kind == ACTION_CLOSE) {
            assert_false(r->is_closed[c]);
            r->is_closed[c] = 1;
        } else if (a.kind == ACTION_TRUST) {
            r->is_trusted[c] = 1;
        } else if (a.kind == ACTION_COMMAND) {
            cmd_free(r->command);
            r->command = a.command;
            a.command = NULL;
            r->n_commands++;
        } else if (a.kind == ACTION_REQUEST) {
            r->n_requests++;
        } else if (a.kind == ACTION_ABORT) {
            r->n_aborts++;
        } else if (a.kind == ACTION_INJECT) {
            r->injected = a.inject;
            r->n_injected++;
            r->n_sent_before = r->n_sent[0];
        } else if (a.kind == ACTION_SEEK) {
            r->n_seeks++;
            r->seeks_again = a.seek.is_again;
        } else if (a.kind == ACTION_RING) {
            r->n_rings++;
        } else if (a.kind == ACTION_TRACE) {
            r->n_traces++;
            r->trace_number = a.trace.number;
        } else if (a.kind == ACTION_INCIDENT) {
            incident_free(r->incident);
            r->incident = a.incident;
            a.incident = NULL;
        } else if (a.kind == ACTION_LOG) {
            buf_printf(&r->log, "%s\n", a.log.text);
        } else if (a.kind == ACTION_EVENT && a.event.kind == EVENT_REFUSED) {
            r->n_refused++;
            assert_non_null(a.event.text);
        } else if (a.kind == ACTION_EVENT && a.event.kind != EVENT_PROGRESS) {
            assert_true(r->n_events < RIG_EVENTS);
            r->event[r->n_events++] = a.event;
            a.event = (struct session_event){0};
        } else if (a.kind == ACTION_FINISHED) {
            r->is_finished = 1;
            r->status = a.finished.status;
            r->is_leader = a.finished.is_leader;
            r->is_deposed = a.finished.is_deposed;
            r->retry = a.finished.retry;
            r->is_engine_stuck = a.finished.is_engine_stuck;
            r->text = a.finished.text;
            a.finished.text = NULL;
        }
        action_fini(&a);
    }
}

void rig_driver(struct rig *r, const struct driver_options *o)
{
    *r = (struct rig){.now = 1000 * (int64_t)MS};
    r->d = driver_new(o, r->now);
    driver_start(r->d, r->now);
    rig_drain(r);
}

static const char *const backends[] = {"cpu"};
static const struct follower_gpu slices[] = {
    {.index = 0, .uuid = "MIG-a", .name = "H200 MIG 1g", .bus = "0000:65:00.0"},
    {.index = 2, .uuid = "MIG-b", .name = "H200 MIG 1g"}};

static struct follower_options follower_options(int keeps_state)
{
    return (struct follower_options){.rank = -1,
                                     .host = "h1",
                                     .host_id = "machine1",
                                     .device = "auto",
                                     .backends = backends,
                                     .n_backends = 1,
                                     .gpus = slices,
                                     .n_gpus = ARRAY_LEN(slices),
                                     .no_gpu = "no\nluck",
                                     .data_dir = "/data",
                                     .driver = "10.0.0.1:7000",
                                     .keeps_state = keeps_state};
}

static void new_follower(struct rig *r, int keeps_state, const char *launch)
{
    struct follower_options o = follower_options(keeps_state);
    o.launch = launch;
    *r = (struct rig){.now = 1000 * (int64_t)MS};
    r->f = follower_new(&o, r->now);
    rig_drain(r);
}

void rig_follower(struct rig *r) { new_follower(r, 0, NULL); }
void rig_keeper(struct rig *r) { new_follower(r, 1, NULL); }
void rig_seeker(struct rig *r, const char *launch) { new_follower(r, 0, launch); }

void rig_standby(struct rig *r, int checks_job)
{
    struct standby_options o = {.id = "s1",
                                .port = 7001,
                                .host = "h9",
                                .host_id = "machine9",
                                .device = "cpu",
                                .checks_job = checks_job,
                                .driver = "10.0.0.1:7000"};
    *r = (struct rig){.now = 1000 * (int64_t)MS};
    r->s = standby_new(&o, r->now);
    rig_drain(r);
    rig_reconnect(r);
}

void rig_reconnect(struct rig *r)
{
    if (r->s) {
        assert_int_equal(r->n_seeks, 1);
        r->n_seeks = r->is_closed[0] = 0;
        standby_connected(r->s, r->now);
        rig_drain(r);
        return;
    }
    struct follower_options o = follower_options(1);
    o.driver = "10.0.0.2:7000";
    o.is_proven = !r->is_unproven;
    assert_int_equal(r->n_seeks, 1);
    r->n_seeks = r->is_closed[0] = 0;
    follower_connected(r->f, &o, r->now);
    rig_drain(r);
}

void rig_free(struct rig *r)
{
    driver_free(r->d);
    follower_free(r->f);
    standby_free(r->s);
    for (int i = 0; i < RIG_CONNS; i++)
        msg_free(r->sent[i]);
    for (int i = 0; i < r->n_events; i++)
        action_fini(&(struct action){.kind = ACTION_EVENT, .event = r->event[i]});
    cmd_free(r->command);
    incident_free(r->incident);
    buf_fini(&r->log);
    free(r->text);
}

void rig_wait(struct rig *r, int64_t ms)
{
    int64_t end = r->now + ms * MS;
    for (;;) {
        int64_t due = r->d   ? driver_deadline(r->d)
                      : r->s ? standby_deadline(r->s)
                             : follower_deadline(r->f);
        if (due > end || r->is_finished)
            break;
        r->now = due > r->now ? due : r->now;
        if (r->d)
            driver_tick(r->d, r->now);
        else if (r->s)
            standby_tick(r->s, r->now);
        else
            follower_tick(r->f, r->now);
        rig_drain(r);
    }
    r->now = end;
}

void rig_connect(struct rig *r, int conn, const char *peer)
{
    char from[64];
    snprintf(from, sizeof(from), "%s:4000", peer);
    driver_connected(r->d, r->now, conn, peer, "10.0.0.100", from);
    rig_drain(r);
}

void rig_message(struct rig *r, int conn, Wire__Control *m)
{
    struct err err;
    assert_int_equal(msg_check(m, &err), 0);
    if (r->d)
        driver_message(r->d, r->now, conn, m);
    else if (r->s)
        standby_message(r->s, r->now, conn, m);
    else
        follower_message(r->f, r->now, m);
    rig_drain(r);
}

void rig_hello(struct rig *r, int conn, int rank)
{
    char host[16];

    snprintf(host, sizeof(host), "h%d", conn);
    rig_hello_from(r, conn, rank, host);
}

void rig_hello_from(struct rig *r, int conn, int rank, const char *host)
{
    char text[32], id[16];

    snprintf(text, sizeof(text), "10.0.0.%d", conn);
    snprintf(id, sizeof(id), "machine%d", conn);
    rig_connect(r, conn, text);
    rig_say_hello(
        r, conn,
        &(struct rig_caller){.rank = rank, .host = host, .host_id = id, .pid = 100 + conn});
}

/* A message's texts are not const, although they are never written to. */
static char *text_or(const char *s, const char *other)
{
    return (char *)(uintptr_t)(s ? s : other);
}

void rig_say_hello(struct rig *r, int conn, const struct rig_caller *c)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Hello h = WIRE__HELLO__INIT;
    char *backend = text_or(c->backend, "cpu");

    h.protocol = c->protocol ? (uint32_t)c->protocol : MSG_PROTOCOL;
    h.version = text_or(c->version, DPTRAIN_VERSION);
    h.rank = c->rank;
    h.host = text_or(c->host, "h");
    h.host_id = text_or(c->host_id, h.host);
    h.pid = c->pid;
    h.pid_space = c->pid_space;
    h.device = text_or(c->device, "auto");
    h.gpus = c->gpus;
    h.n_gpus = c->n_gpus;
    h.no_gpu = text_or(c->no_gpu, "");
    h.advertise = text_or(c->advertise, "");
    h.backends = &backend;
    h.n_backends = 1;
    h.run = text_or(c->run, "");
    h.launch = text_or(c->launch, "");
    h.run_job = text_or(c->run_job, "");
    h.leader = text_or(c->leader, "");
    h.term = c->term;
    h.formed = c->formed;
    h.step = c->step;
    h.in_step = c->in_step;
    h.standby = text_or(c->standby, "");
    h.port = c->standby ? 7001 : 0;
    h.form_term = c->form.term;
    h.form_generation = c->form.generation;
    h.form_ranks = c->form.n_ranks;
    h.form_rank = c->form_rank;
    h.entered = c->entered;
    h.wrong = c->wrong;
    h.form_standby = text_or(c->form.standby, "");
    m.body_case = WIRE__CONTROL__BODY_HELLO;
    m.hello = &h;
    rig_message(r, conn, &m);
}

void rig_say_goodbye(struct rig *r, int conn)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Goodbye g = WIRE__GOODBYE__INIT;
    char text[] = "stopped by SIGTERM";
    g.text = text;
    g.polite = 1;
    m.generation = r->command ? r->command->generation : 0; /* a standby has no engine */
    m.body_case = WIRE__CONTROL__BODY_GOODBYE;
    m.goodbye = &g;
    rig_message(r, conn, &m);
}

void rig_close(struct rig *r, int conn)
{
    r->is_closed[conn] = 1;
    if (r->d)
        driver_closed(r->d, r->now, conn, NULL);
    else if (r->s)
        standby_closed(r->s, r->now, conn, NULL);
    else
        follower_closed(r->f, r->now, NULL);
    rig_drain(r);
}

void rig_report(struct rig *r, int conn, struct report *rep)
{
    struct err err;
    Wire__Control *m;
    if (r->d && conn > 0) {
        struct frame *f = convert_report(rep, &err);
        assert_non_null(f);
        assert_int_equal(msg_unpack(f->data + FRAME_HEADER, f->len - FRAME_HEADER, &m, &err), 0);
        rig_message(r, conn, m);
        msg_free(m);
        frame_unref(f);
        report_free(rep);
    } else if (r->d) {
        driver_report(r->d, r->now, rep);
    } else {
        follower_report(r->f, r->now, rep);
    }
    rig_drain(r);
}

static struct tensor_hash *tensors(int n)
{
    static const char *const names[] = {"conv1.weight", "conv1.bias", "fc.weight"};
    struct tensor_hash *t = xcalloc((size_t)n, sizeof(*t));
    for (int i = 0; i < n; i++)
        t[i] = (struct tensor_hash){xstrdup(names[i]), hash_of(names[i], strlen(names[i]))};
    return t;
}

struct report *rig_opened(void)
{
    struct report *r = report_new(REPORT_OPENED, 0);
    r->opened.layout = hash_of("layout", 6);
    r->opened.data = hash_of("data", 4);
    r->opened.tensor = tensors(3);
    r->opened.n_tensors = 3;
    r->opened.n_train = 100;
    r->opened.n_validation = 12;
    r->opened.n_parameters = 1000;
    r->opened.steps_per_epoch = 4;
    return r;
}

/* Validation has 12 samples.  Two ranks see 6 each; rig_answer_all divides by n. */
struct report *rig_answer(const struct cmd *c)
{
    static const enum report_kind kinds[] = {
        [CMD_OPEN] = REPORT_OPENED,        [CMD_PREPARE] = REPORT_PREPARED,
        [CMD_FORM] = REPORT_FORMED,        [CMD_TRAIN] = REPORT_EPOCH,
        [CMD_VALIDATE] = REPORT_VALIDATED, [CMD_CHECKPOINT] = REPORT_CHECKPOINT,
        [CMD_STOP] = REPORT_STOPPED,
    };
    struct report *r = report_new(kinds[c->kind], c->generation);
    if (c->kind == CMD_TRAIN) {
        r->epoch.epoch = c->train.epoch;
        r->epoch.step = 4 * c->train.epoch;
        r->epoch.end = EPOCH_WHOLE;
        r->epoch.train_loss = 0.5;
        r->epoch.tensor = tensors(3);
        r->epoch.n_tensors = 3;
    } else if (c->kind == CMD_VALIDATE) {
        r->validated.epoch = c->validate.epoch;
        r->validated.n_samples = 6;
        r->validated.n_targets = r->validated.n_samples;
        r->validated.weight = (double)r->validated.n_targets;
        r->validated.n_correct = 3;
        r->validated.loss_sum = 1.5;
    } else if (c->kind == CMD_CHECKPOINT) {
        r->checkpoint.step = c->checkpoint.step;
    }
    return r;
}

void rig_answer_all(struct rig *r, int n)
{
    struct cmd *c = r->command; /* replaced by the last answer */
    r->command = NULL;
    for (int k = 0; k < n; k++) {
        struct report *rep = rig_answer(c);
        if (c->kind == CMD_VALIDATE)
            rep->validated.weight =
                (double)(rep->validated.n_samples = rep->validated.n_targets = 12 / n);
        if (c->kind == CMD_CHECKPOINT && k == 0)
            rep->checkpoint.path = xasprintf("step-%lld", (long long)c->checkpoint.step);
        rig_report(r, k, rep);
    }
    cmd_free(c);
}

void rig_gather(struct rig *r, int n)
{
    for (int k = 1; k < n; k++)
        rig_hello(r, k, k);
    for (int k = 0; k < n; k++)
        rig_report(r, k, rig_opened());
    assert_int_equal(r->command->kind, CMD_PREPARE);
}

void rig_go_on_to(struct rig *r, int n, enum cmd_kind kind)
{
    while (r->command->kind != kind)
        rig_answer_all(r, n);
}

void rig_go_to(struct rig *r, int n, enum cmd_kind kind)
{
    rig_gather(r, n);
    rig_go_on_to(r, n, kind);
}

struct driver_options rig_elastic(int n_ranks)
{
    struct driver_options o = rig_options(n_ranks);
    o.cluster.heartbeat_timeout_ms = 100000; /* silence belongs to another test */
    o.cluster.replace_timeout_ms = 30000;
    o.cluster.join_interval_ms = 10000;
    return o;
}

void rig_train(struct rig *r, const struct driver_options *o)
{
    rig_driver(r, o);
    rig_gather(r, o->n_ranks);
    rig_go_on_to(r, o->n_ranks, CMD_TRAIN);
}

struct driver_options rig_with_votes(int n_ranks)
{
    struct driver_options o = rig_elastic(n_ranks);
    o.run = "run-1";
    o.term = 4;
    o.cluster.driver_timeout_ms = 20000;
    return o;
}

void rig_train_with_standby(struct rig *r, const struct driver_options *o)
{
    rig_driver(r, o);
    rig_connect(r, RIG_STANDBY, "10.0.0.12");
    rig_say_hello(r, RIG_STANDBY, &(struct rig_caller){.rank = -1, .standby = "s1"});
    rig_gather(r, o->n_ranks);
    rig_go_on_to(r, o->n_ranks, CMD_TRAIN);
}

void rig_come(struct rig *r, int conn, int rank)
{
    rig_hello(r, conn, rank);
    assert_int_equal(r->sent[conn]->body_case, WIRE__CONTROL__BODY_WELCOME);
    rig_report(r, conn, rig_opened());
}

void rig_assert_prepare(const struct rig *r, int conn, int rank, int n_ranks)
{
    const Wire__Control *m = r->sent[conn];
    assert_int_equal(m->body_case, WIRE__CONTROL__BODY_PREPARE);
    assert_int_equal(m->prepare->rank, rank);
    assert_int_equal(m->prepare->n_ranks, n_ranks);
    assert_int_equal(r->command->kind, CMD_PREPARE);
    assert_int_equal(m->generation, r->command->generation);
}

static void report_from(struct rig *r, int conn, enum cmd_kind kind, int64_t step)
{
    struct cmd c = {.kind = kind, .generation = r->command->generation};
    if (kind == CMD_TRAIN)
        c.train.epoch = 1;
    struct report *p = rig_answer(&c);
    if (kind == CMD_PREPARE)
        p->prepared.step = conn == 0 || r->has_state[conn] ? step : 0;
    if (kind == CMD_FORM)
        p->formed.step = step;
    if (kind == CMD_TRAIN) {
        p->epoch.step = step;
        p->epoch.end = EPOCH_REGROUP;
    }
    rig_report(r, conn, p);
}

void rig_all(struct rig *r, const int *conns, enum cmd_kind kind, int64_t step)
{
    for (int i = 0; conns[i] >= 0; i++)
        report_from(r, conns[i], kind, step);
}

void rig_end(struct rig *r, int n)
{
    for (int k = 1; k < n; k++)
        if (!r->is_closed[k])
            rig_close(r, k);
    rig_report(r, 0, report_new(REPORT_STOPPED, 1));
    assert_true(r->is_finished);
}

int rig_count(const struct rig *r, enum event_kind k)
{
    int n = 0;
    for (int i = 0; i < r->n_events; i++)
        n += r->event[i].kind == k;
    return n;
}

const struct session_event *rig_event(const struct rig *r, enum event_kind k)
{
    for (int i = r->n_events - 1; i >= 0; i--)
        if (r->event[i].kind == k)
            return &r->event[i];
    fail_msg("event %d did not come", (int)k);
    return NULL;
}

void assert_has(const char *text, const char *part)
{
    if (!text || !strstr(text, part))
        fail_msg("\"%s\" does not say \"%s\"", text ? text : "(nothing)", part);
}

void assert_logged(struct rig *r, const char *part) { assert_has(buf_cstr(&r->log), part); }
