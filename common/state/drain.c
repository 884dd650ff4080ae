/* drain - asks the device again and again whether it is done, and the coll whether it failed.  Most
 * waits are short, so it asks without a pause at first, and then every 20 us. */
#include "state/drain.h"

#include <time.h>

int drain_device(struct coll *c, struct backend *b, struct err *err)
{
    enum { BUSY_POLLS = 4000, POLL_NS = 20000 };
    int rc;

    for (int n = 0; (rc = backend_poll(b, err)) == 1; n++) {
        if (c && coll_poll(c, err) < 0)
            return err->code;
        if (n >= BUSY_POLLS)
            nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
    return rc == 0 && c ? coll_poll(c, err) : rc;
}
