/* logits - writes our evaluation program's logits for a checkpoint, to be compared with PyTorch's.
 *
 *   logits JOB.yaml MODEL.safetensors OUT
 *
 * Takes the parameters by model.init: {name: file}, as a run would, and writes raw little-endian
 * arrays into the folder OUT: train.x, validation.x (F32 [N,H,W,C]), train.y, validation.y (I32),
 * validation.logits (F32 [N,classes]), and on standard output a line of JSON with the sizes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "train/trainer_impl.h"

/* ---- a trainer of one rank that reports nothing ---- */

static void no_report(void *arg, struct report *r) { (void)arg, report_free(r); }

static unsigned no_requests(void *arg) { return (void)arg, 0; }

static int never(void *arg) { return (void)arg, 0; }

static void nowhere(void *arg, enum phase phase, int64_t epoch, int64_t step, int64_t bucket)
{
    (void)arg, (void)phase, (void)epoch, (void)step, (void)bucket;
}

static const struct trainer_hooks hooks = {NULL, no_report, no_requests, never, nowhere};

/* The job with the model's file as its init: as text, like the driver's Welcome carries it. */
static int job_text(const char *path, const char *model, struct buf *out, struct err *err)
{
    char *sets[] = {xasprintf("model.init.name=file"), xasprintf("model.init.path=%s", model)};
    struct job *job = NULL;
    int rc = job_load(path, (const char *const *)sets, ARRAY_LEN(sets), &job, err);

    if (rc == 0)
        job_write(job, out);
    job_free(job);
    free(sets[0]);
    free(sets[1]);
    return rc;
}

static int open_trainer(struct trainer *t, const char *job, const char *model, struct err *err)
{
    struct cmd *c = cmd_new(CMD_OPEN, 1);
    struct report *r = report_new(REPORT_OPENED, 1);
    struct buf text = {0};
    int rc = job_text(job, model, &text, err);

    c->open.n_ranks = 1;
    c->open.job = blob_of(text.data, text.len);
    if (rc == 0)
        rc = trainer_open(t, c, r, err);
    if (rc == 0)
        rc = trainer_prepare(t, 0, 1, 1, 1, err);
    buf_fini(&text);
    report_free(r);
    cmd_free(c);
    return rc;
}

/* ---- the output files ---- */

static int write_array(const char *folder, const char *name, const void *data, size_t n_bytes,
                       struct err *err)
{
    char *path = xasprintf("%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    int is_ok = f && fwrite(data, 1, n_bytes, f) == n_bytes;

    if (f && fclose(f) != 0)
        is_ok = 0;
    if (!is_ok)
        err_set(err, ERR_IO, "%s: cannot write %zu bytes", path, n_bytes);
    free(path);
    return is_ok ? 0 : err->code;
}

struct samples {
    int64_t n, each; /* each: the number of values of one sample */
    float *x;
    int32_t *y;
};

static int gather_all(const struct dataset *ds, struct samples *s, struct err *err)
{
    int64_t *index;
    int rc;

    s->n = ds->n_samples;
    s->each = shape_elements(&ds->spec.field[0].shape);
    s->x = xcalloc((size_t)(s->n * s->each), sizeof *s->x);
    s->y = xcalloc((size_t)s->n, sizeof *s->y);
    index = xcalloc((size_t)s->n, sizeof *index);
    for (int64_t i = 0; i < s->n; i++)
        index[i] = i;
    rc = dataset_gather(ds, index, s->n, (void *[]){s->x, s->y}, err);
    free(index);
    return rc;
}

static int write_samples(const char *folder, const char *set, const struct samples *s,
                         struct err *err)
{
    char x[32], y[32];
    int rc;

    snprintf(x, sizeof x, "%s.x", set);
    snprintf(y, sizeof y, "%s.y", set);
    rc = write_array(folder, x, s->x, sizeof *s->x * (size_t)(s->n * s->each), err);
    return rc < 0 ? rc : write_array(folder, y, s->y, sizeof *s->y * (size_t)s->n, err);
}

/* Run samples [first, first+n) through the program that validation uses for n samples. */
static int evaluate(struct trainer *t, const struct samples *s, int64_t first, int64_t n,
                    float *logits, struct err *err)
{
    struct program *p = programs_find(t->step.programs, 0, n);
    int rc = 0;

    memcpy(program_input(p, 0), s->x + first * s->each, sizeof *s->x * (size_t)(n * s->each));
    memcpy(program_input(p, 1), s->y + first, sizeof *s->y * (size_t)n);
    for (int i = 0; i < program_n_stages(p) && rc == 0; i++)
        rc = program_run_stage(p, i, err);
    memcpy(logits, program_logits(p), sizeof *logits * (size_t)(n * t->spec->field[1].n_classes));
    return rc;
}

static int write_logits(struct trainer *t, const struct samples *s, const char *folder,
                        struct err *err)
{
    int64_t batch = programs_validation_batch(t->step.programs),
            classes = t->spec->field[1].n_classes;
    float *logits = xcalloc((size_t)(s->n * classes), sizeof *logits);
    int rc = 0;

    for (int64_t i = 0; i < s->n && rc == 0; i += batch)
        rc = evaluate(t, s, i, min_i64(batch, s->n - i), logits + i * classes, err);
    if (rc == 0)
        rc = write_array(folder, "validation.logits", logits,
                         sizeof *logits * (size_t)(s->n * classes), err);
    free(logits);
    return rc;
}

static int run(struct trainer *t, const char *folder, struct err *err)
{
    struct samples train = {0}, valid = {0};
    int rc;

    if (!t->valid_set)
        return err_set(err, ERR_ARG, "the job has no validation set");
    rc = gather_all(t->train_set, &train, err);
    if (rc == 0)
        rc = gather_all(t->valid_set, &valid, err);
    if (rc == 0)
        rc = write_samples(folder, "train", &train, err);
    if (rc == 0)
        rc = write_samples(folder, "validation", &valid, err);
    if (rc == 0)
        rc = write_logits(t, &valid, folder, err);
    if (rc == 0)
        printf("{\"train\": %lld, \"validation\": %lld, \"image\": [%lld, %lld, %lld], "
               "\"classes\": %lld}\n",
               (long long)train.n, (long long)valid.n, (long long)t->spec->field[0].shape.dim[0],
               (long long)t->spec->field[0].shape.dim[1], (long long)t->spec->field[0].shape.dim[2],
               (long long)t->spec->field[1].n_classes);
    free(train.x);
    free(train.y);
    free(valid.x);
    free(valid.y);
    return rc;
}

int main(int argc, char **argv)
{
    struct trainer_options options = {.n_threads = 1};
    struct trainer *t;
    struct err err;
    int rc;

    if (argc != 4) {
        fprintf(stderr, "usage: logits JOB.yaml MODEL.safetensors OUT\n");
        return 2;
    }
    t = trainer_new(&options, &hooks);
    rc = open_trainer(t, argv[1], argv[2], &err);
    if (rc == 0)
        rc = run(t, argv[3], &err);
    if (rc < 0)
        fprintf(stderr, "logits: %s\n", err.msg);
    trainer_free(t);
    return rc < 0 ? 1 : 0;
}
