/* Bytes of a stranger on a driver's port, and of a stranger who plays a driver: see feed.h. */
#include <stddef.h>
#include <stdint.h>

#include "feed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    feed_all(data, size);
    return 0;
}
