/* faults - compares the points that a rank reaches with the faults on purpose that it was given,
 * and has each fault announced before it happens. */
#include "step/faults.h"

#include <semaphore.h>
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "base/util.h"

/* The longest wait for faults_announced.  The loop calls that as soon as it runs, which may take
 * seconds on a busy machine.  A loop that is being closed never calls it, and the engine must not
 * hang because of a fault. */
enum { ANNOUNCE_S = 10 };

struct faults {
    struct injection_list list;
    void (*announce)(void *arg, struct report *r);
    void *arg;
    sem_t announced; /* posted by the loop, or by an abort */
};

struct faults *faults_new(void (*announce)(void *arg, struct report *r), void *arg)
{
    struct faults *f = xcalloc(1, sizeof *f);

    f->announce = announce;
    f->arg = arg;
    sem_init(&f->announced, 0, 0);
    return f;
}

void faults_free(struct faults *f)
{
    if (!f)
        return;
    sem_destroy(&f->announced);
    free(f);
}

void faults_take(struct faults *f, const char *text, int rank)
{
    struct injection_list all = {.n = 0};
    struct err err;
    int rc = text ? inject_parse(text, &all, &err) : 0;

    ASSERT(rc == 0); /* it is the driver's own text, or was checked on arrival */
    f->list.n = 0;
    for (int i = 0; i < all.n; i++)
        if (all.item[i].rank == rank)
            f->list.item[f->list.n++] = all.item[i];
}

int faults_n(const struct faults *f) { return f ? f->list.n : 0; }

void faults_announced(struct faults *f) { sem_post(&f->announced); }

static void wait_announced(struct faults *f)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ANNOUNCE_S;
    sem_clockwait(&f->announced, CLOCK_MONOTONIC, &until);
}

void faults_happen(struct faults *f, struct injection *what, char *text)
{
    struct report *r = report_new(REPORT_INJECT, 0);

    what->is_spent = 1;
    r->inject.fault = *what;
    r->inject.text = text;
    while (sem_trywait(&f->announced) == 0)
        ; /* posted by an abort while nothing waited */
    f->announce(f->arg, r);
    wait_announced(f);
}

static void pause_ms(int64_t ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) != 0)
        ;
}

void faults_reach_any(struct faults *f, enum injection_point point, int64_t first, int64_t last)
{
    for (int i = 0; i < f->list.n; i++) {
        struct injection *what = &f->list.item[i];
        char text[INJECTION_SAY];

        if (inject_is_of_bucket(what) || !inject_is_due_since(what, point, first, last))
            continue;
        faults_happen(f, what, xstrdup(inject_say(what, text)));
        if (what->what == INJECTION_DELAY)
            pause_ms(what->amount);
    }
}

struct injection *faults_of_bucket(struct faults *f, enum injection_what kind,
                                   enum injection_how how, int64_t step, int64_t bucket)
{
    for (int i = 0; i < faults_n(f); i++) {
        struct injection *what = &f->list.item[i];

        if (what->what == kind && what->how == how && what->amount == bucket &&
            inject_is_due(what, INJECTION_AT_STEP, step))
            return what;
    }
    return NULL;
}

struct injection *faults_of_no_bucket(struct faults *f, int64_t step, int64_t n_buckets)
{
    for (int i = 0; i < faults_n(f); i++) {
        struct injection *what = &f->list.item[i];

        if (inject_is_of_bucket(what) && what->amount >= n_buckets &&
            inject_is_due(what, INJECTION_AT_STEP, step))
            return what;
    }
    return NULL;
}
