/* judge - counts predictions by class, and sums errors of numbers in double precision.
 *
 * The total sum of squares of a target is made by Welford's rule, which does not cancel. */
#include "judge/judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "model/losses.h"

enum { BLOCK = 256, FEW = 8 }; /* samples that are read at once; FEW: with pictures */

/* Of all ranks together, in one collective, unless a row of each has more.  The ring of incidents
 * keeps few collectives, so a sum takes few. */
enum { SUM_BYTES = 16 << 20 };

enum judged_kind { JUDGED_CLASSES, JUDGED_LABELS, JUDGED_NUMBERS };

/* Of one class or label. */
struct tally {
    int64_t n, predicted, right; /* targets that have it, predictions of it, both */
};

/* Of one output that is a number. */
struct sums {
    int64_t n;
    double mean, spread;    /* of the targets; spread: sum of squares about the mean */
    double squares, errors; /* sums of (y - t)^2 and |y - t| */
};

struct judge {
    const struct outputs *of;
    enum judged_kind kind;
    int target;               /* the field */
    int64_t n_outputs;        /* of a sample */
    int64_t n_classes;        /* or labels, or numbers */
    int64_t n_predictions;    /* of a sample */
    struct tally *tally;      /* [n_classes] */
    struct sums *sums;        /* [n_classes], of JUDGED_NUMBERS */
    int64_t *matrix;          /* [n_classes, n_classes] by target, then prediction; or NULL */
    void *targets, *pictures; /* [BLOCK], [FEW] */
};

/* ---- life ---- */

static int predicts_next_token(const struct outputs *o)
{
    const struct sample_field *x = &o->spec->field[0];

    return sample_has_places(o->spec) && x->dtype == DTYPE_I32 &&
           x->n_classes == outputs_target(o)->n_classes;
}

/* 1: the outputs are logits of the target's classes, or numbers as the target's.  Those of a
 * network that computes its loss need not be. */
static int judge_fits(const struct outputs *o, int64_t n_outputs)
{
    const struct sample_field *f = outputs_target(o);
    const int64_t n = sample_n_predictions(o->spec);

    if (o->job->model.loss == LOSS_CONTRASTIVE)
        return 0;
    if (f->role != SAMPLE_CLASS) /* else nothing tells labels from numbers, nor how many */
        return !loss_is_free(o->job->model.loss);
    return n_outputs % n == 0 && n_outputs / n >= f->n_classes;
}

int judge_can(const struct outputs *o, int64_t n_outputs)
{
    return judge_fits(o, n_outputs) && outputs_target(o)->n_classes <= JUDGE_MOST_CLASSES &&
           !predicts_next_token(o);
}

int judge_has_matrix(const struct outputs *o)
{
    const struct sample_field *f = outputs_target(o);

    return !loss_is_free(o->job->model.loss) && f->role == SAMPLE_CLASS &&
           f->n_classes <= JUDGE_MOST_SHOWN && !predicts_next_token(o);
}

int judge_can_count(const struct outputs *o, int64_t n_outputs)
{
    return judge_has_matrix(o) && judge_can(o, n_outputs) &&
           n_outputs / sample_n_predictions(o->spec) <= JUDGE_MOST_MATRIX;
}

struct judge *judge_new(const struct outputs *o, int64_t n_outputs)
{
    const struct sample_field *f = outputs_target(o);
    struct judge *j = xcalloc(1, sizeof *j);

    j->of = o;
    j->kind = f->role == SAMPLE_CLASS  ? JUDGED_CLASSES
              : outputs_are_numbers(o) ? JUDGED_NUMBERS
                                       : JUDGED_LABELS;
    j->target = sample_target(o->spec);
    j->n_outputs = n_outputs;
    j->n_predictions = j->kind == JUDGED_CLASSES ? sample_n_predictions(o->spec) : 1;
    j->n_classes = n_outputs / j->n_predictions;
    ASSERT(j->n_classes * j->n_predictions == n_outputs);
    if (j->kind == JUDGED_NUMBERS)
        j->sums = xcalloc((size_t)j->n_classes, sizeof *j->sums);
    else
        j->tally = xcalloc((size_t)j->n_classes, sizeof *j->tally);
    if (j->kind == JUDGED_CLASSES && j->n_classes <= JUDGE_MOST_MATRIX)
        j->matrix = xcalloc((size_t)(j->n_classes * j->n_classes), sizeof *j->matrix);
    return j;
}

void judge_free(struct judge *j)
{
    if (!j)
        return;
    free(j->tally);
    free(j->sums);
    free(j->matrix);
    free(j->targets);
    free(j->pictures);
    free(j);
}

/* ---- counting ---- */

int64_t judge_largest(const float *x, int64_t n)
{
    int64_t best = 0;

    for (int64_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

static void judge_take_classes(struct judge *j, const float *x, const int32_t *target, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t want = target[i], got = judge_largest(x + i * j->n_classes, j->n_classes);

        if (want < 0 || want >= j->n_classes) /* SAMPLE_IGNORED */
            continue;
        j->tally[want].n++;
        j->tally[got].predicted++;
        j->tally[want].right += got == want;
        if (j->matrix)
            j->matrix[want * j->n_classes + got]++;
    }
}

static void judge_take_labels(struct judge *j, const float *x, const float *target, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < j->n_classes; k++) {
            const int want = target[i * j->n_classes + k] > 0.5f, got = x[i * j->n_classes + k] > 0;

            j->tally[k].n += want;
            j->tally[k].predicted += got;
            j->tally[k].right += want && got;
        }
}

static void take_numbers(struct judge *j, const float *x, const float *target, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < j->n_classes; k++) {
            struct sums *s = &j->sums[k];
            const double want = (double)target[i * j->n_classes + k],
                         off = (double)x[i * j->n_classes + k] - want, from = want - s->mean;

            s->n++;
            s->mean += from / (double)s->n;
            s->spread += from * (want - s->mean);
            s->squares += off * off;
            s->errors += fabs(off);
        }
}

static int judge_alloc(struct judge *j, struct err *err)
{
    const struct sample_field *f = j->of->spec->field;
    const char *what = "the targets of predictions";
    int rc = try_alloc(&j->targets, BLOCK * sample_field_bytes(&f[j->target]), what, err);

    if (rc == 0 && j->of->set->leaves_out)
        rc = try_alloc(&j->pictures, FEW * sample_field_bytes(&f[0]), what, err);
    return rc;
}

/* Read the targets of n samples.  Where a sample that cannot be read is left out, only its picture
 * tells that it is one, so the pictures are read, too. */
static int read_targets(struct judge *j, int64_t first, int64_t n, struct err *err)
{
    const struct dataset *ds = j->of->set;
    void *to[SAMPLE_MAX_FIELDS] = {NULL};
    int64_t index[BLOCK];
    int rc = 0;

    if (!j->targets)
        rc = judge_alloc(j, err);
    for (int64_t i = 0; i < n; i++)
        index[i] = first + i;
    to[j->target] = j->targets;
    if (ds->leaves_out)
        to[0] = j->pictures;
    return rc == 0 ? dataset_gather(ds, index, n, to, err) : rc;
}

int judge_rows(struct judge *j, int64_t first, int64_t n, const float *x, struct err *err)
{
    const int64_t block = j->of->set->leaves_out ? FEW : BLOCK;

    for (int64_t at = 0; at < n; at += block) {
        const int64_t len = min_i64(n - at, block);
        const float *rows = x + at * j->n_outputs;

        if (read_targets(j, first + at, len, err) < 0)
            return err_wrap(err, "the targets of predictions");
        if (j->kind == JUDGED_CLASSES)
            judge_take_classes(j, rows, j->targets, len * j->n_predictions);
        else if (j->kind == JUDGED_LABELS)
            judge_take_labels(j, rows, j->targets, len);
        else
            take_numbers(j, rows, j->targets, len);
    }
    return 0;
}

/* ---- counts of all ranks ---- */

void judge_count(struct judge *j, const float *rows, const int32_t *targets, int64_t n)
{
    ASSERT(j->matrix); /* judge_can_count */
    judge_take_classes(j, rows, targets, n * j->n_predictions);
}

/* Each class' counts by the matrix. */
static void judge_tally(struct judge *j)
{
    const int64_t c = j->n_classes;

    memset(j->tally, 0, (size_t)c * sizeof *j->tally);
    for (int64_t at = 0; at < c * c; at++) {
        j->tally[at / c].n += j->matrix[at];
        j->tally[at % c].predicted += j->matrix[at];
        j->tally[at / c].right += at / c == at % c ? j->matrix[at] : 0;
    }
}

/* Replace n counts by their sums over all ranks.  all: memory of those of each rank. */
static int judge_sum_part(struct judge *j, int64_t *part, int64_t n, int64_t *all, struct err *err)
{
    struct stepper *step = j->of->step;
    const size_t n_bytes = (size_t)n * sizeof *part;

    if (step_allgather(step, PHASE_VALIDATE, part, n_bytes, all, err) < 0)
        return err_wrap(err, "adding up the confusions");
    memset(part, 0, n_bytes);
    for (int64_t k = 0; k < coll_size(step->coll); k++)
        for (int64_t i = 0; i < n; i++)
            part[i] += all[k * n + i];
    return 0;
}

int judge_sum(struct judge *j, struct err *err)
{
    const int64_t n = j->n_classes * j->n_classes, n_ranks = coll_size(j->of->step->coll);
    const int64_t most = max_i64(SUM_BYTES / n_ranks / (int64_t)sizeof *j->matrix, j->n_classes);
    const int64_t piece = min_i64(n, most);
    int64_t *all;
    int rc = try_alloc((void **)&all, (size_t)(piece * n_ranks) * sizeof *all,
                       "all ranks' confusions", err);

    for (int64_t at = 0; at < n && rc == 0; at += piece)
        rc = judge_sum_part(j, j->matrix + at, min_i64(piece, n - at), all, err);
    free(all);
    judge_tally(j);
    return rc;
}

/* ---- telling ---- */

static json_t *judge_ratio(double of, double by)
{
    return by > 0 && isfinite(of / by) ? json_real(of / by) : json_null();
}

static json_t *judge_name_of(const struct judge *j, int64_t k)
{
    const char *name = outputs_class_name(j->of, k);
    json_t *text = name ? json_string(name) : NULL; /* NULL, too, of bytes that are no UTF-8 */

    return text ? text : json_integer(k);
}

static json_t *tell_tally(const struct judge *j, const char *what, int64_t k)
{
    const struct tally *c = &j->tally[k];
    json_t *o = json_object();

    json_object_set_new(o, what, judge_name_of(j, k));
    json_object_set_new(o, "count", json_integer(c->n));
    json_object_set_new(o, "predicted", json_integer(c->predicted));
    json_object_set_new(o, "correct", json_integer(c->right));
    json_object_set_new(o, "precision", judge_ratio((double)c->right, (double)c->predicted));
    json_object_set_new(o, "recall", judge_ratio((double)c->right, (double)c->n));
    json_object_set_new(o, "f1", judge_ratio(2 * (double)c->right, (double)(c->n + c->predicted)));
    return o;
}

static json_t *tell_matrix(const struct judge *j)
{
    json_t *rows = json_array();

    for (int64_t i = 0; i < j->n_classes; i++) {
        json_t *row = json_array();

        for (int64_t k = 0; k < j->n_classes; k++)
            json_array_append_new(row, json_integer(j->matrix[i * j->n_classes + k]));
        json_array_append_new(rows, row);
    }
    return rows;
}

/* Largest first; of equal ones the one that comes first in the matrix. */
static json_t *tell_pairs(const struct judge *j)
{
    const int64_t c = j->n_classes;
    int64_t pair[JUDGE_MOST_PAIRS], n = 0;
    json_t *list = json_array();

    for (int64_t at = 0; at < c * c; at++) {
        int64_t k;

        if (at / c == at % c || j->matrix[at] == 0)
            continue;
        for (k = n; k > 0 && j->matrix[pair[k - 1]] < j->matrix[at]; k--)
            if (k < JUDGE_MOST_PAIRS)
                pair[k] = pair[k - 1];
        if (k < JUDGE_MOST_PAIRS)
            pair[k] = at;
        n = min_i64(n + 1, JUDGE_MOST_PAIRS);
    }
    for (int64_t k = 0; k < n; k++)
        json_array_append_new(list,
                              json_pack("{s:o, s:o, s:I}", "class", judge_name_of(j, pair[k] / c),
                                        "predicted", judge_name_of(j, pair[k] % c), "count",
                                        (json_int_t)j->matrix[pair[k]]));
    return list;
}

/* Targets that are all alike leave R2 undefined; scikit-learn then says 1 without any error, else
 * 0. */
static double r2_of(const struct sums *s)
{
    if (s->n < 2)
        return (double)NAN;
    if (s->spread > 0)
        return 1 - s->squares / s->spread;
    return s->squares > 0 ? 0 : 1;
}

static json_t *judge_number(double v) { return isfinite(v) ? json_real(v) : json_null(); }

/* The units of the data in one unit of the learnt numbers.  Errors are summed in learnt numbers,
 * because targets about a large mean (times, coordinates) are too coarse in float32. */
static double unit_of(const struct judge *j, int64_t k)
{
    const struct dataset_scale *s = &j->of->set->targets;

    return s->n ? s->std[k % s->n] : 1;
}

static void tell_numbers(const struct judge *j, json_t *to)
{
    double r2 = 0, errors = 0;
    json_t *list = json_array();

    for (int64_t k = 0; k < j->n_classes; k++) {
        const struct sums *s = &j->sums[k];
        const double off = s->errors * unit_of(j, k);
        json_t *o = json_object();

        json_object_set_new(o, "output", judge_name_of(j, k));
        json_object_set_new(o, "r2", judge_number(r2_of(s)));
        json_object_set_new(o, "mean_absolute_error", judge_ratio(off, (double)s->n));
        json_array_append_new(list, o);
        r2 += r2_of(s) / (double)j->n_classes;
        errors += off / (double)s->n / (double)j->n_classes;
    }
    json_object_set_new(to, "r2", judge_number(r2));
    json_object_set_new(to, "mean_absolute_error", judge_number(errors));
    json_object_set_new(to, "outputs", list);
}

void judge_tell(const struct judge *j, json_t *to)
{
    const char *what = j->kind == JUDGED_LABELS ? "label" : "class";
    json_t *list;

    if (j->kind == JUDGED_NUMBERS) {
        tell_numbers(j, to);
        return;
    }
    list = json_array();
    for (int64_t k = 0; k < j->n_classes; k++)
        json_array_append_new(list, tell_tally(j, what, k));
    json_object_set_new(to, j->kind == JUDGED_LABELS ? "labels" : "classes", list);
    if (j->matrix && j->n_classes <= JUDGE_MOST_SHOWN)
        json_object_set_new(to, "confusion", tell_matrix(j));
    else if (j->matrix)
        json_object_set_new(to, "confusions", tell_pairs(j));
}
