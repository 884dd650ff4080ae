/* show_plugin - loads dptrain-cuda.so as the daemons do, and prints what --check prints.
 *
 * It prints the probe's result or the failure, whether nvrtc compiles, which cuDNN needs, and then
 * the search.  Exit status 0: the plugin was loaded; 1: it was not. */
#include <dlfcn.h>
#include <stdio.h>

#include "backend/plugin.h"

static int compiles(void)
{
    typedef int create_fn(void **program, const char *text, const char *name, int n,
                          const char *const *headers, const char *const *names);
    typedef int compile_fn(void *program, int n, const char *const *options);
    void *nvrtc = dlopen("libnvrtc.so.13", RTLD_LAZY | RTLD_NOLOAD), *program;
    create_fn *create = nvrtc ? (create_fn *)(uintptr_t)dlsym(nvrtc, "nvrtcCreateProgram") : NULL;
    compile_fn *compile =
        create ? (compile_fn *)(uintptr_t)dlsym(nvrtc, "nvrtcCompileProgram") : NULL;

    return compile && create(&program, "__global__ void f() {}", "f", 0, NULL, NULL) == 0 &&
           compile(program, 0, NULL) == 0;
}

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
        buf_printf(&text, "nvrtc compiles: %s\n", compiles() ? "yes" : "no");
    }
    plugin_search_print(s, "dptrain-cuda.so", &text);
    fputs(buf_cstr(&text), stdout);
    buf_fini(&text);
    plugin_search_free(s);
    return rc < 0;
}
