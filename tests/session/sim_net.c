/* The simulated time and network: events in their order, connections, clocks.
 * A connection delivers in order; each message has its own delay. */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "sim_impl.h"

/* ---- events, by time ---- */

static int is_before(const struct sim_event *a, const struct sim_event *b)
{
    return a->t < b->t || (a->t == b->t && a->seq < b->seq);
}

void sim_schedule(struct sim *s, struct sim_event e, int64_t t)
{
    if (s->n_heap == s->cap_heap) {
        s->cap_heap = s->cap_heap ? 2 * s->cap_heap : 256;
        s->heap = xrealloc(s->heap, (size_t)s->cap_heap * sizeof(*s->heap));
    }
    e.t = max_i64(t, s->now);
    e.seq = s->seq++;
    int i = s->n_heap++;
    for (; i > 0 && is_before(&e, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = e;
}

struct sim_event sim_pop(struct sim *s)
{
    struct sim_event top = s->heap[0], last = s->heap[--s->n_heap];
    int i = 0, n = s->n_heap;
    for (;;) {
        int c = 2 * i + 1;
        if (c + 1 < n && is_before(&s->heap[c + 1], &s->heap[c]))
            c++;
        if (c >= n || !is_before(&s->heap[c], &last))
            break;
        s->heap[i] = s->heap[c];
        i = c;
    }
    if (n > 0)
        s->heap[i] = last;
    return top;
}

void sim_free_event(struct sim_event *e)
{
    frame_unref(e->frame);
    report_free(e->report);
}

/* ---- the network ---- */

int sim_end_of(int k) { return k == 0 ? 0 : 1; }

int64_t sim_delay(struct sim *s)
{
    int64_t d = sim_random(s, MS / 10, (int64_t)s->max_delay_ms * MS);
    return sim_random(s, 0, 40) == 0 ? 10 * d : d;
}

static int64_t arrival(struct sim *s, struct link *l, int end)
{
    l->last[end] = max_i64(l->last[end] + 1, s->now + sim_delay(s));
    return l->last[end];
}

/* Carry an event from end `end` of link `id` to the other. */
void sim_transmit(struct sim *s, int64_t id, int end, struct sim_event e)
{
    struct link *l = &s->links[id];
    e.link = id;
    e.node = end == 0 ? l->node : 0;
    if (l->is_cut[end] || e.node < 0)
        sim_free_event(&e);
    else
        sim_schedule(s, e, arrival(s, l, end));
}

void sim_close_end(struct sim *s, int64_t id, int end)
{
    s->links[id].is_open[end] = 0;
    sim_transmit(s, id, end, (struct sim_event){.kind = EV_CLOSED});
}

int64_t sim_connect(struct sim *s, int node)
{
    ASSERT(s->n_links < (int)ARRAY_LEN(s->links));
    char peer[32], from[64];
    int64_t id = s->n_links++;
    s->links[id] = (struct link){.node = node, .is_open = {1, 1}};
    snprintf(peer, sizeof(peer), "10.0.0.%d", node < 0 ? 250 : node);
    snprintf(from, sizeof(from), "%s:4%03d", peer, (int)id);
    driver_connected(s->nodes[0].d, sim_clock(s, 0), id, peer, "10.0.0.100", from);
    return id;
}

/* ---- clocks ---- */

int64_t sim_clock(const struct sim *s, int k)
{
    const struct node *n = &s->nodes[k];
    return n->stalled_until > s->now ? n->stalled_at : s->now + n->ahead;
}

/* The time at which the node's clock will show `due`. */
int64_t sim_when(const struct sim *s, int k, int64_t due)
{
    if (due == INT64_MAX)
        return NEVER;
    return due <= sim_clock(s, k) ? s->now : due - s->nodes[k].ahead;
}

void sim_clock_leaps(struct sim *s, int k, int64_t ns)
{
    s->nodes[k].ahead += ns;
    s->nodes[k].stalled_at += ns;
}

void sim_clock_stalls(struct sim *s, int k, int64_t ns)
{
    struct node *n = &s->nodes[k];
    n->stalled_at = sim_clock(s, k);
    n->stalled_until = s->now + ns;
    n->ahead = n->stalled_at - n->stalled_until;
}
