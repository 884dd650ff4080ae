/* view - permute, slice, expand and concat, whose elements are copied as they are, in parts.
 *
 * op/view.c has the formulas; the twin is cuda/view.cu. */
#include <string.h>

#include "backend/cpu/plain.h"
#include "backend/cpu/strided.h"
#include "base/util.h"

enum { OF_VECTOR = 8 }; /* elements that one instruction copies, roughly */

static int64_t out_elements(const struct plain *p) { return shape_elements(&p->out_shape[0]); }

/* Elements [from, to) of y, which s finds in x. */
static void cpu_view_gather(const struct plain *p, const struct strided *s, int64_t from,
                            int64_t to)
{
    const size_t size = dtype_size(p->out_type[0]);

    strided_gather(s, p->in[0], size, from, to - from, (char *)p->out[0] + (size_t)from * size);
}

static void permute_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct strided s = strided_permute(&p->in_shape[PERMUTE_X], p->attr.permute.order);

    (void)part;
    cpu_view_gather(p, &s, from, to);
}

static void slice_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct strided s =
        strided_slice(&p->in_shape[SLICE_X], &p->out_shape[SLICE_Y], p->attr.slice.dim,
                      p->attr.slice.start, p->attr.slice.step);

    (void)part;
    cpu_view_gather(p, &s, from, to);
}

static void expand_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct strided s = strided_broadcast(&p->in_shape[EXPAND_X], &p->out_shape[EXPAND_Y]);

    (void)part;
    cpu_view_gather(p, &s, from, to);
}

static void zero_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const size_t size = dtype_size(p->out_type[0]);

    (void)part;
    memset((char *)p->out[0] + (size_t)from * size, 0, (size_t)(to - from) * size);
}

static void slice_grad_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const size_t size = dtype_size(p->in_type[SLICE_GRAD_DY]);
    const struct strided s =
        strided_slice(&p->out_shape[SLICE_GRAD_DX], &p->in_shape[SLICE_GRAD_DY], p->attr.slice.dim,
                      p->attr.slice.start, p->attr.slice.step);

    (void)part;
    strided_scatter(&s, p->out[SLICE_GRAD_DX], size, from, to - from,
                    (const char *)p->in[SLICE_GRAD_DY] + (size_t)from * size);
}

/* Rows [from, to) of y: a row is all that the dimensions from attr.concat.dim on hold. */
static void concat_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const size_t size = dtype_size(p->out_type[CONCAT_Y]);
    const struct shape *y = &p->out_shape[CONCAT_Y];
    const int dim = p->attr.concat.dim;
    size_t inner = size;
    char *at;

    (void)part;
    for (int d = dim + 1; d < y->n; d++)
        inner *= (size_t)y->dim[d];
    at = (char *)p->out[CONCAT_Y] + (size_t)from * inner * (size_t)y->dim[dim];
    for (int64_t row = from; row < to; row++)
        for (int i = 0; i < NODE_MAX_IN; i++)
            if (p->in_shape[i].n >= 0) {
                const size_t n = inner * (size_t)p->in_shape[i].dim[dim];

                memcpy(at, (const char *)p->in[i] + (size_t)row * n, n);
                at += n;
            }
}

static void cpu_view_run_permute(const struct plain *p)
{
    plain_split(p, out_elements(p), out_elements(p), permute_part);
}

static void cpu_view_run_slice(const struct plain *p)
{
    plain_split(p, out_elements(p), out_elements(p) / OF_VECTOR, slice_part);
}

static void cpu_view_run_expand(const struct plain *p)
{
    plain_split(p, out_elements(p), out_elements(p) / OF_VECTOR, expand_part);
}

static void cpu_view_run_slice_grad(const struct plain *p)
{
    const int64_t n = shape_elements(&p->in_shape[SLICE_GRAD_DY]);

    plain_split(p, out_elements(p), out_elements(p) / OF_VECTOR, zero_part);
    plain_split(p, n, n / OF_VECTOR, slice_grad_part);
}

static void cpu_view_run_concat(const struct plain *p)
{
    int64_t rows = 1;

    for (int d = 0; d < p->attr.concat.dim; d++)
        rows *= p->out_shape[CONCAT_Y].dim[d];
    plain_split(p, rows, out_elements(p) / OF_VECTOR, concat_part);
}

int cpu_make_permute(struct cpu *b, const struct graph *g, const struct node *n,
                     struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_view_run_permute, 0, 0, out, err);
}

int cpu_make_slice(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                   struct err *err)
{
    return plain_new_split(b, g, n, cpu_view_run_slice, 0, 0, out, err);
}

int cpu_make_slice_grad(struct cpu *b, const struct graph *g, const struct node *n,
                        struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_view_run_slice_grad, 0, 0, out, err);
}

int cpu_make_expand(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                    struct err *err)
{
    return plain_new_split(b, g, n, cpu_view_run_expand, 0, 0, out, err);
}

int cpu_make_concat(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                    struct err *err)
{
    return plain_new_split(b, g, n, cpu_view_run_concat, 0, 0, out, err);
}
