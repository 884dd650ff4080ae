/* explain - finds out why a step was not applied.
 *
 * It runs the step's micro-batches once more, one by one, until an operator of this rank gives a
 * value that is not finite.  The parameters are still those of the step, because it was not
 * applied; except that on a device a round of strategy async may have changed them since, so that
 * no value is found.  Allocates memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "tensor/half.h"
#include "train/dump.h"
#include "train/trainer_impl.h"

/* Read the samples of one micro-batch into host memory, field[], to be freed by free(field[0]). */
static int read_samples(const struct trainer *t, const struct sampler_step *at, struct span part,
                        void **field, struct err *err)
{
    const struct dataset_draw draw = {t->sampler.seed, at->epoch};
    int64_t *index;
    int rc = dataset_alloc(t->train_set, part.n, field, "a batch read again", err);

    if (rc < 0)
        return rc;
    index = xcalloc((size_t)part.n + 1, sizeof *index);
    sampler_list(&t->sampler, at, part, index);
    rc = dataset_gather_drawn(t->train_set, &draw, index, part.n, field, err);
    free(index);
    return rc;
}

/* 1: a sample has a number that is not finite, and t->note names it. */
static int look_at_samples(struct trainer *t, const struct sampler_step *at, struct span part,
                           void *const *field)
{
    int64_t *index = xcalloc((size_t)part.n + 1, sizeof *index);
    char *text;
    int is_found;

    sampler_list(&t->sampler, at, part, index);
    is_found = dataset_find_nonfinite(t->train_set, index, part.n, field, &text);
    if (is_found) {
        snprintf(t->note, sizeof t->note, "%s; want finite numbers in the training data", text);
        t->is_of_input = 1;
        free(text);
    }
    free(index);
    return is_found;
}

/* 1: the reader may have stored numbers that are not finite.  Bytes and whole numbers are finite.
 */
static int may_be_nonfinite(const struct sample_spec *s)
{
    for (int f = 0; f < s->n_fields; f++)
        if (s->field[f].stored == DTYPE_F64 || dtype_is_real(s->field[f].stored))
            return 1;
    return 0;
}

int explain_validation(struct trainer *t, char **note, struct err *err)
{
    enum { BLOCK = 64 };
    const struct dataset *ds = t->valid_set;
    const struct span part =
        span_part_of_pieces((struct span){0, ds->n_samples},
                            programs_validation_unit(t->step.programs), t->n_ranks, t->rank);
    void *field[SAMPLE_MAX_FIELDS] = {NULL};
    int64_t index[BLOCK];
    char *text = NULL;
    int rc = 0;

    if (t->looked_at_validation || !may_be_nonfinite(&ds->spec))
        return 0;
    t->looked_at_validation = 1;
    rc = dataset_alloc(ds, BLOCK, field, "validation samples read again", err);
    for (int64_t at = 0; at < part.n && rc == 0 && !text; at += BLOCK) {
        const int64_t n = min_i64(part.n - at, BLOCK);

        if (t->hooks.canceled(t->hooks.arg)) {
            rc = err_set(err, ERR_CANCELED, "reading it again was canceled");
            break;
        }
        for (int64_t i = 0; i < n; i++)
            index[i] = part.first + at + i;
        rc = dataset_gather(ds, index, n, field, err);
        if (rc == 0)
            (void)dataset_find_nonfinite(ds, index, n, field, &text);
    }
    if (text)
        *note = xasprintf("%s; want finite numbers in the validation data", text);
    free(text);
    free(field[0]);
    return rc < 0 ? err_wrap(err, "validation") : 0;
}

static int explain_place(struct trainer *t, struct program *p, const struct sampler_step *at,
                         struct span part, void *const *field, struct err *err)
{
    const struct batch b = {.step = at->step, .first = part.first, .n_global = at->n};
    const struct sample_spec *spec = &t->train_set->spec;
    struct step_scalars scalars;
    int rc;

    step_scalars(&t->step, &b, &scalars);
    rc = backend_copy_in(t->backend, &t->step.buffers->numbers->scalars, &scalars,
                         STEP_SCALARS_SENT, err);
    for (int i = 0; rc == 0 && i < spec->n_fields; i++)
        rc = backend_copy_in(t->backend, program_input(p, i), field[i],
                             sample_field_bytes(&spec->field[i]) * (size_t)part.n, err);
    return rc;
}

/* Run one micro-batch again.  1: a value that is not finite was found, and t->note says where. */
static int look_at_micro(struct trainer *t, const struct sampler_step *at, int micro,
                         struct err *err)
{
    struct span part = sampler_micro(at, t->n_ranks, t->rank, (int)t->job->train.accumulate, micro);
    struct program *p = programs_find(t->step.programs, 1, part.n);
    void *field[SAMPLE_MAX_FIELDS] = {NULL};
    int rc = read_samples(t, at, part, field, err);

    if (rc == 0)
        rc = look_at_samples(t, at, part, field);
    if (rc == 0 && !t->layout->gathers) /* else no rank has the parameters to run it alone */
        rc = explain_place(t, p, at, part, field, err);
    if (rc == 0 && !t->layout->gathers)
        rc = program_find_nonfinite(p, t->note, sizeof t->note, err);
    free(field[0]);
    return rc;
}

/* The largest of some targets as they are learnt by model.loss: mse; 0: none are, or they cannot be
 * read. */
static double largest_target(const struct trainer *t)
{
    enum { MOST_LOOKED = 1024 };
    const struct dataset *ds = t->train_set;
    const int target = sample_target(&ds->spec);
    const int64_t n = min_i64(ds->n_samples, MOST_LOOKED),
                  each = shape_elements(&ds->spec.field[target].shape);
    void *to[SAMPLE_MAX_FIELDS] = {NULL}, *y;
    double most = 0;
    struct err err;

    if (!outputs_are_numbers(&t->outputs) || t->job->model.loss != LOSS_MSE ||
        try_alloc(&y, sizeof(float) * (size_t)each, "a target", &err) < 0)
        return 0;
    to[target] = y;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = dataset_spread(i, n, ds->n_samples);

        if (dataset_gather(ds, &at, 1, to, &err) < 0)
            break;
        for (int64_t k = 0; k < each; k++)
            most = isfinite(((float *)y)[k]) ? fmax(most, fabs((double)((float *)y)[k])) : most;
    }
    free(y);
    return most;
}

/* A warning of targets that are too large to be learnt as they are, for free(); NULL: they are
 * not. Ten thousand makes first losses of 1e8, and gradients that no usual rate is made for. */
static char *doubt_targets(const struct trainer *t)
{
    const double most = largest_target(t);
    const int is_scaled = t->train_set->targets.n > 0;

    if (!(most >= 1e4))
        return NULL;
    return xasprintf("targets are as large as %.3g%s, and model.loss mse is of their squares; want "
                     "%sdata.targets: {normalize: auto}",
                     most, is_scaled ? " when scaled" : "",
                     is_scaled ? "a larger data.targets.std, or " : "");
}

void explain_doubts(struct trainer *t)
{
    char *text = doubt_targets(t);

    job_doubt(t->job, t->total_steps, trainer_warn, t);
    if (text)
        trainer_warn(t, text);
    free(text);
    dump_doubt(t);
}

/* Append that to t->note, if there is room. */
static void note_targets(struct trainer *t)
{
    const size_t len = strlen(t->note);
    char *text = t->is_of_input ? NULL : doubt_targets(t);

    if (text && len + strlen(text) + 3 < sizeof t->note)
        snprintf(t->note + len, sizeof t->note - len, "; %s", text);
    free(text);
}

/* The parameter's name, and the number of its element in our layout. */
static void name_element(const struct layout *l, int64_t at, char *text, size_t cap)
{
    int i = 0;

    while (i + 1 < l->n_params && l->param[i + 1].offset <= at)
        i++;
    snprintf(text, cap, "%s element %lld", l->param[i].name, (long long)(at - l->param[i].offset));
}

/* 1: other ranks do not tell the same. */
static int tells_kept(const struct trainer *t)
{
    return t->rank == 0 || t->state->shards || reducer_promises(t->step.reducer)->updates_are_own;
}

void explain_kept(struct trainer *t, int64_t n, int64_t lowest)
{
    const int64_t step = t->state->at.step, epoch = step / t->steps_per_epoch + 1;
    const char *usual, *zero = job_zero_eps(t->job, &usual);
    char where[128], remedy[128];

    name_element(t->layout, lowest, where, sizeof where);
    if (zero)
        snprintf(remedy, sizeof remedy, "%s is 0, want more than 0, such as %s", zero, usual);
    else
        snprintf(remedy, sizeof remedy, "want a lower optimizer.lr, or train.clip_norm");
    snprintf(t->kept_note, sizeof t->kept_note,
             "the update of step %lld gave %lld parameter%s numbers that are not finite, first %s, "
             "which kept %s value%s: %s",
             (long long)step, (long long)n, n == 1 ? "" : "s", where, n == 1 ? "its" : "their",
             n == 1 ? "" : "s", remedy);
    if (t->kept_epoch != epoch && tells_kept(t))
        trainer_warn_at(t, step, t->kept_note);
    t->kept_epoch = epoch;
}

int explain_nonfinite(struct trainer *t, const struct step_result *result, struct err *err)
{
    const struct sampler_step at = sampler_at(&t->sampler, t->state->at.step);
    const int waits = t->layout->awaits_params && !t->layout->gathers;
    int rc = 0;

    if (t->kept_note[0] && !result->has_bad_losses) {
        const char *usual;

        snprintf(t->note, sizeof t->note, "%s", t->kept_note);
        t->is_of_input = job_zero_eps(t->job, &usual) != NULL;
    } else if (result->control.n_nonfinite == 0 && t->step.loss_scale > 0)
        snprintf(t->note, sizeof t->note,
                 "a gradient is not finite, though the loss scale is at loss_scale.min, %g; "
                 "precision bfloat16 has float32's range",
                 t->step.loss_scale);
    else if (result->control.n_nonfinite == 0)
        snprintf(t->note, sizeof t->note,
                 "a gradient is not finite after the all-reduce, though the losses are");
    else if (result->has_bad_grad && !result->has_bad_losses &&
             reducer_promises(t->step.reducer)->updates_are_own) /* no sum with other ranks' */
        snprintf(t->note, sizeof t->note,
                 "a gradient of this rank is not finite, though its losses are");
    if (!result->has_bad_losses) {
        note_targets(t);
        return 0;
    }
    for (int b = 0; b < t->layout->n_buckets && waits && rc == 0; b++)
        rc = reducer_gathered(t->step.reducer, b, err);
    for (int m = 0, n = step_n_micros(&t->step, &at); rc == 0 && m < n; m++)
        rc = look_at_micro(t, &at, m, err);
    if (rc == 0)
        snprintf(t->note, sizeof t->note, "%s",
                 t->layout->gathers ? "a loss of this rank is not finite"
                                    : "the loss is not finite");
    if (rc >= 0)
        note_targets(t);
    return rc < 0 ? rc : 0;
}
