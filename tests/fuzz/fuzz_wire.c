/* Fuzz target: the input is a stranger's bytes to a driver's or a standby's port, or to a follower
 * or a standby that takes the stranger for a driver; see feed.h. */
#include <stddef.h>
#include <stdint.h>

#include "feed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    feed_all(data, size);
    return 0;
}
