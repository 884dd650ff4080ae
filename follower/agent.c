/* The agent's loop: signals, the pauses before children are started again, and the sign of life to
 * the service manager.  The agent has one thread, and no connection with a driver but a relay's. */
#include "follower/agent.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <uv.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "daemon/minder.h"
#include "daemon/notice_signal.h"
#include "daemon/notify.h"
#include "daemon/places.h"
#include "daemon/trust.h"
#include "net/gateway.h"

/* A child that lived for LONG_LIFE_MS before it failed is started again after the first pause. */
enum { FIRST_PAUSE_MS = 1000, LAST_PAUSE_MS = 60000, LONG_LIFE_MS = 60000, BEAT_MS = 1000 };

struct agent;

struct charge {
    struct agent *agent;
    int number;       /* 0..n-1 on this machine */
    uv_timer_t again; /* runs while the child is to be started again */
    int64_t started_ns, pause_ms;
    int is_over; /* 1: the child has ended and is not started again */
};

enum { N_SIGNALS = 4 };

struct agent {
    const struct options *options;
    struct places places;
    struct minder minder;  /* a child's tag is its number */
    struct gateway *relay; /* NULL: children connect by themselves */
    struct trust trust;    /* the relay's */
    char *program;
    struct charge *charge; /* [places.n] */
    int first_rank;        /* -1: any */
    uv_loop_t loop;
    uv_signal_t signal[N_SIGNALS];
    int n_signals;
    uv_poll_t state_signal; /* SIGUSR1, whose sender counts (daemon/notice_signal.h) */
    int state_fd;
    uv_timer_t beat;
    int n_stops, n_restarts;
    int is_by_ssh; /* started by dpdriver --hosts, which wants ranks to be started again */
    int status;
};

/* ---- children ---- */

static int agent_rank_of(const struct agent *a, int number)
{
    return a->first_rank < 0 ? -1 : a->first_rank + number;
}

static void agent_name_of(const struct agent *a, int number, char out[48])
{
    if (a->first_rank < 0)
        snprintf(out, 48, "process %d of %d", number + 1, a->places.n);
    else
        snprintf(out, 48, "rank %d (process %d of %d)", agent_rank_of(a, number), number + 1,
                 a->places.n);
}

/* Start a child, with a lane to the relay if there is one. */
static int start_with_lane(struct agent *a, struct minder_order *order, int number, struct err *err)
{
    int rc = a->relay ? gateway_add(a->relay, &order->lane, err) : 0;

    a->charge[number].started_ns = clock_mono_ns();
    if (rc == 0)
        rc = minder_start(&a->minder, order, number, err);
    if (order->lane)
        close(order->lane);
    return rc;
}

static int start_child(struct agent *a, int number, struct err *err)
{
    const struct options *o = a->options;
    const struct place *place = &a->places.place[number];
    struct minder_command c = {.n = 0};
    struct minder_order order = {
        .command = &c, .role = {MINDER_AGENT, number + 1}, .place = place, .death_signal = SIGTERM};
    const struct minder_follower follower = {.program = a->program,
                                             .root = o->n_ports > 1 ? NULL : o->root_text,
                                             .device = place->device,
                                             .rank = agent_rank_of(a, number),
                                             .n_threads = place->n_threads,
                                             .secret_fd = -1};

    minder_add_follower(&c, &o->common, &follower);
    if (o->data)
        minder_add(&c, "--data", o->data);
    if (o->once) {
        snprintf(c.wait, sizeof c.wait, "%lld", (long long)o->wait_s);
        minder_add(&c, "--once", NULL);
        minder_add(&c, "--wait", c.wait);
    }
    return start_with_lane(a, &order, number, err);
}

static int is_over(const struct agent *a)
{
    for (int i = 0; i < a->places.n; i++)
        if (!a->charge[i].is_over)
            return 0;
    return 1;
}

/* Is a child that has failed started again?  A job's followers that dpdriver --hosts has started
 * are, as long as another process of this machine takes part: once none does, the driver starts the
 * agent anew, unless the job has ended. */
static int starts_again(const struct agent *a)
{
    if (a->n_stops)
        return 0;
    return !a->options->once || (a->is_by_ssh && minder_n_running(&a->minder) > 0);
}

/* A child has ended for good.  The agent ends with the status of the first child that failed, or
 * else with that of one that was stopped. */
static void end_child(struct agent *a, struct charge *c, int status)
{
    c->is_over = 1;
    if (a->status == STATUS_OK || (a->status == STATUS_STOPPED && status != STATUS_OK))
        a->status = status;
    if (is_over(a))
        uv_stop(&a->loop);
}

/* The children that wait to be started again are not. */
static void end_waiting(struct agent *a, int status)
{
    for (int i = 0; i < a->places.n; i++)
        if (uv_is_active((uv_handle_t *)&a->charge[i].again)) {
            uv_timer_stop(&a->charge[i].again);
            end_child(a, &a->charge[i], status);
        }
}

static void on_again(uv_timer_t *t);

static void start_later(struct charge *c, const char *name, const char *text)
{
    int64_t lived_ms = (clock_mono_ns() - c->started_ns) / 1000000;

    c->pause_ms = c->pause_ms && lived_ms < LONG_LIFE_MS ? min_i64(2 * c->pause_ms, LAST_PAUSE_MS)
                                                         : FIRST_PAUSE_MS;
    log_warn("%s %s: starting it again in %lld s", name, text, (long long)c->pause_ms / 1000);
    uv_timer_start(&c->again, on_again, (uint64_t)c->pause_ms, 0);
}

static void on_again(uv_timer_t *t)
{
    struct charge *c = t->data;
    struct err err;
    char name[48];

    c->agent->n_restarts++;
    if (start_child(c->agent, c->number, &err) == 0)
        return;
    agent_name_of(c->agent, c->number, name);
    start_later(c, name, err.msg);
}

static void child_ended(struct agent *a, struct charge *c, const char *text, int status)
{
    char name[48];

    agent_name_of(a, c->number, name);
    if (status == STATUS_FAILED && starts_again(a)) {
        start_later(c, name, text);
        return;
    }
    if (status != STATUS_OK && status != STATUS_STOPPED)
        log_error("%s %s%s", name, text,
                  a->n_stops || a->options->once ? "" : ": it is not started again");
    end_child(a, c, status);
    if (!starts_again(a))
        end_waiting(a, STATUS_FAILED);
}

/* A child that a signal stops says so itself, once it catches signals. */
static void say_killed(const struct agent *a, int number, const char *text)
{
    char name[48];

    agent_name_of(a, number, name);
    log_warn("%s %s: it is not started again", name, text);
}

static void reap_children(struct agent *a)
{
    char text[64];
    int number, status, how;

    while ((how = minder_reap(&a->minder, &number, text, &status)) > 0) {
        if (how == 2 && a->n_stops)
            status = STATUS_STOPPED; /* by the agent's signal */
        else if (how == 2 && status == STATUS_STOPPED)
            say_killed(a, number, text);
        child_ended(a, &a->charge[number], text, status);
    }
}

/* ---- signals ---- */

static void agent_stop(struct agent *a, int number)
{
    a->n_stops++;
    if (a->n_stops == 1) {
        log_info("SIG%s: passed on to %d process%s; once more kills", sigabbrev_np(number),
                 minder_n_running(&a->minder), minder_n_running(&a->minder) == 1 ? "" : "es");
        notify_stopping();
    }
    minder_signal(&a->minder, a->n_stops == 1 ? number : SIGKILL);
    end_waiting(a, STATUS_STOPPED);
}

static void agent_on_signal(uv_signal_t *s, int number)
{
    struct agent *a = s->data;

    if (number == SIGCHLD)
        reap_children(a);
    else
        agent_stop(a, number);
}

/* Pass SIGUSR1 on, and with it what its sender says. */
static void agent_on_state_signal(uv_poll_t *p, int status, int events)
{
    struct agent *a = p->data;
    struct signalfd_siginfo info;
    struct notice n;

    (void)status;
    (void)events;
    if (read(a->state_fd, &info, sizeof info) == sizeof info)
        minder_signal_with(&a->minder, SIGUSR1,
                           notice_signal_read(&info, &n) ? NOTICE_SIGNAL_VALUE : 0);
}

/* SIGUSR1 is blocked from the process's beginning (daemon_open_standard) to its end: reading it
 * needs that, and nothing ends the agent with it. */
static void agent_catch_state_signal(struct agent *a)
{
    sigset_t one;

    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    a->state_fd = signalfd(-1, &one, SFD_CLOEXEC | SFD_NONBLOCK);
    if (a->state_fd < 0 || uv_poll_init(&a->loop, &a->state_signal, a->state_fd) < 0) {
        log_warn("SIGUSR1 will not be passed on: %s", strerror(errno));
        return;
    }
    a->state_signal.data = a;
    uv_poll_start(&a->state_signal, UV_READABLE, agent_on_state_signal);
}

/* A signal that was ignored when the process began, as nohup ignores SIGHUP, stays ignored. */
static void agent_catch_signals(struct agent *a)
{
    static const int numbers[N_SIGNALS] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP};
    struct sigaction old;

    for (int i = 0; i < N_SIGNALS; i++) {
        if (numbers[i] != SIGCHLD && sigaction(numbers[i], NULL, &old) == 0 &&
            old.sa_handler == SIG_IGN)
            continue;
        uv_signal_init(&a->loop, &a->signal[a->n_signals]);
        a->signal[a->n_signals].data = a;
        uv_signal_start(&a->signal[a->n_signals++], agent_on_signal, numbers[i]);
    }
    agent_catch_state_signal(a);
}

/* The exit status is settled, and no signal changes it any more. */
static void agent_drop_signals(struct agent *a)
{
    for (int i = 0; i < a->n_signals; i++) {
        const int number = a->signal[i].signum;

        uv_close((uv_handle_t *)&a->signal[i], NULL);
        if (number != SIGCHLD)
            signal(number, SIG_IGN); /* libuv restores the default, which ends the process */
    }
}

/* ---- the service manager ---- */

static void on_beat(uv_timer_t *t)
{
    const struct agent *a = t->data;
    char text[96];

    snprintf(text, sizeof text, "%d of %d processes run, %d restarts", minder_n_running(&a->minder),
             a->places.n, a->n_restarts);
    notify_status(text);
    notify_alive();
}

/* Tell the service manager that the agent is ready.  As for a single follower, that means that the
 * processes have been started; a driver may come much later. */
static void start_beat(struct agent *a)
{
    const int64_t limit_ms = notify_watchdog_ms();

    if (!notify_is_wanted())
        return;
    notify_ready();
    uv_timer_start(&a->beat, on_beat, 0, limit_ms ? (uint64_t)limit_ms / 3 + 1 : BEAT_MS);
}

/* ---- life ---- */

static int find_self(char **out, struct err *err)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);

    if (n < 0)
        return err_sys(err, errno, "--ranks: cannot find this program: /proc/self/exe");
    path[n] = '\0';
    *out = xstrdup(path);
    return 0;
}

static int agent_find_places(struct agent *a, struct err *err)
{
    const struct options *o = a->options;
    struct devices devices;
    int rc = devices_find(o->common.device, &devices, err);

    if (rc == 0)
        rc = places_find(&o->common, &devices, &a->places, err);
    if (rc == 0)
        rc = find_self(&a->program, err);
    if (rc < 0)
        return rc;
    a->first_rank = o->rank_is_task && o->rank > 0 ? o->rank * a->places.n : o->rank;
    a->charge = xcalloc((size_t)a->places.n, sizeof *a->charge);
    return 0;
}

static void start_all(struct agent *a)
{
    for (int i = 0; i < a->places.n; i++) {
        struct charge *c = &a->charge[i];
        struct err err;
        char name[48];

        *c = (struct charge){.agent = a, .number = i};
        uv_timer_init(&a->loop, &c->again);
        c->again.data = c;
        agent_name_of(a, i, name);
        place_log(&a->places.place[i], name);
        if (start_child(a, i, &err) == 0)
            continue;
        if (a->options->once) {
            log_error("%s: %s", name, err.msg);
            c->is_over = 1;
            a->status = STATUS_FAILED;
        } else {
            start_later(c, name, err.msg);
        }
    }
}

static void close_all(struct agent *a)
{
    minder_end(&a->minder, 0, 1);
    agent_drop_signals(a);
    for (int i = 0; i < a->places.n; i++)
        uv_close((uv_handle_t *)&a->charge[i].again, NULL);
    uv_close((uv_handle_t *)&a->beat, NULL);
    if (a->state_signal.data)
        uv_close((uv_handle_t *)&a->state_signal, NULL);
    gateway_close(a->relay); /* what the children have sent still leaves */
    uv_run(&a->loop, UV_RUN_DEFAULT);
    ASSERT(uv_loop_close(&a->loop) == 0);
    if (a->state_fd >= 0)
        close(a->state_fd);
    trust_close(&a->trust);
    places_fini(&a->places);
    free(a->charge);
    free(a->program);
}

/* With --relay it is the agent that proves to know the secret. */
static int agent_open_trust(struct agent *a, struct err *err)
{
    const struct daemon_options *o = &a->options->common;
    const struct trust_options t = {
        .role = TLS_FOLLOWER, .files = &o->secret_files, .insecure = o->insecure};

    return a->options->relay ? trust_open(&t, &a->trust, err) : 0;
}

int agent_run(const struct options *o)
{
    struct agent a = {
        .is_by_ssh = minder_role().kind == MINDER_SSH, .options = o, .trust = {.fd = -1}};
    struct err err;
    int rc;

    if (agent_find_places(&a, &err) < 0 || agent_open_trust(&a, &err) < 0) {
        log_error("%s", err.msg);
        trust_close(&a.trust);
        places_fini(&a.places);
        return STATUS_USAGE;
    }
    rc = uv_loop_init(&a.loop);
    if (rc < 0) {
        log_error("event loop: %s", uv_strerror(rc));
        return STATUS_FAILED;
    }
    uv_timer_init(&a.loop, &a.beat);
    a.beat.data = &a;
    agent_catch_signals(&a);
    if (o->relay)
        a.relay = gateway_new(&a.loop, a.trust.tls);
    start_all(&a);
    start_beat(&a);
    if (!is_over(&a))
        uv_run(&a.loop, UV_RUN_DEFAULT);
    close_all(&a);
    return a.status;
}
