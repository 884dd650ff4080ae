/* outputs - what several files of this room ask of the outputs: the target, names, and the numbers
 * themselves. */
#include "judge/outputs.h"

const struct sample_field *outputs_target(const struct outputs *o)
{
    return &o->spec->field[sample_target(o->spec)];
}

const char *outputs_class_name(const struct outputs *o, int64_t k)
{
    return k < o->n_class_names ? o->class_name[k] : NULL;
}

int outputs_are_numbers(const struct outputs *o)
{
    const enum loss loss = o->job->model.loss;

    return (loss == LOSS_MSE || loss == LOSS_L1 || loss == LOSS_HUBER) &&
           outputs_target(o)->role == SAMPLE_REAL;
}

int outputs_read(const struct outputs *o, struct program *p, int64_t n, int64_t n_outputs, void *to,
                 struct err *err)
{
    const enum dtype dtype = programs_precision(o->job, 0).compute;
    const size_t n_bytes = dtype_size(dtype) * (size_t)(n * n_outputs);

    return step_wait(o->step, err) < 0
               ? err->code
               : backend_copy_out(o->step->backend, to, program_logits(p), n_bytes, err);
}
