/* installed - finds the program's own folder by /proc/self/exe, and files in it and in the folders
 * beside it. */
#include "base/installed.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

int installed_dirs(char *dir[INSTALLED_DIRS])
{
    char exe[4096];
    const ssize_t len = readlink("/proc/self/exe", exe, sizeof exe - 1);
    char *slash;
    int n = 0;

    if (len > 0) {
        exe[len] = 0;
        slash = strrchr(exe, '/');
        *slash = 0;
        dir[n++] = xstrdup(exe);
        dir[n++] = xasprintf("%s/../lib", exe);
        dir[n++] = xasprintf("%s/../common/plugin", exe);
    }
    dir[n++] = xstrdup(DPTRAIN_LIBDIR);
    return n;
}

char *installed_find(const char *name)
{
    char *dir[INSTALLED_DIRS], *found = NULL;
    const int n = installed_dirs(dir);

    for (int i = 0; i < n; i++) {
        char *path = found ? NULL : xasprintf("%s/%s", dir[i], name);

        if (path && access(path, R_OK) == 0)
            found = path;
        else
            free(path);
        free(dir[i]);
    }
    return found;
}
