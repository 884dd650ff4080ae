/* The session machine (session/driver.h) in the driver's process: what the machine wants done, the
 * calls that reach it, and its options. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "driver/command.h"
#include "driver/evaluate.h"
#include "driver/server_impl.h"
#include "job/imported.h"
#include "report/injected.h"
#include "report/led.h"
#include "report/status.h"
#include "strategy/strategy.h"

enum {
    OWNER_MS = 1000,   /* between two looks for another owner of the run directory */
    MANY_RANKS = 64,   /* from this many on, memory of TLS handshakes is given back */
    LOGGED_RANKS = 64, /* ranks listed by SIGUSR1: a log drops thousands of lines at once */
};

/* ---- what the session wants ---- */

static void server_do_send(void *arg, int64_t number, struct frame *f)
{
    struct server *s = arg;
    struct conn *c = peers_find(&s->peers, number);

    if (c)
        conn_send(c, f);
    else
        frame_unref(f);
}

static void server_do_trust(void *arg, int64_t number)
{
    struct server *s = arg;
    struct conn *c = peers_find(&s->peers, number);

    if (c)
        conn_welcome(c);
}

static void server_do_close(void *arg, int64_t number)
{
    struct server *s = arg;
    struct conn *c = peers_remove(&s->peers, number);

    if (c)
        conn_close(c);
}

static void server_do_cut(void *arg)
{
    struct server *s = arg;
    struct peer *peer;

    while ((peer = peers_first(&s->peers))) {
        int64_t number = peer->number;
        struct err err;

        conn_abort(peers_remove(&s->peers, number));
        err_set(&err, ERR_PEER, "an injected fault cut the connection");
        driver_closed(s->driver, clock_mono_ns(), number, &err);
    }
}

/* Give the memory of TLS handshakes back to the system.  Most of the 40 KiB that each one needs are
 * free again, but in holes all over the heap. */
static void give_back_holes(const struct session_event *ev)
{
    if (ev->kind == EVENT_FORM && ev->form.n_ranks >= MANY_RANKS)
        malloc_trim(0);
}

static void on_doom(uv_timer_t *t) { local_kill_doomed(&((struct server *)t->data)->local); }

static void server_on_event(void *arg, const struct session_event *ev)
{
    struct server *s = arg;

    give_back_holes(ev);
    if (ev->kind == EVENT_LOST && local_doom(&s->local, (pid_t)ev->lost.pid))
        uv_timer_start(&s->doom, on_doom, LOCAL_DOOM_MS, 0);
    s->is_formed |= ev->kind == EVENT_FORM;
    s->is_ending |= ev->kind == EVENT_ERROR || ev->kind == EVENT_DONE;
    if (!s->evaluation)
        record_event(&s->record, ev);
    else if (ev->kind == EVENT_DONE)
        evaluate_print(s->options, s->evaluation, ev);
}

static void on_incident(void *arg, const struct incident *i)
{
    struct server *s = arg;

    if (!s->evaluation)
        record_incident(&s->record, i);
}

static const char *server_device_of(void *arg) { return ((struct server *)arg)->options->device; }

/* Leave a mark for the unit's ExecCondition=, so that the service manager does not start a deposed
 * driver again: that would depose the driver that leads. */
static void leave_mark(void)
{
    const char *folder = getenv("RUNTIME_DIRECTORY");
    char *path = folder ? xasprintf("%s/deposed", folder) : NULL;
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644) : -1;

    if (path && fd < 0)
        log_warn("%s: cannot be written: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    free(path);
}

/* The session has finished.  The text of a failure was logged when it happened. */
static void server_on_finished(void *arg, const struct action *end)
{
    struct server *s = arg;
    int status = s->local_status ? s->local_status : end->finished.status;

    if (end->finished.is_deposed)
        leave_mark();

    s->status = status;
    if (!s->evaluation)
        record_end(&s->record, status);
    if (status == STATUS_STOPPED)
        log_warn("%s", end->finished.text);
    if (status == STATUS_OK && (s->options->common.log_format == LOG_JSON || !s->is_formed))
        log_info("%s", end->finished.text); /* instead of the table, or why it has no rows */
    daemon_detach(&s->daemon, end->finished.is_engine_stuck);
}

/* The job has ended, whatever the signal is; what still ends need not take its time. */
static void server_on_idle_stop(void *arg, const char *signal)
{
    struct server *s = arg;

    (void)signal;
    record_hasten(&s->record, s->daemon.n_stops > 1);
}

const struct daemon_hooks server_hooks = {.send = server_do_send,
                                          .trust = server_do_trust,
                                          .close = server_do_close,
                                          .cut = server_do_cut,
                                          .event = server_on_event,
                                          .incident = on_incident,
                                          .device = server_device_of,
                                          .finished = server_on_finished,
                                          .idle_stop = server_on_idle_stop};

/* ---- the session as daemon/daemon calls it ---- */

static void server_report(void *m, int64_t now, struct report *r) { driver_report(m, now, r); }
static void server_stop(void *m, int64_t now, const char *why) { driver_stop(m, now, why); }
static void server_notice(void *m, int64_t now, const struct notice *n)
{
    driver_notice(m, now, n);
}
static void server_tick(void *m, int64_t now) { driver_tick(m, now); }
static int64_t server_deadline(const void *m) { return driver_deadline(m); }
static int server_next(void *m, struct action *out) { return driver_next(m, out); }

static void server_progress(void *m, int64_t now, const struct progress *p)
{
    driver_progress(m, now, p);
}

static void server_describe(const void *m, int64_t now, struct buf *out)
{
    struct status s;

    driver_status(m, now, &s);
    status_put_brief(&s, LOGGED_RANKS, out);
    status_fini(&s);
}

static void server_summary(const void *m, int64_t now, struct buf *out)
{
    struct status s;

    driver_summary(m, now, &s);
    status_put_line(&s, out);
}

static void server_ring(void *m, int64_t now, const struct collective *c, int n)
{
    driver_ring(m, now, c, n);
}

static const struct daemon_machine machine = {
    server_report,   server_progress, server_stop,     server_notice,  server_tick,
    server_deadline, server_next,     server_describe, server_summary, server_ring};

/* ---- start ---- */

static const struct plugin_gpu *own_gpu(const struct options *o)
{
    return device_is_cuda(o->device) ? &o->devices.probe.gpu[device_index(o->device)] : NULL;
}

/* Set the session's options for a standby that leads.  The followers have the state, so no
 * checkpoint is read. */
static void server_inherit(struct driver_options *d, const struct legacy *l)
{
    d->resume = NULL;
    d->led_by = l->led_by;
    d->leads_at = l->leads_at;
    d->led.voters = l->voters;
    if (l->account_ns > 0) { /* newer than what the events tell */
        d->led.account = l->account;
        d->led.account.times.ns[ACCOUNT_LOST] += max_i64(0, d->start_ns - l->account_ns);
        for (int i = 0; i < ENERGY_KINDS; i++)
            d->led.energy.mj[i] = max_i64(d->led.energy.mj[i], l->energy.mj[i]);
    }
    d->led.generation = max_i64(d->led.generation, l->voters.generation);
}

static void driver_options_init(struct driver_options *d, const struct server *s,
                                const struct daemon_host *host, int64_t start_ns)
{
    const struct job *j = s->job;
    const struct plugin_gpu *gpu = own_gpu(s->options);
    const int has_run = s->record.dir.path != NULL;

    *d = (struct driver_options){
        .n_ranks = (int)s->options->n_ranks,
        .host = host->name,
        .host_id = host->id,
        .pid = getpid(),
        .pid_space = host_pid_space(),
        .shares_gpus = s->options->common.test_shared_gpu,
        .device = s->options->device,
        .gpu_uuid = gpu ? gpu->uuid : NULL,
        .gpu_bus = gpu ? gpu->bus : NULL,
        .advertise = s->options->advertise[0] ? s->options->advertise : NULL,
        .launch = s->options->launch[0] ? s->options->launch : NULL,
        .resume = s->record.dir.resumed ? s->record.dir.path : NULL,
        .evaluate = s->evaluation ? s->evaluation->from : NULL,
        .averaged = s->options->averaged,
        .is_test = s->options->find_lr,
        .is_divided = strategy_choose(&j->strategy)->promises.n_holders > 0,
        .is_only_holder = strategy_choose(&j->strategy)->promises.n_holders == 1,
        .n_children = s->options->hosts_file ? (int)s->options->n_ranks : s->local.minder.n,
        .predict = s->evaluation ? s->options->predict : NULL,
        .run = has_run ? s->record.dir.run : NULL,
        .term = s->record.dir.term,
        .standby_id = s->standby_id,
        .name = j->name,
        .run_dir = s->record.dir.path,
        .n_epochs = j->train.epochs,
        .global_batch = j->train.global_batch,
        .max_steps = j->train.max_steps,
        .stop_after = j->train.stop_after,
        .validate_every = j->train.validate_every,
        .checkpoint_every_epochs = j->checkpoint.every_epochs,
        .cluster = j->cluster,
        .inject = s->options->inject,
        .price_per_rank_hour = j->report.price_per_rank_hour,
        .trace_first = j->report.trace.n == 2 ? j->report.trace.v[0] : 0,
        .trace_end = j->report.trace.n == 2 ? j->report.trace.v[1] + 1 : 0,
        .no_energy = sampler_no_energy(s->daemon.sampler),
        .start_ns = start_ns,
    };
    if (s->record.dir.resumed)
        led_read(s->record.dir.events, &d->led);
    if (s->legacy)
        server_inherit(d, s->legacy);
    if (s->record.dir.resumed && injected_spend(s->record.dir.events, &d->inject))
        log_info("--inject: what events.jsonl tells of does not happen again");
}

/* Log which GPU the driver uses.  Those of the followers are logged when they join.  A CPU is not
 * logged. */
static void say_device(const struct options *o)
{
    struct buf text = {0};

    if (!device_is_cuda(o->device))
        return;
    devices_describe(&o->devices, o->device, &text);
    log_info("computing on %s", buf_cstr(&text));
    buf_fini(&text);
}

static void server_start_session(struct server *s, int64_t start_ns)
{
    struct driver_options d;
    struct daemon_host host;
    struct buf job = {0};
    const int is_run = !s->evaluation && !s->options->find_lr;
    char *resume = is_run ? command_resume(s->options, s->record.dir.path) : NULL;
    char *past_stop = is_run ? command_past_stop(s->options, s->record.dir.path) : NULL;
    int64_t now;

    daemon_host(&host);
    driver_options_init(&d, s, &host, start_ns);
    job_pack(s->job, &job);
    d.job = job.data;
    d.job_len = job.len;
    d.how_to_resume = resume;
    d.how_past_stop = past_stop;
    now = clock_mono_ns();
    s->driver = driver_new(&d, now);
    daemon_attach(&s->daemon, &machine, s->driver);
    if (d.gpu_uuid)
        sampler_watch_gpu(s->daemon.sampler, own_gpu(s->options)->bus, d.gpu_uuid);
    driver_start(s->driver, now);
    for (int i = 0; i < s->options->n_told; i++)
        driver_warned(s->driver, s->options->told[i]);
    daemon_leave(&s->daemon);
    free(resume);
    free(past_stop);
    buf_fini(&job);
}

static int64_t longest_deadline_ns(const struct job *j)
{
    const struct cluster_deadlines *t = &j->cluster.deadlines;
    const int64_t all[] = {t->gather_ms, t->ready_ms,    t->prepare_ms,   t->form_ms,
                           t->step_ms,   t->validate_ms, t->checkpoint_ms};
    int64_t longest = 0;

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        longest = max_i64(longest, all[i]);
    return 1000000 * longest;
}

/* Hand on rows, and stop if another driver owns the run directory now.  The writer's thread reads
 * the file RUN/owner, and has logged the other driver's name. */
static void on_owner(uv_timer_t *t)
{
    struct server *s = t->data;
    int64_t now;

    record_hand_rows(&s->record); /* no event comes where the ranks stand still */
    if (!s->record.events || !events_check_owner(s->record.events))
        return;
    uv_timer_stop(t);
    now = daemon_enter(&s->daemon);
    if (s->daemon.machine && !s->daemon.is_finished)
        driver_deposed(s->driver, now, record_why_deposed(&s->record));
    daemon_leave(&s->daemon);
}

void server_begin_session(struct server *s)
{
    web_listen(s->web, s->record.events, s->record.dir.path, s->disk.writer);
    say_device(s->options);
    uv_timer_start(&s->owner, on_owner, OWNER_MS, OWNER_MS);
    server_start_session(s, s->start_ns);
    heed_begin(&s->heed, &s->daemon, s->job->cluster.notice, 1);
    s->daemon.pulse.engine_patience_ns = 2 * longest_deadline_ns(s->job);
}
