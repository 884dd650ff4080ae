/* Fuzz target: the input makes right and wrong messages for a driver and followers in the middle of
 * a job; see session/live.h. */
#include <stddef.h>
#include <stdint.h>

#include "live.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct live_result r;

    live_run(data, size, &r);
    return 0;
}
