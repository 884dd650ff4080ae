/* pool - the threads, and the task whose parts they take one after another.
 *
 * A part takes a millisecond or so (a picture is decoded), so the lock that each part takes twice
 * costs nothing that could be measured. */
#include "data/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"

struct pool {
    pthread_t thread[POOL_MAX_THREADS];
    int n_threads; /* that are started: one fewer than the pool has */

    pthread_mutex_t lock; /* guards all that follows */
    pthread_cond_t more, done;
    void (*part)(void *arg, int64_t i);
    void *arg;
    int64_t n, next, n_done; /* parts; the next one to take; those that have returned */
    int quit;
};

/* Take parts until none is left.  Called with the lock held; releases it during each part. */
static void pool_work(struct pool *p)
{
    while (p->next < p->n) {
        const int64_t i = p->next++;

        pthread_mutex_unlock(&p->lock);
        p->part(p->arg, i);
        pthread_mutex_lock(&p->lock);
        if (++p->n_done == p->n)
            pthread_cond_signal(&p->done);
    }
}

static void *pool_run_thread(void *arg)
{
    struct pool *p = arg;

    pthread_mutex_lock(&p->lock);
    while (!p->quit) {
        pool_work(p);
        if (!p->quit)
            pthread_cond_wait(&p->more, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static int start_threads(struct pool *p, int n, struct err *err)
{
    sigset_t all, before;
    int rc = 0;

    sigfillset(&all); /* signals are for the main thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (rc == 0 && p->n_threads < n) {
        rc = pthread_create(&p->thread[p->n_threads], NULL, pool_run_thread, p);
        if (rc == 0)
            pthread_setname_np(p->thread[p->n_threads++], "worker");
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc ? err_sys(err, rc, "cannot start %d threads that work beside each other", n) : 0;
}

int pool_new(struct pool **out, int n_threads, struct err *err)
{
    struct pool *p = xcalloc(1, sizeof *p);

    ASSERT(n_threads >= 1 && n_threads <= POOL_MAX_THREADS);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->more, NULL);
    pthread_cond_init(&p->done, NULL);
    if (start_threads(p, n_threads - 1, err) < 0) {
        pool_free(p);
        return err->code;
    }
    *out = p;
    return 0;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->quit = 1;
    pthread_cond_broadcast(&p->more);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->n_threads; i++)
        pthread_join(p->thread[i], NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->more);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

void pool_run(struct pool *p, void (*part)(void *arg, int64_t i), void *arg, int64_t n)
{
    pthread_mutex_lock(&p->lock);
    p->part = part;
    p->arg = arg;
    p->n = n;
    p->next = p->n_done = 0;
    pthread_cond_broadcast(&p->more);
    pool_work(p);
    while (p->n_done < p->n)
        pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}
