/* classes - the names of the classes that a run has: by its data, or by the job
 * (data.class_names), and the same by both; and what a checkpoint tells beside the tensors. */

#include "config/names.h"
#include "import/arch.h"
#include "job/adapters.h"
#include "job/pretrained.h"
#include "train/trainer_impl.h"

/* The number of outputs that the data's target asks for. */
static int64_t n_named(const struct dataset *ds)
{
    const struct sample_field *f = &ds->spec.field[sample_target(&ds->spec)];

    return f->role == SAMPLE_CLASS ? f->n_classes : shape_elements(&f->shape);
}

/* The classes have the names, in the order, by which the job numbers them (data.class_names): else
 * outputs would be taken for other classes than they were trained for. */
int trainer_check_classes(struct trainer *t, struct err *err)
{
    const int64_t n = n_named(t->train_set);
    const char *const *seen = t->train_set->class_names, **name;
    int n_names;
    int rc = names_read(t->job->data.class_names ? t->job->data.class_names : "[]", &t->job->arena,
                        &name, &n_names, err);

    if (rc == 0 && n_names > 0 && n_names != n)
        rc = err_set(err, ERR_CONFIG,
                     "data.class_names has %d names, the training data have %lld classes, want one "
                     "name each",
                     n_names, (long long)n);
    for (int k = 0; rc == 0 && seen && k < n_names; k++)
        if (!names_equal(seen[k], name[k]))
            rc = err_set(err, ERR_CONFIG,
                         "class %d of the training data is %s, the job's (data.class_names) is "
                         "%s; want the data that the job began with, or data.class_names left out "
                         "of a new job",
                         k, seen[k], name[k]);
    t->outputs.class_name = seen ? seen : name;
    t->outputs.n_class_names = seen ? n : n_names;
    return rc;
}

/* A copy of the text in the job's memory; NULL if it is empty.  Empties the text. */
static const char *classes_keep(struct trainer *t, struct buf *text)
{
    const char *copy = text->len ? arena_strdup(&t->job->arena, buf_cstr(text)) : NULL;

    buf_fini(text);
    return copy;
}

void trainer_describe(struct trainer *t)
{
    const int64_t n = n_named(t->train_set);
    struct buf names = {0}, config = {0}, adapters = {0};

    if (outputs_class_name(&t->outputs, 0))
        names_write(t->outputs.class_name, n, &names);
    if (t->job->model.base == BASE_FLOAT32) /* else the file beside it is no whole network */
        pretrained_write(t->job, n, &config);
    if (t->job->model.lora.rank > 0)
        adapters_write(&t->job->model.lora, t->state->layout, &adapters);
    t->state->class_names = classes_keep(t, &names);
    t->state->config = classes_keep(t, &config);
    t->state->adapter_config = classes_keep(t, &adapters);
    if (import_options_of(&t->job->model))
        t->state->network = import_options_of(&t->job->model)->network;
    if (t->job->train.on_spike == SPIKE_REWIND)
        t->state->plan = (struct ckpt_plan){.every_steps = t->job->checkpoint.every_steps,
                                            .every_epochs = t->job->checkpoint.every_epochs,
                                            .steps_per_epoch = t->steps_per_epoch};
}
