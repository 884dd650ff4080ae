/* The children of --local and --ranks: their command lines, their restarts, and their end.
 * daemon/minder.c starts and reaps them. */
#include "driver/local.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "session/action.h"

/* ---- starting ---- */

/* The place of a child on this machine, or NULL.  With --ranks child i has the i-th place. */
static const struct place *local_place_of(const struct local *l, int number)
{
    const struct places *p = &l->options->places;

    return number >= 0 && number < p->n ? &p->place[number] : NULL;
}

/* Start child `number`, with that number as its rank.  is_any: for any rank, because another
 * follower may have that rank by now. */
static int start_one(struct local *l, int number, int is_any, struct err *err)
{
    const struct options *o = l->options;
    const struct place *place = local_place_of(l, number);
    struct minder_command c = {.n = 0};
    struct minder_order order = {.command = &c,
                                 .role = {MINDER_DRIVER, place ? number + 1 : 0},
                                 .place = place,
                                 .death_signal = SIGKILL};
    const char *device = place ? place->device : device_is_cuda(o->device) ? "cuda" : "cpu";
    char root[ADDR_MAX_HOST + 16];
    const struct minder_follower follower = {.program = l->program,
                                             .root = root,
                                             .device = device,
                                             .rank = is_any ? -1 : number,
                                             .n_threads = place ? place->n_threads
                                                                : (int)o->common.n_threads,
                                             .secret_fd = l->secret_fd};

    snprintf(root, sizeof root, strchr(l->host, ':') ? "[%s]:%d" : "%s:%d", l->host, l->port);
    minder_add_follower(&c, &o->common, &follower);
    minder_add(&c, "--once", NULL);
    return minder_start(&l->minder, &order, number, err) < 0
               ? err_wrap(err, "the follower of rank %d", number)
               : 0;
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
    const int n = o->local ? (int)o->n_ranks : o->places.n;
    int rc;

    *l = (struct local){0};
    l->secret_fd = secret_fd;
    rc = minder_find_follower(&l->program, err);
    if (rc < 0)
        return err_wrap(err, "--%s", o->local ? "local" : "ranks");
    l->options = o;
    l->host = xstrdup(host);
    l->port = port;
    for (int rank = 1; rank < n && rc == 0; rank++)
        rc = start_one(l, rank, 0, err);
    for (int i = 0; i < n_spares && rc == 0; i++)
        rc = start_one(l, -1, 1, err);
    return rc;
}

int local_restart(struct local *l, int number, struct err *err)
{
    int64_t now = clock_mono_ns(), *oldest = &l->restarted_ns[l->n_restarts % LOCAL_RESTARTS];

    if (l->n_restarts >= LOCAL_RESTARTS && now - *oldest < LOCAL_RESTARTS_MS * INT64_C(1000000))
        return err_set(err, ERR_REFUSED,
                       "%d local followers were replaced within %d s: no more of "
                       "them are started",
                       LOCAL_RESTARTS, LOCAL_RESTARTS_MS / 1000);
    *oldest = now;
    l->n_restarts++;
    return start_one(l, number, 1, err);
}

int local_doom(struct local *l, pid_t pid)
{
    for (int i = 0; i < l->minder.n; i++)
        if (pid > 0 && l->minder.child[i].pid == pid)
            return l->minder.child[i].is_doomed = 1;
    return 0;
}

void local_kill_doomed(struct local *l)
{
    for (int i = 0; i < l->minder.n; i++) {
        const struct minder_child *child = &l->minder.child[i];

        if (!child->pid || !child->is_doomed)
            continue;
        log_warn("the local follower with pid %ld, whose rank was lost, does not end: killed",
                 (long)child->pid);
        kill(child->pid, SIGKILL);
    }
}

/* ---- ending ---- */

int local_reap(struct local *l, int *number, char text[64], int *status)
{
    return minder_reap(&l->minder, number, text, status);
}

void local_kill(struct local *l)
{
    l->is_killed = 1;
    minder_signal(&l->minder, SIGKILL);
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
    for (int i = 0; i < l->minder.n; i++)
        if (l->minder.child[i].pid && !is_rank(last, l->minder.child[i].pid))
            kill(l->minder.child[i].pid, SIGTERM);
}

void local_end(struct local *l, int patience_ms)
{
    minder_end(&l->minder, patience_ms, l->is_killed);
    free(l->program);
    free(l->host);
    *l = (struct local){0};
}
