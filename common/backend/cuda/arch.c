/* arch - reads the list of architectures that the plugin was built for, and tells whether a GPU
 * with a given compute capability runs one of them. */
#include "backend/cuda/arch.h"

#include <stdlib.h>
#include <string.h>

int arch_runs_on(const char *list, int major, int minor)
{
    const long gpu = major * 10 + minor;

    while (*list) {
        char *rest;
        const long arch = strtol(list, &rest, 10);

        if (rest == list)
            return 0;
        if (*rest == 'a' ? arch == gpu : arch / 10 == major && arch <= gpu)
            return 1;
        if (!strncmp(rest, "+PTX", 4) && arch <= gpu)
            return 1;
        list = rest + strcspn(rest, ",");
        list += *list == ',';
    }
    return 0;
}
