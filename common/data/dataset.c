/* The list of formats, made from the words in data/meson.build, and what readers have in common:
 * scaling bytes to floats, and the fingerprint. */
#include "data/dataset.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/reader.h"

const struct option_group *const data_formats[] = {
#define X(name) &format_##name.group,
    FORMAT_LIST(X)
#undef X
        NULL};

int dataset_open(struct dataset **out, const struct data_options *o,
                 const struct dataset_request *request, struct err *err)
{
    *out = NULL;
    return o->kind->open(out, o->options, request, err);
}

void dataset_close(struct dataset *ds)
{
    if (ds)
        ds->ops->close(ds);
}

int dataset_gather(const struct dataset *ds, const int64_t *index, int64_t n, float *x, int32_t *y,
                   struct err *err)
{
    for (int64_t i = 0; i < n; i++)
        ASSERT(index[i] >= 0 && index[i] < ds->n_samples);
    return ds->ops->gather(ds, index, n, x, y, err);
}

/* 1/255 as a sum: v * high is exact (8 bits by 9), and the one rounding of the sum then gives the
 * quotient's bits for each of the 256 values, as a test shows.  Twice as fast as dividing; a
 * product with 1/255 alone would be wrong for half of the values. */
void reader_scale(float *restrict x, const uint8_t *restrict v, int64_t n)
{
    const float high = 0x1.01p-8f, low = (float)(1 / 255.0 - 0x1.01p-8);

    for (int64_t i = 0; i < n; i++) {
        float f = (float)v[i];

        x[i] = f * high + f * low;
    }
}

void reader_fetch(const uint8_t *v, int64_t n)
{
    enum { LINE = 64, MOST = 2048 };

    for (int64_t i = 0; i < min_i64(n, MOST); i += LINE)
        __builtin_prefetch(v + i);
}

/* ---- fingerprint ---- */

enum {
    PRINT_SAMPLES = 32,     /* samples that are hashed whole, */
    PRINT_FLOATS = 1 << 18, /* or fewer, so as not to exceed so many values, */
    PRINT_LABELS = 4096,    /* and labels */
};

/* `n` indices spread evenly over the samples, both ends included. */
static void spread(int64_t *index, int64_t n, int64_t n_samples)
{
    for (int64_t i = 0; i < n; i++)
        index[i] = n > 1 ? i * (n_samples - 1) / (n - 1) : 0;
}

static int print_labels(struct hasher *h, const struct dataset *ds, struct err *err)
{
    int64_t index[PRINT_LABELS], n = min_i64(PRINT_LABELS, ds->n_samples);
    int32_t y[PRINT_LABELS];
    int rc;

    spread(index, n, ds->n_samples);
    rc = dataset_gather(ds, index, n, NULL, y, err);
    if (rc == 0)
        hasher_add(h, y, (size_t)n * sizeof *y);
    return rc;
}

static int print_samples(struct hasher *h, const struct dataset *ds, struct err *err)
{
    int64_t index[PRINT_SAMPLES], size = shape_elements(&ds->sample);
    int64_t n = min_i64(min_i64(PRINT_SAMPLES, ds->n_samples), max_i64(PRINT_FLOATS / size, 1));
    int32_t y[PRINT_SAMPLES];
    size_t n_bytes = (size_t)(n * size) * sizeof(float);
    void *x;
    int rc = try_alloc(&x, n_bytes, "the fingerprint of the data", err);

    if (rc < 0)
        return rc;
    spread(index, n, ds->n_samples);
    rc = dataset_gather(ds, index, n, x, y, err);
    if (rc == 0)
        hasher_add(h, x, n_bytes);
    free(x);
    return rc;
}

int dataset_fingerprint(const struct dataset *ds, struct hash128 *out, struct err *err)
{
    struct hasher *h = hasher_new();
    int rc;

    hasher_add_text(h, ds->ops->name);
    hasher_add_i64(h, ds->n_samples);
    hasher_add_i64(h, ds->n_classes);
    for (int i = 0; i < ds->sample.n; i++)
        hasher_add_i64(h, ds->sample.dim[i]);
    rc = print_labels(h, ds, err);
    if (rc == 0)
        rc = print_samples(h, ds, err);
    if (rc == 0)
        *out = hasher_end(h);
    hasher_free(h);
    return rc;
}
