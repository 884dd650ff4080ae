/* count_main - loads a plugin as a daemon does, and lets it run its steps, for the test of
 * gpu_count.
 *
 *     count_main PLUGIN STEPS ALLOCATES WAITS */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    void *plugin = argc == 5 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*steps)(int n, int allocates, int waits);

    if (!plugin) {
        fprintf(stderr, "count_main: %s\n", argc == 5 ? dlerror() : "PLUGIN STEPS ALLOCATES WAITS");
        return 2;
    }
    steps = (int (*)(int, int, int))(uintptr_t)dlsym(plugin, "steps");
    return steps(atoi(argv[2]), atoi(argv[3]), atoi(argv[4])) != 0;
}
