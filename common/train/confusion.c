/* confusion - a judge of this rank's part.
 * Logits and targets are those in the program's memory, which may be a device's. */
#include "train/confusion.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "tensor/half.h"
#include "train/judge.h"

struct confusion {
    struct trainer *t;
    struct judge *judge;
    int64_t n_outputs; /* of a sample */
    enum dtype dtype;  /* of the logits, as layers compute them */
    char *logits;      /* a batch's, of dtype */
    float *rows;       /* the same as floats */
    int32_t *targets;  /* a batch's */
};

static int confusion_alloc(struct confusion *c, int64_t batch, struct err *err)
{
    const struct sample_spec *spec = c->t->spec;
    const size_t n = (size_t)(batch * c->n_outputs);
    int rc = try_alloc((void **)&c->logits, n * dtype_size(c->dtype), "a batch's logits", err);

    if (rc == 0)
        rc = try_alloc((void **)&c->rows, n * sizeof *c->rows, "a batch's logits", err);
    if (rc == 0)
        rc = try_alloc((void **)&c->targets,
                       (size_t)batch * sample_field_bytes(&spec->field[sample_target(spec)]),
                       "a batch's targets", err);
    return rc;
}

int confusion_begin(struct trainer *t, struct confusion **out, struct err *err)
{
    struct confusion *c;
    int rc;

    *out = NULL;
    if (!t->job->report.tensorboard || t->valid_set->has_no_labels || !judge_has_matrix(t))
        return 0;
    if (!judge_can_count(t, shape_elements(&t->outputs)))
        return 0;
    c = xcalloc(1, sizeof *c);
    c->t = t;
    c->n_outputs = shape_elements(&t->outputs);
    c->dtype = programs_precision(t->job, 0).compute;
    c->judge = judge_new(t, c->n_outputs);
    rc = confusion_alloc(c, programs_validation_batch(t->step.programs), err);
    if (rc < 0) {
        confusion_free(c);
        return err_wrap(err, "report.tensorboard");
    }
    *out = c;
    return 0;
}

int confusion_batch(struct confusion *c, struct program *program, struct err *err)
{
    const struct trainer *t = c->t;
    const int64_t n = program_batch(program), n_logits = n * c->n_outputs;
    const int target = sample_target(t->spec);
    int rc = step_wait(&c->t->step, err);

    if (rc == 0)
        rc = backend_copy_out(t->backend, c->logits, program_logits(program),
                              dtype_size(c->dtype) * (size_t)n_logits, err);
    if (rc == 0)
        rc = backend_copy_out(t->backend, c->targets, program_input(program, target),
                              (size_t)n * sample_field_bytes(&t->spec->field[target]), err);
    if (rc < 0)
        return rc;
    for (int64_t i = 0; i < n_logits; i++)
        c->rows[i] = real_get(c->logits, c->dtype, i);
    judge_count(c->judge, c->rows, c->targets, n);
    return 0;
}

int confusion_end(struct confusion *c, char **figures, struct err *err)
{
    json_t *o;

    if (judge_sum(c->judge, err) < 0)
        return err->code;
    o = json_object();
    judge_tell(c->judge, o);
    *figures = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    return 0;
}

void confusion_free(struct confusion *c)
{
    if (!c)
        return;
    judge_free(c->judge);
    free(c->logits);
    free(c->rows);
    free(c->targets);
    free(c);
}
