/* sim_standby_fault - the world with two leaders: processes are killed, frozen and cut off, and
 * what was cut heals. */
#include "sim_standby_impl.h"

#include <string.h>

/* ---- faults ---- */

static void cut(struct world *w, int a, int b, int is_cut)
{
    w->is_cut[a][b] = w->is_cut[b][a] = is_cut;
}

static void isolate(struct world *w, int place)
{
    for (int i = 0; i <= w->n_ranks; i++)
        if (i != place && (w->only_driver || world_draw(w, 0, 3)))
            cut(w, place, i, 1);
}

static void heal(struct world *w)
{
    memset(w->is_cut, 0, sizeof(w->is_cut));
    for (int k = 0; k < w->n_processes; k++) /* a collective may be complete now */
        if (w->p[k].is_alive && w->p[k].is_waiting)
            world_meet(w, k);
}

static void show_fault(const struct world *w, int place, const char *what)
{
    if (place == 0 || place == w->n_ranks)
        world_show(w, SHOW_FAULT, "the %s %s", place ? "standby" : "driver", what);
    else
        world_show(w, SHOW_FAULT, "node %d %s", place, what);
}

/* Its machine is gone, too: it may or may not come back. */
static void lose_follower(struct world *w)
{
    int place = (int)world_draw(w, 1, w->n_ranks - 1);
    if (w->at[place] < 0)
        return;
    world_say(w, "FAULT: process %d at place %d is killed together with the driver", w->at[place],
              place);
    show_fault(w, place, "is killed");
    w->n_followers_struck++;
    world_gone(w, w->at[place]);
    if (world_draw(w, 0, 1))
        world_schedule(w, (struct event){.what = BEGIN, .process = place},
                       w->now + world_draw(w, 300, 20000) * MS);
}

static void strike(struct world *w)
{
    int kind = (int)world_draw(w, 0, w->only_driver ? 2 : 7);
    int place = kind < 3 ? 0 : kind < 5 ? w->n_ranks : (int)world_draw(w, 1, w->n_ranks - 1);
    int k = w->at[place];
    heal(w);
    if (w->only_driver == 2)
        lose_follower(w);
    if (w->only_driver)
        w->struck = w->now;
    w->n_followers_struck += place > 0 && place < w->n_ranks;
    w->next_fault = w->now + world_draw(w, 100, world_draw(w, 0, 1) ? 3000 : 40000) * MS;
    if (--w->n_left == 0 && w->only_driver)
        w->next_fault = NEVER;
    if (k < 0)
        return;
    w->n_faults++;
    if (kind == 0 || kind == 3 || kind == 5) {
        world_say(w, "FAULT: process %d at place %d is killed", k, place);
        show_fault(w, place, "is killed");
        world_gone(w, k);
        if (!place)
            world_start_again(w);
        else
            world_schedule(w, (struct event){.what = BEGIN, .process = place},
                           w->now + world_draw(w, 300, 5000) * MS);
    } else if (kind == 1 || kind == 6) {
        w->p[k].thaw = w->now + world_draw(w, 1000, 30000) * MS;
        world_say(w, "FAULT: process %d at place %d is frozen", k, place);
        show_fault(w, place, "is frozen");
    } else {
        world_say(w, "FAULT: place %d is cut off", place);
        show_fault(w, place, "is cut off from others");
        isolate(w, place);
    }
}

/* The last time, all that is cut apart comes together again. */
void world_strike_or_heal(struct world *w)
{
    if (w->n_left > 0) {
        strike(w);
    } else {
        world_show(w, SHOW_FAULT, "all that were cut off reach each other again");
        heal(w);
        w->next_fault = NEVER;
    }
}
