/* Fuzz target: the input is a zip archive from a stranger.  It is refused, or every member lies in
 * it and is found by its name; then it is read as a file of torch.export.save. */
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "import/pt2.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct import_network *n;
    struct zip *z;
    struct err err;

    if (zip_parse(data, size, "fuzz", &z, &err) < 0)
        return 0;
    for (int i = 0; i < z->n_members; i++) {
        const struct zip_member *m = &z->member[i];

        ASSERT(m->at <= size && m->n_bytes <= size - m->at);
        ASSERT(zip_find(z, m->name) == m);
        zip_check(z, m, &err);
    }
    if (pt2_parse(z, &n, &err) == 0)
        import_network_free(n);
    zip_close(z);
    return 0;
}
