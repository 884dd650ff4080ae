/* The thread that asks, and its hand-over to the loop.
 *
 * Happy path: the thread asks, waits, asks again ...; a notice comes, an async handle wakes the
 * loop, and the loop tells its owner.  The thread ends then.  The time between two questions is
 * spent where a shutdown of the machine is heard. */
#include "daemon/notices.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/util.h"
#include "daemon/inhibitor.h"
#include "daemon/metadata.h"
#include "daemon/notice_command.h"

struct notices {
    struct notices_options o;
    uv_async_t async;
    pthread_t thread;
    int stop_fd;          /* readable once the thread is to end */
    struct notice notice; /* the thread's until it wakes the loop, and constant then */
    /* The thread's. */
    char *from;
    struct notice_command command;
    int has_command;
    struct metadata *metadata;   /* NULL: no cloud is asked */
    int heeds_shutdown;          /* of this machine, by systemd */
    struct inhibitor *inhibitor; /* NULL where that is not so, and until the bus is back */
    int is_told;                 /* the log says that a shutdown is heard */
    char *said;                  /* the failure that was logged last; or NULL */
};

/* ---- the thread ---- */

/* Log a failure, unless it is the one before. */
static void notices_fail(struct notices *n, const struct err *why)
{
    if (n->said && !strcmp(n->said, why->msg))
        return;
    free(n->said);
    n->said = xstrdup(why->msg);
    log_warn("cluster.notice: %s; it is tried again every %g s", why->msg, 1e-3 * n->o.each_ms);
}

/* 1: the thread is to end. */
static int notices_rest(const struct notices *n, int ms)
{
    struct pollfd p = {.fd = n->stop_fd, .events = POLLIN};

    return poll(&p, 1, ms) > 0;
}

static int notices_ask(struct notices *n, struct err *err)
{
    if (n->metadata)
        return metadata_ask(n->metadata, n->stop_fd, &n->notice, err);
    return n->has_command ? notice_command_ask(&n->command, n->stop_fd, &n->notice, err) : 0;
}

/* Where logind refuses, a shutdown comes as a SIGTERM alone. */
static int notices_open_inhibitor(struct notices *n, struct err *err)
{
    const int rc = inhibitor_new(&n->inhibitor, err);

    n->heeds_shutdown = rc < 0 || n->inhibitor;
    return rc;
}

/* Wait until the next question for a shutdown of this machine. */
static int notices_wait_shutdown(struct notices *n, struct err *err)
{
    int rc = n->inhibitor ? 0 : notices_open_inhibitor(n, err);

    if (rc == 0 && n->inhibitor)
        rc = inhibitor_wait(n->inhibitor, n->stop_fd, n->o.each_ms, &n->notice, err);
    if (rc < 0) {
        inhibitor_free(n->inhibitor);
        n->inhibitor = NULL;
    } else if (n->inhibitor && !n->is_told && inhibitor_seconds(n->inhibitor) >= 0) {
        log_info("cluster.notice: a shutdown of this machine is heard, and held up for %lld s at "
                 "most (systemd's logind)",
                 (long long)inhibitor_seconds(n->inhibitor));
        n->is_told = 1;
    }
    return rc;
}

/* The time between two questions.  1: a shutdown was heard. */
static int notices_pass(struct notices *n)
{
    struct err err;
    const int rc = n->heeds_shutdown ? notices_wait_shutdown(n, &err) : 0;

    if (rc == ERR_UNSUPPORTED) {
        log_info("cluster.notice: a shutdown of this machine is not heard before its SIGTERM: %s",
                 err.msg);
        n->heeds_shutdown = 0;
    } else if (rc < 0) {
        notices_fail(n, &err);
    }
    if (rc < 0 || !n->heeds_shutdown)
        notices_rest(n, n->o.each_ms);
    return rc > 0;
}

static void *notices_main(void *arg)
{
    struct notices *n = arg;
    int is_heard = 0;

    while (!is_heard && !notices_rest(n, 0)) {
        struct err err;
        const int rc = notices_ask(n, &err);

        if (rc < 0 && !notices_rest(n, 0))
            notices_fail(n, &err);
        is_heard = rc > 0 || notices_pass(n);
    }
    notice_command_fini(&n->command);
    if (is_heard)
        uv_async_send(&n->async);
    return NULL;
}

/* ---- the loop ---- */

static void notices_on_async(uv_async_t *a)
{
    struct notices *n = a->data;

    n->o.heard(n->o.arg, &n->notice);
}

static void notices_fini(struct notices *n)
{
    metadata_close(n->metadata);
    inhibitor_free(n->inhibitor);
    free(n->from);
    free(n->said);
    free(n);
}

static void notices_on_closed(uv_handle_t *h) { notices_fini(h->data); }

/* The metadata service of the cloud that this machine belongs to, if it does. */
static int notices_find_cloud(struct notices *n, struct err *err)
{
    const enum metadata_cloud cloud = metadata_find(NULL);
    int rc;

    if (cloud == METADATA_NONE)
        return 0;
    rc = metadata_open(cloud, &n->metadata, err);
    if (rc < 0)
        return err_wrap(err, "cluster.notice");
    log_info("cluster.notice: the metadata service of %s is asked every %g s", metadata_name(cloud),
             1e-3 * n->o.each_ms);
    return 0;
}

/* Which sources `from` asks for.  1: none. */
static int notices_choose(struct notices *n, struct err *err)
{
    struct err why;
    int rc = 0;

    if (!strcmp(n->from, "none"))
        return 1;
    n->has_command = strcmp(n->from, "auto") != 0;
    if (!n->has_command)
        rc = notices_find_cloud(n, err);
    if (rc == 0 && notices_open_inhibitor(n, &why) < 0)
        notices_fail(n, &why);
    return rc != 0 ? rc : !n->has_command && !n->metadata && !n->heeds_shutdown;
}

static int notices_open(struct notices *n, uv_loop_t *loop, struct err *err)
{
    int rc;

    n->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (n->stop_fd < 0)
        return err_sys(err, errno, "cluster.notice: eventfd");
    rc = uv_async_init(loop, &n->async, notices_on_async);
    if (rc < 0) {
        close(n->stop_fd);
        return err_set(err, ERR_IO, "cluster.notice: %s", uv_strerror(rc));
    }
    n->async.data = n;
    return 0;
}

/* The owner closes the handle if this fails. */
static int notices_start(struct notices *n, struct err *err)
{
    int rc = pthread_create(&n->thread, NULL, notices_main, n);

    return rc == 0 ? 0 : err_sys(err, rc, "cluster.notice: starting a thread");
}

int notices_new(uv_loop_t *loop, const struct notices_options *o, struct notices **out,
                struct err *err)
{
    struct notices *n = xcalloc(1, sizeof *n);
    int rc;

    *out = NULL;
    n->o = *o;
    n->o.each_ms = o->each_ms ? o->each_ms : NOTICES_EACH_MS;
    n->from = xstrdup(o->from ? o->from : "none");
    n->command = (struct notice_command){
        .text = n->from, .limit_ms = o->limit_ms ? o->limit_ms : NOTICE_COMMAND_LIMIT_MS};
    rc = notices_choose(n, err);
    if (rc == 0)
        rc = notices_open(n, loop, err);
    if (rc != 0) {
        notices_fini(n);
        return rc < 0 ? rc : 0;
    }
    rc = notices_start(n, err);
    if (rc < 0) {
        close(n->stop_fd);
        uv_close((uv_handle_t *)&n->async, notices_on_closed);
        return rc;
    }
    *out = n;
    return 0;
}

void notices_free(struct notices *n)
{
    const uint64_t one = 1;

    if (!n)
        return;
    if (write(n->stop_fd, &one, sizeof one) < 0)
        log_warn("cluster.notice: %s", strerror(errno));
    pthread_join(n->thread, NULL);
    close(n->stop_fd);
    uv_close((uv_handle_t *)&n->async, notices_on_closed);
}
