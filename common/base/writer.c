/* writer - a mailbox of tasks and the thread that runs them.
 *
 * Tasks are counted when they are put and when they are done, so that a flush waits for those that
 * were put before it, and not for later ones. */
#include "base/writer.h"

#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/util.h"

/* A task's own memory, so that many small tasks are bounded, too. */
enum { TASK_COST = 256 };

/* A flood of lines, as when the ranks of a large job join, would wake the thread for each of them.
 * So once it has been woken FLOOD times, each time within PAUSE_NS, it pauses before it waits. */
enum { FLOOD = 16, PAUSE_NS = 1000000 };

struct writer {
    struct mailbox box;
    size_t most_bytes;
    pthread_t thread;
    int n_woken; /* the thread's: times in a row that it was woken so soon */
    struct task end;

    /* Guards what follows. */
    pthread_mutex_t lock;
    pthread_cond_t done;
    size_t n_bytes;        /* queued or under way */
    int64_t n_put, n_done; /* tasks */
    int64_t started_ns;    /* of the present task; 0 none */
    int has_ended;
};

static size_t writer_cost(const struct task *t) { return t->n_bytes + TASK_COST; }

static void begin_task(struct writer *w)
{
    pthread_mutex_lock(&w->lock);
    w->started_ns = clock_mono_ns();
    pthread_mutex_unlock(&w->lock);
}

static void end_task(struct writer *w, size_t n_bytes)
{
    pthread_mutex_lock(&w->lock);
    w->n_bytes -= n_bytes;
    w->n_done++;
    w->started_ns = 0;
    pthread_cond_broadcast(&w->done);
    pthread_mutex_unlock(&w->lock);
}

static struct task *next_task(struct writer *w)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    struct mail *m = mailbox_take(&w->box);
    int64_t since_ns;

    if (!m) {
        if (w->n_woken >= FLOOD)
            nanosleep(&pause, NULL);
        since_ns = clock_mono_ns();
        m = mailbox_wait(&w->box);
        w->n_woken = clock_mono_ns() - since_ns < PAUSE_NS ? w->n_woken + 1 : 0;
    }
    return container_of(m, struct task, mail);
}

static void *main_of_writer(void *arg)
{
    struct writer *w = arg;

    for (;;) {
        struct task *t = next_task(w);
        size_t n_bytes = writer_cost(t);

        if (t == &w->end)
            break;
        begin_task(w);
        t->run(t);
        end_task(w, n_bytes);
    }
    pthread_mutex_lock(&w->lock);
    w->has_ended = 1;
    pthread_cond_broadcast(&w->done);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void writer_fini(struct writer *w)
{
    mailbox_fini(&w->box, NULL); /* it is empty */
    pthread_cond_destroy(&w->done);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

int writer_new(size_t most_bytes, struct writer **out, struct err *err)
{
    struct writer *w = xcalloc(1, sizeof *w);
    int rc;

    w->most_bytes = most_bytes;
    mailbox_init(&w->box, NULL, NULL);
    pthread_mutex_init(&w->lock, NULL);
    cond_init(&w->done);
    rc = pthread_create(&w->thread, NULL, main_of_writer, w);
    if (rc != 0) {
        writer_fini(w);
        return err_sys(err, rc, "starting a thread that writes");
    }
    *out = w;
    return 0;
}

int writer_put(struct writer *w, struct task *t)
{
    int fits;

    if (!w) {
        t->run(t);
        return 0;
    }
    pthread_mutex_lock(&w->lock);
    fits = !w->n_bytes || w->n_bytes + writer_cost(t) <= w->most_bytes;
    if (fits) {
        w->n_bytes += writer_cost(t);
        w->n_put++;
        mailbox_put(&w->box, &t->mail); /* with the lock held: in the order of the numbers */
    }
    pthread_mutex_unlock(&w->lock);
    return fits ? 0 : WRITER_FULL;
}

static int64_t deadline_in(int64_t patience_ms) { return clock_mono_ns() + patience_ms * 1000000; }

int writer_flush(struct writer *w, int64_t patience_ms)
{
    const int64_t until_ns = deadline_in(patience_ms);
    int64_t last;
    int rc, is_late = 0;

    if (!w)
        return 0;
    pthread_mutex_lock(&w->lock);
    last = w->n_put;
    while (w->n_done < last && !is_late)
        is_late = cond_wait_until(&w->done, &w->lock, until_ns);
    rc = w->n_done < last ? WRITER_LATE : 0;
    pthread_mutex_unlock(&w->lock);
    return rc;
}

double writer_busy_s(struct writer *w)
{
    double s;

    if (!w)
        return 0;
    pthread_mutex_lock(&w->lock);
    s = w->started_ns ? clock_since_s(w->started_ns) : 0;
    pthread_mutex_unlock(&w->lock);
    return s;
}

int writer_is_behind(struct writer *w)
{
    int64_t n;

    if (!w)
        return 0;
    pthread_mutex_lock(&w->lock);
    n = w->n_put - w->n_done;
    pthread_mutex_unlock(&w->lock);
    return n > 1;
}

static int wait_end(struct writer *w, int64_t until_ns)
{
    int is_late = 0, has_ended;

    pthread_mutex_lock(&w->lock);
    while (!w->has_ended && !is_late)
        is_late = cond_wait_until(&w->done, &w->lock, until_ns);
    has_ended = w->has_ended;
    pthread_mutex_unlock(&w->lock);
    return has_ended;
}

int writer_free(struct writer *w, int64_t patience_ms)
{
    const int64_t until_ns = deadline_in(patience_ms);

    if (!w)
        return 0;
    mailbox_put(&w->box, &w->end.mail);
    if (!wait_end(w, until_ns))
        return WRITER_LATE;
    pthread_join(w->thread, NULL);
    writer_fini(w);
    return 0;
}
