/* Fuzz target: the input is a network that a stranger packed (import/pack.h), or the message in
 * one. It is refused, or it passes import_network_check. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "import/pack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void unpack(const void *data, size_t size)
{
    struct import_network *n;
    struct err err;

    if (import_unpack(data, size, &n, &err) < 0)
        return;
    ASSERT(import_network_check(n, &err) == 0);
    import_network_free(n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uLongf len = compressBound((uLong)size);
    uint8_t *packed = xmalloc(len + 14);

    unpack(data, size);
    memcpy(packed, "dpnet1", 6);
    for (int i = 0; i < 8; i++)
        packed[6 + i] = (uint8_t)((uint64_t)size >> 8 * i);
    ASSERT(compress2(packed + 14, &len, data, (uLong)size, 0) == Z_OK);
    unpack(packed, len + 14);
    free(packed);
    return 0;
}
