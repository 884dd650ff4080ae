/* show_plugin - looks for dptrain-cuda.so as the daemons do, and prints what --check prints: the
 * search, then either the failure or what was found.  Exit status 0: loaded; 1: not. */
#include <stdio.h>

#include "backend/plugin.h"

int main(void)
{
    struct plugin_search *s = plugin_search_new();
    const struct plugin *p;
    static struct plugin_probe probe;
    struct backend *b = NULL;
    struct buf text = {0};
    struct err err;
    int rc;

    rc = plugin_search_load(s, "dptrain-cuda.so", &p, &err);
    if (rc < 0) {
        printf("error: %s\n", err.msg);
    } else {
        p->probe(&probe);
        plugin_probe_print(&probe, &text);
        if (p->open(0, &b, &err) < 0)
            buf_printf(&text, "error: %s\n", err.msg);
        backend_close(b);
    }
    plugin_search_print(s, "dptrain-cuda.so", &text);
    fputs(buf_cstr(&text), stdout);
    buf_fini(&text);
    plugin_search_free(s);
    return rc < 0;
}
