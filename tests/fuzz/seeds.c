/* seeds - runs a fuzz target once over every seed of a folder, in the place of libFuzzer, in
 * ordinary builds. */
#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Run one seed, in a block of exactly its size, so that a sanitizer sees a read past its end. */
static int run(const char *folder, const char *name)
{
    char path[4096];
    FILE *f;
    uint8_t *data;
    long size;
    int ok;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) < 0 || (size = ftell(f)) < 0)
        return -1;
    rewind(f);
    data = malloc(size ? (size_t)size : 1);
    ok = data && fread(data, 1, (size_t)size, f) == (size_t)size;
    if (ok)
        LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    fclose(f);
    return ok ? 0 : -1;
}

int main(int argc, char **argv)
{
    DIR *d = argc == 2 ? opendir(argv[1]) : NULL;
    struct dirent *e;
    int n = 0;

    if (!d) {
        fprintf(stderr, "usage: %s FOLDER-OF-SEEDS\n", argv[0]);
        return 2;
    }
    while ((e = readdir(d))) {
        if (e->d_name[0] == '.')
            continue;
        if (run(argv[1], e->d_name) < 0) {
            fprintf(stderr, "%s/%s: cannot read it\n", argv[1], e->d_name);
            return 1;
        }
        n++;
    }
    closedir(d);
    printf("%d seeds\n", n);
    return n > 0 ? 0 : 1;
}
