/* logind is asked over D-Bus by libsystemd's sd-bus, without waiting for any answer: the answers
 * come while inhibitor_wait polls.
 *
 * Happy path: the signal PrepareForShutdown is subscribed to; logind is asked for the lock, and how
 * long it holds; the answers come; the signal comes.  If the shutdown has begun before, logind
 * gives no lock and says so.
 *
 * inhibitor_none.c takes the place of this file in a build without libsystemd. */
#include "daemon/inhibitor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"

#define LOGIN      "org.freedesktop.login1"
#define LOGIN_PATH "/org/freedesktop/login1"
#define MANAGER    LOGIN ".Manager"

enum { US_PER_MS = 1000, NS_PER_MS = 1000000, US_PER_S = 1000000 };

struct inhibitor {
    sd_bus *bus;
    int lock_fd;             /* -1: not yet */
    int is_leaving, is_lost; /* lost: logind did not answer, as while it is started anew */
    int64_t seconds;         /* that logind waits; -1: not known yet */
    char *refusal;           /* what logind said; NULL: nothing bad */
};

/* ---- answers and signals ---- */

static int inhibitor_on_lock(sd_bus_message *m, void *arg, sd_bus_error *unused)
{
    struct inhibitor *h = arg;
    int fd;

    (void)unused;
    if (sd_bus_message_is_method_error(m, LOGIN ".OperationInProgress")) {
        h->is_leaving = 1; /* no lock is given any more */
    } else if (sd_bus_message_is_method_error(m, SD_BUS_ERROR_NO_REPLY) ||
               sd_bus_message_is_method_error(m, SD_BUS_ERROR_TIMEOUT)) {
        h->is_lost = 1;
    } else if (sd_bus_message_is_method_error(m, NULL)) {
        const char *said = sd_bus_message_get_error(m)->message;

        h->refusal = xstrdup(said ? said : "the lock is refused");
    } else if (sd_bus_message_read(m, "h", &fd) > 0) { /* the message's own */
        h->lock_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    }
    return 0;
}

/* Without this answer it is only not known how long the lock holds. */
static int inhibitor_on_delay(sd_bus_message *m, void *arg, sd_bus_error *unused)
{
    struct inhibitor *h = arg;
    uint64_t us;

    (void)unused;
    if (!sd_bus_message_is_method_error(m, NULL) && sd_bus_message_read(m, "v", "t", &us) > 0)
        h->seconds = (int64_t)(us / US_PER_S);
    return 0;
}

/* Its argument is false where a shutdown was called off. */
static int inhibitor_on_prepare(sd_bus_message *m, void *arg, sd_bus_error *unused)
{
    struct inhibitor *h = arg;
    int is_begun;

    (void)unused;
    if (sd_bus_message_read(m, "b", &is_begun) > 0)
        h->is_leaving |= is_begun;
    return 0;
}

/* ---- asking ---- */

static int inhibitor_ask(struct inhibitor *h)
{
    int rc = sd_bus_match_signal_async(h->bus, NULL, LOGIN, LOGIN_PATH, MANAGER,
                                       "PrepareForShutdown", inhibitor_on_prepare, NULL, h);

    if (rc >= 0)
        rc = sd_bus_call_method_async(h->bus, NULL, LOGIN, LOGIN_PATH, MANAGER, "Inhibit",
                                      inhibitor_on_lock, h, "ssss", "shutdown", "dptrain",
                                      "A rank leaves its training job", "delay");
    if (rc >= 0)
        rc = sd_bus_call_method_async(h->bus, NULL, LOGIN, LOGIN_PATH,
                                      "org.freedesktop.DBus.Properties", "Get", inhibitor_on_delay,
                                      h, "ss", MANAGER, "InhibitDelayMaxUSec");
    return rc;
}

static int inhibitor_lose(int rc, struct err *err)
{
    return err_set(err, ERR_IO, "the system's D-Bus, for systemd's logind: %s", strerror(-rc));
}

int inhibitor_new(struct inhibitor **out, struct err *err)
{
    struct inhibitor *h;
    int rc;

    *out = NULL;
    if (sd_booted() <= 0)
        return 0;
    h = xcalloc(1, sizeof *h);
    h->lock_fd = -1;
    h->seconds = -1;
    rc = sd_bus_open_system(&h->bus);
    if (rc >= 0)
        rc = inhibitor_ask(h);
    if (rc < 0) {
        inhibitor_free(h);
        return inhibitor_lose(rc, err);
    }
    *out = h;
    return 0;
}

/* ---- waiting ---- */

/* In how many ms the bus itself wants to be looked at, and at most ms. */
static int inhibitor_patience(struct inhibitor *h, int64_t ms)
{
    uint64_t at; /* us of the monotonic clock */

    if (sd_bus_get_timeout(h->bus, &at) < 0 || at == UINT64_MAX)
        return (int)ms;
    ms = min_i64(ms, (int64_t)(at / US_PER_MS) - clock_mono_ns() / NS_PER_MS + 1);
    return (int)max_i64(ms, 0);
}

/* Everything that has come.  <0: the bus is lost, as negative errno. */
static int inhibitor_read(struct inhibitor *h)
{
    int rc;

    do
        rc = sd_bus_process(h->bus, NULL);
    while (rc > 0);
    return rc;
}

int inhibitor_wait(struct inhibitor *h, int stop_fd, int ms, struct notice *out, struct err *err)
{
    const int64_t until = clock_mono_ns() / NS_PER_MS + ms;

    for (;;) {
        struct pollfd fds[] = {{.fd = stop_fd, .events = POLLIN}, {.fd = -1}};
        const int rc = inhibitor_read(h);
        int64_t left;

        if (rc < 0)
            return inhibitor_lose(rc, err);
        if (h->is_leaving) {
            *out = (struct notice){.source = "systemd", .seconds = h->seconds};
            return 1;
        }
        if (h->is_lost)
            return inhibitor_lose(-ETIMEDOUT, err);
        if (h->refusal)
            return err_set(err, ERR_UNSUPPORTED, "systemd's logind: %s", h->refusal);
        left = until - clock_mono_ns() / NS_PER_MS;
        if (left <= 0)
            return 0;
        fds[1].fd = sd_bus_get_fd(h->bus);
        fds[1].events = (short)sd_bus_get_events(h->bus);
        if (poll(fds, ARRAY_LEN(fds), inhibitor_patience(h, left)) > 0 && fds[0].revents)
            return 0;
    }
}

int64_t inhibitor_seconds(const struct inhibitor *h) { return h->lock_fd < 0 ? -1 : h->seconds; }

void inhibitor_free(struct inhibitor *h)
{
    if (!h)
        return;
    sd_bus_close_unref(h->bus);
    if (h->lock_fd >= 0)
        close(h->lock_fd);
    free(h->refusal);
    free(h);
}
