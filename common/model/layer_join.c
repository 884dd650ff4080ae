/* layer_join - layers that join several values, cut one into parts, or give it another form.  The
 * samples stay the first dimension. */
#include <stdio.h>

#include "base/buf.h"
#include "base/util.h"
#include "model/layer_impl.h"
#include "op/compose.h"

/* The dimension that the user means, from 1 on; < 0: there is none. */
static int join_dim(struct net *m, const char *name, int64_t dim)
{
    const struct shape *s = net_shape(m);
    const int64_t at = dim < 0 ? dim + s->n : dim;
    char text[SHAPE_TEXT_LEN];

    if (at >= 1 && at < s->n)
        return (int)at;
    m->rc = err_set(m->err, ERR_CONFIG,
                    "%s: dim is %lld and its input %s, want 1 to %d, or -1 for the last: 0 are the "
                    "samples",
                    name, (long long)dim, shape_text(s, text), s->n - 1);
    return m->rc;
}

/* A saved value does not fit h. */
static void join_fail(struct net *m, const char *name, const char *word,
                      const struct layer_operand *o, const char *want)
{
    char text[2][SHAPE_TEXT_LEN];

    m->rc = err_set(m->err, ERR_CONFIG, "%s (%s): its input is %s, but \"%s\" is %s; want %s", name,
                    word, shape_text(net_shape(m), text[0]), o->name,
                    shape_text(&m->g->value[o->value].shape, text[1]), want);
}

void layer_concat(struct net *m, const char *name, const struct layer_operand *o, int n,
                  int64_t along)
{
    struct compose c = {.g = m->g, .name = name, .err = m->err};
    int in[NODE_MAX_IN] = {m->h}, dim;
    char want[96];

    ASSERT(n < NODE_MAX_IN);
    if (m->rc < 0 || (dim = join_dim(m, name, along)) < 0)
        return;
    for (int i = 0; i < n && m->rc == 0; i++) {
        struct shape seen = m->g->value[o[i].value].shape;

        if (seen.n > dim)
            seen.dim[dim] = net_shape(m)->dim[dim];
        snprintf(want, sizeof want, "shapes that differ in dimension %d alone", dim);
        if (!shape_equal(&seen, net_shape(m)))
            join_fail(m, name, "concat", &o[i], want);
        in[1 + i] = o[i].value;
    }
    if (m->rc < 0)
        return;
    m->h = compose_concat(&c, in, 1 + n, dim);
    m->rc = c.rc;
}

void layer_combine(struct net *m, const char *name, enum elementwise kind,
                   const struct layer_operand *o, int n)
{
    struct compose c = {.g = m->g, .name = name, .err = m->err};

    for (int i = 0; i < n && m->rc == 0; i++) {
        const struct shape *s = net_shape(m), *t = &m->g->value[o[i].value].shape;
        int fits = s->n == t->n;

        for (int d = 1; fits && d < s->n; d++)
            fits = s->dim[d] == t->dim[d] || s->dim[d] == 1 || t->dim[d] == 1;
        if (!fits)
            join_fail(m, name, kind == EW_ADD ? "add" : "mul", &o[i], "equal extents, or 1");
        else
            m->h = compose_elementwise(&c, kind, m->h, o[i].value);
        m->rc = m->rc < 0 ? m->rc : c.rc;
    }
}

/* size [n], of which the caller gave `given`: none, or all. */
static int join_sizes(struct net *m, const char *name, int dim, const struct option_ints *given,
                      int n, int64_t *size)
{
    const int64_t all = net_shape(m)->dim[dim];
    char text[SHAPE_TEXT_LEN];
    int64_t sum = 0;

    for (int i = 0; i < n; i++)
        sum += size[i] = i < given->n ? given->v[i] : all / n;
    if ((given->n && given->n != n) || sum != all)
        m->rc =
            err_set(m->err, ERR_CONFIG,
                    "%s: its input is %s, want %d %s whose sum is %lld, the extent of dimension "
                    "%d",
                    name, shape_text(net_shape(m), text), n, given->n ? "sizes" : "equal parts",
                    (long long)all, dim);
    return m->rc;
}

void layer_split(struct net *m, const char *name, int64_t along, const struct option_ints *sizes,
                 int n, int *part)
{
    struct compose c = {.g = m->g, .name = name, .err = m->err};
    int64_t size[OPT_MAX_INTS];
    int dim;

    if (m->rc < 0 || (dim = join_dim(m, name, along)) < 0 ||
        join_sizes(m, name, dim, sizes, n, size) < 0)
        return;
    compose_split(&c, m->h, dim, size, n, part);
    m->rc = c.rc;
    if (m->rc == 0)
        m->h = part[0];
}

void layer_permute(struct net *m, const char *name, const struct option_ints *order)
{
    struct compose c = {.g = m->g, .name = name, .err = m->err};
    const int n = m->rc < 0 ? 0 : net_shape(m)->n;
    char text[SHAPE_TEXT_LEN];
    int to[SHAPE_MAX_DIMS];
    unsigned seen = 0;

    if (m->rc < 0)
        return;
    for (int i = 0; i < order->n && i < n; i++) {
        to[i] = (int)order->v[i];
        seen |= order->v[i] < n ? 1u << order->v[i] : 0;
    }
    if (order->n != n || seen != (1u << n) - 1 || to[0] != 0) {
        m->rc = err_set(m->err, ERR_CONFIG,
                        "%s: its input is %s, want each number from 0 to %d once in order, and 0, "
                        "the samples, first",
                        name, shape_text(net_shape(m), text), n - 1);
        return;
    }
    m->h = compose_permute(&c, m->h, to);
    m->rc = c.rc;
}

/* The shape [N,given] for as many numbers as h has; one -1 stands for what is left. */
static int join_shape(struct net *m, const char *name, const struct option_ints *given,
                      struct shape *out)
{
    const struct shape *s = net_shape(m);
    int64_t here = 1, there = 1;
    char text[SHAPE_TEXT_LEN];
    int open = -1, fits = given->n >= 1 && given->n < SHAPE_MAX_DIMS;

    *out = (struct shape){.n = 1 + given->n, .dim = {s->dim[0]}};
    for (int d = 1; d < s->n; d++)
        here *= s->dim[d];
    for (int i = 0; fits && i < given->n; i++) {
        fits = given->v[i] != 0 && (given->v[i] > 0 || open < 0) &&
               !(given->v[i] > 0 && __builtin_mul_overflow(there, given->v[i], &there));
        open = given->v[i] < 0 ? 1 + i : open;
        out->dim[1 + i] = given->v[i];
    }
    fits = fits && (open < 0 ? here == there : here % there == 0);
    if (fits && open >= 0)
        out->dim[open] = here / there;
    if (!fits)
        m->rc = err_set(m->err, ERR_CONFIG,
                        "%s: its input is %s, want a shape of %lld numbers for a sample, at most "
                        "one of its extents -1",
                        name, shape_text(s, text), (long long)here);
    return m->rc;
}

void layer_reshape(struct net *m, const char *name, const struct option_ints *shape)
{
    static const int to_torch[] = {0, 3, 1, 2}, from_torch[] = {0, 2, 3, 1};
    struct compose c = {.g = m->g, .name = name, .err = m->err};
    struct shape s;
    int x = m->h;

    if (m->rc < 0 || join_shape(m, name, shape, &s) < 0)
        return;
    if (net_shape(m)->n == 4)
        x = compose_permute(&c, x, to_torch);
    if (s.n == 4) {
        x = compose_reshape(&c, x, SHAPE(s.dim[0], s.dim[3], s.dim[1], s.dim[2]));
        x = compose_permute(&c, x, from_torch);
    } else {
        x = compose_reshape(&c, x, s);
    }
    m->h = x;
    m->rc = c.rc;
}

void layer_upsample(struct net *m, const char *name, const int64_t by[2], int is_smooth)
{
    const double scale[2] = {(double)by[0], (double)by[1]};
    struct compose c = {.g = m->g, .name = name, .err = m->err};

    if (net_want_images(m, name) < 0)
        return;
    m->h = compose_resize(&c, m->h, net_shape(m)->dim[1] * by[0], net_shape(m)->dim[2] * by[1],
                          is_smooth ? RESIZE_BILINEAR : RESIZE_NEAREST, scale);
    m->rc = c.rc;
}
