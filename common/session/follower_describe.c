/* Writes a follower's state as text, for SIGUSR1 and for a service manager's status line.
 * It changes nothing. */
#include "base/util.h"
#include "session/follower_impl.h"

static void describe_collectives(const struct follower *f, struct buf *out)
{
    const struct ring_head *h = &f->at.head;
    buf_printf(out, "  collectives: %lld handed over, %lld ended", (long long)h->n_handed,
               (long long)h->n_ended);
    if (h->at.number > 0 && h->at.bucket >= 0)
        buf_printf(out, "; bucket %lld of step %lld (%lld bytes) is %s", (long long)h->at.bucket,
                   (long long)h->at.step, (long long)h->at.n_bytes, collective_state(&h->at));
    else if (h->at.number > 0)
        buf_printf(out, "; %s of step %lld", h->at.bucket == RING_SYNC ? "statistics" : "the state",
                   (long long)h->at.step);
    buf_printf(out, "\n");
}

static void describe_pace(const struct follower *f, struct buf *out)
{
    double n = (double)max_i64(f->at.n_steps, 1);
    buf_printf(out, "  steps: %lld made, %.1f ms each, %.1f ms of it its own work\n",
               (long long)f->at.n_steps, 1e-6 * (double)f->at.wall_ns / n,
               1e-6 * (double)f->at.busy_ns / n);
}

void follower_describe(const struct follower *f, int64_t now_ns, struct buf *out)
{
    static const char *const names[] = {"waiting for Welcome", "joined", "looking for its driver",
                                        "ending", "over"};
    int64_t now_ms = (now_ns - f->clock.stalled_ns) / 1000000;
    buf_printf(out, "%s, driver %s (heard %.1f s ago), rank %d of %d, generation %lld\n",
               names[f->stage], f->o.driver, 1e-3 * (double)(now_ms - f->heard_ms), f->rank,
               f->n_ranks, (long long)f->generation);
    buf_printf(out, "  engine: %s, in %s%s %lld (epoch %lld) for %.1f s\n",
               f->doing ? cmd_name(f->doing) : "waits", phase_name(f->at.phase),
               phase_of(f->at.phase), (long long)f->at.step, (long long)f->at.epoch,
               1e-3 * (double)(now_ms - f->moved_ms));
    describe_collectives(f, out);
    describe_pace(f, out);
}
