/* Children: fork and exec in their own process group, tied to this thread's life.
 * pidfds tell when a child has ended, so that waiting needs no polling. */
#include "daemon/minder.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "daemon/descriptors.h"
#include "net/secret.h"

/* ---- the child's view ---- */

static const char role_name[] = "DPTRAIN_MINDER";
static const char lane_mark[] = ":relay"; /* behind the number */
static const char *const kinds[] = {[MINDER_NONE] = "none",
                                    [MINDER_DRIVER] = "driver",
                                    [MINDER_AGENT] = "agent",
                                    [MINDER_SSH] = "ssh"};

struct minder_role minder_role(void)
{
    struct minder_role role = {0};
    const char *text = getenv(role_name), *colon = text ? strchr(text, ':') : NULL;

    for (size_t i = 1; colon && i < ARRAY_LEN(kinds); i++)
        if (!strncmp(text, kinds[i], (size_t)(colon - text)))
            role = (struct minder_role){.kind = (enum minder_kind)i, .number = atoi(colon + 1)};
    return role;
}

int minder_take_lane(void)
{
    const char *text = getenv(role_name);
    int null, lane;

    if (!text || !strstr(text, lane_mark))
        return 0;
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    lane = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (null >= 0) {
        dup2(null, STDIN_FILENO);
        close(null);
    }
    return lane > 0 ? lane : 0;
}

/* ---- finding the program ---- */

/* The follower's places as seen from the folder of dpdriver: beside it (installed), the build
 * tree's, and libexec. */
static const char *const folders[] = {"dpfollower", "../follower/dpfollower",
                                      "../libexec/dptrain/dpfollower", "../libexec/dpfollower"};

int minder_find_follower(char **out, struct err *err)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash;

    if (n < 0)
        return err_sys(err, errno, "cannot find this program's folder: /proc/self/exe");
    self[n] = '\0';
    slash = strrchr(self, '/');
    *slash = '\0';
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        char *path = xasprintf("%s/%s", self, folders[i]);

        if (access(path, X_OK) == 0) {
            *out = path;
            return 0;
        }
        free(path);
    }
    return err_set(err, ERR_CONFIG,
                   "dpfollower is not in %s, nor in ../follower or ../libexec from there; install "
                   "it beside dpdriver",
                   self);
}

/* ---- the command line ---- */

void minder_add(struct minder_command *c, const char *option, const char *value)
{
    ASSERT(c->n + 3 < MINDER_MAX_ARGS);
    c->argv[c->n++] = option;
    if (value)
        c->argv[c->n++] = value;
    c->argv[c->n] = NULL;
}

void minder_add_follower(struct minder_command *c, const struct daemon_options *o,
                         const struct minder_follower *f)
{
    snprintf(c->rank, sizeof c->rank, f->rank < 0 ? "any" : "%d", f->rank);
    snprintf(c->threads, sizeof c->threads, "%d", f->n_threads);
    minder_add(c, f->program, NULL);
    if (f->root)
        minder_add(c, "--root", f->root);
    minder_add(c, "--rank", c->rank);
    minder_add(c, "--device", f->device);
    if (f->n_threads)
        minder_add(c, "--threads", c->threads);
    if (o->iface)
        minder_add(c, "--iface", o->iface);
    if (o->insecure)
        minder_add(c, "--insecure", NULL);
    if (o->test_shared_gpu)
        minder_add(c, "--test-shared-gpu", NULL);
    for (size_t i = 0; i < o->secret_files.n; i++)
        minder_add(c, "--secret-file", o->secret_files.item[i]);
    if (f->secret_fd >= 0) {
        secret_descriptor_path(f->secret_fd, c->secret);
        minder_add(c, "--secret-file", c->secret);
    }
    minder_add(c, "--log-format", o->log_format == LOG_JSON ? "json" : "text");
}

/* ---- starting ---- */

/* The environment of a child: this process's, but its role, and not what belongs to this process
 * alone at the service manager.  The array is the caller's to free; the texts are environ's. */
static char **child_environment(char *role)
{
    static const char *const own[] = {"NOTIFY_SOCKET=", "WATCHDOG_", "DPTRAIN_MINDER="};
    size_t n = 0, k = 0;
    char **out;

    while (environ[n])
        n++;
    out = xcalloc(n + 2, sizeof *out);
    for (size_t i = 0; i < n; i++) {
        int is_own = 0;

        for (size_t j = 0; j < ARRAY_LEN(own); j++)
            is_own |= !strncmp(environ[i], own[j], strlen(own[j]));
        if (!is_own)
            out[k++] = environ[i];
    }
    out[k] = role;
    return out;
}

/* Handlers of this process are not the child's: each signal that has one does again what it does by
 * default.  SIGPIPE does so, too. */
static void drop_handlers(void)
{
    struct sigaction is;

    for (int number = 1; number < NSIG; number++)
        if (sigaction(number, NULL, &is) == 0 && is.sa_handler != SIG_IGN)
            signal(number, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
}

/* In the child, between fork and exec, with all signals blocked: only calls that are safe there.
 * SIGUSR1 stays blocked: it asks a daemon for its state, and must not end one that has hardly
 * begun. */
static void child_main(const struct minder_order *o, char **env, pid_t group, pid_t parent)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC), input = o->lane ? o->lane : o->input_fd;
    sigset_t state;

    setpgid(0, group);
    prctl(PR_SET_PDEATHSIG, o->death_signal);
    if (getppid() != parent)
        _exit(STATUS_FAILED); /* it died before prctl asked for its signal */
    if (null >= 0) {
        dup2(input ? input : null, STDIN_FILENO);
        dup2(o->output_fd ? o->output_fd : null, STDOUT_FILENO);
    }
    descriptors_close_at_exec();
    for (int i = 0; i < o->command->n; i++)
        descriptors_keep_named(o->command->argv[i]);
    if (o->place && o->place->n_cpus)
        sched_setaffinity(0, sizeof o->place->cpus, &o->place->cpus);
    drop_handlers();
    sigemptyset(&state);
    sigaddset(&state, SIGUSR1);
    sigprocmask(SIG_SETMASK, &state, NULL);
    execve(o->command->argv[0], (char *const *)o->command->argv, env);
    _exit(STATUS_FAILED);
}

/* The record of a new child, in place of one that has ended where there is one. */
static struct minder_child *new_child(struct minder *m)
{
    for (int i = 0; i < m->n; i++)
        if (!m->child[i].pid)
            return &m->child[i];
    if (m->n == m->cap) {
        m->cap = m->cap ? 2 * m->cap : 8;
        m->child = xrealloc(m->child, (size_t)m->cap * sizeof *m->child);
    }
    return &m->child[m->n++];
}

/* Signals are blocked while the child is not yet itself.  A handler of this process would run in
 * the child otherwise: the child would not end, and libuv would report the signal to the parent. */
static pid_t fork_child(const struct minder_order *o, char **env, pid_t group)
{
    const pid_t parent = getpid();
    sigset_t all, before;
    pid_t pid;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid = fork();
    if (pid == 0)
        child_main(o, env, group, parent);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pid;
}

int minder_start(struct minder *m, const struct minder_order *o, int tag, struct err *err)
{
    char *role = xasprintf("%s=%s:%d%s", role_name, kinds[o->role.kind], o->role.number,
                           o->lane ? lane_mark : "");
    char **env = child_environment(role);
    pid_t group = minder_n_running(m) ? m->group : 0, pid = fork_child(o, env, group);
    const int cause = errno;

    free(env);
    free(role);
    if (pid < 0)
        return err_sys(err, cause, "cannot start another process");
    setpgid(pid, group); /* both do it: whoever comes first */
    m->group = group ? group : pid;
    *new_child(m) = (struct minder_child){.pid = pid, .tag = tag};
    return 0;
}

/* ---- ending ---- */

static int status_of_signal(int number)
{
    return number == SIGINT || number == SIGTERM || number == SIGHUP ? STATUS_STOPPED
                                                                     : STATUS_FAILED;
}

int minder_reap(struct minder *m, int *tag, char text[64], int *status)
{
    for (int i = 0; i < m->n; i++) {
        int w;

        if (!m->child[i].pid || waitpid(m->child[i].pid, &w, WNOHANG) != m->child[i].pid)
            continue;
        m->child[i].pid = 0;
        *tag = m->child[i].tag;
        *status = WIFEXITED(w) ? WEXITSTATUS(w) : status_of_signal(WTERMSIG(w));
        if (WIFEXITED(w))
            snprintf(text, 64, "exited with status %d", *status);
        else
            snprintf(text, 64, "was killed by SIG%s", sigabbrev_np(WTERMSIG(w)));
        return WIFEXITED(w) ? 1 : 2;
    }
    return 0;
}

int minder_n_running(const struct minder *m)
{
    int n = 0;

    for (int i = 0; i < m->n; i++)
        n += m->child[i].pid != 0;
    return n;
}

void minder_signal(const struct minder *m, int signal)
{
    for (int i = 0; i < m->n; i++)
        if (m->child[i].pid)
            kill(m->child[i].pid, signal);
}

void minder_signal_with(const struct minder *m, int signal, int value)
{
    for (int i = 0; i < m->n; i++)
        if (m->child[i].pid)
            sigqueue(m->child[i].pid, signal, (union sigval){.sival_int = value});
}

/* Wait until one more child has ended, or the time is up.  A pidfd is readable when its process has
 * ended. */
static void wait_for_end(struct minder *m, int64_t left_ms)
{
    for (int i = 0; i < m->n; i++) {
        struct pollfd p = {.fd = -1, .events = POLLIN};

        if (!m->child[i].pid)
            continue;
        p.fd = (int)syscall(SYS_pidfd_open, m->child[i].pid, 0);
        poll(&p, 1, p.fd < 0 ? 10 : (int)left_ms);
        if (p.fd >= 0)
            close(p.fd);
        return;
    }
}

static void reap_all(struct minder *m)
{
    char text[64];
    int tag, status;

    while (minder_reap(m, &tag, text, &status))
        ;
}

void minder_wait(struct minder *m, int patience_ms)
{
    int64_t start = clock_mono_ns();

    for (reap_all(m); minder_n_running(m) > 0; reap_all(m)) {
        int64_t left = patience_ms - (clock_mono_ns() - start) / 1000000;

        if (left <= 0)
            break;
        wait_for_end(m, left);
    }
}

void minder_end(struct minder *m, int patience_ms, int is_quiet)
{
    minder_wait(m, patience_ms);
    for (int i = 0; i < m->n; i++) {
        if (!m->child[i].pid)
            continue;
        if (!is_quiet)
            log_warn("the local follower with pid %ld does not end: killed", (long)m->child[i].pid);
        kill(m->child[i].pid, SIGKILL);
        waitpid(m->child[i].pid, NULL, 0);
    }
    free(m->child);
    *m = (struct minder){0};
}
