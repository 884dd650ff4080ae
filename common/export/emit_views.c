/* Operators that move elements and compute nothing.  A view keeps the type of what it shows.
 * Images keep their form where it can be kept, so that no Transpose comes between layers. */
#include "base/util.h"
#include "export/emit.h"

/* The output is a view of input 0. */
static void emit_put_view(struct emit *e, const char *name, enum form form)
{
    struct emitted *to = &e->value[e->node->out[0]];
    const struct emitted *from = &e->value[e->node->in[0]];

    to->type = from->type;
    to->is_given = from->is_given;
    emit_put(e, name, form);
}

/* Shape: all dimensions but the first and the last are 1, so that both forms have the elements in
 * one order. */
static int has_one_order(const struct shape *s)
{
    int64_t n = 1;

    for (int d = 1; d + 1 < s->n; d++)
        n *= s->dim[d];
    return s->n >= 3 && n == 1;
}

void emit_reshape(struct emit *e, const struct node *n)
{
    const struct shape *x = emit_shape(e, n->in[RESHAPE_X]);
    const enum form form =
        emit_made(e, RESHAPE_X) == FORM_FIRST && has_one_order(x) ? FORM_FIRST : FORM_PLAIN;
    int64_t dim[SHAPE_MAX_DIMS];

    emit_extents(e, n->out[RESHAPE_Y], dim);
    emit_put_view(e,
                  emit_to_shape(e, emit_in_form(e, RESHAPE_X, form), dim,
                                emit_shape(e, n->out[RESHAPE_Y])->n),
                  FORM_PLAIN);
}

/* A permutation of an image between the two forms needs no node. */
void emit_permute(struct emit *e, const struct node *n)
{
    const int *order = n->attr.permute.order, rank = emit_shape(e, n->in[PERMUTE_X])->n;
    const struct emitted *x = &e->value[n->in[PERMUTE_X]];
    int64_t whole[SHAPE_MAX_DIMS];
    enum form from = emit_made(e, PERMUTE_X);

    (void)emit_in_form(e, PERMUTE_X, from);
    for (enum form f = 0; f < FORM_COUNT; f++)
        for (enum form to = 0; to < FORM_COUNT; to++) {
            int same = x->name[f] && (to == FORM_PLAIN || rank >= 3);

            for (int d = 0; d < rank; d++)
                same &= emit_at(to, d, rank) == emit_at(f, order[d], rank);
            if (same) {
                emit_put_view(e, x->name[f], to);
                return;
            }
        }
    for (int d = 0; d < rank; d++)
        whole[d] = emit_at(from, order[d], rank);
    emit_put_view(e, emit_order(e, x->name[from], whole, rank), FORM_PLAIN);
}

/* Elements start, start + step ... before stop of dimension dim. */
void emit_slice(struct emit *e, const struct node *n)
{
    const int dim = n->attr.slice.dim, x = n->in[SLICE_X], rank = emit_shape(e, x)->n;
    const int64_t extent = emit_shape(e, x)->dim[dim], start = n->attr.slice.start;
    const int64_t stop = n->attr.slice.stop, step = n->attr.slice.step;
    const struct node *other = &e->other->node[n - e->g->node];
    const int64_t grows = emit_growth(e, x, dim);
    const enum form form = emit_made(e, SLICE_X);
    int64_t end = stop == extent ? INT64_MAX : grows ? stop - extent : stop;
    const char *in = emit_in_form(e, SLICE_X, form);

    if (grows && other->attr.slice.stop == stop)
        end = stop;
    else if (other->attr.slice.stop - stop != grows)
        emit_fail(e, ERR_UNSUPPORTED, "its end is neither fixed nor that of the batch");
    if (other->attr.slice.start != start)
        emit_fail(e, ERR_UNSUPPORTED, "its start depends on the batch");
    emit_put_view(
        e,
        emit_op(e, "Slice",
                (const char *const[]){in, emit_list(e, &start, 1), emit_list(e, &end, 1),
                                      emit_list(e, (int64_t[]){emit_at(form, dim, rank)}, 1),
                                      emit_list(e, &step, 1)},
                5),
        form);
}

/* Zeros around the elements and, with a step, between them. */
void emit_slice_grad(struct emit *e, const struct node *n)
{
    const int dim = n->attr.slice.dim, rank = emit_shape(e, n->in[SLICE_GRAD_DY])->n;
    const int64_t start = n->attr.slice.start, extent = n->attr.slice.extent;
    const int64_t elements = emit_shape(e, n->in[SLICE_GRAD_DY])->dim[dim];
    const enum form form = emit_made(e, SLICE_GRAD_DY);
    const int at = emit_at(form, dim, rank);
    int64_t pads[2 * SHAPE_MAX_DIMS] = {0};

    if (n->attr.slice.step != 1 || emit_growth(e, n->in[SLICE_GRAD_DY], dim)) {
        emit_fail(e, ERR_UNSUPPORTED, "zeros between elements, or along the batch");
        return;
    }
    pads[at] = start;
    pads[rank + at] = extent - start - elements;
    emit_put_view(
        e, emit_2(e, "Pad", emit_in_form(e, SLICE_GRAD_DY, form), emit_list(e, pads, 2 * rank)),
        form);
}

/* The extents of y as a tensor, of which one may follow from the number of samples.  Where x has
 * the extent already, it is 1: Expand leaves it. */
static const char *expand_extents(struct emit *e, int x, int y)
{
    const struct shape *from = emit_shape(e, x), *to = emit_shape(e, y);
    const char *part[SHAPE_MAX_DIMS];
    int64_t dim[SHAPE_MAX_DIMS];
    int grows = 0;

    for (int d = 0; d < to->n; d++) {
        const int before = d - (to->n - from->n);
        const int is_there = before >= 0 && from->dim[before] == to->dim[d] &&
                             emit_growth(e, x, before) == emit_growth(e, y, d);
        const int64_t growth = is_there ? 0 : emit_growth(e, y, d);

        dim[d] = is_there ? 1 : to->dim[d];
        part[d] = growth ? emit_batch(e) : NULL;
        if (growth > 1)
            part[d] = emit_2(e, "Mul", part[d], emit_list(e, &growth, 1));
        grows |= growth != 0;
    }
    if (!grows)
        return emit_list(e, dim, to->n);
    for (int d = 0; d < to->n; d++)
        part[d] = part[d] ? part[d] : emit_list(e, &dim[d], 1);
    emit_int(e, "axis", 0);
    return emit_op(e, "Concat", part, to->n);
}

void emit_expand(struct emit *e, const struct node *n)
{
    const char *x = emit_in(e, EXPAND_X);

    emit_put_view(e, emit_2(e, "Expand", x, expand_extents(e, n->in[EXPAND_X], n->out[EXPAND_Y])),
                  FORM_PLAIN);
}

void emit_concat(struct emit *e, const struct node *n)
{
    const char *part[NODE_MAX_IN];
    enum form form = FORM_PLAIN;
    int n_parts = 0;

    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] != NO_VALUE && emit_made(e, i) == FORM_FIRST)
            form = FORM_FIRST;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] != NO_VALUE)
            part[n_parts++] = emit_in_form(e, i, form);
    emit_int(e, "axis", emit_at(form, n->attr.concat.dim, emit_shape(e, n->out[CONCAT_Y])->n));
    emit_put_view(e, emit_op(e, "Concat", part, n_parts), form);
}

void emit_flatten(struct emit *e, const struct node *n)
{
    const int64_t features = emit_shape(e, n->out[FLATTEN_Y])->dim[1];

    emit_put_view(
        e, emit_to_shape(e, emit_in_form(e, FLATTEN_X, FORM_FIRST), (int64_t[]){-1, features}, 2),
        FORM_PLAIN);
}

void emit_unflatten(struct emit *e, const struct node *n)
{
    const int64_t *image = n->attr.flatten.image;

    emit_put_view(
        e,
        emit_to_shape(e, emit_in(e, UNFLATTEN_Y), (int64_t[]){-1, image[2], image[0], image[1]}, 4),
        FORM_FIRST);
}
