/* weights - elements of a tensor, gathered from the file's storage by strides.
 *
 * The member of a tensor is compared with its checksum when the tensor is first read. */
#include "import/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "import/onnx.h"
#include "import/pt2.h"
#include "import/weights_impl.h"
#include "import/zip.h"

struct import_weights {
    struct zip *zip;            /* NULL: the file is */
    struct onnx_file *onnx;     /* one in ONNX's format */
    struct import_network *net; /* of the file */
    const struct import_tensor **by_name;
    const struct zip_member **by_place;
    char *is_checked; /* for each of by_place */
};

static int weights_by_name(const void *a, const void *b)
{
    return strcmp((*(const struct import_tensor *const *)a)->name,
                  (*(const struct import_tensor *const *)b)->name);
}

/* Empty members come before others of their place. */
static int weights_by_place(const void *a, const void *b)
{
    const struct zip_member *x = *(const struct zip_member *const *)a,
                            *y = *(const struct zip_member *const *)b;

    return x->at != y->at ? (x->at < y->at ? -1 : 1)
                          : (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes);
}

void weights_gather(const void *storage, const struct import_tensor *t, int64_t first, int64_t n,
                    void *to)
{
    const size_t size = import_type_size(t->type);
    int64_t at[IMPORT_MAX_DIMS] = {0}, rest = first;
    const int last = t->n_dims - 1;
    char *out = to;

    for (int i = last; i >= 0 && n > 0; i--) {
        at[i] = rest % t->dim[i];
        rest /= t->dim[i];
    }
    while (n > 0) {
        const int64_t row = last < 0 ? 1 : min_i64(n, t->dim[last] - at[last]);
        const int64_t stride = last < 0 ? 1 : t->stride[last];
        int64_t from = t->offset;
        const char *src;

        for (int i = 0; i <= last; i++)
            from += at[i] * t->stride[i];
        src = (const char *)storage + (size_t)from * size;
        if (stride == 1)
            memcpy(out, src, (size_t)row * size);
        else
            for (int64_t i = 0; i < row; i++)
                memcpy(out + (size_t)i * size, src + (size_t)(i * stride) * size, size);
        out += (size_t)row * size;
        n -= row;
        for (int i = last, carry = 1; carry && i >= 0; i--) {
            at[i] = i == last ? 0 : at[i] + 1;
            carry = i == last || at[i] == t->dim[i];
            at[i] = carry ? 0 : at[i];
        }
    }
}

static int weights_load(struct import_weights *w, const char *path, struct err *err)
{
    int rc;

    if (onnx_is_name(path)) {
        rc = onnx_open(path, &w->onnx, err);
        return rc == 0 ? onnx_parse(w->onnx, &w->net, err) : rc;
    }
    rc = zip_open(path, &w->zip, err);
    return rc == 0 ? pt2_parse_state(w->zip, &w->net, err) : rc;
}

int import_weights_open(const char *path, struct import_weights **out, struct err *err)
{
    struct import_weights *w = xcalloc(1, sizeof *w);
    size_t n;

    if (weights_load(w, path, err) < 0) {
        import_weights_close(w);
        return err->code;
    }
    n = (size_t)w->net->n_tensors;
    w->by_name = xcalloc(n + 1, sizeof *w->by_name);
    for (size_t i = 0; i < n; i++)
        w->by_name[i] = &w->net->tensor[i];
    qsort(w->by_name, n, sizeof *w->by_name, weights_by_name);
    n = w->zip ? (size_t)w->zip->n_members : 0;
    w->by_place = xcalloc(n + 1, sizeof *w->by_place);
    w->is_checked = xcalloc(n + 1, 1);
    for (size_t i = 0; i < n; i++)
        w->by_place[i] = &w->zip->member[i];
    qsort(w->by_place, n, sizeof *w->by_place, weights_by_place);
    *out = w;
    return 0;
}

void import_weights_close(struct import_weights *w)
{
    if (!w)
        return;
    import_network_free(w->net);
    zip_close(w->zip);
    onnx_close(w->onnx);
    free(w->by_name);
    free(w->by_place);
    free(w->is_checked);
    free(w);
}

/* The file's tensor that is called as t and is like it. */
static int import_weights_find(const struct import_weights *w, const struct import_tensor *t,
                               const struct import_tensor **out, struct err *err)
{
    const struct import_tensor *const *at =
        bsearch(&t, w->by_name, (size_t)w->net->n_tensors, sizeof *w->by_name, weights_by_name);
    const char *path = w->net->path;

    if (!at)
        return err_set(err, ERR_CONFIG,
                       "%s: it has no tensor %s, which the network has; the file has changed: give "
                       "the one that the job began with",
                       path, t->name);
    if ((*at)->type != t->type || (*at)->n_dims != t->n_dims ||
        memcmp((*at)->dim, t->dim, sizeof *t->dim * (size_t)t->n_dims) != 0)
        return err_set(err, ERR_CONFIG,
                       "%s: tensor %s has another shape or type than in the network; the file has "
                       "changed: give the one that the job began with",
                       path, t->name);
    *out = *at;
    return 0;
}

static int weights_check(struct import_weights *w, const struct import_tensor *t, struct err *err)
{
    const struct zip_member like = {.at = t->file_at, .n_bytes = t->file_bytes}, *key = &like,
                            *const *at = bsearch(&key, w->by_place, (size_t)w->zip->n_members,
                                                 sizeof *w->by_place, weights_by_place);

    ASSERT(at);
    if (!w->is_checked[at - w->by_place] && zip_check(w->zip, *at, err) < 0)
        return err->code;
    w->is_checked[at - w->by_place] = 1;
    return 0;
}

int import_weights_read(struct import_weights *w, const struct import_tensor *t, int64_t first,
                        int64_t n, void *to, struct err *err)
{
    const struct import_tensor *mine = NULL;

    if (import_weights_find(w, t, &mine, err) < 0)
        return err->code;
    ASSERT(first >= 0 && n >= 0 && n <= import_tensor_elements(mine) - first);
    if (w->onnx)
        return onnx_read_tensor(w->onnx, mine->name, first, n, to, err);
    if (weights_check(w, mine, err) < 0)
        return err->code;
    weights_gather(w->zip->bytes + mine->file_at, mine, first, n, to);
    return 0;
}
