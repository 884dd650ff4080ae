/* NumPy's arrays, as dpdriver --init sees them: files that belong together by their names, and the
 * network that suits their shapes. */
#include "driver/init_find.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/npy_file.h"

enum { MOST_CHANNELS = 4, LOOKED_AT = 1000 };

/* Names for the inputs and for the targets of a set, each in its place. */
static const char *const pairs[][2] = {
    {"x", "y"},
    {"X", "y"},
    {"X", "Y"},
    {"images", "labels"},
    {"image", "label"},
    {"data", "labels"},
    {"data", "targets"},
    {"features", "labels"},
    {"inputs", "targets"},
    {"features", "targets"},
    {"samples", "labels"},
    {"input", "target"},
};

/* A word of a set, a pair's word and a form make a name: "train.x.npy", "x_train.npy". */
static const char *const forms[] = {"%1$s.%2$s.npy", "%1$s_%2$s.npy", "%2$s_%1$s.npy",
                                    "%1$s-%2$s.npy", "%2$s.%1$s.npy"};

struct init_pair {
    char x[128], y[128];
};

/* The files of the set with this word; "": files without one. */
static int arrays_find_set(const struct init_look *l, const char *set, struct init_pair *out)
{
    for (size_t f = 0; f < ARRAY_LEN(forms); f++)
        for (size_t p = 0; p < ARRAY_LEN(pairs); p++) {
            if (*set) {
                snprintf(out->x, sizeof out->x, forms[f], set, pairs[p][0]);
                snprintf(out->y, sizeof out->y, forms[f], set, pairs[p][1]);
            } else {
                snprintf(out->x, sizeof out->x, "%s.npy", pairs[p][0]);
                snprintf(out->y, sizeof out->y, "%s.npy", pairs[p][1]);
            }
            if (init_look_has(l, out->x) && init_look_has(l, out->y))
                return 1;
        }
    return 0;
}

static int arrays_open(const struct init_look *l, const char *name, struct npy *a, struct err *err)
{
    char *path = init_look_join(l, name);
    const int rc = npy_open(a, path, err);

    free(path);
    return rc;
}

/* 1: no place of the last axis has one value alone in the first rows, so that it can be scaled. */
static int arrays_vary(const struct npy *x)
{
    const int64_t row = npy_row(x), c = x->shape.n > 1 ? x->shape.dim[x->shape.n - 1] : 1;
    const int64_t n = min_i64(x->shape.dim[0], max_i64(2, (1 << 22) / max_i64(row, 1)));
    double *first, *now;
    char *differs;
    int64_t n_same = c;

    if (c > 256 || row > 1 << 22)
        return 0;
    first = xcalloc((size_t)row, sizeof *first);
    now = xcalloc((size_t)row, sizeof *now);
    differs = xcalloc((size_t)c, 1);
    for (int64_t i = 0; i < min_i64(n, LOOKED_AT) && n_same > 0; i++) {
        npy_doubles(x, npy_element(x, i * row), row, now);
        if (i == 0)
            memcpy(first, now, (size_t)c * sizeof *first);
        for (int64_t k = 0; k < row; k++)
            if (!differs[k % c] && now[k] != first[k % c]) {
                differs[k % c] = 1;
                n_same--;
            }
    }
    free(first);
    free(now);
    free(differs);
    return n_same == 0;
}

/* Images are [N,H,W,C] or [N,C,H,W] with a few channels. */
static void arrays_set_network(const struct npy *x, struct init_job *j)
{
    const int64_t *dim = x->shape.dim;
    const int is_image = x->shape.n == 4,
              is_first = is_image && dim[1] <= MOST_CHANNELS && dim[3] > MOST_CHANNELS;

    if (is_first)
        init_set(j, "data.layout", "nchw");
    if (is_image && (is_first || dim[3] <= MOST_CHANNELS))
        init_set_network(j, dim[is_first ? 2 : 1], dim[is_first ? 3 : 2]);
    else
        init_set_network(j, 1, 1);
    if (!strcmp(init_value(j, "model.arch"), "mlp"))
        init_set(j, "model.hidden", "[64, 64]");
    if (!is_first && arrays_vary(x))
        init_set(j, "data.normalize.source", "auto");
}

static void arrays_set_files(struct init_job *j, const char *key, const struct init_pair *p)
{
    init_set_texts(j, key, (const char *const[]){p->x, p->y}, 2);
}

/* 0 if the arrays fit each other and a network of ours. */
static int arrays_set(const struct init_look *l, const struct init_pair *p, struct init_job *j,
                      struct err *err)
{
    struct npy x = {0}, y = {0};
    int rc = arrays_open(l, p->x, &x, err);

    if (rc == 0)
        rc = arrays_open(l, p->y, &y, err);
    if (rc == 0 && npy_is_whole(y.type) && y.shape.n > 1)
        rc = INIT_NONE; /* a class for each place wants a network of its own */
    if (rc == 0) {
        init_set_text(j, "data.path", l->folder);
        arrays_set_files(j, "data.train", p);
        arrays_set_network(&x, j);
        if (!npy_is_whole(y.type)) {
            init_set(j, "model.loss", "mse");
            if (arrays_vary(&y))
                init_set(j, "data.targets.normalize", "auto");
        }
    }
    npy_close(&x);
    npy_close(&y);
    return rc;
}

int init_find_npy(const struct init_look *l, struct init_job *j, struct err *err)
{
    static const char *const trains[] = {"train", "training", ""};
    struct init_pair p;
    int found = 0, rc;

    for (size_t i = 0; i < ARRAY_LEN(trains) && !found; i++)
        found = arrays_find_set(l, trains[i], &p);
    if (!found)
        return INIT_NONE;
    rc = arrays_set(l, &p, j, err);
    for (int i = 0; rc == 0 && init_validation_names[i]; i++)
        if (arrays_find_set(l, init_validation_names[i], &p)) {
            arrays_set_files(j, "data.validation", &p);
            break;
        }
    return rc;
}
