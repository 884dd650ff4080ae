/* Fuzz target: the input is a safetensors file from a stranger.  It is refused, or every tensor can
 * be read whole. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/util.h"
#include "ckpt/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct st_file *f;
    struct err err;

    if (st_parse(data, size, "fuzz", &f, &err) < 0)
        return 0;
    for (int i = 0; i < st_count(f); i++) {
        const struct st_tensor *t = st_at(f, i);
        size_t n = dtype_size(t->dtype) * (size_t)shape_elements(&t->shape);
        uint8_t *bytes = malloc(n + 1);

        ASSERT(bytes && st_read(f, t, 0, bytes, n, &err) == 0);
        free(bytes);
        ASSERT(st_find(f, t->name));
    }
    st_close(f);
    return 0;
}
