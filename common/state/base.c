/* base - packs numbers in the host's memory, and copies their codes and scales to the slot of the
 * base. */
#include "state/base.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

/* Copy n elements to element `first` of the i-th tensor. */
static int base_copy(struct state *s, int i, int64_t first, const void *from, int64_t n,
                     struct err *err)
{
    const struct segment *to = &s->layout->base[i];
    const size_t size = dtype_size(to->dtype);
    char *data = state_data(s, &slot_base);

    ASSERT(first >= 0 && first + n <= to->length);
    return backend_copy_in(s->backend, data + to->offset + size * (size_t)first, from,
                           size * (size_t)n, err);
}

static int base_put_blocks(struct state *s, int i, int64_t first, const float *x, int64_t n,
                           struct err *err)
{
    int8_t *codes = xmalloc((size_t)n + 1);
    float *scales = xmalloc(sizeof *scales * (size_t)(blocks_of(n) + 1));
    int rc;

    ASSERT(first % BLOCKS_LEN == 0);
    blocks_pack(x, n, codes, scales);
    rc = base_copy(s, i, first, codes, n, err);
    if (rc == 0)
        rc = base_copy(s, i + 1, first / BLOCKS_LEN, scales, blocks_of(n), err);
    free(codes);
    free(scales);
    return rc;
}

int base_put(struct state *s, int i, int64_t first, const float *x, int64_t n, struct err *err)
{
    const enum dtype form = s->layout->base[i].dtype;
    uint16_t *codes;
    int rc;

    ASSERT(i >= 0 && i < s->layout->n_base);
    if (form == DTYPE_I8)
        return base_put_blocks(s, i, first, x, n, err);
    codes = xmalloc(sizeof *codes * (size_t)(n + 1));
    for (int64_t e = 0; e < n; e++)
        real_put(codes, form, e, x[e]);
    rc = base_copy(s, i, first, codes, n, err);
    free(codes);
    return rc;
}

int base_hash(const struct state *s, struct hash128 *out, struct err *err)
{
    enum { BLOCK = 4 << 20 };
    const int is_apart = backend_is_apart(s->backend);
    const size_t n_bytes = (size_t)s->layout->n_base_bytes;
    const char *data = state_data(s, &slot_base);
    char *room = is_apart ? xmalloc(BLOCK) : NULL;
    struct hasher *h = hasher_new();
    int rc = 0;

    for (size_t at = 0; at < n_bytes && rc == 0; at += BLOCK) {
        const size_t n = n_bytes - at < BLOCK ? n_bytes - at : BLOCK;

        if (is_apart)
            rc = backend_copy_out(s->backend, room, data + at, n, err);
        if (rc == 0)
            hasher_add(h, is_apart ? room : data + at, n);
    }
    *out = hasher_end(h);
    hasher_free(h);
    free(room);
    return rc;
}
