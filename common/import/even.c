/* even - parameters that are one number throughout in the file: the value that the module's author
 * gave them before any training, such as 1e-6 for a layer scale, or 0 for a class token. */
#include "import/even.h"

#include <math.h>

#include "base/util.h"
#include "import/fold.h"

/* Elements read at once.  Weights that were drawn differ among the first ones. */
enum { EVEN_RUN = 64 };

/* 1: all elements of t are *number, and can be read. */
static int even_look(const struct import_tensor *t, even_reader *read, void *from, double *number)
{
    char bytes[EVEN_RUN * sizeof(double)];
    const int64_t n = import_tensor_elements(t);
    struct err ignored; /* whoever needs the elements will meet it */

    for (int64_t at = 0; at < n; at += EVEN_RUN) {
        struct host_tensor run = {.type = t->type,
                                  .n_dims = 1,
                                  .dim = {min_i64(EVEN_RUN, n - at)},
                                  .stride = {1},
                                  .data = bytes};

        if (read(from, t, at, run.dim[0], bytes, &ignored) < 0)
            return 0;
        if (at == 0)
            *number = host_element(&run, 0);
        for (int64_t i = 0; i < run.dim[0]; i++)
            if (host_element(&run, i) != *number)
                return 0;
    }
    return n > 0 && isfinite(*number);
}

void import_find_even(struct import_network *n, even_reader *read, void *from)
{
    for (int i = 0; i < n->n_tensors; i++) {
        struct import_tensor *t = &n->tensor[i];
        double number = 0;

        if (t->role != IMPORT_PARAMETER || t->same_as >= 0 || !host_is_real(t->type))
            continue;
        t->is_even = even_look(t, read, from, &number);
        t->even = t->is_even ? number : 0;
    }
}
