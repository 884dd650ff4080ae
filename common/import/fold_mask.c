/* fold_mask - constant masks of attention: a band below the diagonal is what kernels know.
 * The first row that has a limit proposes the form, and every element is compared with it. */
#include <float.h>

#include "import/fold.h"

/* 1: the key may be read; 0: it may not; -1: the number is no mask. */
static int mask_reads_by(const struct host_tensor *t, double v)
{
    if (t->type == IMPORT_BOOL)
        return v != 0;
    return v == 0 ? 1 : v <= -(double)FLT_MAX ? 0 : -1;
}

static int mask_reads(const struct host_tensor *t, int64_t i)
{
    return mask_reads_by(t, host_element(t, i));
}

static int mask_has_form(const struct host_tensor *t, int64_t queries, int64_t keys,
                         const struct mask_form *f)
{
    const int64_t n = host_count(t);
    struct fold_num v[FOLD_RUN];
    int64_t q = 0, k = 0;

    for (int64_t i = 0, m; i < n; i += m) {
        m = fold_read(t, i, n - i, v);
        for (int j = 0; j < m; j++) {
            const int64_t last = q + f->offset;
            const int wanted = f->kind == MASK_ALL ||
                               (k <= last && (f->kind == MASK_CAUSAL || k > last - f->width));

            if (mask_reads_by(t, v[j].f) != wanted)
                return 0;
            if (++k < keys)
                continue;
            k = 0;
            q = q + 1 < queries ? q + 1 : 0;
        }
    }
    return 1;
}

/* The mask, each part that repeats for leading indices once. */
static struct host_tensor host_once(const struct host_tensor *mask)
{
    struct host_tensor t = *mask;

    for (int d = 0; d + 2 < t.n_dims; d++)
        if (t.stride[d] == 0 && t.dim[d] > 1)
            t.dim[d] = 1;
    return t;
}

struct mask_form mask_form_of(const struct host_tensor *mask)
{
    struct mask_form f = {.kind = MASK_ALL}, other = {.kind = MASK_OTHER};
    const struct host_tensor once = host_once(mask), *t = &once;
    int64_t queries, keys, first = -1, last = -1;

    if (t->n_dims < 2 || host_count(t) == 0 || t->type == IMPORT_I64)
        return other;
    queries = t->dim[t->n_dims - 2];
    keys = t->dim[t->n_dims - 1];
    if (mask_has_form(t, queries, keys, &f))
        return f;
    for (int64_t k = 0; k < keys; k++) /* of row 0: where the band ends */
        if (mask_reads(t, k) == 1)
            last = k;
    f = (struct mask_form){.kind = MASK_CAUSAL, .offset = last};
    if (last < 0)
        return other;
    if (mask_has_form(t, queries, keys, &f))
        return f;
    for (int64_t k = 0; k < keys && first < 0; k++) /* of the last row: where it begins */
        if (mask_reads(t, (queries - 1) * keys + k) == 1)
            first = k;
    f.kind = MASK_SLIDING;
    f.width = queries - 1 + f.offset - first + 1;
    return first >= 0 && f.width > 0 && queries - 1 + f.offset - f.width < keys - 1 &&
                   mask_has_form(t, queries, keys, &f)
               ? f
               : other;
}
