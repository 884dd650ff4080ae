/* write_file - writes a file of a test, and makes the folders that it lies in.
 *
 * Threads: any. */
#ifndef TESTS_WRITE_FILE_H
#define TESTS_WRITE_FILE_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/alloc.h"

/* folder    it is there already
 * name      "proc/self/cgroup" */
static inline void write_file(const char *folder, const char *name, const char *text)
{
    char *path = xasprintf("%s/%s", folder, name);
    FILE *f;

    for (char *slash = path + strlen(folder); (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    free(path);
}

#endif
