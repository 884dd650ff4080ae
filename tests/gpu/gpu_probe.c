/* gpu_probe - tells whether there is a GPU to test on.  It exits with 0 and prints what it found,
 * or with 77 and prints why there is none and where it looked. */
#include <stdio.h>

#include "gpu.h"

int main(void)
{
    struct plugin_search *s;
    struct buf text = {0};
    const int rc = gpu_find();

    if (rc == 0) {
        plugin_probe_print(gpu_probe(), &text);
    } else {
        s = plugin_search_new();
        plugin_search_print(s, "dptrain-cuda.so", &text);
        plugin_search_free(s);
    }
    fputs(buf_cstr(&text), stdout);
    buf_fini(&text);
    return rc;
}
