/* Fuzz target: the input is an IDX file, compressed or not.  It is refused, or its array can be
 * read in full. */
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/util.h"
#include "data/idx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void parse(enum idx_type type, const uint8_t *data, size_t size)
{
    struct idx x = {0};
    struct err err;

    if (idx_parse(&x, data, size, &(struct idx_want){type, 1, IDX_MAX_DIMS}, &err) == 0) {
        int64_t n = 1;

        for (int i = 0; i < x.n_dims; i++)
            n *= x.dim[i];
        ASSERT(n * idx_element_bytes(&x) == x.n_bytes);
        hash_of(x.data, (size_t)x.n_bytes);
        if (type == IDX_I32)
            (void)idx_int(&x, n - 1);
    }
    idx_fini(&x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    parse(IDX_U8, data, size);
    parse(IDX_I32, data, size);
    return 0;
}
