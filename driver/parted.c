/* parted - trains shadows of both runs (driver/replay.h) up to the step at which their files
 * differ.  The rows of these steps tell the first one that differs, for which culprit.c looks.
 *
 * Failure modes: the steps of a run cannot be computed, because its data or its job's files are
 * gone; they are the same now, because what made the difference does not come back. */
#include "driver/parted.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/util.h"
#include "driver/culprit.h"
#include "driver/parting.h"
#include "driver/replay.h"
#include "report/hashes.h"

enum { SIDES = 2 };

struct parted_search {
    const struct parted *p;
    struct again a;
    struct series_table now[SIDES]; /* what computing again gave */
    struct parting parting;         /* of these */
};

static int parted_compute_side(struct parted_search *s, int side, struct err *err)
{
    const struct parted *p = s->p;
    const struct span_of_steps steps = {p->past, p->step};
    char *name = xasprintf("run-%d", side + 1), *folder = xasprintf("%s/%s", s->a.folder, name);
    int rc = replay_steps(p->options, p->run[side], steps, NULL, &s->a, name, err);

    if (rc == 0)
        rc = series_read(folder, &hashes_series, &s->now[side], err);
    again_drop(&s->a, name);
    free(folder);
    free(name);
    return rc < 0 ? err_wrap(err, "%s", p->run[side]) : 0;
}

static int parted_compute(struct parted_search *s, struct err *err)
{
    int rc = again_init(&s->a, s->p->options, NULL, NULL, err);

    for (int k = 0; k < SIDES && rc == 0; k++)
        rc = parted_compute_side(s, k, err);
    if (rc == 0)
        s->parting = parting_of_hashes(&s->now[0], &s->now[1], 0, INT64_MAX);
    return rc;
}

/* A run that is not what its own steps give now. */
static void parted_tell_run(const struct parted_search *s, int side)
{
    const struct series_table *was = s->p->hashes[side], *is = &s->now[side];
    const struct parting own = parting_of_hashes(was, is, 0, INT64_MAX);
    struct buf text = {0};

    if (own.step > 0) {
        parting_put(&text, &own, was, is);
        printf("             %s is not what its steps give now, first at step %lld, then and now: "
               "%s\n",
               s->p->run[side], (long long)own.step, buf_cstr(&text));
    }
    buf_fini(&text);
}

static void parted_tell_steps(const struct parted_search *s)
{
    const struct parting *p = &s->parting;

    if (p->step > 0)
        printf("replay       of both, up to step %lld: they part at step %lld\n",
               (long long)s->p->step, (long long)p->step);
    else
        printf("replay       of both, up to step %lld: they are the same; what made the difference "
               "does not come back,\n"
               "             such as a fault of a machine, or another processor or number of ranks "
               "or threads\n",
               (long long)s->p->step);
    for (int k = 0; k < SIDES; k++)
        parted_tell_run(s, k);
    fflush(stdout);
}

static int compute_culprit(void *arg, int side, const char *name, int64_t step,
                           const char *const *sets, struct err *err)
{
    struct parted_search *s = arg;
    const struct span_of_steps steps = {min_i64(s->p->past, step - 1), step};

    return replay_steps(s->p->options, s->p->run[side], steps, sets, &s->a, name, err);
}

static int parted_find(struct parted_search *s, struct err *err)
{
    const struct culprit c = {
        .again = &s->a, .mark = "first", .compute = compute_culprit, .arg = s};
    struct buf text = {0};
    const int rc = culprit_find(&c, s->parting.step, &text, err);

    if (rc == 0)
        printf("first        %s\n", buf_cstr(&text));
    buf_fini(&text);
    return rc;
}

int parted_tell(const struct parted *p)
{
    struct parted_search s = {.p = p};
    struct err err;
    int rc = parted_compute(&s, &err);

    if (rc == 0) {
        parted_tell_steps(&s);
        if (s.parting.step > 0)
            rc = parted_find(&s, &err);
    }
    if (rc == ERR_CANCELED)
        log_error("--compare: %s", err.msg);
    else if (rc < 0)
        printf("unknown      which tensor differs first: %s\n", err.msg);
    for (int k = 0; k < SIDES; k++)
        series_table_fini(&s.now[k]);
    again_fini(&s.a);
    return rc == ERR_CANCELED ? STATUS_STOPPED : STATUS_OK;
}
