/* Fuzz target: the input is the texts of a file of torch.export.save, separated by a line "%%": the
 * network, the table of weights, that of constants.  The archive around them is a good one.  It is
 * refused, or it passes import_network_check, and comes back as it was from being packed. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../import/archive.h"
#include "base/util.h"
#include "import/pack.h"
#include "import/pt2.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_packed(const struct import_network *n)
{
    struct import_network *again;
    struct buf once = {0}, twice = {0};
    struct err err;

    ASSERT(import_network_check(n, &err) == 0);
    ASSERT(import_pack(n, &once, &err) == 0);
    ASSERT(import_unpack(once.data, once.len, &again, &err) == 0);
    ASSERT(import_pack(again, &twice, &err) == 0);
    ASSERT(once.len == twice.len && !memcmp(once.data, twice.data, once.len));
    import_network_free(again);
    buf_fini(&once);
    buf_fini(&twice);
}

/* The next text, which ends at a line "%%"; *text moves behind that. */
static size_t next_text(const uint8_t **text, size_t *left, const uint8_t **out)
{
    const uint8_t *end = memmem(*text, *left, "\n%%\n", 4);
    const size_t len = end ? (size_t)(end - *text) : *left, step = end ? len + 4 : len;

    *out = *text;
    *text += step;
    *left -= step;
    return len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"net/models/model.json",
                                        "net/data/weights/model_weights_config.json",
                                        "net/data/constants/model_constants_config.json"};
    static const uint8_t storage[64] = {1, 2, 3};
    struct import_network *n;
    struct archive a = {0};
    struct zip *z;
    struct err err;

    archive_text(&a, "net/archive_format", "pt2");
    archive_text(&a, "net/archive_version", "0");
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const uint8_t *text;
        const size_t len = next_text(&data, &size, &text);

        archive_add(&a, names[i], text, len);
    }
    archive_add(&a, "net/data/weights/weight_0", storage, sizeof storage);
    archive_add(&a, "net/data/weights/weight_1", storage, 16);
    archive_add(&a, "net/data/weights/weight_2", storage, sizeof storage);
    archive_add(&a, "net/data/constants/tensor_0", storage, 32);
    archive_end(&a, 0);
    ASSERT(zip_parse(a.file.data, a.file.len, "fuzz", &z, &err) == 0);
    if (pt2_parse(z, &n, &err) == 0) {
        check_packed(n);
        import_network_free(n);
    }
    zip_close(z);
    archive_fini(&a);
    return 0;
}
