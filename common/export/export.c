/* The inputs, outputs and metadata around the nodes (export/emit.h).
 *
 * The graph is built twice, for two numbers of samples, so that extents which follow from the batch
 * are told from others. */
#include "export/export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "ckpt/file.h"
#include "export/emit.h"
#include "export/new_file.h"
#include "import/arch.h"
#include "import/inputs.h"
#include "import/lower.h"
#include "model/losses.h"

enum { EXPORT_BATCH = 2, COPY_PIECE = 1 << 20 };

/* The graphs of both batches, and their outputs. */
struct exported {
    const struct export_request *r;
    const struct import_network *network; /* NULL: one of our architectures */
    struct graph *g[2];
    int *output;          /* [n_outputs] values */
    int n_outputs, first; /* first: the place of the output that predictions are */
};

/* ---- building ---- */

/* The place of the output that the first loss takes. */
static int first_output(const struct exported *x, struct err *err)
{
    const struct import_network *n = x->network;
    struct losses losses;
    struct arena arena = {0};
    char room[32];
    int k = 0;

    if (losses_of(x->r->model, &arena, &losses, err) == 0 && losses.term[0].output)
        while (k < n->n_outputs &&
               strcmp(import_output_name(n, k, room), losses.term[0].output) != 0)
            k++;
    arena_fini(&arena);
    return k < n->n_outputs ? k : 0;
}

static int export_build(struct exported *x, struct err *err)
{
    struct sample_spec spec = x->r->data->spec;
    int rc = 0;

    if (sample_starts(&spec) >= 0) /* what is served is one document */
        spec.n_fields--;
    if (sample_answers(&spec) >= 0) /* or one text */
        spec = (struct sample_spec)SAMPLE_SEQUENCES(spec.field[0].shape.dim[1],
                                                    spec.field[0].n_classes);
    x->n_outputs = x->network ? x->network->n_outputs : 1;
    x->output = xcalloc((size_t)x->n_outputs + 1, sizeof *x->output);
    for (int i = 0; i < 2 && rc == 0; i++) {
        if (x->network)
            rc = import_build_outputs(x->r->model, &spec, EXPORT_BATCH + i, x->output, &x->g[i],
                                      err);
        else
            rc = model_build(x->r->model, &spec, EXPORT_BATCH + i, 0, 0, &x->g[i], err);
    }
    if (rc == 0 && x->network)
        rc = import_same_but_batch(x->g[0], x->g[1], err);
    if (rc == 0 && !x->network)
        x->output[0] = x->g[0]->logits;
    if (rc == 0 && x->network)
        x->first = first_output(x, err);
    return rc;
}

/* ---- inputs ---- */

/* 1: an imported network has an input of this name. */
static int is_input(const struct import_network *n, const char *name)
{
    for (int i = 0; n && i < n->n_inputs; i++)
        if (!strcmp(n->input[i].name, name))
            return 1;
    return 0;
}

/* A name of an input or output that no parameter has, and no input of `taken`, which may be NULL.
 */
static const char *port_name(struct emit *e, const struct import_network *taken, const char *name)
{
    while (graph_find(e->g, name) || is_input(taken, name))
        name = arena_printf(&e->o->arena, "%s_", name);
    return name;
}

/* A type of the module's input: real numbers are FLOAT, whatever their size. */
static enum onnx_type port_type(enum import_type t)
{
    return t <= IMPORT_BF16   ? ONNX_FLOAT
           : t == IMPORT_BOOL ? ONNX_BOOL
           : t == IMPORT_I64  ? ONNX_INT64
                              : ONNX_INT32;
}

/* Declare the input and let the graph's value be it.  The value's form is `form`; `n` is the number
 * of the input's dimensions, which may be one less: [N] for [N,1]. */
static void export_input(struct emit *e, int id, const char *name, enum onnx_type type,
                         enum form form, int n)
{
    const struct shape *s = emit_shape(e, id);
    struct emitted *v = &e->value[id];
    struct onnx_dim dim[SHAPE_MAX_DIMS];

    name = port_name(e, NULL, name);
    for (int d = 0; d < s->n; d++)
        dim[emit_at(form, d, s->n)] = d ? (struct onnx_dim){s->dim[d], 0} : (struct onnx_dim){0, 1};
    onnx_input(e->o, name, type, dim, n);
    if (!e->samples)
        e->samples = name;
    v->type = type == ONNX_FLOAT ? ONNX_FLOAT : ONNX_INT64;
    v->is_given = 1;
    if (type == ONNX_BOOL || type == ONNX_INT32)
        name = emit_cast_to(e, name, ONNX_INT64);
    if (n < s->n)
        name = emit_to_shape(e, name, (int64_t[]){-1, 1}, 2);
    v->name[form] = name;
    v->made = form;
}

/* Images of a network of our own are [N,C,H,W]. */
static void own_inputs(struct emit *e, const struct sample_spec *spec)
{
    for (int i = 0; i < spec->n_fields; i++) {
        const struct sample_field *f = &spec->field[i];
        const int is_whole = f->dtype == DTYPE_I32;

        if (f->role == SAMPLE_INPUT)
            export_input(e, e->g->input[i], is_whole ? "input_ids" : "input",
                         is_whole ? ONNX_INT64 : ONNX_FLOAT,
                         f->shape.n == 3 ? FORM_FIRST : FORM_PLAIN, f->shape.n + 1);
    }
}

/* 1: the module's image [N,C,H,W] is a value [N,H,W,C]. */
static int is_image(const struct import_value *v, const struct shape *s)
{
    return v->n_dims == 4 && s->n == 4 && v->dim[1] == s->dim[3] && v->dim[2] == s->dim[1] &&
           v->dim[3] == s->dim[2];
}

static int import_inputs(struct emit *e, const struct exported *x)
{
    const struct import_network *n = x->network;
    int *field = xcalloc((size_t)n->n_inputs + 1, sizeof *field);
    int rc = import_inputs_find(import_options_of(x->r->model), &x->r->data->spec, field, e->err);

    for (int i = 0; i < n->n_inputs && rc == 0; i++) {
        const struct import_value *v = &n->value[max_i64(n->input[i].value, 0)];
        int id;

        if (field[i] < 0 || n->input[i].value == IMPORT_NO_VALUE)
            continue; /* no node reads it */
        id = e->g->input[field[i]];
        export_input(e, id, n->input[i].name, port_type(v->type),
                     is_image(v, emit_shape(e, id)) ? FORM_FIRST : FORM_PLAIN, v->n_dims);
    }
    free(field);
    return rc;
}

/* ---- outputs ---- */

/* y in the data's units: data.targets brought them to a mean of 0. */
static const char *in_units(struct emit *e, const struct dataset_scale *s, const char *y)
{
    float number[2][OPT_MAX_REALS];

    if (s->n == 0)
        return y;
    for (int i = 0; i < s->n; i++) {
        number[0][i] = (float)s->std[i];
        number[1][i] = (float)s->mean[i];
    }
    y = emit_2(e, "Mul", y, emit_floats(e, number[0], &SHAPE(s->n)));
    return emit_2(e, "Add", y, emit_floats(e, number[1], &SHAPE(s->n)));
}

/* Rows [N*T,..] become [N,T,..], as predictions are. */
static const char *as_samples(struct emit *e, const char *y, struct onnx_dim *dim, int *n)
{
    int64_t to[SHAPE_MAX_DIMS + 1] = {-1, dim[0].batches};

    for (int d = 1; d < *n; d++)
        to[d + 1] = dim[d].number;
    for (int d = *n; d > 1; d--)
        dim[d] = dim[d - 1];
    dim[0] = (struct onnx_dim){0, 1};
    dim[1] = (struct onnx_dim){to[1], 0};
    ++*n;
    return emit_to_shape(e, y, to, *n);
}

static void export_output(struct emit *e, const struct exported *x, int k, const char *name)
{
    const int id = x->output[k];
    const struct shape *s = emit_shape(e, id);
    struct onnx_dim dim[SHAPE_MAX_DIMS + 1];
    const char *y;
    int n = s->n;

    e->node = NULL;
    y = emit_get(e, id, FORM_PLAIN);
    for (int d = 0; d < n; d++)
        dim[d] = emit_growth(e, id, d) ? (struct onnx_dim){0, emit_growth(e, id, d)}
                                       : (struct onnx_dim){s->dim[d], 0};
    if (!x->network && dim[0].batches > 1 && n < SHAPE_MAX_DIMS)
        y = as_samples(e, y, dim, &n);
    if (k == x->first)
        y = in_units(e, &x->r->data->targets, y);
    if (e->value[id].type == ONNX_INT64)
        y = emit_cast_to(e, y, ONNX_FLOAT);
    name = port_name(e, x->network, name);
    onnx_node(e->o, "Identity", &y, 1, &name, 1);
    onnx_output(e->o, name, dim, n);
}

static void export_outputs(struct emit *e, const struct exported *x)
{
    const int is_tokens = !x->network && sample_has_places(&x->r->data->spec);
    char room[32];

    for (int k = 0; k < x->n_outputs; k++)
        if (!x->network)
            export_output(e, x, k, is_tokens ? "logits" : "output");
        else if (x->output[k] != NO_VALUE)
            export_output(e, x, k,
                          arena_strdup(&e->o->arena, import_output_name(x->network, k, room)));
}

/* ---- metadata ---- */

static void metadata_numbers(struct onnx *o, const char *key, const double *v, int n)
{
    struct buf text = {0};

    for (int i = 0; i < n; i++)
        buf_printf(&text, "%s%.9g", i ? ", " : "[", v[i]);
    buf_printf(&text, "]");
    if (n > 0)
        onnx_metadata(o, key, buf_cstr(&text));
    buf_fini(&text);
}

static void export_metadata(struct onnx *o, const struct export_request *r)
{
    const struct dataset_image *image = &r->data->image;
    const struct dataset_scale *targets = &r->data->targets;
    char step[24];

    snprintf(step, sizeof step, "%lld", (long long)r->step);
    onnx_metadata(o, "step", step);
    onnx_metadata(o, "model.arch", r->model->kind->group.name);
    if (r->class_names && strcmp(r->class_names, "[]") != 0)
        onnx_metadata(o, "class_names", r->class_names);
    if (r->data->spec.field[0].scale == SAMPLE_UNIT)
        onnx_metadata(o, "input.scale", "1/255");
    metadata_numbers(o, "input.mean", image->mean, image->n_channels);
    metadata_numbers(o, "input.std", image->std, image->n_channels);
    metadata_numbers(o, "target.mean", targets->mean, targets->n);
    metadata_numbers(o, "target.std", targets->std, targets->n);
}

/* ---- all of it ---- */

/* The values that are outputs, but for those that are no tensors. */
static int export_nodes(struct emit *e, const struct exported *x)
{
    int *value = xcalloc((size_t)x->n_outputs + 1, sizeof *value), n = 0, rc;

    for (int k = 0; k < x->n_outputs; k++)
        if (x->output[k] != NO_VALUE)
            value[n++] = x->output[k];
    rc = emit_graph(e, value, n);
    free(value);
    return rc;
}

static int export_emit(struct emit *e, const struct exported *x)
{
    int rc = 0;

    if (x->network)
        rc = import_inputs(e, x);
    else
        own_inputs(e, &x->r->data->spec);
    if (rc == 0)
        rc = export_nodes(e, x);
    if (rc == 0)
        export_outputs(e, x);
    return rc == 0 ? e->rc : rc;
}

int export_onnx(const struct export_request *r, const char *path, struct err *err)
{
    const struct import_options *import = import_options_of(r->model);
    struct exported x = {.r = r, .network = import ? import->network : NULL};
    struct onnx o;
    struct emit e = {.o = &o, .err = err};
    int rc = new_file_check(path, err);

    onnx_init(&o, r->weights);
    if (rc == 0)
        rc = export_build(&x, err);
    if (rc == 0) {
        e.g = x.g[0];
        e.other = x.g[1];
        e.value = xcalloc((size_t)e.g->n_values + 1, sizeof *e.value);
        export_metadata(&o, r);
        rc = export_emit(&e, &x);
    }
    if (rc == 0)
        rc = onnx_write(&o, path, ONNX_MOST_INLINE, err);
    free(e.value);
    free(x.output);
    graph_free(x.g[0]);
    graph_free(x.g[1]);
    onnx_fini(&o);
    return rc;
}

int export_state_dict(const char *weights, const char *path, struct err *err)
{
    char *piece = xmalloc(COPY_PIECE);
    struct new_file to;
    int64_t n_bytes = 0;
    int from = -1, rc = new_file_begin(&to, path, err);

    if (rc == 0)
        rc = file_open(weights, &from, &n_bytes, err);
    for (int64_t at = 0; at < n_bytes && rc == 0; at += COPY_PIECE) {
        const size_t n = (size_t)min_i64(COPY_PIECE, n_bytes - at);

        rc = file_read_at(from, weights, piece, n, at, err);
        if (rc == 0)
            rc = new_file_put(&to, piece, n, err);
    }
    if (rc == 0)
        rc = new_file_end(&to, err);
    if (from >= 0)
        close(from);
    new_file_drop(&to);
    free(piece);
    return rc;
}
