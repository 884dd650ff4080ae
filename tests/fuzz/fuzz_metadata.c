/* Fuzz target: the input is the answer of a cloud's metadata service; its first byte chooses the
 * reader.  It is read as a notice within bounds, as none, or refused with a message. */
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "daemon/metadata_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { NOW = 1795985600, LONGEST_S = 7 * 24 * 3600 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct notice n = {.seconds = -2};
    struct err err = {.msg = ""};
    const char *text = (const char *)data + 1;
    int rc;

    if (size < 1)
        return 0;
    if (data[0] % 3 == 0)
        rc = metadata_read_aws(text, size - 1, NOW, &n, &err);
    else if (data[0] % 3 == 1)
        rc = metadata_read_gcp(text, size - 1, &n, &err);
    else
        rc = metadata_read_azure(text, size - 1, "vm_1", NOW, &n, &err);
    ASSERT(rc == 1 || rc == 0 || rc == ERR_PROTO);
    if (rc > 0)
        ASSERT(n.source && n.seconds >= -1 && n.seconds <= LONGEST_S);
    if (rc < 0)
        ASSERT(err.msg[0]);
    return 0;
}
