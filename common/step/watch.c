/* watch - the stopwatches of buckets: the host's clock, or on a device two for each bucket that
 * kernels of the main lane start and stop. */
#include "step/watch.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"

/* Two stopwatches of backend_stopwatch. */
struct stopwatches {
    int64_t computed[2]; /* from the sum of the bucket before, or the start of backward, until the
                            bucket is filled */
    int64_t summed[2];   /* from there until its sum is there */
};

static int64_t *no_times(int n)
{
    int64_t *ns = xcalloc((size_t)n, sizeof *ns);

    for (int i = 0; i < n; i++)
        ns[i] = INT64_MAX;
    return ns;
}

int watch_start(struct bucket_watch *w, struct backend *b, int n, struct err *err)
{
    const size_t n_bytes = (size_t)n * sizeof *w->on_device;
    int rc;

    w->n = n;
    w->filled_ns = no_times(n);
    if (!backend_queues(b))
        return 0;
    w->summed_ns = no_times(n);
    w->backend = b;
    rc = backend_alloc(b, n_bytes, "stopwatches of buckets", (void **)&w->on_device, err);
    return rc == 0 ? backend_zero(b, w->on_device, n_bytes, err) : rc;
}

void watch_stop(struct bucket_watch *w)
{
    if (w->on_device)
        backend_free(w->backend, w->on_device);
    free(w->filled_ns);
    free(w->summed_ns);
    *w = (struct bucket_watch){0};
}

int watch_holds_up(const struct bucket_watch *w) { return w->on_device != NULL; }

static int watch_turn(struct bucket_watch *w, int64_t *of, int stops, struct err *err)
{
    return backend_stopwatch(w->backend, of, stops, err);
}

int watch_backward(struct bucket_watch *w, struct err *err)
{
    if (!w->filled_ns || w->began_ns != 0)
        return 0;
    w->began_ns = clock_mono_ns();
    return w->on_device ? watch_turn(w, w->on_device[0].computed, 0, err) : 0;
}

int watch_filled(struct bucket_watch *w, int bucket, struct err *err)
{
    int64_t took;

    if (w->on_device)
        return watch_turn(w, w->on_device[bucket].computed, 1, err) < 0
                   ? err->code
                   : watch_turn(w, w->on_device[bucket].summed, 0, err);
    if (!w->filled_ns)
        return 0;
    took = w->began_ns ? clock_mono_ns() - w->began_ns : 0;
    w->filled_ns[bucket] = min_i64(w->filled_ns[bucket], took);
    return 0;
}

int watch_handed(struct bucket_watch *w, int bucket, struct exchange *x, struct err *err)
{
    if (!w->on_device)
        return 0;
    if (exchange_wait(x, bucket, err) < 0 || watch_turn(w, w->on_device[bucket].summed, 1, err) < 0)
        return err->code;
    return bucket + 1 < w->n ? watch_turn(w, w->on_device[bucket + 1].computed, 0, err) : 0;
}

int watch_read(struct bucket_watch *w, struct err *err)
{
    const size_t n_bytes = (size_t)w->n * sizeof *w->on_device;
    struct stopwatches *of;
    int64_t filled = 0;
    int rc;

    if (!w->on_device)
        return 0;
    of = xcalloc((size_t)w->n, sizeof *of);
    rc = backend_copy_out(w->backend, of, w->on_device, n_bytes, err);
    for (int i = 0; i < w->n && rc == 0; i++) {
        filled += of[i].computed[1];
        w->filled_ns[i] = min_i64(w->filled_ns[i], filled);
        if (of[i].summed[1] > 0)
            w->summed_ns[i] = min_i64(w->summed_ns[i], of[i].summed[1]);
    }
    free(of);
    return rc == 0 ? backend_zero(w->backend, w->on_device, n_bytes, err) : rc;
}
