/* One run of the command: poll waits for its output, its end (a pidfd), the time limit and the end
 * of the daemon.  The process group is killed before its leader is reaped, so that the group's
 * number is still its own. */
#include "daemon/notice_command.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"

enum {
    NOTICE_MS = 50, /* between two looks, where the system has no pidfds */
    NOTICE_KILL_MS =
        2000, /* a process that was killed ends within this time, or hangs in the system */
    NOTICE_WORD = 64,
    NOTICE_LONGEST_S = 7 * 24 * 3600,
};

enum { AT_STOP, AT_OUTPUT, AT_END, N_AT };

struct command_run {
    struct pollfd at[N_AT];
    char word[NOTICE_WORD]; /* the beginning of the output */
    size_t n;
    int64_t until_ns;
};

static pid_t command_pid(const struct notice_command *c)
{
    return c->minder.n ? c->minder.child[0].pid : 0;
}

/* ---- the output ---- */

/* The seconds that the first word says, or -1. */
static int64_t command_seconds(const char *word)
{
    char *end;
    double s;

    while (isspace((unsigned char)*word))
        word++;
    if (!isdigit((unsigned char)*word))
        return -1;
    s = strtod(word, &end);
    if (*end && !isspace((unsigned char)*end))
        return -1;
    return s > NOTICE_LONGEST_S ? NOTICE_LONGEST_S : (int64_t)s;
}

/* Take what the pipe has.  The rest of a long output is dropped. */
static void take_output(struct command_run *r)
{
    enum { MOST_READS = 16 }; /* then the time is looked at again */
    char rest[512];
    ssize_t n = 1;

    for (int i = 0; i < MOST_READS && (n = read(r->at[AT_OUTPUT].fd, rest, sizeof rest)) > 0; i++) {
        size_t room = sizeof r->word - 1 - r->n, k = (size_t)n < room ? (size_t)n : room;

        memcpy(r->word + r->n, rest, k);
        r->n += k;
    }
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) { /* closed: poll it no more */
        close(r->at[AT_OUTPUT].fd);
        r->at[AT_OUTPUT].fd = -1;
    }
}

/* ---- a run ---- */

static int command_begin(struct notice_command *c, struct command_run *r, int stop_fd,
                         struct err *err)
{
    struct minder_command command = {.argv = {"/bin/sh", "-c", c->text}, .n = 3};
    struct minder_order order = {.command = &command, .death_signal = SIGKILL};
    int ends[2], rc;

    if (access(command.argv[0], X_OK) < 0) /* a child that cannot become it has a status, too */
        return err_sys(err, errno, "the command: %s", command.argv[0]);
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, errno, "the command: pipe");
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    order.output_fd = ends[1];
    rc = minder_start(&c->minder, &order, 0, err);
    close(ends[1]);
    if (rc < 0) {
        close(ends[0]);
        return rc;
    }
    *r = (struct command_run){
        .at = {[AT_STOP] = {.fd = stop_fd, .events = POLLIN},
               [AT_OUTPUT] = {.fd = ends[0], .events = POLLIN},
               [AT_END] = {.fd = (int)syscall(SYS_pidfd_open, command_pid(c), 0),
                           .events = POLLIN}},
        .until_ns = clock_mono_ns() + c->limit_ms * INT64_C(1000000)};
    return 0;
}

/* 1: the shell has ended; it is not reaped yet. */
static int command_has_ended(const struct notice_command *c, const struct command_run *r)
{
    siginfo_t is = {0};

    if (r->at[AT_END].fd >= 0)
        return r->at[AT_END].revents != 0;
    return waitid(P_PID, (id_t)command_pid(c), &is, WEXITED | WNOWAIT | WNOHANG) < 0 || is.si_pid;
}

enum command_end { COMMAND_ENDED, COMMAND_STOPPED, COMMAND_LATE };

static enum command_end command_await(const struct notice_command *c, struct command_run *r)
{
    for (;;) {
        int64_t left_ms = (r->until_ns - clock_mono_ns()) / 1000000;

        if (left_ms <= 0)
            return COMMAND_LATE;
        poll(r->at, N_AT, (int)(r->at[AT_END].fd < 0 ? min_i64(left_ms, NOTICE_MS) : left_ms));
        if (r->at[AT_STOP].revents)
            return COMMAND_STOPPED;
        if (r->at[AT_OUTPUT].fd >= 0 && r->at[AT_OUTPUT].revents)
            take_output(r);
        if (command_has_ended(c, r))
            return COMMAND_ENDED;
    }
}

/* Kill what is left of the group, and reap the shell.  Returns minder_reap's. */
static int end_group(struct notice_command *c, char text[64], int *status)
{
    int tag, how;

    kill(-c->minder.group, SIGKILL);
    for (int ms = 0; !(how = minder_reap(&c->minder, &tag, text, status)); ms += NOTICE_MS) {
        if (ms >= NOTICE_KILL_MS)
            return 0;
        poll(NULL, 0, NOTICE_MS);
    }
    return how;
}

static int command_result(const struct command_run *r, int how, int status, const char *text,
                          struct notice *out, struct err *err)
{
    if (how == 1 && status == 1)
        return 0;
    if (how != 1 || status != 0)
        return err_set(err, ERR_IO,
                       "the command %s; want 0 (this machine goes away) or 1 (it "
                       "stays)",
                       text);
    *out = (struct notice){.source = "command", .seconds = command_seconds(r->word)};
    return 1;
}

int notice_command_ask(struct notice_command *c, int stop_fd, struct notice *out, struct err *err)
{
    struct command_run r;
    char text[64] = "does not end";
    int tag, status = 0, how;

    (void)minder_reap(&c->minder, &tag, text, &status);
    if (minder_n_running(&c->minder))
        return err_set(err, ERR_IO, "the command was killed, and does not end");
    if (command_begin(c, &r, stop_fd, err) < 0)
        return err->code;
    const enum command_end end = command_await(c, &r);
    if (end == COMMAND_ENDED && r.at[AT_OUTPUT].fd >= 0)
        take_output(&r);
    how = end_group(c, text, &status);
    for (int i = AT_OUTPUT; i < N_AT; i++)
        if (r.at[i].fd >= 0)
            close(r.at[i].fd);
    if (end == COMMAND_STOPPED)
        return 0;
    if (end == COMMAND_LATE)
        return err_set(err, ERR_IO, "the command ran for longer than %g s, and was killed",
                       1e-3 * c->limit_ms);
    return command_result(&r, how, status, text, out, err);
}

/* A process that hangs in the system is left to it. */
void notice_command_fini(struct notice_command *c)
{
    free(c->minder.child);
    c->minder = (struct minder){0};
}
