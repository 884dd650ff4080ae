/* One attempt: resolve -> connect to the first address -> the next one on failure or after
 * CONNECT_MS -> `connected`, or a pause.  `conn` (a connect) and `is_resolving` say what is
 * under way.  A dialer that is closed meanwhile is freed by the last callback that comes. */
#include "net/dialer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/util.h"
#include "net/addr.h"
#include "net/lane.h"

enum { FIRST_PAUSE_MS = 50, LAST_PAUSE_MS = 2000, CONNECT_MS = 5000, SAY_EVERY_MS = 5000 };

struct dialer {
    uv_loop_t *loop;
    struct dialer_options options;
    char *host;
    char where[ADDR_MAX_HOST + 24]; /* "HOST:PORT", for messages; of several ports first and last */
    int n_skipped;                  /* ports that this attempt found closed */
    int at_port;                    /* the port to try, from 0 */
    uv_timer_t timer;               /* ends a pause, or a connect that takes too long */
    uv_getaddrinfo_t resolve;
    struct addrinfo *found, *next; /* the name's addresses; the one to try next */
    struct addrinfo *tried;        /* the one that `conn` is for */
    struct conn *conn;             /* being connected */
    int is_resolving, is_connecting, is_closing, n_handles;
    int has_pool;     /* libuv has its threads, which resolve names */
    int is_stopped;   /* the result of the attempt under way is dropped */
    int starts_again; /* dialer_start came while an attempt was under way */
    int64_t most_pause_ms;
    int64_t pause_ms, n_attempts;
    int64_t start_ns, said_ns;
    int did_time_out;
    struct rng_stream jitter;
    int has_answer; /* 1: `last` is about a process that was there, which a closed port is not */
    char last[256]; /* why the last attempt failed */
};

static void dialer_attempt(struct dialer *d);
static void try_next(struct dialer *d);
static void dialer_begin(struct dialer *d);

static void dialer_free_when_done(struct dialer *d)
{
    if (!d->is_closing || d->n_handles || d->is_resolving || d->is_connecting)
        return;
    uv_freeaddrinfo(d->found);
    free(d->host);
    free(d);
}

/* ---- waiting ---- */

static void on_pause_over(uv_timer_t *t) { dialer_attempt(t->data); }

static int64_t dialer_jittered(struct dialer *d)
{
    int64_t pause = d->pause_ms;

    d->pause_ms = min_i64(2 * pause, d->most_pause_ms);
    return pause / 2 + (int64_t)(rng_next_unit(&d->jitter) * (double)(pause - pause / 2));
}

static void dialer_say(struct dialer *d)
{
    int64_t now = clock_mono_ns();

    if (d->options.is_quiet || (d->said_ns && now - d->said_ns < (int64_t)SAY_EVERY_MS * 1000000))
        return;
    log_info("waiting for a driver at %s: %s; %lld attempt%s in %.1f s, trying on%s%s", d->where,
             d->last, (long long)d->n_attempts, d->n_attempts == 1 ? "" : "s",
             clock_since_s(d->start_ns), d->options.hint ? "; " : "",
             d->options.hint ? d->options.hint : "");
    d->said_ns = now;
}

static void dialer_give_up(struct dialer *d)
{
    struct err err;

    err_set(&err, ERR_TIMEOUT,
            "no driver at %s within %.0f s: %s; %lld attempt%s.  Is dpdriver running, and is this "
            "its --host and --port?  (--wait SECONDS waits longer)%s%s",
            d->where, 1e-3 * (double)d->options.wait_ms, d->last, (long long)d->n_attempts,
            d->n_attempts == 1 ? "" : "s", d->options.hint ? "; " : "",
            d->options.hint ? d->options.hint : "");
    d->options.gave_up(d->options.arg, &err);
}

/* 1: the dialer was stopped, and the attempt that was under way then has ended. */
static int has_stopped(struct dialer *d)
{
    if (!d->is_stopped)
        return 0;
    if (d->starts_again)
        dialer_begin(d);
    return 1;
}

static void pause_or_give_up(struct dialer *d)
{
    if (has_stopped(d))
        return;
    int64_t left = d->options.wait_ms - (clock_mono_ns() - d->start_ns) / 1000000;
    int64_t pause = dialer_jittered(d);

    if (d->options.wait_ms >= 0 && left <= 0) {
        dialer_give_up(d);
        return;
    }
    dialer_say(d);
    if (d->options.wait_ms >= 0)
        pause = min_i64(pause, left);
    uv_timer_start(&d->timer, on_pause_over, (uint64_t)pause, 0);
}

/* ---- connecting ---- */

/* `number` names the address when the name has several. */
static void note_failure(struct dialer *d, const char *number, int status)
{
    const char *sep = number[0] ? ": " : "";

    if (d->has_answer && status == UV_ECONNREFUSED)
        return;
    d->has_answer = 0;
    if (status == LANE_NO_RELAYS && d->options.lane)
        snprintf(d->last, sizeof d->last,
                 "%s%sthe program there takes no relays: a driver of an older version must be "
                 "updated; or leave --relay out",
                 number, sep);
    else if (status == UV_ETIMEDOUT || status == UV_ECANCELED)
        snprintf(d->last, sizeof d->last, "%s%sno answer in %d s (ETIMEDOUT)", number, sep,
                 CONNECT_MS / 1000);
    else
        snprintf(d->last, sizeof d->last, "%s%s%s (%s)", number, sep, uv_strerror(status),
                 uv_err_name(status));
}

static void next_port(struct dialer *d) { d->at_port = (d->at_port + 1) % d->options.n_ports; }

static void connect_failed(struct dialer *d, const struct addrinfo *ai, int status)
{
    char number[ADDR_TEXT];

    addr_number(ai->ai_addr, number);
    note_failure(d, !strcmp(number, d->host) ? "" : number, status);
    if (!d->next && status != UV_ECONNREFUSED && d->options.lane) { /* as dialer_go_on */
        next_port(d);
        d->has_answer = d->options.n_ports > 1;
    }
    if (!d->next && status == UV_ECONNREFUSED && d->n_skipped + 1 < d->options.n_ports) {
        d->n_skipped++;
        next_port(d);
        d->next = d->found;
    }
    try_next(d);
}

static void on_connect(void *arg, int status)
{
    struct dialer *d = arg;
    struct conn *c = d->conn;
    struct err err;

    d->is_connecting = 0;
    d->conn = NULL;
    if (d->is_closing) {
        dialer_free_when_done(d);
        return;
    }
    uv_timer_stop(&d->timer);
    if (status == 0 && !d->options.lane && stream_has_met_itself(conn_socket(c)))
        status = UV_ECONNREFUSED;
    if (status == 0 && !d->is_stopped && conn_start(c, &err) == 0) {
        d->options.connected(d->options.arg, c);
        return;
    }
    if (!d->did_time_out)
        conn_abort(c);
    connect_failed(d, d->tried, status ? status : UV_ECONNRESET);
}

/* Closing the socket ends the connect with UV_ECANCELED. */
static void on_connect_timeout(uv_timer_t *t)
{
    struct dialer *d = t->data;

    d->did_time_out = 1;
    conn_abort(d->conn);
}

static void try_next(struct dialer *d)
{
    struct addrinfo *ai = d->is_stopped ? NULL : d->next;
    struct err err;
    int rc;

    if (!ai) {
        pause_or_give_up(d);
        return;
    }
    d->next = ai->ai_next;
    addr_set_port(ai->ai_addr, d->options.port + d->at_port);
    d->did_time_out = 0;
    /* Through a relay, TLS is between the relay and the driver. */
    if (conn_new(d->loop, FRAME_MAX, d->options.lane ? NULL : d->options.tls, &d->conn, &err) < 0) {
        snprintf(d->last, sizeof d->last, "%.*s", (int)sizeof d->last - 1, err.msg);
        pause_or_give_up(d);
        return;
    }
    d->tried = ai;
    rc = conn_connect(d->conn, ai->ai_addr, d->options.lane, on_connect, d);
    if (rc < 0) {
        conn_abort(d->conn);
        d->conn = NULL;
        connect_failed(d, ai, rc);
        return;
    }
    d->is_connecting = 1;
    uv_timer_start(&d->timer, on_connect_timeout, CONNECT_MS, 0);
}

/* Put link-local addresses last: they are refused where a name has others, too (addr_check_link).
 */
static struct addrinfo *link_local_last(struct addrinfo *found)
{
    struct addrinfo *good = NULL, *local = NULL, **end = &good, **local_end = &local;

    for (struct addrinfo *next; found; found = next) {
        struct addrinfo ***to = addr_is_link_local(found->ai_addr) ? &local_end : &end;

        next = found->ai_next;
        found->ai_next = NULL;
        **to = found;
        *to = &found->ai_next;
    }
    *end = local;
    return good;
}

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *found)
{
    struct dialer *d = container_of(req, struct dialer, resolve);

    d->is_resolving = 0;
    d->found = d->next = link_local_last(found);
    if (d->is_closing) {
        dialer_free_when_done(d);
    } else if (status < 0) {
        note_failure(d, "name cannot be resolved", status);
        pause_or_give_up(d);
    } else {
        try_next(d);
    }
}

static void *pass_through(void *lock)
{
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return NULL;
}

/* 0: the process may have as many more threads at the same time as libuv's pool has; libuv calls
 * abort() if it cannot start them.  <0: the error, as libuv numbers it. */
static int try_threads(void)
{
    enum { POOL = 4 };
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread[POOL];
    int n = 0, rc = 0;

    pthread_mutex_lock(&lock);
    while (n < POOL && rc == 0) {
        rc = pthread_create(&thread[n], NULL, pass_through, &lock);
        n += rc == 0;
    }
    pthread_mutex_unlock(&lock);
    while (n > 0)
        pthread_join(thread[--n], NULL);
    pthread_mutex_destroy(&lock);
    return uv_translate_sys_error(rc);
}

static void dialer_attempt(struct dialer *d)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const char *what = "threads cannot be started";
    char service[16];
    int rc = d->has_pool ? 0 : try_threads();

    d->n_attempts++;
    d->n_skipped = 0;
    uv_freeaddrinfo(d->found);
    d->found = d->next = NULL;
    snprintf(service, sizeof service, "%d", d->options.port);
    if (rc == 0) {
        d->has_pool = 1;
        what = "name cannot be resolved";
        rc = uv_getaddrinfo(d->loop, &d->resolve, on_resolved, d->host, service, &hints);
    }
    d->is_resolving = rc == 0;
    if (rc < 0) {
        note_failure(d, what, rc);
        pause_or_give_up(d);
    }
}

/* ---- life ---- */

int dialer_new(uv_loop_t *loop, const struct dialer_options *o, struct dialer **out,
               struct err *err)
{
    struct dialer *d = xcalloc(1, sizeof *d);
    char last[16] = "";

    ASSERT(o->connected && (o->gave_up || o->wait_ms < 0));
    if (strlen(o->host) >= ADDR_MAX_HOST) {
        free(d);
        return err_set(err, ERR_ARG, "host name has %zu characters, want at most %d",
                       strlen(o->host), ADDR_MAX_HOST - 1);
    }
    d->loop = loop;
    d->options = *o;
    d->options.host = NULL;
    d->host = xstrdup(o->host);
    d->options.n_ports = o->n_ports > 1 ? o->n_ports : 1;
    if (d->options.n_ports > 1)
        snprintf(last, sizeof last, "-%d", o->port + o->n_ports - 1);
    snprintf(d->where, sizeof d->where, strchr(o->host, ':') ? "[%s]:%d%s" : "%s:%d%s", o->host,
             o->port, last);
    d->most_pause_ms = LAST_PAUSE_MS;
    rng_stream_init(&d->jitter, o->seed, RNG_JITTER, 0);
    uv_timer_init(loop, &d->timer);
    d->timer.data = d;
    d->n_handles = 1;
    *out = d;
    return 0;
}

static void dialer_begin(struct dialer *d)
{
    d->is_stopped = d->starts_again = 0;
    d->said_ns = 0;
    d->pause_ms = FIRST_PAUSE_MS;
    dialer_attempt(d);
}

void dialer_limit_pause(struct dialer *d, int64_t ms)
{
    d->most_pause_ms = ms ? ms : LAST_PAUSE_MS;
    d->pause_ms = min_i64(d->pause_ms, d->most_pause_ms);
}

void dialer_stop(struct dialer *d)
{
    uv_timer_stop(&d->timer);
    d->is_stopped = 1;
    d->starts_again = 0;
    if (d->is_resolving)
        uv_cancel((uv_req_t *)&d->resolve);
    if (d->is_connecting && !d->did_time_out) {
        d->did_time_out = 1;
        conn_abort(d->conn);
    }
}

void dialer_start(struct dialer *d, int is_again)
{
    ASSERT(!d->is_closing);
    d->start_ns = clock_mono_ns();
    d->n_attempts = 0;
    if (d->is_resolving || d->is_connecting) {
        ASSERT(d->is_stopped);
        d->starts_again = 1;
        return;
    }
    d->is_stopped = 0;
    d->has_answer = 0;
    if (is_again) {
        next_port(d);
        snprintf(d->last, sizeof d->last, "the last connection came to nothing");
        uv_timer_start(&d->timer, on_pause_over, (uint64_t)dialer_jittered(d), 0);
        return;
    }
    dialer_begin(d);
}

void dialer_go_on(struct dialer *d, const char *why)
{
    ASSERT(!d->is_closing && !d->is_resolving && !d->is_connecting);
    d->is_stopped = 0;
    next_port(d);
    d->has_answer = d->options.n_ports > 1;
    snprintf(d->last, sizeof d->last, "%s", why);
    pause_or_give_up(d);
}

static void dialer_on_closed(uv_handle_t *h)
{
    struct dialer *d = h->data;

    d->n_handles--;
    dialer_free_when_done(d);
}

void dialer_close(struct dialer *d)
{
    if (!d || d->is_closing)
        return;
    d->is_closing = 1;
    if (d->is_resolving)
        uv_cancel((uv_req_t *)&d->resolve);
    if (d->is_connecting && !d->did_time_out)
        conn_abort(d->conn);
    uv_close((uv_handle_t *)&d->timer, dialer_on_closed);
}
