/* verify - each number of ranks trains in a process and a folder of its own, with a row of
 * hashes.csv for each step; then the rows are compared with those of the first number.  Where they
 * part, the steps up to there are computed once more, and tell their tensors.
 *
 * Failure modes: the job cannot be trained on one of the numbers, which that process says. */
#include "driver/verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/util.h"
#include "config/cluster.h"
#include "driver/again.h"
#include "driver/attested.h"
#include "driver/culprit.h"
#include "driver/parting.h"
#include "report/hashes.h"

enum { VERIFY_MOST = 16, VERIFY_STEPS = 10 };

/* Losses of the first steps differ by less than this part of them if only rounding differs. */
#define ROUNDING 1e-3

struct verified {
    int64_t n_ranks;
    struct series_table hashes;
};

struct verify {
    const struct options *options;
    struct verified of[VERIFY_MOST];
    int n;
    int64_t n_steps;
};

/* "1,2,4" */
static int verify_read_list(struct verify *v, struct err *err)
{
    const char *text = v->options->verify;
    char *end = (char *)text;

    for (const char *p = text; v->n < VERIFY_MOST; p = end + 1) {
        const long long n = *p >= '0' && *p <= '9' ? strtoll(p, &end, 10) : 0;

        if (n < 1 || n > CLUSTER_MAX_RANKS || (*end && *end != ','))
            break;
        v->of[v->n++].n_ranks = n;
        if (!*end)
            break;
    }
    if (v->n >= 2 && !*end)
        return 0;
    return err_set(err, ERR_ARG,
                   "--verify %s: want 2 to %d numbers of ranks, from 1 to %d, such as 1,2,4", text,
                   VERIFY_MOST, CLUSTER_MAX_RANKS);
}

/* Train `to` steps on so many ranks, in a->folder/NAME, with these settings (NULL at the end). */
static int verify_train(struct again *a, int64_t n_ranks, const char *name, int64_t to,
                        const char *const *sets, struct err *err)
{
    enum { MOST_SETS = 4, OTHERS = 8 };
    char *ranks = xasprintf("%lld", (long long)n_ranks), *why = NULL;
    char *end = xasprintf("train.stop_after=%lld", (long long)to);
    const char *more[OTHERS + 2 * MOST_SETS] = {"--nranks", ranks, "--port", "0", "--set", end};
    int n = 6, status = STATUS_OK, rc;

    for (; sets && *sets; sets++) {
        ASSERT(n + 4 <= (int)ARRAY_LEN(more));
        more[n++] = "--set";
        more[n++] = *sets;
    }
    if (n_ranks > 1)
        more[n++] = "--local";
    more[n] = NULL;
    rc = again_run(a, name, more, 0, &status, err);
    if (rc == 0 && status != STATUS_OK && status != STATUS_STOPPED)
        why = again_why(a, name);
    if (why)
        rc = err_set(err, ERR_CONFIG, "on %s rank%s: %s", ranks, n_ranks == 1 ? "" : "s", why);
    free(why);
    free(end);
    free(ranks);
    return rc;
}

static int verify_train_all(const struct verify *v, struct verified *one, struct again *a,
                            struct err *err)
{
    char *name = xasprintf("ranks-%lld", (long long)one->n_ranks);
    char *run_dir = xasprintf("%s/%s", a->folder, name);
    int rc = verify_train(a, one->n_ranks, name, v->n_steps, NULL, err);

    if (rc == 0)
        rc = series_read(run_dir, &hashes_series, &one->hashes, err);
    if (rc >= 0 && one->hashes.n_rows == 0)
        rc = err_set(err, ERR_CONFIG, "on %lld rank%s: it was stopped before a step was done",
                     (long long)one->n_ranks, one->n_ranks == 1 ? "" : "s");
    free(run_dir);
    free(name);
    return rc < 0 ? rc : 0;
}

/* ---- comparing ---- */

/* The largest difference of losses at a step, as a part of the loss; INFINITY if the samples
 * differ, or one loss is not finite. */
static double largest_difference(const struct series_table *a, const struct series_table *b)
{
    double most = 0;

    for (int64_t i = 0; i < a->n_rows && i < b->n_rows; i++) {
        const double x = strtod(series_field(a, i, HASHES_LOSS), NULL);
        const double y = strtod(series_field(b, i, HASHES_LOSS), NULL);
        const double d = fabs(x - y) / fmax(fabs(x), 1e-30);

        if (strcmp(series_field(a, i, HASHES_SAMPLES), series_field(b, i, HASHES_SAMPLES)) != 0 ||
            !(d < INFINITY))
            return INFINITY;
        most = fmax(most, d);
    }
    return most;
}

/* Print a line about what `one` is beside the first number of ranks; 1: it is the same, at least to
 * rounding. */
static int verify_tell(const struct verified *first, const struct verified *one)
{
    const struct series_table *a = &first->hashes, *b = &one->hashes;
    const struct parting p = parting_of_hashes(a, b, 0, INT64_MAX);
    const int64_t last = b->n_rows - 1;
    const double d = largest_difference(a, b);
    struct buf text = {0};

    if (one == first)
        buf_printf(&text, "the others are compared with these");
    else if (p.step == 0 && a->n_rows == b->n_rows)
        buf_printf(&text, *series_field(b, last, HASHES_STATE)
                              ? "the same bits"
                              : "the same losses; there is no state to compare");
    else if (p.step == 0)
        buf_printf(&text, "%lld steps, not %lld", (long long)b->n_rows, (long long)a->n_rows);
    else if (d <= ROUNDING)
        buf_printf(&text,
                   "the same to rounding: losses differ by up to %.1g of them, bits from "
                   "step %lld on",
                   d, (long long)p.step);
    else
        buf_printf(&text, "differs from step %lld on", (long long)p.step);
    printf("%5lld  %5lld  %-12s  %-16s  %s\n", (long long)one->n_ranks,
           (long long)series_step(b, last), series_field(b, last, HASHES_LOSS),
           series_field(b, last, HASHES_STATE), buf_cstr(&text));
    buf_fini(&text);
    return one == first || (a->n_rows == b->n_rows && (p.step == 0 || d <= ROUNDING));
}

static int verify_compare(const struct verify *v)
{
    int n_same = 0;

    printf("ranks  steps  last loss     state             beside %lld rank%s\n",
           (long long)v->of[0].n_ranks, v->of[0].n_ranks == 1 ? "" : "s");
    for (int i = 0; i < v->n; i++)
        n_same += verify_tell(&v->of[0], &v->of[i]);
    fflush(stdout);
    return n_same == v->n ? STATUS_OK : STATUS_FAILED;
}

/* ---- where they part ---- */

struct pair {
    struct again *again;
    int64_t n_ranks[2];
};

static int pair_compute(void *arg, int side, const char *name, int64_t step,
                        const char *const *sets, struct err *err)
{
    const struct pair *p = arg;

    return verify_train(p->again, p->n_ranks[side], name, step, sets, err);
}

/* Fails only if a signal ends it: the numbers of ranks are compared already. */
static int verify_search(const struct verify *v, const struct verified *one, struct again *a,
                         struct err *err)
{
    const struct verified *first = &v->of[0];
    const struct parting p = parting_of_hashes(&first->hashes, &one->hashes, 0, INT64_MAX);
    struct pair pair = {a, {first->n_ranks, one->n_ranks}};
    char *mark = xasprintf("part-%lld", (long long)one->n_ranks);
    const struct culprit c = {.again = a, .mark = mark, .compute = pair_compute, .arg = &pair};
    struct buf text = {0};
    int rc = 0;

    if (p.step > 0)
        rc = culprit_find(&c, p.step, &text, err);
    if (rc == 0 && p.step > 0)
        printf("%lld rank%s beside %lld: %s\n", (long long)one->n_ranks,
               one->n_ranks == 1 ? "" : "s", (long long)first->n_ranks, buf_cstr(&text));
    else if (rc < 0 && rc != ERR_CANCELED)
        printf("%lld rank%s beside %lld: the first tensor that differs in step %lld is not "
               "known: %s\n",
               (long long)one->n_ranks, one->n_ranks == 1 ? "" : "s", (long long)first->n_ranks,
               (long long)p.step, err->msg);
    buf_fini(&text);
    free(mark);
    return rc == ERR_CANCELED ? rc : 0;
}

static int verify_ranks(const struct options *o)
{
    struct verify v = {.options = o, .n_steps = o->step ? o->step : VERIFY_STEPS};
    struct again a = {.folder = NULL};
    struct err err;
    int status = STATUS_USAGE, rc = verify_read_list(&v, &err);

    if (rc == 0)
        rc = again_init(&a, o, o->run_dir, NULL, &err);
    for (int i = 0; i < v.n && rc == 0; i++) {
        log_info("training %lld steps on %lld rank%s", (long long)v.n_steps,
                 (long long)v.of[i].n_ranks, v.of[i].n_ranks == 1 ? "" : "s");
        rc = verify_train_all(&v, &v.of[i], &a, &err);
    }
    if (rc == 0)
        status = verify_compare(&v);
    for (int i = 1; i < v.n && rc == 0; i++)
        rc = verify_search(&v, &v.of[i], &a, &err);
    if (rc < 0)
        log_error("--verify: %s", err.msg);
    if (rc == ERR_CANCELED)
        status = STATUS_STOPPED;
    for (int i = 0; i < v.n; i++)
        series_table_fini(&v.of[i].hashes);
    again_fini(&a);
    return status;
}

/* Options of the one form are none of the other. */
int verify_run(const struct options *o)
{
    const int is_run = attested_is_run(o->verify);
    const char *foreign = is_run && o->job ? "job" : NULL;

    if (!is_run && args_has(&o->args, "seed"))
        foreign = "seed";
    else if (!is_run && o->key)
        foreign = "key";
    if (foreign) {
        log_error("--verify %s takes no --%s, which belongs to --verify %s", o->verify, foreign,
                  is_run ? "1,2,4" : "RUN");
        return STATUS_USAGE;
    }
    return is_run ? attested_run(o) : verify_ranks(o);
}
