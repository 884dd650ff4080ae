/* exec - a queue of lines, and a thread that starts the command and writes to it.
 *
 * Happy path: exec_hear -> queue -> exec_take -> exec_write to a pipe.  Each write wakes the
 * command, on a processor on which a rank may be training.  So rows are gathered.  A line stays in
 * the batch until the command has read it: what lies in the pipe of one that ends goes to the next.
 *
 * Failure modes.  The command ends: the pipe breaks, or minder_reap tells; rest, then begin again.
 * The command does not read: the pipe is full, poll waits, and the queue fills up.  It does not end
 * at the end of its input: exec_stop. */
#include "driver/exec.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/log.h"
#include "base/util.h"
#include "daemon/minder.h"

enum {
    EXEC_BATCH = 64 << 10, /* bytes of lines that are written together: what a pipe holds */
    EXEC_LOOK_MS = 100,    /* so often a command that does not read is looked after */
    EXEC_WAIT_MS = 10,
    EXEC_PAUSE_MS = 1000,
    EXEC_MOST_PAUSE_MS = 60000,
    EXEC_LONG_MS = 60000, /* a command that lived so long has begun well */
};

struct exec {
    char *script, *run, *run_dir;
    int grace_ms;
    pthread_t thread;

    /* Guards what follows; the condition says that lines are urgent, or that the end has come. */
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct buf queue; /* lines with their ends */
    int is_urgent;    /* the queue has an event or a batch, so the thread does not gather on */
    int64_t n_lost;   /* lines since the last one that fitted */
    int64_t n_lost_all;
    int is_ending, is_doomed; /* doomed: SIGKILL at once */
    int64_t until_ns;         /* then: the command has SIGTERM */
    int is_over;              /* the thread has nothing more to do; `over` says so */
    pthread_cond_t over;

    /* The thread's. */
    struct minder minder;
    int fd;           /* the command's input; -1: it does not run, or its input has ended */
    struct buf batch; /* lines under way: this command has not read the first of them wholly */
    size_t n_done;    /* bytes of them that were written to this command's pipe */
    int64_t begun_ns, pause_ms;
    int64_t due_ns; /* the next command begins then */
};

/* ---- the queue ---- */

static void exec_push(struct exec *x, const char *line, size_t n)
{
    buf_append(&x->queue, line, n);
    buf_append(&x->queue, "\n", 1);
}

/* Put the warning of missing lines in their place. */
static void exec_push_lost(struct exec *x)
{
    char text[128];
    const int n = snprintf(text, sizeof text,
                           "{\"event\":\"warning\",\"time\":%.6f,\"message\":\"%lld lines are "
                           "missing here\"}",
                           clock_wall_s(), (long long)x->n_lost);

    exec_push(x, text, (size_t)n);
    x->n_lost = 0;
}

/* Have the thread take the queue now: once, however many lines come before it does. */
static void exec_urge(struct exec *x)
{
    if (!x->is_urgent)
        pthread_cond_signal(&x->more);
    x->is_urgent = 1;
}

void exec_hear(void *arg, const char *line, size_t n, int is_row)
{
    struct exec *x = arg;
    int is_first = 0;

    pthread_mutex_lock(&x->lock);
    if (x->queue.len + n < EXEC_QUEUE) {
        if (x->n_lost)
            exec_push_lost(x);
        exec_push(x, line, n);
        if (!is_row || x->queue.len >= EXEC_BATCH)
            exec_urge(x);
    } else {
        is_first = x->n_lost_all == 0;
        x->n_lost++;
        x->n_lost_all++;
    }
    pthread_mutex_unlock(&x->lock);
    if (is_first)
        log_warn("report.exec: the command reads too slowly, and %d KiB of lines wait for it: "
                 "further ones are left out, and training goes on",
                 EXEC_QUEUE >> 10);
}

/* The bytes of the first lines of the queue that make a batch: whole lines, at least one. */
static size_t exec_batch(const struct exec *x)
{
    const uint8_t *text = x->queue.data, *end;

    if (x->queue.len <= EXEC_BATCH)
        return x->queue.len;
    end = memrchr(text, '\n', EXEC_BATCH);
    if (!end) /* the first line is longer */
        end = memchr(text, '\n', x->queue.len);
    return (size_t)(end - text) + 1;
}

/* Take the next lines.  Rows alone are gathered until `until_ns`.  0: no line came. */
static int exec_take(struct exec *x, int64_t until_ns)
{
    int is_late = 0;
    size_t n;

    pthread_mutex_lock(&x->lock);
    while (!x->is_urgent && !x->is_ending && !is_late)
        is_late = cond_wait_until(&x->more, &x->lock, until_ns);
    if (x->queue.len) {
        n = exec_batch(x);
        buf_append(&x->batch, x->queue.data, n);
        buf_consume(&x->queue, n);
    }
    x->is_urgent = x->queue.len > 0;
    pthread_mutex_unlock(&x->lock);
    return x->batch.len > x->n_done;
}

/* ---- the command ---- */

/* Drop the lines that the command has read.  One that it has read in part stays whole. */
static void exec_drop_read(struct exec *x)
{
    const uint8_t *end;
    int n_unread;
    size_t n;

    if (x->fd < 0 || ioctl(x->fd, FIONREAD, &n_unread) < 0)
        return;
    n = x->n_done - (size_t)min_i64((int64_t)x->n_done, n_unread);
    end = n ? memrchr(x->batch.data, '\n', n) : NULL;
    if (!end)
        return;
    n = (size_t)(end - x->batch.data) + 1;
    buf_consume(&x->batch, n);
    x->n_done -= n;
}

static void exec_close(struct exec *x)
{
    exec_drop_read(x);
    if (x->fd >= 0)
        close(x->fd);
    x->fd = -1;
    x->n_done = 0;
}

/* End the command's input.  A pipe's end for reading takes the place of the one for writing, so
 * that exec_drop_read can still tell what was read. */
static void exec_end_input(struct exec *x)
{
    char path[64];
    int fd;

    if (x->fd < 0)
        return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", x->fd);
    fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    exec_drop_read(x);
    close(x->fd);
    x->fd = fd;
}

/* Rest before the next command begins; longer, if this one did not live long. */
static void exec_rest(struct exec *x, const char *why)
{
    const int64_t lived_ms = (clock_mono_ns() - x->begun_ns) / 1000000;

    exec_close(x);
    x->pause_ms = lived_ms < EXEC_LONG_MS && x->pause_ms
                      ? min_i64(2 * x->pause_ms, EXEC_MOST_PAUSE_MS)
                      : EXEC_PAUSE_MS;
    x->due_ns = clock_mono_ns() + x->pause_ms * 1000000;
    log_warn("report.exec: the command %s; it is started again in %lld s", why,
             (long long)x->pause_ms / 1000);
}

static void exec_begin(struct exec *x)
{
    struct minder_command command = {.argv = {"/bin/sh", "-c", x->script, "sh", x->run, x->run_dir},
                                     .n = 6};
    struct minder_order order = {.command = &command, .death_signal = SIGTERM};
    struct err err;
    int ends[2], rc;

    x->begun_ns = x->due_ns = clock_mono_ns();
    if (pipe2(ends, O_CLOEXEC) < 0) {
        exec_rest(x, strerror(errno));
        return;
    }
    order.input_fd = ends[0];
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    rc = minder_start(&x->minder, &order, 0, &err);
    close(ends[0]);
    x->fd = ends[1];
    if (rc < 0)
        exec_rest(x, err.msg);
}

/* Look whether the command has ended. */
static void exec_look(struct exec *x)
{
    char text[64];
    int tag, status;

    if (x->fd >= 0 && minder_reap(&x->minder, &tag, text, &status))
        exec_rest(x, text);
}

static int exec_is_doomed(struct exec *x)
{
    int is;

    pthread_mutex_lock(&x->lock);
    is = x->is_doomed;
    pthread_mutex_unlock(&x->lock);
    return is;
}

/* Wait until the command has ended, and leave it to minder_reap: 1, or 0 after the patience, and
 * when the command is doomed. */
static int exec_wait(struct exec *x, int64_t patience_ms)
{
    const int64_t until_ns = clock_mono_ns() + patience_ms * 1000000;
    siginfo_t is = {0};

    for (;;) {
        if (waitid(P_PGID, (id_t)x->minder.group, &is, WEXITED | WNOWAIT | WNOHANG) < 0 ||
            is.si_pid)
            return 1;
        if (clock_mono_ns() >= until_ns || exec_is_doomed(x))
            return 0;
        poll(NULL, 0, EXEC_WAIT_MS);
    }
}

/* To the shell and all that it has started. */
static void exec_signal(const struct exec *x, int signal)
{
    if (minder_n_running(&x->minder) && x->minder.group > 0)
        kill(-x->minder.group, signal);
}

/* The command reads no more.  Mostly it is about to end. */
static void exec_drop(struct exec *x)
{
    char text[64] = "has closed its input, and is ended";
    int tag, status;

    exec_close(x);
    if (!exec_wait(x, EXEC_TERM_MS)) {
        exec_signal(x, SIGTERM);
        if (!exec_wait(x, EXEC_TERM_MS))
            exec_signal(x, SIGKILL);
        (void)exec_wait(x, EXEC_TERM_MS);
    }
    (void)minder_reap(&x->minder, &tag, text, &status);
    exec_rest(x, text);
}

/* ---- the thread ---- */

static int exec_is_late(struct exec *x)
{
    int is;

    pthread_mutex_lock(&x->lock);
    is = x->is_ending && clock_mono_ns() >= x->until_ns;
    pthread_mutex_unlock(&x->lock);
    return is;
}

static int exec_is_ending(struct exec *x)
{
    int is;

    pthread_mutex_lock(&x->lock);
    is = x->is_ending;
    pthread_mutex_unlock(&x->lock);
    return is;
}

/* Write what the pipe takes of the lines. */
static void exec_write(struct exec *x)
{
    struct pollfd p = {.fd = x->fd, .events = POLLOUT};
    ssize_t n;

    if (poll(&p, 1, EXEC_LOOK_MS) <= 0) {
        exec_look(x);
        return;
    }
    n = write(x->fd, x->batch.data + x->n_done, x->batch.len - x->n_done);
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        exec_drop(x);
        return;
    }
    x->n_done += n > 0 ? (size_t)n : 0;
    if (x->n_done == x->batch.len)
        exec_drop_read(x);
}

/* One step: 0: there is nothing more to do. */
static int exec_go_on(struct exec *x)
{
    const int64_t now = clock_mono_ns();

    if (exec_is_late(x))
        return 0;
    if (x->n_done == x->batch.len && !exec_take(x, now + EXEC_GATHER_MS * INT64_C(1000000))) {
        exec_look(x);
        return !exec_is_ending(x);
    }
    if (x->fd >= 0) {
        exec_write(x);
    } else if (now >= x->due_ns) {
        exec_begin(x);
    } else {
        if (exec_is_ending(x))
            return 0;
        poll(NULL, 0, EXEC_LOOK_MS);
    }
    return 1;
}

/* Wait until the command has ended, or its grace has. */
static void exec_be_patient(struct exec *x)
{
    while (minder_n_running(&x->minder) && !exec_is_late(x))
        if (exec_wait(x, EXEC_LOOK_MS))
            minder_wait(&x->minder, 0); /* it is reaped */
}

/* 1: SIGTERM has ended the command. */
static int exec_terminate(struct exec *x)
{
    if (exec_is_doomed(x))
        return 0;
    log_warn("report.exec: the command does not end after the job: SIGTERM");
    exec_signal(x, SIGTERM);
    return exec_wait(x, EXEC_TERM_MS);
}

/* End the command: its input ends, then SIGTERM, then SIGKILL. */
static void exec_stop(struct exec *x)
{
    exec_end_input(x);
    exec_be_patient(x);
    if (minder_n_running(&x->minder) && !exec_terminate(x))
        exec_signal(x, SIGKILL);
    minder_end(&x->minder, EXEC_TERM_MS, 1);
    exec_close(x);
}

/* Tell those who wait. */
static void exec_tell_over(struct exec *x)
{
    pthread_mutex_lock(&x->lock);
    x->is_over = 1;
    pthread_cond_broadcast(&x->over);
    pthread_mutex_unlock(&x->lock);
}

static void *exec_main(void *arg)
{
    struct exec *x = arg;

    while (exec_go_on(x))
        ;
    exec_stop(x);
    exec_tell_over(x);
    return NULL;
}

/* ---- life ---- */

static void exec_fini(struct exec *x)
{
    pthread_cond_destroy(&x->more);
    pthread_cond_destroy(&x->over);
    pthread_mutex_destroy(&x->lock);
    buf_fini(&x->queue);
    buf_fini(&x->batch);
    free(x->script);
    free(x->run);
    free(x->run_dir);
    free(x);
}

/* The shell sets the variables, since other threads may read this process's environment. */
static const char script[] = "export DPTRAIN_RUN=\"$1\" DPTRAIN_RUN_DIR=\"$2\"\n"
                             "shift 2\n"
                             "exec >&2\n";

int exec_new(const char *command, const char *run_dir, int grace_ms, struct exec **out,
             struct err *err)
{
    struct exec *x = xcalloc(1, sizeof *x);
    const char *slash = strrchr(run_dir, '/');
    int rc;

    x->script = xasprintf("%s%s", script, command);
    x->run = xstrdup(slash && slash[1] ? slash + 1 : run_dir);
    x->run_dir = xstrdup(run_dir);
    x->grace_ms = grace_ms;
    x->fd = -1;
    pthread_mutex_init(&x->lock, NULL);
    cond_init(&x->more);
    cond_init(&x->over);
    rc = pthread_create(&x->thread, NULL, exec_main, x);
    if (rc == 0) {
        *out = x;
        return 0;
    }
    exec_fini(x);
    return err_sys(err, rc, "report.exec: starting a thread");
}

void exec_hasten(struct exec *x, int grace_ms)
{
    const int64_t until_ns = clock_mono_ns() + grace_ms * INT64_C(1000000);

    pthread_mutex_lock(&x->lock);
    x->until_ns = x->is_ending ? min_i64(x->until_ns, until_ns) : until_ns;
    x->is_ending = 1;
    x->is_doomed |= grace_ms == 0;
    pthread_cond_signal(&x->more);
    pthread_mutex_unlock(&x->lock);
}

void exec_end(struct exec *x) { exec_hasten(x, x->grace_ms); }

int exec_await(struct exec *x, int ms)
{
    const int64_t until_ns = clock_mono_ns() + ms * INT64_C(1000000);
    int is_over, is_late = 0;

    pthread_mutex_lock(&x->lock);
    while (!x->is_over && !is_late)
        is_late = cond_wait_until(&x->over, &x->lock, until_ns);
    is_over = x->is_over;
    pthread_mutex_unlock(&x->lock);
    return is_over;
}

/* Tell what the command did not get. */
static void exec_tell(const struct exec *x)
{
    int64_t n = x->n_lost_all;

    for (size_t i = 0; i < x->batch.len; i++)
        n += x->batch.data[i] == '\n';
    for (size_t i = 0; i < x->queue.len; i++)
        n += x->queue.data[i] == '\n';
    if (n)
        log_warn("report.exec: the command did not get %lld lines", (long long)n);
}

void exec_free(struct exec *x)
{
    if (!x)
        return;
    exec_end(x);
    pthread_join(x->thread, NULL);
    exec_tell(x);
    exec_fini(x);
}
