/* The threads of a rank: those that compute, and those that decode pictures.  The
 * processors and the CPU quota say how many there are where the job and the options do not. */
#include "base/cores.h"
#include "base/log.h"
#include "base/util.h"
#include "train/trainer_impl.h"

enum { MOST_WORKERS = 16, THREADS_A_WORKER = 8 }; /* for trainer_n_workers */

static int n_of_host(const struct cores *c, int n_local)
{
    return (int)max_i64(c->n / (n_local > 0 ? n_local : 1), 1);
}

int trainer_n_threads(const struct trainer *t, int n_local, int n_container)
{
    struct cores c;

    if (t->shares.n > 0)
        return t->shares.n_threads;
    if (t->o.n_threads > 0)
        return t->o.n_threads;
    cores_read("", &c);
    return cores_limit(&c, n_of_host(&c, n_local), n_container);
}

int trainer_n_processors(void)
{
    struct cores c;

    cores_read("", &c);
    return cores_limit(&c, c.n, 1);
}

void trainer_say_quota(const struct trainer *t, int n_local)
{
    char why[CORES_TEXT];
    struct cores c;

    if (t->shares.n > 0 || t->o.n_threads > 0)
        return;
    cores_read("", &c);
    if (c.quota <= 0 || t->n_threads >= n_of_host(&c, n_local))
        return;
    cores_describe(&c, why);
    log_info("using %d thread%s, since %s; --threads says otherwise", t->n_threads,
             t->n_threads == 1 ? "" : "s", why);
}

/* On a CPU, computing takes far longer than decoding and needs the cores, so there are few of
 * them. */
int trainer_n_workers(const struct trainer *t)
{
    const int n = trainer_n_threads(t, 1, 1);

    return (int)(t->o.plugin ? min_i64(n, MOST_WORKERS) : ceil_div_i64(n, THREADS_A_WORKER));
}
