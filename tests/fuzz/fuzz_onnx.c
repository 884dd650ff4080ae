/* Fuzz target: a file in ONNX's format.  It is refused, or its network passes import_network_check
 * and can be packed. */
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/util.h"
#include "import/onnx.h"
#include "import/pack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct import_network *n = NULL;
    struct onnx_file *f;
    struct buf packed = {0};
    struct err err;

    if (onnx_open_bytes(data, size, "/nowhere/fuzz.onnx", &f, &err) < 0)
        return 0;
    if (onnx_parse(f, &n, &err) == 0) {
        ASSERT(import_network_check(n, &err) == 0);
        ASSERT(import_pack(n, &packed, &err) == 0);
    }
    import_network_free(n);
    buf_fini(&packed);
    onnx_close(f);
    return 0;
}
