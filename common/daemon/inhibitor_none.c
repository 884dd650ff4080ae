/* This file takes the place of inhibitor.c in a build without libsystemd.
 * No shutdown is ever heard of, and none is held up. */
#include "daemon/inhibitor.h"

#include <stddef.h>

int inhibitor_new(struct inhibitor **out, struct err *err)
{
    (void)err;
    *out = NULL;
    return 0;
}

int inhibitor_wait(struct inhibitor *h, int stop_fd, int ms, struct notice *out, struct err *err)
{
    (void)h;
    (void)stop_fd;
    (void)ms;
    (void)out;
    return err_set(err, ERR_UNSUPPORTED, "built without libsystemd");
}

int64_t inhibitor_seconds(const struct inhibitor *h)
{
    (void)h;
    return -1;
}

void inhibitor_free(struct inhibitor *h) { (void)h; }
