/* sights - waits for each operator, copies its tensors to the host, and hashes them there.
 *
 * On the CPU a copy would not be needed.  It is made all the same, so that there is one way. */
#include "step/sights.h"

#include <jansson.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/util.h"
#include "step/step_impl.h"
#include "tensor/half.h"

int sights_is_due(const struct stepper *t, int64_t step)
{
    return t->job->report.operators == step + 1;
}

void sights_open(struct stepper *t)
{
    if (!sights_is_due(t, t->queued->step))
        return;
    buf_clear(&t->sights.lines);
    buf_clear(&t->sights.values);
}

/* With fixed shares each micro-batch begins its sums anew.  Elsewhere gradients are those of the
 * rank's micro-batches so far, so the micro-batch's number says what they are of. */
void sights_begin(struct stepper *t, const struct batch *b)
{
    t->sights.samples = (struct span){b->first, b->n};
    t->sights.micro = t->sampler->n_shares > 0 ? 0 : b->micro;
    t->sights.number = 0;
}

void sights_fini(struct sights *l)
{
    buf_fini(&l->lines);
    buf_fini(&l->values);
    free(l->copy);
    *l = (struct sights){.number = 0};
}

/* ---- a tensor ---- */

/* Bring the tensor to l->copy. */
static int sights_fetch(struct stepper *t, const struct program_sight *s, struct err *err)
{
    struct sights *l = &t->sights;
    int rc = 0;

    l->n_bytes = dtype_size(s->value->dtype) * (size_t)shape_elements(&s->value->shape);
    if (l->room < l->n_bytes)
        rc = try_realloc(&l->copy, l->n_bytes, "a copy of an operator's tensor", err);
    if (rc == 0)
        l->room = l->n_bytes > l->room ? l->n_bytes : l->room;
    if (rc == 0 && backend_queues(t->backend))
        rc = step_wait(t, err);
    if (rc == 0 && l->n_bytes > 0)
        rc = backend_copy_out(t->backend, l->copy, s->at, l->n_bytes, err);
    return rc;
}

static void sights_list(struct sights *l, const struct program_sight *s)
{
    json_t *o = json_object(), *shape = json_array();
    char hash[HASH_TEXT_LEN], *text;

    for (int i = 0; i < s->value->shape.n; i++)
        json_array_append_new(shape, json_integer(s->value->shape.dim[i]));
    hash_to_text(hash_of(l->copy, l->n_bytes), hash);
    json_object_set_new(o, "first", json_integer(l->samples.first));
    json_object_set_new(o, "samples", json_integer(l->samples.n));
    json_object_set_new(o, "micro", json_integer(l->micro));
    json_object_set_new(o, "number", json_integer(l->number));
    json_object_set_new(o, "operator", json_string(s->node));
    json_object_set_new(o, "kind", json_string(s->op));
    json_object_set_new(o, "tensor", json_string(s->value->name));
    json_object_set_new(o, "given", json_boolean(s->is_given));
    json_object_set_new(o, "type", json_string(dtype_name(s->value->dtype)));
    json_object_set_new(o, "shape", shape);
    json_object_set_new(o, "hash", json_string(hash));
    text = json_dumps(o, JSON_COMPACT);
    buf_printf(&l->lines, "%s\n", text);
    free(text);
    json_decref(o);
}

static float sights_number(const void *from, enum dtype type, int64_t i)
{
    switch (type) {
    case DTYPE_F64:
        return (float)((const double *)from)[i];
    case DTYPE_I64:
        return (float)((const int64_t *)from)[i];
    case DTYPE_I32:
        return (float)((const int32_t *)from)[i];
    case DTYPE_I16:
        return (float)((const int16_t *)from)[i];
    case DTYPE_I8:
        return (float)((const int8_t *)from)[i];
    case DTYPE_U8:
    case DTYPE_BOOL:
        return (float)((const uint8_t *)from)[i];
    default:
        return real_get(from, type, i);
    }
}

/* Append the tensor's numbers to l->values. */
static int sights_keep(struct sights *l, const struct value *v, struct err *err)
{
    const int64_t n = shape_elements(&v->shape);
    float block[256];
    int rc = 0;

    for (int64_t at = 0; at < n && rc == 0; at += (int64_t)ARRAY_LEN(block)) {
        const int64_t n_now = min_i64(n - at, (int64_t)ARRAY_LEN(block));

        for (int64_t i = 0; i < n_now; i++)
            block[i] = sights_number(l->copy, v->dtype, at + i);
        rc = buf_try_append(&l->values, block, sizeof *block * (size_t)n_now,
                            "an operator's tensor", err);
    }
    return rc;
}

static int sights_look(void *arg, const struct program_sight *s, struct err *err)
{
    struct stepper *t = arg;
    struct sights *l = &t->sights;
    int rc = sights_fetch(t, s, err);

    l->number++;
    if (rc == 0)
        sights_list(l, s);
    if (rc == 0 && l->number == t->job->report.tensor)
        rc = sights_keep(l, s->value, err);
    return rc < 0 ? err_wrap(err, "report.operators: %s", s->node) : 0;
}

int sights_run_stage(struct stepper *t, struct program *p, int i, struct err *err)
{
    return t->sights.samples.n > 0 ? program_look_at_stage(p, i, sights_look, t, err)
                                   : program_run_stage(p, i, err);
}
