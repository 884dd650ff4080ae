/* The disk's writer and its watch: once a second the loop looks for how long the present write has
 * taken. */
#include "daemon/disk.h"

#include "base/log.h"
#include "base/util.h"

/* The queue holds what a run writes in minutes, and beside it an event of each rank: all ranks join
 * at once. */
enum { QUEUE_BYTES = 16 << 20, RANK_BYTES = 1 << 10, WATCH_MS = 1000 };

static void disk_watch(uv_timer_t *t)
{
    struct disk *d = t->data;
    double busy_s = writer_busy_s(d->writer);
    const char *where = d->where ? d->where : "the run directory";

    if (1000 * busy_s >= DISK_PATIENCE_MS) {
        if (d->busy_s == 0)
            log_warn("%s: the disk has not answered for %.0f s; training goes on, and what is to "
                     "be written waits",
                     where, busy_s);
        d->busy_s = busy_s;
    } else if (d->busy_s > 0) {
        log_info("%s: the disk answers again, after %.0f s", where, d->busy_s);
        d->busy_s = 0;
    }
}

int disk_open(struct disk *d, uv_loop_t *loop, int64_t n_ranks, struct err *err)
{
    int rc = writer_new(QUEUE_BYTES + (size_t)n_ranks * RANK_BYTES, &d->writer, err);

    if (rc < 0)
        return rc;
    uv_timer_init(loop, &d->timer);
    d->timer.data = d;
    uv_timer_start(&d->timer, disk_watch, WATCH_MS, WATCH_MS);
    uv_unref((uv_handle_t *)&d->timer);
    return 0;
}

int disk_flush(struct disk *d) { return writer_flush(d->writer, DISK_PATIENCE_MS); }

void disk_close(struct disk *d)
{
    if (!d->writer)
        return;
    uv_close((uv_handle_t *)&d->timer, NULL);
    ASSERT(writer_free(d->writer, INT32_MAX) == 0);
    d->writer = NULL;
}
