/* confusion - a judge of this rank's part.
 * Logits and targets are those in the program's memory, which may be a device's. */
#include "judge/confusion.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "judge/judge.h"
#include "tensor/half.h"

struct confusion {
    const struct outputs *of;
    struct judge *judge;
    int64_t n_outputs; /* of a sample */
    enum dtype dtype;  /* of the logits, as layers compute them */
    char *logits;      /* a batch's, of dtype */
    float *rows;       /* the same as floats */
    int32_t *targets;  /* a batch's */
};

static int confusion_alloc(struct confusion *c, int64_t batch, struct err *err)
{
    const size_t n = (size_t)(batch * c->n_outputs);
    int rc = try_alloc((void **)&c->logits, n * dtype_size(c->dtype), "a batch's logits", err);

    if (rc == 0)
        rc = try_alloc((void **)&c->rows, n * sizeof *c->rows, "a batch's logits", err);
    if (rc == 0)
        rc = try_alloc((void **)&c->targets,
                       (size_t)batch * sample_field_bytes(outputs_target(c->of)),
                       "a batch's targets", err);
    return rc;
}

int confusion_begin(const struct outputs *o, struct confusion **out, struct err *err)
{
    struct confusion *c;
    int rc;

    *out = NULL;
    if (!o->job->report.tensorboard || o->set->has_no_labels || !judge_has_matrix(o))
        return 0;
    if (!judge_can_count(o, shape_elements(&o->row)))
        return 0;
    c = xcalloc(1, sizeof *c);
    c->of = o;
    c->n_outputs = shape_elements(&o->row);
    c->dtype = programs_precision(o->job, 0).compute;
    c->judge = judge_new(o, c->n_outputs);
    rc = confusion_alloc(c, programs_validation_batch(o->step->programs), err);
    if (rc < 0) {
        confusion_free(c);
        return err_wrap(err, "report.tensorboard");
    }
    *out = c;
    return 0;
}

int confusion_batch(struct confusion *c, struct program *program, struct err *err)
{
    const struct outputs *o = c->of;
    const int64_t n = program_batch(program);
    int rc = outputs_read(o, program, n, c->n_outputs, c->logits, err);

    if (rc == 0)
        rc = backend_copy_out(o->step->backend, c->targets,
                              program_input(program, sample_target(o->spec)),
                              (size_t)n * sample_field_bytes(outputs_target(o)), err);
    if (rc < 0)
        return rc;
    for (int64_t i = 0; i < n * c->n_outputs; i++)
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
