/* Actions out of the session machine and events into it, on one loop.
 * daemon_enter and daemon_leave bracket every event, whoever brings it. */
#include "daemon/daemon.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"
#include "daemon/notice_signal.h"

/* The bound of the lines that wait for a terminal, and how long it is waited for: before a fault on
 * purpose, and at the end. */
enum { TERMINAL_BYTES = 1 << 20, FLUSH_MS = 2000, END_MS = 10000 };

/* Actions of the first turn of the loop.  The machine of a large job wants messages to all ranks at
 * once: behind relays the first of them are on their way while the others are made.  Fewer would
 * have answers handled before the last ranks have been told.  Each further turn in which some still
 * wait does so many more than the one before, so that they cannot become ever more; and each event
 * that comes meanwhile does about as many as it brings. */
enum { ACTIONS_A_TURN = 8192, TURNS_MOST = 1 << 16, ACTIONS_AN_EVENT = 8 };

/* The lookup of a name, in a thread of libuv's, cannot be broken off, and may take a minute: it is
 * waited for as long as this at the end. */
enum { LOOKUP_MS = 1000, LOOK_MS = 10 };

/* ---- actions ---- */

/* An engine that cannot be made is a fault like any other: the machine tells all ranks. */
static void report_no_engine(struct daemon *d, int64_t generation, const struct err *err)
{
    struct report *r = report_new(REPORT_FAULT, generation);

    r->fault.err = *err;
    r->fault.phase = PHASE_OPEN;
    mailbox_put(&d->inbox.box, &r->mail);
}

static void post_command(struct daemon *d, struct action *a)
{
    struct err err;

    if (!d->engine) {
        d->engine_options.device = d->hooks->device(d->arg);
        if (engine_new(&d->engine_options, &d->inbox.box, &d->engine, &err) < 0) {
            report_no_engine(d, a->command->generation, &err);
            return;
        }
    }
    engine_post(d->engine, a->command);
    a->command = NULL;
}

static void daemon_request(struct daemon *d, enum request r)
{
    if (d->engine)
        engine_request(d->engine, (enum engine_request)r);
}

static void send_frame(struct daemon *d, struct action *a)
{
    if (d->is_mute)
        return; /* action_fini frees it */
    d->hooks->send(d->arg, a->conn, a->send.frame);
    a->send.frame = NULL;
}

static void daemon_drop(struct daemon *d, enum injection_how how)
{
    if (how == INJECTION_IN)
        d->is_deaf = 1;
    else if (how == INJECTION_OUT)
        d->is_mute = 1;
    else
        d->hooks->cut(d->arg);
}

/* The messages that announce the fault have left by now, since a send is tried at once. */
static void daemon_inject(struct daemon *d, const struct injection *f)
{
    if (f->what == INJECTION_KILL || f->what == INJECTION_STOP)
        daemon_flush(d);
    if (f->what == INJECTION_KILL)
        kill(getpid(), SIGKILL);
    else if (f->what == INJECTION_STOP)
        kill(getpid(), SIGSTOP);
    else if (f->what == INJECTION_DROP)
        daemon_drop(d, f->how);
    if (d->engine)
        engine_injected(d->engine);
}

int daemon_is_deaf(const struct daemon *d) { return d->is_deaf; }

/* The machine queues only its answer to the ring, so the other actions stay in order. */
static void hand_ring(struct daemon *d)
{
    struct collective c[RING_LEN];
    int n = d->engine ? engine_ring(d->engine, c) : 0;

    d->calls->ring(d->machine, clock_mono_ns(), c, n);
}

static void do_action(struct daemon *d, struct action *a)
{
    switch (a->kind) {
    case ACTION_SEND:
        send_frame(d, a);
        break;
    case ACTION_TRUST:
        d->hooks->trust(d->arg, a->conn);
        break;
    case ACTION_CLOSE:
        d->hooks->close(d->arg, a->conn);
        break;
    case ACTION_SEEK:
        d->is_deaf = d->is_mute = 0;
        d->hooks->seek(d->arg, a->seek.is_again, a->seek.other);
        break;
    case ACTION_COMMAND:
        post_command(d, a);
        break;
    case ACTION_REQUEST:
        daemon_request(d, a->request);
        break;
    case ACTION_ABORT:
        if (d->engine)
            engine_abort(d->engine);
        break;
    case ACTION_INJECT:
        daemon_inject(d, &a->inject);
        break;
    case ACTION_LOG:
        log_at(a->log.level, "%s", a->log.text);
        break;
    case ACTION_EVENT:
        d->hooks->event(d->arg, &a->event);
        break;
    case ACTION_RING:
        hand_ring(d);
        break;
    case ACTION_TRACE:
        if (d->engine)
            engine_trace(d->engine, a->trace.number, a->trace.duration_ns);
        break;
    case ACTION_INCIDENT:
        d->hooks->incident(d->arg, a->incident);
        break;
    case ACTION_FINISHED:
        d->is_finished = 1;
        d->hooks->finished(d->arg, a);
        break;
    }
}

static void on_more(uv_idle_t *idle);
static void daemon_rearm(struct daemon *d);

static void drain_some(struct daemon *d, int n_most)
{
    struct action a;
    int n = 0;

    while (d->machine && !d->is_finished && n < n_most && d->calls->next(d->machine, &a)) {
        do_action(d, &a);
        action_fini(&a);
        n++;
    }
    if (d->machine && !d->is_finished && n == n_most)
        uv_idle_start(&d->more, on_more);
    else
        d->n_more_turns = 0;
}

static void daemon_drain(struct daemon *d)
{
    drain_some(d, uv_is_active((uv_handle_t *)&d->more) ? ACTIONS_AN_EVENT : ACTIONS_A_TURN);
}

static void on_more(uv_idle_t *idle)
{
    struct daemon *d = idle->data;

    d->n_more_turns = (int)min_i64(d->n_more_turns + 1, TURNS_MOST);
    uv_idle_stop(idle);
    drain_some(d, ACTIONS_A_TURN * (1 + d->n_more_turns));
    daemon_rearm(d);
}

/* ---- time ---- */

static void on_tick(uv_timer_t *t);

static void daemon_rearm(struct daemon *d)
{
    int64_t at = d->machine && !d->is_finished ? d->calls->deadline(d->machine) : INT64_MAX;
    int64_t wait_ms;

    if (at == INT64_MAX) {
        uv_timer_stop(&d->tick);
        return;
    }
    wait_ms = ceil_div_i64(max_i64(0, at - clock_mono_ns()), 1000000);
    uv_update_time(&d->loop); /* a timer counts from the time that the loop last read */
    uv_timer_start(&d->tick, on_tick, (uint64_t)wait_ms, 0);
}

static void tell_progress(struct daemon *d, int64_t now)
{
    struct progress p;

    if (!d->engine)
        return;
    engine_progress(d->engine, &p);
    sampler_read(d->sampler, &p.usage);
    d->calls->progress(d->machine, now, &p);
}

static void tick_if_due(struct daemon *d, int64_t now)
{
    if (!d->machine || d->is_finished || now < d->calls->deadline(d->machine))
        return;
    tell_progress(d, now);
    d->calls->tick(d->machine, now);
    daemon_drain(d);
}

int64_t daemon_enter(struct daemon *d)
{
    tick_if_due(d, clock_mono_ns());
    return clock_mono_ns();
}

void daemon_leave(struct daemon *d)
{
    daemon_drain(d);
    daemon_rearm(d);
}

static void on_tick(uv_timer_t *t)
{
    struct daemon *d = t->data;

    inbox_look(&d->inbox);
    daemon_enter(d);
    daemon_leave(d);
}

/* ---- reports and signals ---- */

static void daemon_free_report(struct mail *m)
{
    report_free(container_of(m, struct report, mail));
}

static void daemon_on_report(void *arg, struct mail *m)
{
    struct daemon *d = arg;
    int64_t now = daemon_enter(d);

    if (d->machine && !d->is_finished) {
        tell_progress(d, now);
        d->calls->report(d->machine, now, container_of(m, struct report, mail));
    } else {
        daemon_free_report(m);
    }
    daemon_leave(d);
}

static const char no_machine[] = "no job";

static void daemon_summary(void *arg, struct buf *out)
{
    struct daemon *d = arg;

    if (d->machine)
        d->calls->summary(d->machine, clock_mono_ns(), out);
    else
        buf_printf(out, "%s", no_machine);
}

static void log_state(struct daemon *d)
{
    struct buf text = {0};
    char *rest, *line;

    if (d->machine)
        d->calls->describe(d->machine, clock_mono_ns(), &text);
    else
        buf_printf(&text, "%s", no_machine);
    buf_cstr(&text);
    for (rest = (char *)text.data; (line = strtok_r(rest, "\n", &rest));)
        log_info("state: %s", line);
    buf_fini(&text);
}

static int engine_doing(void *arg, struct progress *out)
{
    struct daemon *d = arg;

    if (d->engine)
        engine_progress(d->engine, out);
    return d->engine != NULL;
}

static void stop_machine(struct daemon *d, const char *name)
{
    int64_t now = daemon_enter(d);

    if (d->machine && !d->is_finished)
        d->calls->stop(d->machine, now, name);
    else if (d->machine)
        snprintf(d->missed, sizeof d->missed, "%s", name);
    daemon_leave(d);
}

static void daemon_on_signal(uv_signal_t *s, int number)
{
    struct daemon *d = s->data;
    char name[16];

    d->n_stops++;
    if (d->n_stops > 1 && d->ignores_second_stop)
        return;
    snprintf(name, sizeof name, "SIG%s", sigabbrev_np(number));
    if (d->machine)
        stop_machine(d, name);
    else
        d->hooks->idle_stop(d->arg, name);
}

void daemon_stop_if_missed(struct daemon *d)
{
    char name[sizeof d->missed];

    memcpy(name, d->missed, sizeof name);
    d->missed[0] = '\0';
    if (name[0])
        stop_machine(d, name);
}

void daemon_notice(struct daemon *d, const struct notice *n)
{
    char text[64];
    int64_t now;

    if (!d->machine) {
        snprintf(text, sizeof text, "the notice that this machine goes away (%s)", n->source);
        d->hooks->idle_stop(d->arg, text);
        return;
    }
    now = daemon_enter(d);
    if (d->machine && !d->is_finished)
        d->calls->notice(d->machine, now, n);
    daemon_leave(d);
}

/* SIGUSR1 is blocked (daemon_open_standard) and read here: a handler of libuv leaves moments, when
 * it comes and when it goes, in which the signal would end the process. */
static void on_state_signal(uv_poll_t *p, int status, int events)
{
    struct daemon *d = p->data;
    struct signalfd_siginfo info;
    struct notice n;

    (void)status;
    (void)events;
    if (read(d->state_fd, &info, sizeof info) != sizeof info)
        return;
    if (!d->ignores_notices && notice_signal_read(&info, &n))
        daemon_notice(d, &n);
    else
        log_state(d);
}

static void catch_state_signal(struct daemon *d)
{
    sigset_t one;

    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    d->state_fd = signalfd(-1, &one, SFD_CLOEXEC | SFD_NONBLOCK);
    if (d->state_fd < 0 || uv_poll_init(&d->loop, &d->state_signal, d->state_fd) < 0) {
        log_warn("SIGUSR1 will not be answered: %s", strerror(errno));
        return;
    }
    d->state_signal.data = d;
    uv_poll_start(&d->state_signal, UV_READABLE, on_state_signal);
    uv_unref((uv_handle_t *)&d->state_signal);
    d->has_state_signal = 1;
}

static void daemon_catch_signals(struct daemon *d)
{
    static const int numbers[DAEMON_SIGNALS] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction old;

    for (int i = 0; i < DAEMON_SIGNALS; i++) {
        uv_signal_t *s = &d->signal[d->n_signals];

        /* The signal was ignored from the start, as by nohup: leave it so. */
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler == SIG_IGN)
            continue;
        uv_signal_init(&d->loop, s);
        s->data = d;
        uv_signal_start(s, daemon_on_signal, numbers[i]);
        uv_unref((uv_handle_t *)s);
        d->n_signals++;
    }
}

/* Ignore signals to stop from now on: libuv restores the default, which ends the process. */
static void daemon_drop_signals(struct daemon *d)
{
    for (int i = 0; i < d->n_signals; i++) {
        const int number = d->signal[i].signum;

        uv_close((uv_handle_t *)&d->signal[i], NULL);
        signal(number, SIG_IGN);
    }
}

/* ---- life ---- */

static const struct pulse_events pulse_events = {engine_doing, daemon_summary};

int daemon_init(struct daemon *d, const struct daemon_hooks *hooks, void *arg,
                const struct engine_options *engine, struct err *err)
{
    int rc;

    *d = (struct daemon){0};
    d->hooks = hooks;
    d->arg = arg;
    d->engine_options = *engine;
    rc = writer_new(TERMINAL_BYTES, &d->terminal, err);
    if (rc < 0)
        return rc;
    rc = sampler_new(&(struct sampler_options){.each_ms = 0}, &d->sampler, err);
    if (rc < 0) {
        writer_free(d->terminal, FLUSH_MS);
        return rc;
    }
    rc = uv_loop_init(&d->loop);
    if (rc < 0) {
        sampler_free(d->sampler);
        writer_free(d->terminal, FLUSH_MS);
        return err_set(err, ERR_IO, "event loop: %s (%s)", uv_strerror(rc), uv_err_name(rc));
    }
    log_set_writer(d->terminal);
    uv_timer_init(&d->loop, &d->tick);
    uv_idle_init(&d->loop, &d->more);
    d->tick.data = d->more.data = d;
    pulse_init(&d->pulse, &d->loop, &pulse_events, d);
    inbox_init(&d->inbox, &d->loop, daemon_on_report, daemon_free_report, d);
    daemon_catch_signals(d);
    catch_state_signal(d);
    return 0;
}

void daemon_attach(struct daemon *d, const struct daemon_machine *calls, void *machine)
{
    ASSERT(!d->machine && !d->engine);
    d->calls = calls;
    d->machine = machine;
    d->is_finished = 0;
}

void daemon_detach(struct daemon *d, int is_engine_stuck)
{
    d->machine = NULL;
    d->is_deaf = d->is_mute = 0;
    uv_timer_stop(&d->tick);
    uv_idle_stop(&d->more);
    if (is_engine_stuck)
        return; /* daemon_close sees by d->engine that the process must end by _exit */
    engine_free(d->engine);
    d->engine = NULL;
    inbox_drop(&d->inbox);
}

void daemon_flush(struct daemon *d)
{
    if (d->disk)
        writer_flush(d->disk, FLUSH_MS);
    log_flush(FLUSH_MS);
}

/* A thread that hangs in a write to the terminal is left behind: the process ends all the same. */
static void close_terminal(struct daemon *d)
{
    if (log_flush(END_MS) == WRITER_LATE)
        return;
    log_set_writer(NULL);
    ASSERT(writer_free(d->terminal, INT32_MAX) == 0);
}

static void warn_stuck(const struct daemon *d)
{
    struct progress p;

    engine_progress(d->engine, &p);
    log_warn("the engine does not stop, it has been in %s%s %lld for %.1f s: leaving without it",
             phase_name(p.phase), phase_of(p.phase), (long long)p.step, clock_since_s(p.since_ns));
}

/* Leave without waiting for a thread that does not end. */
static _Noreturn void daemon_leave_group(struct daemon *d, int status)
{
    daemon_flush(d);
    fflush(NULL);
    _exit(status);
}

static void count_handle(uv_handle_t *h, void *n)
{
    (void)h;
    ++*(int *)n;
}

static int n_handles(struct daemon *d)
{
    int n = 0;

    uv_walk(&d->loop, count_handle, &n);
    return n;
}

/* Returns 0 when all handles are closed and no lookup runs; 1: a lookup still runs. */
static int run_to_end(struct daemon *d)
{
    while (n_handles(d) > 0)
        uv_run(&d->loop, UV_RUN_ONCE);
    for (int ms = 0; uv_run(&d->loop, UV_RUN_NOWAIT) && ms < LOOKUP_MS; ms += LOOK_MS)
        uv_sleep(LOOK_MS);
    return uv_loop_alive(&d->loop);
}

int daemon_close(struct daemon *d, int status)
{
    if (d->engine) {
        warn_stuck(d);
        daemon_leave_group(d, status);
    }
    pulse_close(&d->pulse);
    inbox_close(&d->inbox);
    uv_close((uv_handle_t *)&d->tick, NULL);
    uv_close((uv_handle_t *)&d->more, NULL);
    daemon_drop_signals(d);
    if (d->has_state_signal)
        uv_close((uv_handle_t *)&d->state_signal, NULL);
    if (run_to_end(d)) {
        log_warn("the lookup of a host's name does not end: leaving without it");
        daemon_leave_group(d, status);
    }
    ASSERT(uv_loop_close(&d->loop) == 0);
    if (d->state_fd >= 0)
        close(d->state_fd);
    sampler_free(d->sampler);
    close_terminal(d);
    return status;
}
