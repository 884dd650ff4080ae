/* saved - reads the newest checkpoints of two runs whole and compares them. */
#include "saved.h"

#include "../test.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"

enum { MOST_FILE = 1 << 23 };

void make_dir(struct dir *d)
{
    snprintf(d->path, sizeof d->path, "/tmp/dptrain-saved-XXXXXX");
    assert_non_null(mkdtemp(d->path));
}

/* The files of the newest checkpoint, one after the other; for free().  Jobs without train.average
 * have no third one. */
static char *read_checkpoint(const struct dir *d, size_t *n)
{
    static const char *const name[] = {"model", "optimizer", "model_average"};
    char *bytes = xcalloc(1, MOST_FILE);

    *n = 0;
    for (size_t i = 0; i < ARRAY_LEN(name); i++) {
        char path[160];
        FILE *f;

        snprintf(path, sizeof path, "%s/checkpoints/latest/%s.safetensors", d->path, name[i]);
        f = fopen(path, "r");
        assert_true(f || i == 2);
        if (!f)
            continue;
        *n += fread(bytes + *n, 1, MOST_FILE - *n, f);
        fclose(f);
    }
    assert_true(*n > 1000 && *n < MOST_FILE);
    return bytes;
}

void assert_same_checkpoints(const struct dir *a, const struct dir *b, const char *what)
{
    size_t n, m;
    char *x = read_checkpoint(a, &n), *y = read_checkpoint(b, &m);

    if (n != m || memcmp(x, y, n) != 0)
        fail_msg("%s: the checkpoints differ", what);
    free(x);
    free(y);
}

void assert_close_checkpoints(const struct dir *a, const struct dir *b, double most,
                              const char *what)
{
    double differs = 0, sum = 0;
    size_t n, m;
    char *x = read_checkpoint(a, &n), *y = read_checkpoint(b, &m);

    assert_true(n == m);
    for (size_t i = 0; i + sizeof(float) <= n; i += sizeof(float)) {
        float u, v;

        memcpy(&u, x + i, sizeof u);
        memcpy(&v, y + i, sizeof v);
        if (fabsf(u) > 1e4f || !isfinite(u)) { /* four letters */
            assert_memory_equal(x + i, y + i, sizeof u);
            continue;
        }
        differs += ((double)u - (double)v) * ((double)u - (double)v);
        sum += (double)u * (double)u;
    }
    if (!(differs <= most * most * sum))
        fail_msg("%s: the checkpoints differ by %g", what, sqrt(differs / sum));
    free(x);
    free(y);
}
