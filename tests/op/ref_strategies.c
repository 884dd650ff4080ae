/* ref_strategies - the naive kernels of what strategies compute besides codes: adasum; and those of
 * rows of all ranks. */
#include "ref_kernels.h"

/* Rows a and b of pair p, of n->in[0] or of its copy in the output. */
static float *row_of(const struct ref_node *n, float *rows, int64_t pair, int is_b)
{
    const int64_t stride = (int64_t)n->attr.number[ADASUM_DOTS_ATTR_STRIDE];

    return rows + (2 * pair + is_b) * stride * n->in_shape[0].dim[1];
}

/* The tensor of column i, or -1 if there is none. */
static int64_t tensor_of(const struct ref_node *n, int64_t i)
{
    const int64_t *ends = n->in[ADASUM_DOTS_ENDS];

    for (int64_t t = 0; t < n->in_shape[ADASUM_DOTS_ENDS].dim[0]; t++)
        if (i < ends[t])
            return t;
    return -1;
}

/* The elements in front of this rank's rows. */
static int64_t ref_rows_before(const struct step_scalars *s, const struct shape *own)
{
    int64_t before = s ? s->first_position : 0;

    for (int d = 1; d < own->n; d++)
        before *= own->dim[d];
    return before;
}

void ref_rows_send(const struct ref_node *n)
{
    const int64_t before = ref_rows_before(n->in[ROWS_SEND_SCALARS], &n->in_shape[ROWS_SEND_X]);
    const float *x = n->in[ROWS_SEND_X];
    double *v = n->out[ROWS_SEND_V];

    for (int64_t i = 0; i < shape_elements(&n->out_shape[ROWS_SEND_V]); i++)
        v[i] = 0;
    for (int64_t i = 0; i < shape_elements(&n->in_shape[ROWS_SEND_X]); i++)
        v[before + i] = (double)x[i];
}

void ref_rows_all(const struct ref_node *n)
{
    for (int64_t i = 0; i < shape_elements(&n->out_shape[ROWS_ALL_Y]); i++)
        ((float *)n->out[ROWS_ALL_Y])[i] = (float)((const double *)n->in[ROWS_ALL_V])[i];
}

void ref_rows_own(const struct ref_node *n)
{
    const double *v = n->in[ROWS_OWN_V];
    float *y = n->out[ROWS_OWN_Y];

    v += ref_rows_before(n->in[ROWS_OWN_SCALARS], &n->out_shape[ROWS_OWN_Y]);
    for (int64_t i = 0; i < shape_elements(&n->out_shape[ROWS_OWN_Y]); i++)
        y[i] = (float)v[i];
}

void ref_adasum_dots(const struct ref_node *n)
{
    const struct shape *s = &n->out_shape[ADASUM_DOTS_DOTS];
    double *dots = n->out[ADASUM_DOTS_DOTS];

    for (int64_t i = 0; i < shape_elements(s); i++)
        dots[i] = 0;
    for (int64_t pair = 0; pair < s->dim[0]; pair++)
        for (int64_t i = 0; i < n->in_shape[ADASUM_DOTS_ROWS].dim[1]; i++) {
            const int64_t t = tensor_of(n, i);
            const double a = (double)row_of(n, n->in[ADASUM_DOTS_ROWS], pair, 0)[i];
            const double b = (double)row_of(n, n->in[ADASUM_DOTS_ROWS], pair, 1)[i];
            double *of = dots + (pair * s->dim[1] + t) * 3;

            if (t < 0)
                continue;
            of[0] += a * b;
            of[1] += a * a;
            of[2] += b * b;
        }
}

void ref_adasum_combine(const struct ref_node *n)
{
    const struct shape *s = &n->in_shape[ADASUM_COMBINE_DOTS];
    float *rows = n->out[ADASUM_COMBINE_NEW_ROWS];

    for (int64_t pair = 0; pair < s->dim[0]; pair++)
        for (int64_t i = 0; i < n->in_shape[ADASUM_COMBINE_ROWS].dim[1]; i++) {
            const int64_t t = tensor_of(n, i);
            const double *of =
                (const double *)n->in[ADASUM_COMBINE_DOTS] + (pair * s->dim[1] + t) * 3;
            float *a = row_of(n, rows, pair, 0) + i, *b = row_of(n, rows, pair, 1) + i;

            if (t >= 0)
                *a = (float)((of[1] > 0 ? 1 - of[0] / of[1] / 2 : 1) * (double)*a +
                             (of[2] > 0 ? 1 - of[0] / of[2] / 2 : 1) * (double)*b);
        }
}
