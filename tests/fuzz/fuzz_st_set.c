/* Fuzz target: the input is an index of safetensors files and two files, a and b, from a stranger.
 * They are refused, or every tensor can be found and read whole.
 *
 * The input begins with the lengths of the index and of a (16 bits each, little-endian). */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "ckpt/st_set.h"
#include "scratch.h"

enum { HEADER = 4, N_FILES = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *folder, *path[N_FILES];

static void clean_up(void)
{
    for (int i = 0; i < N_FILES; i++) {
        unlink(path[i]);
        free(path[i]);
    }
    rmdir(folder);
    free(folder);
}

static void make_folder(void)
{
    folder = scratch_folder();
    path[0] = xasprintf("%s/model.safetensors.index.json", folder);
    path[1] = xasprintf("%s/a", folder);
    path[2] = xasprintf("%s/b", folder);
    atexit(clean_up);
}

static void read_tensor(const struct st_set *s, const struct st_tensor *t)
{
    struct err err;
    uint8_t *bytes = malloc(st_bytes(t) + 1);

    ASSERT(bytes && st_set_read(s, t, 0, bytes, st_bytes(t), &err) == 0);
    ASSERT(st_set_find(s, t->name) == t);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct st_set *s;
    struct err err = {0};

    if (size < HEADER)
        return 0;
    if (!folder)
        make_folder();
    for (int i = 0, at = HEADER; i < N_FILES; i++) {
        const int64_t left = (int64_t)size - at;
        const int64_t n = i < 2 ? min_i64(data[2 * i] | data[2 * i + 1] << 8, left) : left;

        scratch_write(path[i], data + at, (size_t)n);
        at += (int)n;
    }
    if (st_set_open(folder, &s, &err) < 0) {
        ASSERT(err.msg[0]);
        return 0;
    }
    for (int i = 0; i < st_set_count(s); i++)
        read_tensor(s, st_set_at(s, i));
    st_set_close(s);
    return 0;
}
