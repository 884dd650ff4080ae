/* Counts the open files that a driver needs, and compares them with the limit of the process.  A
 * driver needs a connection for each follower or for each relay, and the links between ranks
 * (coll/tcp.h). */
#include "driver/files.h"

#include <stdio.h>
#include <sys/resource.h>

#include "base/util.h"

enum {
    FILES_OWN = 32,         /* loop, log, data, checkpoints, libraries */
    FILES_PER_CPU_PEER = 2, /* a link on each channel with another rank (coll/tcp.h), */
    CPU_PEERS_MOST = 16,    /* of which a rank has so many: all, or neighbours (coll/sparse.h) */
};

static int64_t n_followers(const struct options *o, const struct job *job)
{
    return max_i64(o->n_ranks, job->cluster.max_ranks) - 1 + job->cluster.spares;
}

/* Followers that this process starts come each by a connection of its own. */
int64_t files_n_connections(const struct options *o, const struct job *job)
{
    const int64_t n = n_followers(o, job), n_here = o->places.n > 1 ? o->places.n - 1 : 0;

    return o->n_relays && !o->local ? min_i64(n, o->n_relays + n_here) : n;
}

static int64_t n_needed(const struct options *o, const struct job *job)
{
    int64_t n = n_followers(o, job);

    return FILES_OWN + files_n_connections(o, job) +
           FILES_PER_CPU_PEER * min_i64(n, CPU_PEERS_MOST);
}

static int64_t files_n_allowed(void)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur == RLIM_INFINITY)
        return INT64_MAX;
    return (int64_t)r.rlim_cur;
}

int files_check(const struct options *o, const struct job *job, struct err *err)
{
    int64_t need = n_needed(o, job), allowed = files_n_allowed();
    const int has_remedy = !o->local && !o->n_relays && n_followers(o, job) > 0;
    char who[64] = "this job needs";

    if (need <= allowed)
        return 0;
    if (n_followers(o, job) > 0)
        snprintf(who, sizeof who, "%lld followers%s need", (long long)n_followers(o, job),
                 o->n_relays ? " by relays" : "");
    return err_set(err, ERR_CONFIG,
                   "%s %lld open files here, and this process may have %lld: "
                   "raise its hard limit (ulimit -Hn; LimitNOFILE= in a systemd unit; nofile in "
                   "/etc/security/limits.conf)%s",
                   who, (long long)need, (long long)allowed,
                   has_remedy ? ", or let the followers of each machine share one connection: "
                                "dpfollower --ranks N --relay there, and --relays with the number "
                                "of machines here"
                              : "");
}

int files_for_strangers(const struct options *o, const struct job *job, int wanted)
{
    int64_t left = files_n_allowed() - n_needed(o, job);

    return (int)max_i64(1, min_i64(wanted, left));
}
