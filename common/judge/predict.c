/* predict - gathers logits on rank 0, which writes them.
 *
 * In each round every rank hands over one batch, in pieces of equal size. */
#include "judge/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/util.h"
#include "data/targets.h"
#include "judge/judge.h"
#include "judge/table.h"
#include "tensor/half.h"

enum {
    MOST_ROW_BYTES = 16 << 20,   /* of one sample */
    PIECES_BYTES = 64 << 20,     /* of all ranks together, in one collective */
    LEAST_PIECE_BYTES = 4 << 10, /* of one rank, however many there are */
};

struct predict {
    const struct outputs *of;
    int rank, n_ranks;
    int64_t batch;     /* samples of each rank in a round; fewer in the last round */
    int64_t unit;      /* as programs_validation_unit */
    int64_t n_outputs; /* of a sample */
    enum dtype dtype;  /* of the logits, as layers compute them */
    int64_t n_rounds, round;
    int64_t piece;     /* elements of each rank in one collective */
    char *logits;      /* [batch * n_outputs] of dtype: this round's */
    float *mine, *all; /* [piece], [n_ranks * piece] */
    int writes;
    struct rows_file *file; /* rank 0's, if it writes; borrowed */
    struct judge *judge;    /* rank 0's; NULL: the rows are not judged */
    struct predict_bad bad; /* rank 0's */
    char *table;            /* rank 0's path of the table; NULL: there is none */
};

/* ---- opening ---- */

/* The table beside `path` is not there yet. */
static int predict_check_table(const char *path, struct err *err)
{
    const size_t n = strlen(path);
    char *table = table_path(path);
    int rc = 0;

    if (n > 4 && !strcmp(path + n - 4, ".csv"))
        rc = err_set(err, ERR_CONFIG,
                     "%s is the name of a table, want OUT.npy for the outputs; the table is then "
                     "OUT.csv beside it",
                     path);
    else if (access(table, F_OK) == 0)
        rc =
            err_set(err, ERR_CONFIG, "%s is there already: remove it, or give another name", table);
    free(table);
    return rc;
}

int predict_open(const struct outputs *o, const char *path, struct rows_file **out, struct err *err)
{
    const int64_t n_bytes = (int64_t)sizeof(float) * shape_elements(&o->row);
    int rc;

    if (n_bytes > MOST_ROW_BYTES)
        return err_set(err, ERR_CONFIG,
                       "--predict: the logits of one sample have %lld MiB, %lld in all, want at "
                       "most %d MiB a sample: --evaluate tells the loss without writing them",
                       (long long)(n_bytes >> 20),
                       (long long)((n_bytes >> 10) * o->set->n_samples >> 10),
                       MOST_ROW_BYTES >> 20);
    rc = predict_check_table(path, err);
    if (rc == 0)
        rc = rows_file_new(path, out, err);
    return rc < 0 ? err_wrap(err, "--predict") : 0;
}

/* ---- rounds ---- */

static struct span predict_part_of(const struct predict *p, int rank)
{
    const struct span all = {0, p->of->set->n_samples};

    return span_piece(span_part_of_pieces(all, p->unit, p->n_ranks, rank), p->batch, p->round);
}

static int predict_alloc(struct predict *p, struct err *err)
{
    const size_t n = (size_t)(p->batch * p->n_outputs);
    const size_t piece = sizeof(float) * (size_t)p->piece;
    int rc = try_alloc((void **)&p->logits, n * dtype_size(p->dtype), "a batch's logits", err);

    if (rc == 0)
        rc = try_alloc((void **)&p->mine, piece, "logits to hand over", err);
    if (rc == 0)
        rc = try_alloc((void **)&p->all, piece * (size_t)p->n_ranks, "all ranks' logits", err);
    return rc;
}

static const char *predict_option_of(int writes) { return writes ? "--predict" : "--evaluate"; }

/* Whole rows go in one collective, if one of each rank fits: only whole ones can be judged. */
static void predict_divide(struct predict *p)
{
    const int64_t most =
        max_i64(PIECES_BYTES / p->n_ranks, LEAST_PIECE_BYTES) / (int64_t)sizeof(float);

    p->piece = min_i64(p->batch * p->n_outputs, most);
    if (p->piece >= p->n_outputs)
        p->piece = p->piece / p->n_outputs * p->n_outputs;
}

/* 1: rank 0 judges the rows; all ranks say the same. */
static int can_judge(const struct predict *p)
{
    return judge_can(p->of, p->n_outputs) && p->piece >= p->n_outputs;
}

/* Rank 0's part: the file, the table's path and the judge. */
static int begin_first(struct predict *p, struct err *err)
{
    if (p->rank != 0)
        return 0;
    if (can_judge(p) && !p->of->set->has_no_labels)
        p->judge = judge_new(p->of, p->n_outputs);
    if (!p->writes)
        return 0;
    if (table_can(p->of, p->n_outputs))
        p->table = table_path(rows_file_path(p->file));
    else if (p->of->job->model.loss == LOSS_CONTRASTIVE)
        log_info("--predict: there is no table beside %s: the %lld outputs of a sample are its "
                 "embedding (model.loss: contrastive), and a table is of classes or of values",
                 rows_file_path(p->file), (long long)p->n_outputs);
    else
        log_info("--predict: there is no table beside %s: a sample has %lld outputs, and a table "
                 "is of one class a sample, or of at most %d numbers",
                 rows_file_path(p->file), (long long)p->n_outputs, TABLE_MOST_COLUMNS);
    return rows_file_begin(p->file, p->of->set->n_samples, &p->of->row, err);
}

int predict_begin(const struct outputs *o, int writes, struct rows_file *file, struct predict **out,
                  struct err *err)
{
    struct predict *p = xcalloc(1, sizeof *p);
    const struct span all = {0, o->set->n_samples};
    const int n_ranks = coll_size(o->step->coll);
    const int64_t unit = programs_validation_unit(o->step->programs);
    const int64_t largest = span_part_of_pieces(all, unit, n_ranks, 0).n;
    int rc;

    p->of = o;
    p->rank = coll_rank(o->step->coll);
    p->n_ranks = n_ranks;
    p->file = file;
    p->bad.last = xcalloc((size_t)n_ranks, sizeof *p->bad.last);
    p->writes = writes;
    *out = NULL;
    p->unit = unit;
    p->batch = programs_validation_batch(o->step->programs);
    p->dtype = programs_precision(o->job, 0).compute;
    p->n_rounds = ceil_div_i64(largest, p->batch); /* rank 0's part is the largest */
    p->batch = min_i64(p->batch, largest);
    p->n_outputs = shape_elements(&o->row);
    predict_divide(p);
    if (!writes && !can_judge(p)) {
        predict_free(p);
        return 0;
    }
    rc = predict_alloc(p, err);
    if (rc == 0)
        rc = begin_first(p, err);
    if (rc < 0) {
        predict_free(p);
        return err_wrap(err, "%s", predict_option_of(writes));
    }
    *out = p;
    return 0;
}

/* One collective: gather n elements of every rank, from element `at` of its batch on. */
static int predict_gather(struct predict *p, int64_t at, int64_t n, struct err *err)
{
    const int64_t own = predict_part_of(p, p->rank).n * p->n_outputs;

    for (int64_t i = 0; i < n; i++)
        p->mine[i] = at + i < own ? real_get(p->logits, p->dtype, at + i) : 0;
    return step_allgather(p->of->step, PHASE_VALIDATE, p->mine, sizeof *p->mine * (size_t)n, p->all,
                          err);
}

static int judge_part(struct predict *p, int64_t at, const float *x, int64_t n, struct err *err)
{
    return p->judge ? judge_rows(p->judge, at / p->n_outputs, n / p->n_outputs, x, err) : 0;
}

void predict_note_bad(struct predict_bad *bad, int rank, int64_t n_outputs, int64_t at,
                      const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t sample = (at + i) / n_outputs;

        if (isfinite(x[i]) || bad->last[rank] == sample + 1)
            continue;
        bad->first = bad->n == 0 ? sample : min_i64(bad->first, sample);
        bad->last[rank] = sample + 1;
        bad->n++;
    }
}

/* Warn of them, and say whether numbers of the first sample are to blame. */
static int tell_nonfinite(struct predict *p, struct err *err)
{
    const struct dataset *ds = p->of->set;
    void *field[SAMPLE_MAX_FIELDS] = {NULL};
    char *text = NULL, *where, *all;
    int rc = dataset_alloc(ds, 1, field, "a sample read again", err);

    if (rc == 0)
        rc = dataset_gather(ds, &p->bad.first, 1, field, err);
    if (rc == 0)
        (void)dataset_find_nonfinite(ds, &p->bad.first, 1, field, &text);
    free(field[0]);
    if (rc < 0)
        return rc;
    where = text ? xstrdup(text) : dataset_place(ds, p->bad.first, 0);
    all =
        xasprintf("%s: the outputs of %lld of %lld samples are not finite; the first: %s%s",
                  predict_option_of(p->writes), (long long)p->bad.n, (long long)ds->n_samples,
                  where, text ? "; want finite numbers in the data" : ", whose numbers are finite");
    p->of->warn(p->of->arg, all);
    free(all);
    free(where);
    free(text);
    return 0;
}

/* Write and judge the elements [at, at + n) of each rank's round. */
static int predict_take_rows(struct predict *p, int64_t at, int64_t n, struct err *err)
{
    for (int k = 0; k < p->n_ranks; k++) {
        const struct span part = predict_part_of(p, k);
        const int64_t mine = min_i64(part.n * p->n_outputs - at, n);
        const int64_t to = part.first * p->n_outputs + at;

        if (mine <= 0)
            continue;
        if (judge_part(p, to, p->all + k * n, mine, err) < 0)
            return err->code;
        if (!p->writes)
            continue;
        predict_note_bad(&p->bad, k, p->n_outputs, to, p->all + k * n, mine);
        if (rows_file_put(p->file, to, p->all + k * n, mine, err) < 0)
            return err->code;
    }
    return 0;
}

/* Gather the round's rows of all ranks; this rank's are in p->logits.  No rank has more rows than
 * rank 0, so that number is enough for all. */
static int predict_run_round(struct predict *p, struct err *err)
{
    const int64_t most = predict_part_of(p, 0).n * p->n_outputs;
    int rc = 0;

    for (int64_t at = 0; at < most && rc == 0; at += p->piece) {
        const int64_t n = min_i64(p->piece, most - at);

        rc = predict_gather(p, at, n, err);
        if (rc == 0 && p->rank == 0)
            rc = predict_take_rows(p, at, n, err);
    }
    p->round++;
    return rc < 0 ? err_wrap(err, "%s", predict_option_of(p->writes)) : 0;
}

int predict_batch(struct predict *p, struct program *program, struct err *err)
{
    const int64_t n = predict_part_of(p, p->rank).n;
    const int rc = outputs_read(p->of, program, n, p->n_outputs, p->logits, err);

    return rc == 0 ? predict_run_round(p, err) : rc;
}

int predict_idle(struct predict *p, struct err *err) { return predict_run_round(p, err); }

/* The file gets the data's units last: the table has more digits than a float. */
static int undo_scale(struct predict *p, struct err *err)
{
    enum { BLOCK = 1 << 16 };
    const struct dataset *ds = p->of->set;
    const int64_t all = ds->targets.n ? ds->n_samples * p->n_outputs : 0;
    float *block;
    int rc = try_alloc((void **)&block, sizeof *block * BLOCK, "predictions", err);

    for (int64_t at = 0; at < all && rc == 0; at += BLOCK) {
        const int64_t n = min_i64(all - at, BLOCK);

        rc = rows_file_get(p->file, at, block, n, err);
        targets_undo(ds, at, block, rc == 0 ? n : 0);
        if (rc == 0)
            rc = rows_file_put(p->file, at, block, n, err);
    }
    free(block);
    return rc;
}

int predict_end(struct predict *p, struct err *err)
{
    int rc = 0;

    while (p->round < p->n_rounds && rc == 0)
        rc = predict_run_round(p, err);
    if (rc < 0 || p->rank != 0 || !p->writes)
        return rc;
    if (p->table)
        rc = table_write(p->of, p->table, p->file, p->n_outputs, err);
    if (rc == 0)
        rc = undo_scale(p, err);
    if (rc == 0 && p->bad.n > 0)
        rc = tell_nonfinite(p, err);
    if (rc == 0)
        rc = rows_file_end(p->file, err);
    return rc < 0 ? err_wrap(err, "--predict") : 0;
}

char *predict_figures(const struct predict *p)
{
    json_t *o = json_object();
    char *text;

    if (p->judge)
        judge_tell(p->judge, o);
    if (p->table)
        json_object_set_new(o, "predictions", json_string(p->table));
    text = json_object_size(o) > 0 ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    return text;
}

void predict_free(struct predict *p)
{
    if (!p)
        return;
    free(p->logits);
    free(p->mine);
    free(p->all);
    free(p->bad.last);
    judge_free(p->judge);
    free(p->table);
    free(p);
}
