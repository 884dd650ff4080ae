/* The children of --local: fork and exec in their own process group, tied to this thread's life.
 * pidfds tell when a child has ended, so that waiting needs no polling. */
#include "driver/local.h"

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
#include "base/log.h"
#include "base/util.h"
#include "session/action.h"

enum { MAX_ARGS = 24 + 2 * TLS_MAX_SECRETS, MAX_NUMBER = 24 };

/* ---- finding the program ---- */

/* The follower's places as seen from the folder of dpdriver: beside it (installed), the build
 * tree's, and libexec. */
static const char *const places[] = {"dpfollower", "../follower/dpfollower",
                                     "../libexec/dptrain/dpfollower", "../libexec/dpfollower"};

static int find_follower(char **out, struct err *err)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash;

    if (n < 0)
        return err_sys(err, errno, "--local: cannot find this program's folder: /proc/self/exe");
    self[n] = '\0';
    slash = strrchr(self, '/');
    *slash = '\0';
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        char *path = xasprintf("%s/%s", self, places[i]);

        if (access(path, X_OK) == 0) {
            *out = path;
            return 0;
        }
        free(path);
    }
    return err_set(err, ERR_CONFIG,
                   "--local: dpfollower is not in %s, nor in ../follower or ../libexec from there; "
                   "install it beside dpdriver",
                   self);
}

/* ---- starting ---- */

struct command {
    const char *argv[MAX_ARGS];
    int n;
    char root[ADDR_MAX_HOST + 16], rank[MAX_NUMBER], threads[MAX_NUMBER], secret[SECRET_PATH];
    int secret_fd; /* kept open for the follower; -1: none */
};

static void add(struct command *c, const char *option, const char *value)
{
    ASSERT(c->n + 3 < MAX_ARGS);
    c->argv[c->n++] = option;
    if (value)
        c->argv[c->n++] = value;
}

static void command_init(struct command *c, const struct local *l, int rank)
{
    const struct options *o = l->options;
    const char *host = l->host;
    int port = l->port;

    memset(c, 0, sizeof *c);
    c->secret_fd = l->secret_fd;
    if (rank < 0)
        snprintf(c->rank, sizeof c->rank, "any");
    else
        snprintf(c->rank, sizeof c->rank, "%d", rank);
    snprintf(c->threads, sizeof c->threads, "%lld", (long long)o->common.n_threads);
    snprintf(c->root, sizeof c->root, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, port);
    add(c, l->program, NULL);
    add(c, "--root", c->root);
    add(c, "--rank", c->rank);
    add(c, "--once", NULL);
    add(c, "--device", device_is_cuda(o->device) ? "cuda" : "cpu");
    if (o->common.n_threads)
        add(c, "--threads", c->threads);
    if (o->common.iface)
        add(c, "--iface", o->common.iface);
    if (o->common.insecure)
        add(c, "--insecure", NULL);
    if (o->common.test_shared_gpu)
        add(c, "--test-shared-gpu", NULL);
    for (size_t i = 0; i < o->common.secret_files.n; i++)
        add(c, "--secret-file", o->common.secret_files.item[i]);
    if (c->secret_fd >= 0) {
        secret_descriptor_path(c->secret_fd, c->secret);
        add(c, "--secret-file", c->secret);
    }
    add(c, "--log-format", o->common.log_format == LOG_JSON ? "json" : "text");
}

/* In the child, between fork and exec: only calls that are safe there. */
static void child_main(const struct command *c, pid_t group, pid_t parent)
{
    int null = open("/dev/null", O_RDWR);

    setpgid(0, group);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(STATUS_FAILED); /* it died before prctl asked for its signal */
    if (null >= 0) {
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
    }
    if (c->secret_fd >= 0)
        fcntl(c->secret_fd, F_SETFD, 0);
    signal(SIGPIPE, SIG_DFL);
    execv(c->argv[0], (char *const *)c->argv);
    _exit(STATUS_FAILED);
}

static int start_one(struct local *l, int rank, const struct command *c, struct err *err)
{
    pid_t parent = getpid(), pid = fork();

    if (pid < 0)
        return err_sys(err, errno, "--local: cannot start the follower of rank %d", rank);
    if (pid == 0)
        child_main(c, l->group, parent);
    setpgid(pid, l->group); /* both do it: whoever comes first */
    if (!l->group)
        l->group = pid;
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 8;
        l->child = xrealloc(l->child, (size_t)l->cap * sizeof *l->child);
    }
    l->child[l->n++] = (struct local_child){.pid = pid, .rank = rank};
    return 0;
}

static int start_rank(struct local *l, int rank, struct err *err)
{
    struct command c;

    command_init(&c, l, rank);
    return start_one(l, rank, &c, err);
}

int local_check_gpus(const struct options *o, const struct job *job, struct err *err)
{
    const int64_t n_spares = job->cluster.spares, n = o->n_ranks + n_spares;
    const int n_gpus = devices_n_usable(&o->devices);
    char remedy[64] = "fewer cluster.spares";

    if (!o->local || !device_is_cuda(o->device) || n <= n_gpus || o->common.test_shared_gpu)
        return 0;
    if (n_gpus > n_spares)
        snprintf(remedy, sizeof remedy, "--nranks %lld", (long long)(n_gpus - n_spares));
    return err_set(err, ERR_ARG,
                   "--local: %lld processes (%lld by --nranks, %lld by cluster.spares) need a GPU "
                   "each, and %d can be used here; take %s, or --device cpu",
                   (long long)n, (long long)o->n_ranks, (long long)n_spares, n_gpus, remedy);
}

int local_start(struct local *l, const struct options *o, int n_spares, const char *host, int port,
                int secret_fd, struct err *err)
{
    int rc;

    memset(l, 0, sizeof *l);
    l->secret_fd = secret_fd;
    rc = find_follower(&l->program, err);
    if (rc < 0)
        return rc;
    l->options = o;
    l->host = xstrdup(host);
    l->port = port;
    for (int rank = 1; rank < o->n_ranks && rc == 0; rank++)
        rc = start_rank(l, rank, err);
    for (int i = 0; i < n_spares && rc == 0; i++)
        rc = start_rank(l, -1, err);
    return rc;
}

int local_restart(struct local *l, struct err *err)
{
    int64_t now = clock_mono_ns(), *oldest = &l->restarted_ns[l->n_restarts % LOCAL_RESTARTS];

    if (l->n_restarts >= LOCAL_RESTARTS && now - *oldest < LOCAL_RESTARTS_MS * INT64_C(1000000))
        return err_set(err, ERR_REFUSED,
                       "%d local followers were replaced within %d s: no more of "
                       "them are started",
                       LOCAL_RESTARTS, LOCAL_RESTARTS_MS / 1000);
    *oldest = now;
    l->n_restarts++;
    return start_rank(l, -1, err);
}

int local_doom(struct local *l, pid_t pid)
{
    for (int i = 0; i < l->n; i++)
        if (pid > 0 && l->child[i].pid == pid)
            return l->child[i].is_doomed = 1;
    return 0;
}

void local_kill_doomed(struct local *l)
{
    for (int i = 0; i < l->n; i++) {
        if (!l->child[i].pid || !l->child[i].is_doomed)
            continue;
        log_warn("the local follower with pid %ld, whose rank was lost, does not end: killed",
                 (long)l->child[i].pid);
        kill(l->child[i].pid, SIGKILL);
    }
}

/* ---- ending ---- */

int local_reap(struct local *l, int *rank, char text[64], int *status)
{
    for (int i = 0; i < l->n; i++) {
        int w;

        if (!l->child[i].pid || waitpid(l->child[i].pid, &w, WNOHANG) != l->child[i].pid)
            continue;
        l->child[i].pid = 0;
        *rank = l->child[i].rank;
        *status = WIFEXITED(w) ? WEXITSTATUS(w) : STATUS_FAILED;
        if (WIFEXITED(w))
            snprintf(text, 64, "exited with status %d", *status);
        else
            snprintf(text, 64, "was killed by SIG%s", sigabbrev_np(WTERMSIG(w)));
        return 1;
    }
    return 0;
}

static int n_running(struct local *l)
{
    char text[64];
    int rank, status, n = 0;

    while (local_reap(l, &rank, text, &status))
        ;
    for (int i = 0; i < l->n; i++)
        n += l->child[i].pid != 0;
    return n;
}

/* Wait until one more child has ended, or the time is up.  A pidfd is readable when its process has
 * ended. */
static void wait_for_end(struct local *l, int64_t left_ms)
{
    for (int i = 0; i < l->n; i++) {
        struct pollfd p = {.fd = -1, .events = POLLIN};

        if (!l->child[i].pid)
            continue;
        p.fd = (int)syscall(SYS_pidfd_open, l->child[i].pid, 0);
        poll(&p, 1, p.fd < 0 ? 10 : (int)left_ms);
        if (p.fd >= 0)
            close(p.fd);
        return;
    }
}

void local_kill(struct local *l)
{
    l->is_killed = 1;
    for (int i = 0; i < l->n; i++)
        if (l->child[i].pid)
            kill(l->child[i].pid, SIGKILL);
}

static int is_rank(const struct status *s, pid_t pid)
{
    for (int i = 0; i < s->n; i++)
        if (s->rank[i].is_here && s->rank[i].pid == pid)
            return 1;
    return 0;
}

void local_dismiss(struct local *l, const struct status *last)
{
    for (int i = 0; i < l->n; i++)
        if (l->child[i].pid && !is_rank(last, l->child[i].pid))
            kill(l->child[i].pid, SIGTERM);
}

void local_end(struct local *l, int patience_ms)
{
    int64_t start = clock_mono_ns();

    while (n_running(l) > 0) {
        int64_t left = patience_ms - (clock_mono_ns() - start) / 1000000;

        if (left <= 0)
            break;
        wait_for_end(l, left);
    }
    for (int i = 0; i < l->n; i++) {
        if (!l->child[i].pid)
            continue;
        if (!l->is_killed)
            log_warn("the local follower with pid %ld does not end: killed", (long)l->child[i].pid);
        kill(l->child[i].pid, SIGKILL);
        waitpid(l->child[i].pid, NULL, 0);
    }
    free(l->child);
    free(l->program);
    free(l->host);
    *l = (struct local){0};
}
