/* The watchdog's timer: feeds the service manager while loop and engine live.
 * The first beat comes at once, then at least three in each interval that the watchdog allows. */
#include "daemon/pulse.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "daemon/notify.h"

enum { STATUS_MS = 5000 };

/* A daemon does not know its job's deadlines: three times the longest default. */
static const int64_t default_patience_ns = INT64_C(1800) * 1000000000;

void pulse_init(struct pulse *p, uv_loop_t *loop, const struct pulse_events *events, void *arg)
{
    *p = (struct pulse){0};
    uv_timer_init(loop, &p->timer);
    uv_unref((uv_handle_t *)&p->timer);
    p->timer.data = p;
    p->events = events;
    p->arg = arg;
    p->engine_patience_ns = default_patience_ns;
}

int pulse_is_alive(const struct pulse *p, int64_t now_ns)
{
    struct progress now;

    return !p->events->progress(p->arg, &now) || now.phase == PHASE_IDLE ||
           now_ns - now.since_ns < p->engine_patience_ns;
}

static void tell_status(struct pulse *p)
{
    struct buf text = {0};
    char *line;

    p->events->summary(p->arg, &text);
    buf_cstr(&text);
    line = (char *)text.data;
    line[strcspn(line, "\n")] = '\0';
    notify_status(line);
    buf_fini(&text);
}

static void pulse_beat(uv_timer_t *t)
{
    struct pulse *p = t->data;

    tell_status(p);
    if (pulse_is_alive(p, clock_mono_ns())) {
        notify_alive();
    } else if (!p->is_dead) {
        p->is_dead = 1;
        log_error("the engine has been in one phase for more than %lld s: the watchdog is not fed "
                  "any more",
                  (long long)(p->engine_patience_ns / 1000000000));
    }
}

void pulse_start(struct pulse *p)
{
    int64_t watchdog_ms = notify_watchdog_ms();
    int64_t period_ms = watchdog_ms ? min_i64(STATUS_MS, max_i64(1, watchdog_ms / 3)) : STATUS_MS;

    if (!notify_is_wanted())
        return;
    notify_ready();
    uv_timer_start(&p->timer, pulse_beat, 0, (uint64_t)period_ms);
}

void pulse_close(struct pulse *p)
{
    notify_stopping();
    uv_close((uv_handle_t *)&p->timer, NULL);
}
