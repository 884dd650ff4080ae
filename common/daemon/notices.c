/* The thread that asks, and its hand-over to the loop.
 *
 * Happy path: the thread asks, waits, asks again ...; a notice comes, an async handle wakes the
 * loop, and the loop tells its owner.  The thread ends then. */
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
    struct metadata *metadata; /* NULL: the command is asked */
    char *said;                /* the failure that was logged last; or NULL */
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
    return n->metadata ? metadata_ask(n->metadata, n->stop_fd, &n->notice, err)
                       : notice_command_ask(&n->command, n->stop_fd, &n->notice, err);
}

static void *notices_main(void *arg)
{
    struct notices *n = arg;
    struct err err;
    int rc = 0;

    do {
        rc = notices_ask(n, &err);
        if (rc < 0 && !notices_rest(n, 0))
            notices_fail(n, &err);
    } while (rc <= 0 && !notices_rest(n, n->o.each_ms));
    notice_command_fini(&n->command);
    if (rc > 0)
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
    free(n->from);
    free(n->said);
    free(n);
}

static void notices_on_closed(uv_handle_t *h) { notices_fini(h->data); }

/* Which source `from` asks for.  1: none. */
static int notices_choose(struct notices *n, struct err *err)
{
    enum metadata_cloud cloud;
    int rc;

    if (!strcmp(n->from, "none"))
        return 1;
    if (strcmp(n->from, "auto") != 0)
        return 0;
    cloud = metadata_find(NULL);
    if (cloud == METADATA_NONE)
        return 1;
    rc = metadata_open(cloud, &n->metadata, err);
    if (rc < 0)
        return err_wrap(err, "cluster.notice");
    log_info("cluster.notice: the metadata service of %s is asked every %g s", metadata_name(cloud),
             1e-3 * n->o.each_ms);
    return 0;
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
