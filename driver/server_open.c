/* Opens what a driver needs before its session begins: the secrets that it shares, its port, and
 * the local followers.  Also replaces local followers that end. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "driver/files.h"
#include "driver/server_impl.h"
#include "report/run_dir.h"

enum {
    MAX_STRANGERS = 128, /* in addition to one for each rank; the session's own limit is higher */
    MAX_UNPROVEN = 1024, /* with TLS, whose handshakes the session does not see */
    STRANGER_MS = 10000,
    STRANGER_MS_EACH = 1, /* added for each rank: all may come at once, and each takes some time */
};

static int has_guests(const struct server *s)
{
    return s->job->cluster.max_ranks > s->options->n_ranks;
}

int server_open_trust(struct server *s, struct err *err)
{
    const struct options *o = s->options;
    const struct trust_options t = {.role = TLS_DRIVER,
                                    .files = &o->common.secret_files,
                                    .insecure = o->common.insecure,
                                    .is_local = o->local || o->places.n == o->n_ranks,
                                    .has_guests = has_guests(s)};
    int rc = trust_open(&t, &s->trust, err);

    if (rc == 0 && s->trust.why_not[0] && (o->n_ranks > 1 || has_guests(s)))
        log_info("other users of this machine can join this job, as no secret keeps them out: %s",
                 s->trust.why_not);
    s->daemon.engine_options.has_secret = s->trust.tls != NULL;
    return rc == 0 ? job_check_encrypt(s->job, device_is_cuda(o->device) ? "cuda" : "cpu",
                                       s->trust.tls != NULL, err)
                   : rc;
}

static void server_open_on_accepted(void *arg, struct conn *c) { server_accept(arg, c); }

/* Set the limits for strangers.  A rank is a stranger, too, until it is welcomed, and all ranks may
 * be on one machine.  One address may take half of the places that are left, so strangers of one
 * address cannot keep out all others.  With --relays there are fewer sockets than ranks. */
static void limit_strangers(const struct server *s, struct listener_options *l)
{
    const int n_ranks = (int)max_i64(s->options->n_ranks, s->job->cluster.max_ranks);
    const int left =
        files_for_strangers(s->options, s->job, s->trust.tls ? MAX_UNPROVEN : MAX_STRANGERS);
    const int n_sockets = (int)files_n_connections(s->options, s->job);
    const int n_others = s->options->http ? left / 2 : left; /* the other half is for --http */

    l->max_strangers = n_ranks + n_others;
    l->max_each = n_ranks + (n_others + 1) / 2;
    l->max_sockets = n_sockets + 1 + n_others;
    l->max_sockets_each = n_sockets + (n_others + 1) / 2;
    l->takes_relays = 1;
}

void server_limit_strangers(struct server *s)
{
    struct listener_options l = {0};

    limit_strangers(s, &l);
    listener_limit(s->listener, &l);
}

/* Say where the driver listens, and why followers on other machines do not reach it. */
static void server_open_say_where(const struct server *s)
{
    const struct options *o = s->options;
    const int n_here = o->places.n ? o->places.n : 1;

    if (o->n_ranks == 1) {
        log_info("listening on %s; the job waits for no other rank (--nranks)",
                 listener_text(s->listener));
        return;
    }
    log_info("listening on %s for %lld follower%s", listener_text(s->listener),
             (long long)o->n_ranks - 1, o->n_ranks == 2 ? "" : "s");
    if (o->is_closed && !o->local && o->n_ranks > n_here)
        log_info("without --secret-file the driver listens on this machine alone; for followers on "
                 "other machines give both sides it with copies of one file "
                 "(\"dpdriver --make-secret F\" makes it), or on a private network --insecure, "
                 "and here --host %s, too",
                 addr_all());
}

int server_listen(struct server *s, struct err *err)
{
    int is_in_use = 0;
    struct listener_options l = {.host = s->options->host,
                                 .port = (int)s->options->port,
                                 .stranger_ms =
                                     STRANGER_MS + STRANGER_MS_EACH * (int)s->options->n_ranks,
                                 .tls = s->trust.tls,
                                 .is_in_use = &is_in_use,
                                 .accepted = server_open_on_accepted,
                                 .refused = server_note_unproven,
                                 .arg = s};
    int rc;

    limit_strangers(s, &l);
    do
        rc = listener_new(&s->daemon.loop, &l, &s->listener, err);
    while (rc < 0 && is_in_use && ++l.port < (int)s->options->port + s->options->n_ports);
    if (rc < 0)
        return rc;
    server_open_say_where(s);
    return 0;
}

int server_open_web(struct server *s, int patience_ms, struct err *err)
{
    const struct web_sources from = {s->options, s->job, &s->driver, patience_ms};

    if (!s->options->http || s->evaluation)
        return 0;
    return web_open(&s->daemon.loop, &from, &s->web, err);
}

int server_write_port_file(const struct server *s, struct err *err)
{
    char text[16];
    int n = snprintf(text, sizeof text, "%d\n", listener_port(s->listener));

    if (!s->options->port_file)
        return 0;
    if (run_dir_replace(s->options->port_file, text, (size_t)n, err) == 0)
        return 0;
    err->code = ERR_ARG;
    return err_wrap(err, "--port-file");
}

/* ---- local followers ---- */

enum { HOSTS_LOOK_MS = 500 }; /* between two looks for machines that are due */

/* A follower that was killed or failed is replaced.  One that found its input wrong is not, because
 * the next one would find it wrong, too. */
static int may_replace(const struct server *s, int status)
{
    return s->is_formed && !s->is_ending && !s->daemon.n_stops && status != STATUS_OK &&
           status != STATUS_USAGE && status != STATUS_REFUSED && status != STATUS_STOPPED &&
           s->job->cluster.replace_timeout_ms != 0;
}

static void replace_child(struct server *s, int number, const char *text, int status)
{
    struct err err;

    if (!may_replace(s, status))
        return;
    if (local_restart(&s->local, number, &err) < 0)
        log_error("a local follower %s: %s", text, err.msg);
    else
        log_warn("a local follower %s: starting another one", text);
}

/* Before training nothing replaces a follower that has ended, so end the job now instead of waiting
 * for the deadline.  A batch system stops all processes at once, and a follower may end before this
 * process gets its signal; so the job has been stopped, too, if the follower has. */
static void end_unless_formed(struct server *s, const char *who, const char *text, int status)
{
    int64_t now = daemon_enter(&s->daemon);

    if (s->daemon.machine && !s->is_formed && !s->is_ending && !s->daemon.n_stops) {
        const int is_kept = status == STATUS_USAGE || status == STATUS_STOPPED;

        s->local_status = is_kept ? status : STATUS_FAILED;
        log_at(status == STATUS_STOPPED ? LOG_WARN : LOG_ERROR, "%s %s before training began", who,
               text);
        s->is_ending = 1;
        driver_stop(s->driver, now, "the end of a local follower");
        driver_stop(s->driver, now, "the end of a local follower");
    }
    daemon_leave(&s->daemon);
}

static void on_hosts_again(uv_timer_t *t)
{
    struct server *s = t->data;

    if (s->is_ending || s->daemon.n_stops || hosts_start_due(&s->hosts) == 0)
        uv_timer_stop(t);
}

/* Why a machine is not started again, for the log. */
static const char *host_why_not(const struct server *s, int status)
{
    if (s->daemon.n_stops)
        return "";
    if (status == STATUS_STOPPED)
        return ": its ranks have left, because of a signal, a drain or a notice; it is not started "
               "again";
    if (s->job->cluster.replace_timeout_ms == 0)
        return ": it is not started again (cluster.replace_timeout is 0)";
    return ": it is not started again";
}

/* The ssh of a machine has ended.  The session deals with the ranks of that machine, which are lost
 * or have left.  A machine that failed is tried again: it may be there again soon. */
static void host_ended(struct server *s, int number, const char *text, int status)
{
    const int may_return = may_replace(s, status);
    char who[HOSTS_NAME + 32];

    snprintf(who, sizeof who, "%s, started by --hosts: ssh", s->hosts.line[number].name);
    if (may_return) {
        log_warn("%s %s: starting it again in %d s", who, text, hosts_retry(&s->hosts, number));
        if (!uv_is_active((uv_handle_t *)&s->hosts_again))
            uv_timer_start(&s->hosts_again, on_hosts_again, HOSTS_LOOK_MS, HOSTS_LOOK_MS);
    } else if (s->is_formed && !s->is_ending && status != STATUS_OK) {
        log_warn("%s %s%s", who, text, host_why_not(s, status));
    }
    end_unless_formed(s, who, text, status);
}

static void on_child_ended(uv_signal_t *handle, int signal)
{
    struct server *s = handle->data;
    char text[64], who[48];
    int number, status;

    (void)signal;
    while (local_reap(&s->local, &number, text, &status)) {
        snprintf(who, sizeof who, "the local follower of rank %d", number);
        end_unless_formed(s, who, text, status);
        replace_child(s, number, text, status);
    }
    while (hosts_reap(&s->hosts, &number, text, &status))
        host_ended(s, number, text, status);
}

/* The address that a follower on this machine must connect to. */
static const char *server_open_reachable(const char *listening)
{
    if (!strcmp(listening, "0.0.0.0") || !strcmp(listening, "::"))
        return "127.0.0.1"; /* "::" takes IPv4, too */
    return listening;
}

int server_start_local(struct server *s, struct err *err)
{
    const struct options *o = s->options;
    const int n_spares = o->local ? (int)s->job->cluster.spares : 0;

    if ((o->local ? (int)o->n_ranks : o->places.n) + n_spares <= 1)
        return 0;
    uv_signal_start(&s->child_ended, on_child_ended, SIGCHLD);
    return local_start(&s->local, o, n_spares, server_open_reachable(listener_number(s->listener)),
                       listener_port(s->listener), s->trust.is_local ? s->trust.fd : -1, err);
}

int server_start_hosts(struct server *s, struct err *err)
{
    s->hosts = s->options->hosts;
    if (s->hosts.n == 0)
        return 0;
    uv_signal_start(&s->child_ended, on_child_ended, SIGCHLD);
    return hosts_start(&s->hosts, s->options, listener_port(s->listener),
                       s->job->cluster.replace_timeout_ms != 0, err);
}
