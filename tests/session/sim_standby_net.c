/* sim_standby_net - the world with two leaders: seeded chance, the queue of events, and connections
 * that delay what they carry, or lose it where two places cannot reach each other. */
#include "sim_standby_impl.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/util.h"

/* ---- chance, and what is told ---- */

int64_t world_draw(struct world *w, int64_t lo, int64_t hi)
{
    return lo + (int64_t)rng_next_below(&w->rng, (uint64_t)(hi - lo + 1));
}

void world_say(const struct world *w, const char *fmt, ...)
{
    va_list ap;
    if (w->tell != SIM_VERBOSE)
        return;
    printf("%9.3f  ", 1e-9 * (double)w->now);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
}

void world_show(const struct world *w, int k, const char *fmt, ...)
{
    int place = k == SHOW_FAULT ? k : w->p[k].place;
    va_list ap;
    if (w->tell != SIM_SHOW)
        return;
    va_start(ap, fmt);
    show_line(w->now - w->start, place == w->n_ranks ? SHOW_STANDBY : place, fmt, ap);
    va_end(ap);
}

void world_fail(struct world *w, const char *fmt, ...)
{
    va_list ap;
    if (!w->r->is_ok)
        return;
    w->r->is_ok = 0;
    va_start(ap, fmt);
    vsnprintf(w->r->why, sizeof(w->r->why), fmt, ap);
    va_end(ap);
    world_say(w, "FAILED: %s", w->r->why);
    world_show(w, SHOW_FAULT, "an invariant is broken: %s", w->r->why);
}

/* ---- events by time ---- */

void world_schedule(struct world *w, struct event e, int64_t t)
{
    if (w->n_heap == w->cap_heap) {
        w->cap_heap = w->cap_heap ? 2 * w->cap_heap : 64;
        w->heap = xrealloc(w->heap, (size_t)w->cap_heap * sizeof(*w->heap));
    }
    e.t = t;
    e.seq = ++w->seq;
    w->heap[w->n_heap++] = e;
}

int world_earliest(const struct world *w)
{
    int best = -1;
    for (int i = 0; i < w->n_heap; i++)
        if (best < 0 || w->heap[i].t < w->heap[best].t ||
            (w->heap[i].t == w->heap[best].t && w->heap[i].seq < w->heap[best].seq))
            best = i;
    return best;
}

/* ---- the network ---- */

int world_is_apart(const struct world *w, int a, int b)
{
    return w->is_cut[w->p[a].place][w->p[b].place];
}

/* Carry an event from this end to the other; it is lost while the places are cut apart. */
void world_transmit(struct world *w, int link, int end, struct event e)
{
    struct line *l = &w->line[link];
    if (world_is_apart(w, l->process[0], l->process[1])) {
        frame_unref(e.frame);
        return;
    }
    l->last[end] = max_i64(l->last[end] + 1, w->now + world_draw(w, MS / 10, 20 * MS));
    e.link = link;
    e.end = !end;
    e.process = l->process[!end];
    world_schedule(w, e, l->last[end]);
}

void world_close_end(struct world *w, int link, int end)
{
    w->line[link].is_open[end] = 0;
    world_transmit(w, link, end, (struct event){.what = CLOSED});
}

int world_connect(struct world *w, int from, int to, int64_t number)
{
    ASSERT(w->n_lines < MAX_LINKS);
    w->line[w->n_lines] = (struct line){.process = {from, to}, .is_open = {1, 1}, .number = number};
    return w->n_lines++;
}
