/* layout - sorts the parameters by the time at which the backward pass completes their gradients,
 * gives each its place, and cuts the gradients into buckets. */
#include "program/layout.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "op/control.h"
#include "op/op.h"

/* A parameter, to be sorted.  ready: the last node that writes its gradient; INT_MAX if it is
 * frozen.  order: settles which of two with equal `ready` comes first. */
struct entry {
    int value, ready, order;
};

static int cmp_entry(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (x->ready != y->ready)
        return x->ready < y->ready ? -1 : 1;
    return x->order - y->order;
}

/* The last node that writes each value, and by which of its outputs; a node of -1: none does. */
struct writer {
    int node, output;
};

static struct writer *find_writers(const struct graph *g)
{
    struct writer *w = xcalloc((size_t)g->n_values, sizeof *w);

    for (int v = 0; v < g->n_values; v++)
        w[v].node = -1;
    for (int k = 0; k < g->n_nodes; k++)
        for (int i = g->node[k].n_out - 1; i >= 0; i--)
            if (g->node[k].out[i] != NO_VALUE)
                w[g->node[k].out[i]] = (struct writer){k, i};
    return w;
}

static int list_params(const struct graph *g, const struct writer *writer, struct entry *e,
                       int *n_entries, struct err *err)
{
    int n = 0;

    for (int v = 0; v < g->n_values; v++) {
        const int grad = g->value[v].grad;

        if (g->value[v].role != VALUE_PARAM)
            continue;
        e[n] = (struct entry){.value = v, .ready = INT_MAX, .order = v};
        if (!g->value[v].info->frozen) {
            if (grad == NO_VALUE || writer[grad].node < 0)
                return err_set(err, ERR_ARG, "parameter %s has no gradient: differentiate first",
                               g->value[v].name);
            e[n].ready = writer[grad].node;
            e[n].order = writer[grad].output;
        }
        n++;
    }
    qsort(e, (size_t)n, sizeof *e, cmp_entry);
    *n_entries = n;
    return 0;
}

static struct segment make_segment(struct layout *l, const struct value *v, int64_t offset)
{
    struct segment s = {
        .name = arena_strdup(&l->arena, v->name),
        .dtype = v->dtype,
        .shape = v->shape,
        .offset = offset,
        .length = shape_elements(&v->shape),
        .init_state = v->init_state,
    };

    if (v->info)
        s.info = *v->info;
    return s;
}

static int64_t segment_end(const struct segment *s)
{
    return s->offset + round_up_i64(s->length, SEGMENT_ALIGN);
}

static void place_params(struct layout *l, const struct graph *g, const struct entry *e, int n)
{
    l->param = arena_alloc(&l->arena, ((size_t)n + 1) * sizeof *l->param);
    for (int i = 0; i < n; i++) {
        l->param[i] = make_segment(l, &g->value[e[i].value], l->n_total);
        l->n_total = segment_end(&l->param[i]);
        if (!l->param[i].info.frozen)
            l->n_trained = l->n_total;
    }
    l->n_params = n;
    l->n_grad = l->n_trained + CONTROL_LEN;
}

/* The parameter's segment, or NULL. */
static struct segment *layout_segment_of(struct layout *l, const char *name)
{
    for (int i = 0; i < l->n_params; i++)
        if (!strcmp(l->param[i].name, name))
            return &l->param[i];
    return NULL;
}

/* Find the rows of padding: of the tables that embeddings read, or working copies of them. */
static void place_paddings(struct layout *l, const struct graph *g)
{
    for (int k = 0; k < g->n_forward; k++) {
        const struct node *n = &g->node[k];
        const struct value *v = n->op == OP_embedding ? &g->value[n->in[EMBEDDING_TABLE]] : NULL;
        struct segment *s;

        if (!v || n->attr.embedding.padding == 0)
            continue;
        if (v->role == VALUE_COPY)
            v = &g->value[v->partner];
        s = v->role == VALUE_PARAM ? layout_segment_of(l, v->name) : NULL;
        if (s)
            s->padding = n->attr.embedding.padding;
    }
}

static void place_states(struct layout *l, const struct graph *g)
{
    l->state = arena_alloc(&l->arena, ((size_t)g->n_values + 1) * sizeof *l->state);
    for (int v = 0; v < g->n_values; v++)
        if (g->value[v].role == VALUE_STATE) {
            l->state[l->n_states] = make_segment(l, &g->value[v], l->n_state_total);
            l->n_state_total = segment_end(&l->state[l->n_states++]);
        }
}

static void layout_add_base(struct layout *l, const struct value *v)
{
    struct segment *s = &l->base[l->n_base++];
    const int64_t align = SEGMENT_ALIGN * sizeof(float);

    *s = make_segment(l, v, l->n_base_bytes);
    l->n_base_bytes += round_up_i64(s->length * (int64_t)dtype_size(v->dtype), align);
}

static void place_base(struct layout *l, const struct graph *g)
{
    l->base = arena_alloc(&l->arena, ((size_t)g->n_values + 1) * sizeof *l->base);
    for (int v = 0; v < g->n_values; v++) {
        const struct value *codes = &g->value[v];

        if (codes->role != VALUE_BASE || !codes->info) /* scales follow their codes */
            continue;
        layout_add_base(l, codes);
        if (codes->partner != NO_VALUE)
            layout_add_base(l, &g->value[codes->partner]);
    }
}

size_t layout_control_at(const struct layout *l, enum dtype dtype)
{
    const size_t align = SEGMENT_ALIGN * sizeof(float);

    return ((size_t)l->n_trained * dtype_size(dtype) + align - 1) / align * align;
}

size_t layout_grad_bytes(const struct layout *l, enum dtype dtype)
{
    return layout_control_at(l, dtype) + CONTROL_LEN * sizeof(float);
}

static void add_bucket(struct layout *l, int64_t from, int64_t to, int last_segment)
{
    l->bucket[l->n_buckets++] = (struct bucket){.offset = from,
                                                .length = to - from,
                                                .dtype = l->grad_dtype,
                                                .at = (size_t)from * dtype_size(l->grad_dtype),
                                                .last_segment = last_segment};
}

/* Append the control vector to the last bucket, or as a bucket of its own. */
static void add_control(struct layout *l)
{
    struct bucket *b;

    if (!l->n_buckets || l->grad_dtype != DTYPE_F32) {
        add_bucket(l, l->n_trained, l->n_trained,
                   l->n_buckets ? l->bucket[l->n_buckets - 1].last_segment : -1);
        l->bucket[l->n_buckets - 1].dtype = DTYPE_F32;
        l->bucket[l->n_buckets - 1].at = layout_control_at(l, l->grad_dtype);
    }
    b = &l->bucket[l->n_buckets - 1];
    b->length = l->n_grad - b->offset;
}

/* Cut the gradient buffer into buckets. */
static void add_buckets(struct layout *l, size_t bucket_bytes)
{
    size_t most = bucket_bytes < FIRST_BUCKET_BYTES ? bucket_bytes : FIRST_BUCKET_BYTES;
    int64_t start = 0;

    l->n_buckets = 0;
    for (int i = 0; i < l->n_params && !l->param[i].info.frozen; i++) {
        int64_t end = segment_end(&l->param[i]);

        if ((size_t)(end - start) * dtype_size(l->grad_dtype) >= most || end == l->n_trained) {
            add_bucket(l, start, end, i);
            start = end;
            most = bucket_bytes;
        }
    }
    add_control(l);
}

static size_t grad_bytes(const struct layout *l, int64_t n)
{
    return (size_t)n * dtype_size(l->grad_dtype);
}

/* The last parameter of a bucket that is full with the i-th.  A full bucket still takes a few small
 * ones: a layer's bias and norm are read with its weight, which stands in front of them. */
static int with_small_ones(const struct layout *l, int i, size_t bucket_bytes)
{
    const int64_t from = segment_end(&l->param[i]);

    while (i + 1 < l->n_params && grad_bytes(l, l->param[i + 1].length) < bucket_bytes / 64 &&
           grad_bytes(l, segment_end(&l->param[i + 1]) - from) <= bucket_bytes / 4)
        i++;
    return i;
}

/* Cut the frozen parameters into buckets, behind the others. */
static void add_frozen_buckets(struct layout *l, size_t bucket_bytes)
{
    int64_t start = l->n_trained, end;

    l->n_param_buckets = l->n_buckets;
    for (int i = 0; i < l->n_params; i++) {
        end = segment_end(&l->param[i]);
        if (end <= start || (grad_bytes(l, end - start) < bucket_bytes && end < l->n_total))
            continue;
        i = with_small_ones(l, i, bucket_bytes);
        end = segment_end(&l->param[i]);
        l->bucket[l->n_param_buckets++] = (struct bucket){
            .offset = start, .length = end - start, .dtype = DTYPE_F32, .last_segment = i};
        start = end;
    }
}

int layout_plan(const struct layout *l, size_t bucket_bytes, struct bucket *bucket)
{
    struct layout cut = *l;

    cut.bucket = bucket;
    add_buckets(&cut, bucket_bytes);
    return cut.n_buckets;
}

static void find_types(struct layout *l, const struct graph *g)
{
    l->grad_dtype = g->grad_dtype;
    l->copy_dtype = DTYPE_F32;
    for (int v = 0; v < g->n_values; v++) {
        if (g->value[v].role == VALUE_COPY)
            l->copy_dtype = g->value[v].dtype;
        l->has_scaler |= g->value[v].role == VALUE_SCALER;
    }
}

static void layout_add_segment(struct hasher *h, const struct segment *s)
{
    hasher_add_text(h, s->name);
    hasher_add_text(h, dtype_name(s->dtype));
    hasher_add_i64(h, s->shape.n);
    for (int i = 0; i < s->shape.n; i++)
        hasher_add_i64(h, s->shape.dim[i]);
    hasher_add_i64(h, s->offset);
    hasher_add_i64(h, s->length);
}

struct hash128 segment_hash(const struct segment *s)
{
    struct hasher *h = hasher_new();
    struct hash128 hash;

    layout_add_segment(h, s);
    hash = hasher_end(h);
    hasher_free(h);
    return hash;
}

static struct hash128 layout_hash(const struct layout *l)
{
    struct hasher *h = hasher_new();
    struct hash128 hash;

    hasher_add_i64(h, l->n_params);
    for (int i = 0; i < l->n_params; i++) {
        const struct param_info *info = &l->param[i].info;

        layout_add_segment(h, &l->param[i]);
        hasher_add_i64(h, info->init);
        hasher_add(h, &info->bound, sizeof info->bound);
        hasher_add_i64(h, info->kind);
        hasher_add_i64(h, info->frozen);
    }
    hasher_add_i64(h, l->n_states);
    for (int i = 0; i < l->n_states; i++) {
        layout_add_segment(h, &l->state[i]);
        hasher_add(h, &l->state[i].init_state, sizeof l->state[i].init_state);
    }
    hasher_add_i64(h, l->n_base);
    for (int i = 0; i < l->n_base; i++)
        layout_add_segment(h, &l->base[i]);
    hasher_add_i64(h, l->n_buckets);
    for (int i = 0; i < l->n_param_buckets; i++) {
        hasher_add_i64(h, l->bucket[i].offset);
        hasher_add_i64(h, l->bucket[i].length);
    }
    hasher_add_text(h, dtype_name(l->grad_dtype));
    hasher_add_text(h, dtype_name(l->copy_dtype));
    hasher_add_i64(h, l->has_scaler);
    hash = hasher_end(h);
    hasher_free(h);
    return hash;
}

void layout_cut(struct layout *l, size_t bucket_bytes)
{
    add_buckets(l, bucket_bytes);
    add_frozen_buckets(l, bucket_bytes);
    l->bucket_bytes = bucket_bytes;
    l->hash = layout_hash(l);
}

static int layout_by_name(const void *a, const void *b)
{
    const struct segment *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

static const struct segment **sort_names(struct layout *l, const struct segment *s, int n)
{
    const struct segment **sorted = arena_alloc(&l->arena, ((size_t)n + 1) * sizeof *sorted);

    for (int i = 0; i < n; i++)
        sorted[i] = &s[i];
    qsort(sorted, (size_t)n, sizeof *sorted, layout_by_name);
    return sorted;
}

int layout_find(const struct segment *const *sorted, int n, const char *name)
{
    int from = 0, to = n;

    while (from < to) {
        const int middle = from + (to - from) / 2;

        if (strcmp(sorted[middle]->name, name) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from < n && !strcmp(sorted[from]->name, name) ? from : -1;
}

int layout_new(const struct graph *g, size_t bucket_bytes, struct layout **out, struct err *err)
{
    struct entry *e = xcalloc((size_t)g->n_values, sizeof *e);
    struct layout *l = xcalloc(1, sizeof *l);
    struct writer *writer = find_writers(g);
    int n = 0, rc = list_params(g, writer, e, &n, err);

    if (rc == 0) {
        arena_init(&l->arena);
        find_types(l, g);
        place_params(l, g, e, n);
        place_paddings(l, g);
        place_states(l, g);
        place_base(l, g);
        l->bucket = arena_alloc(&l->arena, (size_t)layout_most_buckets(l) * sizeof *l->bucket);
        layout_cut(l, bucket_bytes);
        l->param_by_name = sort_names(l, l->param, l->n_params);
        l->state_by_name = sort_names(l, l->state, l->n_states);
        l->base_by_name = sort_names(l, l->base, l->n_base);
        *out = l;
    } else {
        free(l);
    }
    free(writer);
    free(e);
    return rc;
}

void layout_free(struct layout *l)
{
    if (!l)
        return;
    arena_fini(&l->arena);
    free(l);
}
