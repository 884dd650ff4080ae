/* packing - pieces are linked to their samples while they are added, so nothing is sorted, and the
 * memory is 24 bytes for each piece and 8 for each sample. */
#include "data/packing.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

void packing_init(struct packing *p, int64_t context) { *p = (struct packing){.context = context}; }

void packing_fini(struct packing *p)
{
    free(p->first);
    free(p->piece);
    *p = (struct packing){0};
}

/* Make room for one more behind n elements of `size` bytes; the room doubles. */
static int packing_room(void **array, int64_t n, size_t size, struct err *err)
{
    if (n & (n - 1))
        return 0;
    return try_realloc(array, (size_t)max_i64(2 * n, 64) * size, "the places of documents", err);
}

/* The fullest open sample with room for n places; -1: there is none. */
static int packing_find(const struct packing *p, int64_t n)
{
    int best = -1;

    for (int k = 0; k < p->n_open; k++)
        if (p->open[k].n + n <= p->context && (best < 0 || p->open[k].n > p->open[best].n))
            best = k;
    return best;
}

static void packing_close(struct packing *p, int k) { p->open[k] = p->open[--p->n_open]; }

/* Open a sample for a piece of n places, the next one; *slot: its place in `open`. */
static int packing_begin(struct packing *p, int64_t n, int *slot, struct err *err)
{
    if (packing_room((void **)&p->first, p->n_samples, sizeof *p->first, err) < 0)
        return err->code;
    if (p->n_open == PACKING_OPEN && n < p->context)
        packing_close(p, packing_find(p, 0));
    *slot = p->n_open++;
    p->open[*slot] = (struct packing_open){.sample = p->n_samples, .last = -1};
    p->first[p->n_samples++] = p->n_pieces;
    return 0;
}

/* n: at most the places of a sample. */
static int packing_put(struct packing *p, int64_t at, int64_t n, struct err *err)
{
    int k = packing_find(p, n);
    struct packing_open *o;

    if (packing_room((void **)&p->piece, p->n_pieces, sizeof *p->piece, err) < 0 ||
        (k < 0 && packing_begin(p, n, &k, err) < 0))
        return err->code;
    o = &p->open[k];
    if (o->last >= 0)
        p->piece[o->last].next = p->n_pieces;
    o->last = p->n_pieces;
    o->n += (int32_t)n;
    p->piece[p->n_pieces++] = (struct packing_piece){.at = at, .next = -1, .n = (int32_t)n};
    p->n_places += n;
    if (o->n == p->context)
        packing_close(p, k);
    return 0;
}

int packing_add(struct packing *p, int64_t at, int64_t n, struct err *err)
{
    for (int64_t done = 0; done < n - 1; done += p->context) {
        const int64_t part = min_i64(n - 1 - done, p->context);

        if (packing_put(p, at + done, part, err) < 0)
            return err->code;
    }
    return 0;
}

const struct packing_piece *packing_first(const struct packing *p, int64_t i)
{
    return &p->piece[p->first[i]];
}

const struct packing_piece *packing_next(const struct packing *p, const struct packing_piece *of)
{
    return of->next < 0 ? NULL : &p->piece[of->next];
}

void packing_starts(const struct packing *p, int64_t i, int32_t *to)
{
    int32_t begin = 0;

    for (const struct packing_piece *k = packing_first(p, i); k; k = packing_next(p, k)) {
        for (int32_t at = begin; at < begin + k->n; at++)
            to[at] = begin;
        begin += k->n;
    }
    for (; begin < p->context; begin++)
        to[begin] = begin;
}
