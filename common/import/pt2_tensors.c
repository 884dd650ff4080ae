/* pt2_tensors - parameters, buffers and constants of a .pt2, by the two tables of its archive.
 *
 * A row of a table names a member with the bytes of a whole storage; a tensor is a view of it.  Its
 * furthest element is checked to lie in the member before any is read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "import/pt2_impl.h"
#include "import/weights_impl.h"

/* The rows of both tables that a role looks in, the likelier one first. */
static json_t *tensors_row(struct pt2 *p, const char *name, enum import_role role,
                           const char **folder)
{
    const int is_constant = role == IMPORT_CONSTANT;
    json_t *row = json_object_get(is_constant ? p->constants : p->weights, name);

    *folder = is_constant ? "data/constants/" : "data/weights/";
    if (!row) {
        row = json_object_get(is_constant ? p->weights : p->constants, name);
        *folder = is_constant ? "data/weights/" : "data/constants/";
    }
    return row;
}

static int tensors_strides(struct pt2 *p, struct import_tensor *t, json_t *meta)
{
    json_t *strides = json_object_get(meta, "strides");
    int symbol;

    if (json_array_size(strides) != (size_t)t->n_dims)
        return pt2_damaged(p, "tensor %s has %zu strides, want %d", t->name,
                           json_array_size(strides), t->n_dims);
    for (int i = 0; i < t->n_dims; i++) {
        if (pt2_size(p, json_array_get(strides, (size_t)i), &t->stride[i], &symbol) < 0)
            return err_wrap(p->err, "tensor %s", t->name);
        if (symbol >= 0 || t->stride[i] < 0)
            return pt2_damaged(p, "tensor %s has a stride that is no number of 0 or more", t->name);
    }
    if (pt2_size(p, json_object_get(meta, "storage_offset"), &t->offset, &symbol) < 0)
        return err_wrap(p->err, "tensor %s", t->name);
    if (symbol >= 0 || t->offset < 0)
        return pt2_damaged(p, "tensor %s has an offset that is no number of 0 or more", t->name);
    return 0;
}

/* All elements lie in the storage. */
static int tensors_check_bounds(struct pt2 *p, const struct import_tensor *t)
{
    const int64_t room = (int64_t)(t->file_bytes / import_type_size(t->type));
    int64_t last = t->offset, n = 1;

    for (int i = 0; i < t->n_dims; i++) {
        int64_t far;

        if (t->dim[i] < 0)
            return pt2_damaged(p, "tensor %s has the extent %lld", t->name, (long long)t->dim[i]);
        if (t->dim[i] > 0 && n > INT64_MAX / 64 / t->dim[i])
            return pt2_damaged(p, "tensor %s has too many elements", t->name);
        n *= t->dim[i];
        if (t->dim[i] > 1 && (__builtin_mul_overflow(t->dim[i] - 1, t->stride[i], &far) ||
                              __builtin_add_overflow(last, far, &last)))
            return pt2_damaged(p, "tensor %s has strides that are too large", t->name);
    }
    if (n > 0 && last >= room)
        return pt2_damaged(p, "tensor %s reaches element %lld of a storage of %lld", t->name,
                           (long long)last, (long long)room);
    return 0;
}

/* The place, shape and strides as a text: equal ones are one tensor. */
static void tensors_tie(struct pt2 *p, struct import_tensor *t, int index)
{
    char key[32 * (2 * IMPORT_MAX_DIMS + 4)];
    int len =
        snprintf(key, sizeof key, "%zu %d %lld", t->file_at, (int)t->type, (long long)t->offset);
    json_t *first;

    for (int i = 0; i < t->n_dims; i++)
        len += snprintf(key + len, sizeof key - (size_t)len, " %lld:%lld", (long long)t->dim[i],
                        (long long)t->stride[i]);
    first = t->file_bytes > 0 ? json_object_get(p->storages, key) : NULL;
    t->same_as = first ? (int)json_integer_value(first) : -1;
    if (!first)
        json_object_set_new(p->storages, key, json_integer(index));
}

static int tensors_fill(struct pt2 *p, struct import_tensor *t, json_t *row, const char *folder)
{
    json_t *meta = json_object_get(row, "tensor_meta");
    const char *path = json_string_value(json_object_get(row, "path_name"));
    const struct zip_member *m;
    struct import_value v = {0};
    char name[1024];

    if (json_is_true(json_object_get(row, "use_pickle")))
        return pt2_refuse(p,
                          "tensor %s is stored as a pickle, which is never read; export a network "
                          "of ordinary tensors (a subclass, such as a quantized one, is not)",
                          t->name);
    if (!path || snprintf(name, sizeof name, "%s%s%s", p->folder, folder, path) >= (int)sizeof name)
        return pt2_damaged(p, "tensor %s has no path_name", t->name);
    m = zip_find(p->zip, name);
    if (!m)
        return pt2_damaged(p, "tensor %s is in the member %s, which is not there", t->name, name);
    if (pt2_meta(p, meta, t->name, &v) < 0)
        return p->err->code;
    if (t->role != IMPORT_PARAMETER && !json_object_get(p->checked, name)) {
        if (zip_check(p->zip, m, p->err) < 0)
            return p->err->code;
        json_object_set_new(p->checked, name, json_true());
    }
    t->type = v.type;
    t->n_dims = v.n_dims;
    t->file_at = m->at;
    t->file_bytes = m->n_bytes;
    t->requires_grad = json_is_true(json_object_get(meta, "requires_grad"));
    for (int i = 0; i < v.n_dims; i++) {
        t->dim[i] = v.dim[i];
        if (v.symbol[i] >= 0)
            return pt2_damaged(p, "tensor %s has a symbolic extent", t->name);
    }
    if (tensors_strides(p, t, meta) < 0)
        return p->err->code;
    return tensors_check_bounds(p, t);
}

int pt2_tensor(struct pt2 *p, const char *key, enum import_role role)
{
    struct import_network *n = p->net;
    const char *folder;
    json_t *row = tensors_row(p, key, role, &folder);
    struct import_tensor *t;

    if (!row)
        return pt2_damaged(p, "tensor %s is in neither table of the archive", key);
    if (json_object_get(p->tensors, key))
        return pt2_damaged(p, "tensor %s is an input twice", key);
    if (pt2_grow(p, (void **)&n->tensor, sizeof *n->tensor, n->n_tensors, &p->room_tensors,
                 IMPORT_MAX_TENSORS, "tensors") < 0)
        return p->err->code;
    t = &n->tensor[n->n_tensors];
    *t = (struct import_tensor){.name = arena_strdup(&n->arena, key), .role = role};
    if (tensors_fill(p, t, row, folder) < 0)
        return p->err->code;
    tensors_tie(p, t, n->n_tensors);
    json_object_set_new(p->tensors, key, json_integer(n->n_tensors));
    return n->n_tensors++;
}

int pt2_rest_of_state(struct pt2 *p)
{
    const char *key;
    json_t *row;

    json_object_foreach(p->weights, key, row)
    {
        const int is_param = json_is_true(json_object_get(row, "is_param"));

        if (!json_object_get(p->tensors, key) &&
            pt2_tensor(p, key, is_param ? IMPORT_PARAMETER : IMPORT_BUFFER) < 0)
            return p->err->code;
    }
    json_object_foreach(p->constants, key, row)
    {
        if (p->is_state && !json_object_get(p->tensors, key) &&
            pt2_tensor(p, key, IMPORT_CONSTANT) < 0)
            return p->err->code;
    }
    return 0;
}

/* The bytes [first, end) of a tensor in the file. */
struct tensors_range {
    size_t first, end;
    int tensor;
};

static int tensors_by_first(const void *a, const void *b)
{
    const struct tensors_range *x = a, *y = b;

    return (x->first > y->first) - (x->first < y->first);
}

static struct tensors_range tensors_range_of(const struct import_tensor *t, int tensor)
{
    const size_t size = import_type_size(t->type);
    struct tensors_range r = {t->file_at + (size_t)t->offset * size, 0, tensor};

    r.end = r.first + size;
    for (int d = 0; d < t->n_dims; d++)
        r.end += (size_t)(t->dim[d] - 1) * (size_t)t->stride[d] * size;
    return r;
}

/* A trained parameter that shares only some of its elements with another tensor, or in another
 * order, would change while the other does not. */
int pt2_refuse_overlaps(struct pt2 *p)
{
    const struct import_network *n = p->net;
    struct tensors_range *r = xcalloc((size_t)n->n_tensors + 1, sizeof *r);
    int count = 0, farthest = -1, farthest_trained = -1, rc = 0;

    for (int i = 0; i < n->n_tensors; i++)
        if (n->tensor[i].same_as < 0 && import_tensor_elements(&n->tensor[i]) > 0)
            r[count++] = tensors_range_of(&n->tensor[i], i);
    qsort(r, (size_t)count, sizeof *r, tensors_by_first);
    for (int i = 0; i < count && rc == 0; i++) {
        const struct import_tensor *t = &n->tensor[r[i].tensor];
        const int trained = t->role == IMPORT_PARAMETER && t->requires_grad;
        const int other = trained ? farthest : farthest_trained;

        if (other >= 0 && r[i].first < r[other].end)
            rc = pt2_refuse(p,
                            "tensors %s and %s share some of their elements, and one of them is "
                            "trained; tensors may share all of them in one order, or none: give "
                            "one of them a copy (.clone()) before the export",
                            n->tensor[r[other].tensor].name, t->name);
        if (farthest < 0 || r[i].end > r[farthest].end)
            farthest = i;
        if (trained && (farthest_trained < 0 || r[i].end > r[farthest_trained].end))
            farthest_trained = i;
    }
    free(r);
    return rc;
}

/* Mark the tensors that a batch norm updates: their numbers come with the state. */
static void tensors_mark(const struct import_network *n, char *is_updated)
{
    static const char *const names[] = {"running_mean", "running_var"};

    for (int i = 0; i < n->n_nodes; i++)
        for (size_t k = 0; k < ARRAY_LEN(names); k++) {
            const struct import_node *node = &n->node[i];
            const struct import_arg *a = import_arg_find(node, names[k], (int)k + 3);

            if (strstr(node->target, "batch_norm") && a && a->kind == IMPORT_VALUE &&
                n->value[a->values[0]].tensor >= 0)
                is_updated[n->value[a->values[0]].tensor] = 1;
        }
}

static int tensors_read(struct pt2 *p, struct import_tensor *t)
{
    const int64_t n = import_tensor_elements(t);
    const size_t size = import_type_size(t->type);
    char *bytes;

    if ((size_t)n > (PT2_MAX_CONTENT - p->content_bytes) / size)
        return pt2_refuse(p,
                          "the constants and buffers have more than %d MiB (tensor %s has %lld "
                          "elements), which is not supported",
                          PT2_MAX_CONTENT >> 20, t->name, (long long)n);
    p->content_bytes += (size_t)n * size;
    bytes = arena_alloc(&p->net->arena, (size_t)n * size + 1);
    weights_gather(p->zip->bytes + t->file_at, t, 0, n, bytes);
    t->bytes = bytes;
    return 0;
}

int pt2_read_contents(struct pt2 *p)
{
    struct import_network *n = p->net;
    char *is_updated = arena_alloc(&n->arena, (size_t)n->n_tensors + 1);

    tensors_mark(n, is_updated);
    for (int i = 0; i < n->n_tensors; i++) {
        struct import_tensor *t = &n->tensor[i];

        if (t->role == IMPORT_PARAMETER || is_updated[i])
            continue;
        if (tensors_read(p, t) < 0)
            return p->err->code;
    }
    return 0;
}
