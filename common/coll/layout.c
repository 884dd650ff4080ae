/* layout - the places and the tree that layout.h explains.  The tree's arrays are made for all
 * ranks at once: each rank needs its own row, and mesh_is_near asks for those of others. */
#include "coll/layout.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"

/* In a binomial tree of 0, 1 ... the parent of i is i without its lowest 1 bit. */
static int binomial_parent(int i) { return i & (i - 1); }

/* Give out the places, and find the place of each host's leader. */
static void layout_take_places(struct layout *l, const int *host, int *leader)
{
    int n = 0, n_hosts = 0;

    for (int r = 0; r < l->size; r++) {
        ASSERT(host[r] >= 0 && host[r] <= n_hosts);
        n_hosts += host[r] == n_hosts;
    }
    for (int r = 0; r < l->size; r++)
        leader[host[r]]++; /* at first the number of the host's ranks */
    for (int h = 0; h < n_hosts; h++) {
        const int n_here = leader[h];

        leader[h] = n;
        n += n_here;
    }
    for (int r = 0; r < l->size; r++) {
        l->place[r] = leader[host[r]]++;
        l->order[l->place[r]] = r;
    }
    for (int h = n_hosts - 1; h >= 0; h--) /* each is now where the next host begins */
        leader[h] = h ? leader[h - 1] : 0;
}

void layout_init(struct layout *l, int size, const int *host)
{
    const size_t n = (size_t)size;
    int *leader = xcalloc(n, sizeof *leader);

    *l = (struct layout){size, xcalloc(n, sizeof(int)), xcalloc(n, sizeof(int)),
                         xcalloc(n, sizeof(int)), xcalloc(n, sizeof(int))};
    layout_take_places(l, host, leader);
    for (int p = 0; p < size; p++) {
        const int h = host[l->order[p]], first = leader[h];

        l->parent[p] = p == 0       ? -1
                       : p == first ? leader[binomial_parent(h)]
                                    : first + binomial_parent(p - first);
    }
    for (int p = size - 1; p >= 0; p--) {
        l->n_below[p]++;
        if (p > 0)
            l->n_below[l->parent[p]] += l->n_below[p];
    }
    free(leader);
}

void layout_fini(struct layout *l)
{
    free(l->order);
    free(l->place);
    free(l->parent);
    free(l->n_below);
    *l = (struct layout){0};
}

int layout_children(const struct layout *l, int place, int child[LAYOUT_CHILDREN])
{
    const int end = place + l->n_below[place];
    int n = 0;

    for (int c = place + 1; c < end; c += l->n_below[c])
        child[n++] = c;
    return n;
}

int layout_is_kin(const struct layout *l, int a, int b)
{
    return l->parent[l->place[a]] == l->place[b] || l->parent[l->place[b]] == l->place[a];
}
