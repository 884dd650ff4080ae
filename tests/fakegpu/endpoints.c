/* endpoints - the folder in which the ranks of a formation leave their endpoints for each other.
 * Its name is the id that rank 0 makes and the driver carries. */
#include "endpoints.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"

int endpoints_make(uint8_t id[COLL_ID_BYTES], struct err *err)
{
    char folder[COLL_ID_BYTES] = "/tmp/dptrain-fakegpu-XXXXXX";

    if (!mkdtemp(folder))
        return err_sys(err, errno, "making a folder for endpoints");
    memcpy(id, folder, COLL_ID_BYTES);
    return 0;
}

void endpoints_write(const char *folder, int rank, const struct buf *endpoint)
{
    char *aside = xasprintf("%s/%d-", folder, rank);
    char *path = xasprintf("%s/%d", folder, rank);
    FILE *file = fopen(aside, "wb");

    if (file) {
        fwrite(endpoint->data, 1, endpoint->len, file);
        fclose(file);
        rename(aside, path);
    }
    free(aside);
    free(path);
}

/* Returns the length; 0: the endpoint is not there yet. */
static size_t read_one(const char *folder, int rank, uint8_t to[ENDPOINT_BYTES])
{
    char *path = xasprintf("%s/%d", folder, rank);
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(to, 1, ENDPOINT_BYTES, file) : 0;

    if (file)
        fclose(file);
    free(path);
    return n;
}

int endpoints_gather(const char *folder, struct coll *c, int64_t deadline_ms,
                     uint8_t blob[][ENDPOINT_BYTES], size_t *len, struct err *err)
{
    const int64_t until_ns = clock_mono_ns() + deadline_ms * 1000000;

    for (int r = 0; r < coll_size(c); r++)
        while ((len[r] = read_one(folder, r, blob[r])) == 0) {
            if (coll_poll(c, err) < 0)
                return err->code;
            if (clock_mono_ns() > until_ns)
                return err_set(err, ERR_TIMEOUT, "no endpoint of rank %d", r);
            usleep(1000);
        }
    return 0;
}

void endpoints_remove(const char *folder, int n_ranks)
{
    for (int r = 0; r < n_ranks; r++) {
        char *path = xasprintf("%s/%d", folder, r);

        unlink(path);
        free(path);
    }
    rmdir(folder);
}
