/* Fuzz target: the input is the config.json of a folder from a stranger.  It is refused with a
 * message, or its network is sound, is packed and comes back the same, and its written config.json
 * makes the same network. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "import/folder.h"
#include "import/pack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CONTEXT = 8 };

static void check_again(struct import_network *n)
{
    struct import_network *same = NULL, *written = NULL;
    struct buf one = {0}, two = {0};
    struct err err;

    ASSERT(import_pack(n, &one, &err) == 0);
    ASSERT(import_unpack(one.data, one.len, &same, &err) == 0);
    ASSERT(!strcmp(same->config, n->config));
    ASSERT(folder_parse(n->config, strlen(n->config), "fuzz", CONTEXT, &written, &err) == 0);
    ASSERT(import_pack(written, &two, &err) == 0);
    ASSERT(one.len == two.len && !memcmp(one.data, two.data, one.len));
    buf_fini(&one);
    buf_fini(&two);
    import_network_free(same);
    import_network_free(written);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct import_network *n = NULL;
    struct err err = {0};

    if (folder_parse((const char *)data, size, "fuzz", CONTEXT, &n, &err) < 0) {
        ASSERT(err.msg[0]);
        return 0;
    }
    check_again(n);
    import_network_free(n);
    return 0;
}
