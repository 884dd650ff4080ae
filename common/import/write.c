/* write - operators in place on a part, or another shape, of a tensor: x[:, :3] = y.
 *
 * A view remembers the node that made it.  When an operator in place changed a view, the tensor
 * that it shows becomes a new value with the change in it, and so on down to the one that is no
 * view.  Other views of that tensor are stale: when one is read next, its node is built again, on
 * the new value.  That is what PyTorch's autograd makes of it, too.
 *
 * Operators that may copy, such as reshape, are no such views: what shares memory with their
 * results stays stale, and reading it fails.  So do the parts of split and unbind, which PyTorch
 * refuses to use after such a change. */
#include <string.h>

#include "base/util.h"
#include "import/lower_impl.h"

enum { WRITE_MOST_VIEWS = 64 }; /* of views */

enum write_kind {
    WRITE_NOT,  /* no view that can be written through, or be made again */
    WRITE_READ, /* it can be made again, but PyTorch refuses to change it in place */
    WRITE_SAME,
    WRITE_SHAPE,
    WRITE_TURN,
    WRITE_SLICE,
    WRITE_SELECT,
};

static const struct {
    const char *target;
    enum write_kind kind;
} write_views[] = {
    {"alias.default", WRITE_SAME},      {"view.default", WRITE_SHAPE},
    {"view_as.default", WRITE_SHAPE},   {"unflatten.int", WRITE_SHAPE},
    {"unsqueeze.default", WRITE_SHAPE}, {"squeeze.default", WRITE_SHAPE},
    {"squeeze.dim", WRITE_SHAPE},       {"squeeze.dims", WRITE_SHAPE},
    {"permute.default", WRITE_TURN},    {"transpose.int", WRITE_TURN},
    {"swapaxes.default", WRITE_TURN},   {"t.default", WRITE_TURN},
    {"slice.Tensor", WRITE_SLICE},      {"narrow.default", WRITE_READ},
    {"select.int", WRITE_SELECT},       {"split.Tensor", WRITE_READ},
    {"unbind.int", WRITE_READ},         {"expand.default", WRITE_READ},
    {"expand_as.default", WRITE_READ},
};

static enum write_kind write_kind_of(const char *target)
{
    for (size_t i = 0; i < ARRAY_LEN(write_views); i++)
        if (!strcmp(write_views[i].target, target))
            return write_views[i].kind;
    return WRITE_NOT;
}

void lower_note_view(struct lower *l, const struct import_node *n)
{
    if (n->no_gradient || write_kind_of(n->target) == WRITE_NOT)
        return;
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i] != IMPORT_NO_VALUE)
            l->view[n->out[i]] = (struct lower_view){.node = n, .out = i};
}

/* ---- the elements of a view in the tensor that it shows ---- */

/* Elements start, start + step .. of n along a dimension. */
struct write_part {
    int dim;
    int64_t start, step, n;
};

/* The part of x that a slice, or a select, takes; l->node is the node. */
static struct write_part write_part_of(struct lower *l, const struct lowered *x, int is_select)
{
    struct write_part p = {.dim = lower_dim(l, "dim", 1, x->n, 0), .step = 1, .n = 1};
    const int64_t extent = lower_failed(l) ? 0 : extent_exported(l, x->dim[p.dim]);
    int64_t stop = lower_clamped(l, "end", 3, INT64_MAX);

    p.start = is_select ? lower_int(l, "index", 2, 0) : lower_clamped(l, "start", 2, 0);
    if (is_select) {
        p.start += p.start < 0 ? extent : 0;
    } else {
        p.step = lower_int(l, "step", 4, 1);
        import_slice_ends(extent, &p.start, &stop);
        p.n = p.step > 0 ? (stop - p.start + p.step - 1) / p.step : -1;
    }
    if (p.n < 0 || p.start < 0 || p.start + p.n > extent)
        lower_fail(l, ERR_CONFIG, "it writes from %lld on by %lld into an extent of %lld",
                   (long long)p.start, (long long)p.step, (long long)extent);
    return p;
}

/* x with y in place of its part. */
static struct lowered write_into(struct lower *l, struct lowered x, struct lowered y,
                                 const struct write_part *p)
{
    const int64_t extent = extent_exported(l, x.dim[p->dim]);
    int64_t *at;
    int part[3], n = 0;

    if (p->n == 0)
        return x;
    if (p->n == extent)
        return y;
    if (p->step == 1) {
        if (p->start > 0)
            part[n++] = compose_slice(&l->c, x.value, p->dim, 0, p->start, 1);
        part[n++] = y.value;
        if (p->start + p->n < extent)
            part[n++] = compose_slice(&l->c, x.value, p->dim, p->start + p->n, extent, 1);
        return lower_failed(l) ? x : lower_with(x, compose_concat(&l->c, part, n, p->dim));
    }
    if (!compose_has_room(&l->c, extent, 1))
        return x;
    at = arena_alloc(&l->arena, (size_t)extent * sizeof *at + 1);
    for (int64_t i = 0; i < extent; i++)
        at[i] = i;
    for (int64_t i = 0; i < p->n; i++)
        at[p->start + i * p->step] = extent + i;
    part[0] = x.value;
    part[1] = y.value;
    part[0] = compose_concat(&l->c, part, 2, p->dim);
    return lower_with(x, compose_select_many(&l->c, part[0], p->dim, at, extent));
}

struct lowered lower_written(struct lower *l, struct lowered x, struct lowered y, int is_select)
{
    struct write_part p;
    int fits;

    x = lower_real_value(l, x);
    if (lower_failed(l))
        return x;
    p = write_part_of(l, &x, is_select);
    if (is_select)
        y = lower_unsqueeze(l, y, p.dim);
    x = lower_plain(l, x);
    y = lower_plain(l, y);
    fits = !lower_failed(l) && x.n == y.n &&
           l->m->g->value[x.value].dtype == l->m->g->value[y.value].dtype;
    for (int d = 0; fits && d < x.n; d++)
        fits = d == p.dim ? extent_exported(l, y.dim[d]) == p.n : extent_equal(x.dim[d], y.dim[d]);
    if (fits && p.n != extent_exported(l, x.dim[p.dim]))
        lower_refuse_batch(l, &x, 1u << p.dim, "writes along");
    if (!lower_failed(l) && !fits)
        lower_fail(l, ERR_UNSUPPORTED,
                   "it changes a part of a tensor that has other samples, or another type, than "
                   "what is written");
    return lower_failed(l) ? x : write_into(l, x, y, &p);
}

/* y with the dimensions in the order that they had before l->node turned them. */
static struct lowered write_turned(struct lower *l, struct lowered y)
{
    const char *target = l->node->target;
    const int is_swap = target[0] == 's';
    int64_t dims[SHAPE_MAX_DIMS];
    int order[SHAPE_MAX_DIMS], a = y.n - 2, b = y.n - 1;

    if (!strncmp(target, "permute", 7)) {
        lower_ints(l, "dims", 1, dims, SHAPE_MAX_DIMS);
        for (int d = 0; d < y.n; d++)
            order[dims[d] < 0 ? dims[d] + y.n : dims[d]] = d;
        return lower_permute(y, order);
    }
    if (target[1] != '.') {
        a = lower_dim(l, is_swap ? "axis0" : "dim0", 1, y.n, 0);
        b = lower_dim(l, is_swap ? "axis1" : "dim1", 2, y.n, 1);
    }
    for (int d = 0; d < y.n; d++)
        order[d] = d == a ? b : d == b ? a : d;
    return y.n < 2 ? y : lower_permute(y, order);
}

/* The tensor `shown`, which view v shows, after v became y. */
static struct lowered write_back(struct lower *l, int v, int shown, struct lowered y)
{
    const struct import_value *to = &l->net->value[shown];
    const enum write_kind kind = write_kind_of(l->view[v].node->target);
    const struct import_node *node = l->node;

    l->node = l->view[v].node;
    switch (kind) {
    case WRITE_SAME:
        break;
    case WRITE_SHAPE:
        y = lower_reshape(l, y, to->dim, to->n_dims);
        break;
    case WRITE_TURN:
        y = write_turned(l, lower_real_value(l, y));
        break;
    default:
        y = lower_written(l, lower_at(l, shown), y, kind == WRITE_SELECT);
    }
    l->node = node;
    return y;
}

/* The value that view v shows; IMPORT_NO_VALUE: it is none that is known. */
static int write_shown(const struct lower *l, int v)
{
    const struct import_arg *a =
        l->view[v].node ? import_arg_find(l->view[v].node, "self", 0) : NULL;

    return a && a->kind == IMPORT_VALUE ? a->values[0] : IMPORT_NO_VALUE;
}

int lower_can_write(const struct lower *l, int v)
{
    return l->view[v].node && write_kind_of(l->view[v].node->target) > WRITE_READ;
}

void lower_write(struct lower *l, int changed, int out)
{
    int chain[WRITE_MOST_VIEWS + 1], n = 0, v = changed, root;

    while (n < WRITE_MOST_VIEWS && lower_can_write(l, v)) {
        chain[n++] = v;
        v = write_shown(l, v);
    }
    if (lower_can_write(l, v))
        lower_fail(l, ERR_UNSUPPORTED, "it changes a view of a view of a view, more than %d",
                   WRITE_MOST_VIEWS);
    root = v;
    l->view[out] = l->view[changed];
    for (int i = 0; i < n && !lower_failed(l); i++) {
        const int shown = i + 1 < n ? chain[i + 1] : root;
        const struct lowered y =
            write_back(l, chain[i], shown, i ? l->value[chain[i]] : l->value[out]);

        l->value[shown] = y;
        l->host[shown] = NULL;
    }
    if (lower_failed(l))
        return;
    lower_join(l, out, l->base[changed]);
    l->is_view[out] = l->is_view[changed];
    lower_rebind(l, root, root);
    l->value[changed] = l->value[out];
    for (int i = 0; i < n; i++)
        l->is_stale[chain[i]] = STALE_NOT;
    l->is_stale[out] = STALE_NOT;
}

int lower_refresh(struct lower *l, int v)
{
    const struct import_node *node = l->node, *made = l->view[v].node;
    const int shown = write_shown(l, v), reads_mixed = l->reads_mixed;

    if (!made || shown == IMPORT_NO_VALUE || l->n_refreshed >= WRITE_MOST_VIEWS)
        return 0;
    l->n_refreshed++;
    l->node = made;
    l->reads_mixed = 0;
    lower_at(l, shown);
    if (!lower_failed(l))
        lower_build(l);
    l->value[v] = l->value[made->out[l->view[v].out]];
    for (int i = 0; i < made->n_out; i++)
        if (made->out[i] != IMPORT_NO_VALUE)
            l->is_stale[made->out[i]] = STALE_NOT;
    l->is_stale[v] = STALE_NOT;
    l->node = node;
    l->reads_mixed |= reads_mixed;
    l->n_refreshed--;
    return 1;
}
