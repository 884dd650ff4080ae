/* offset - bounds of a peer's clock: the best exchange of each period.
 * offset_at takes the one whose error has grown least. */
#include "session/offset.h"

#include "base/util.h"

static struct offset_sample *newest_of(struct offset *o)
{
    return &o->sample[(o->n - 1) % OFFSET_SAMPLES];
}

static int64_t period_of(int64_t at_ns) { return at_ns / (OFFSET_PERIOD_S * INT64_C(1000000000)); }

int offset_add(struct offset *o, int64_t now_ns, int64_t peer_ns, int64_t sent_ns, int64_t held_ns)
{
    struct offset_sample s = {.at_ns = now_ns};
    int64_t way_ns;

    if (sent_ns <= 0 || sent_ns > now_ns || held_ns < 0 || held_ns > peer_ns ||
        held_ns > now_ns - sent_ns)
        return 0;
    way_ns = now_ns - sent_ns - held_ns;
    s.error_ns = way_ns - way_ns / 2;
    s.offset_ns = peer_ns - (now_ns - way_ns / 2);
    if (o->n > 0 && period_of(newest_of(o)->at_ns) == period_of(now_ns)) {
        if (s.error_ns <= newest_of(o)->error_ns)
            *newest_of(o) = s;
        return 1;
    }
    o->n++;
    *newest_of(o) = s;
    return 1;
}

static int64_t error_at(const struct offset_sample *s, int64_t at_ns)
{
    const int64_t age_ns = at_ns > s->at_ns ? at_ns - s->at_ns : s->at_ns - at_ns;

    return s->error_ns + age_ns / 1000000 * OFFSET_DRIFT_PPM;
}

/* The drift between the oldest and the newest exchange. */
static void offset_drift(const struct offset *o, struct offset_estimate *out)
{
    const struct offset_sample *first =
        &o->sample[o->n > OFFSET_SAMPLES ? o->n % OFFSET_SAMPLES : 0];
    const struct offset_sample *last = &o->sample[(o->n - 1) % OFFSET_SAMPLES];
    const double ns = (double)(last->at_ns - first->at_ns);

    if (ns < 1e9 * OFFSET_DRIFT_AFTER_S)
        return;
    out->drift_ppm = 1e6 * (double)(last->offset_ns - first->offset_ns) / ns;
    out->drift_error_ppm = 1e6 * (double)(last->error_ns + first->error_ns) / ns;
}

int offset_at(const struct offset *o, int64_t at_ns, struct offset_estimate *out)
{
    const struct offset_sample *best = NULL;

    *out = (struct offset_estimate){0};
    for (int64_t i = 0; i < min_i64(o->n, OFFSET_SAMPLES); i++)
        if (!best || error_at(&o->sample[i], at_ns) < error_at(best, at_ns))
            best = &o->sample[i];
    if (!best)
        return 0;
    out->offset_ns = best->offset_ns;
    out->error_ns = error_at(best, at_ns);
    offset_drift(o, out);
    return 1;
}
