/* packing - documents of any lengths, put together into samples of one length.
 *
 * A document of n tokens fills n - 1 places of a sample: each token but the last one, with the
 * token behind it as its target.  So no target is of another document.  A document with more places
 * than a sample has is cut into pieces: those that fill a sample, and the rest.  So each token of a
 * document but the first one is a target once, and documents of one token are left out.
 *
 * Pieces are taken in the order of the documents.  Each one goes into the fullest of the samples
 * that are open and have room for it.  If there is none, a sample is opened; if as many are open as
 * may be, the fullest one is closed for that.  So the samples follow from the lengths alone: they
 * do not depend on the seed, the epoch or the number of ranks, which say in which order samples
 * come.
 *
 * Places that are left over at a sample's end are padding: token 0, no target, and each one a
 * document of its own.
 *
 * Life:    packing_init -> packing_add ... -> use -> packing_fini.
 * Threads: any may read.
 * Errors:  ERR_NOMEM. */
#ifndef DATA_PACKING_H
#define DATA_PACKING_H

#include <stdint.h>

#include "base/err.h"

enum { PACKING_OPEN = 32 }; /* samples that are open at once */

/* n places of a sample: the tokens number at .. at + n - 1; their targets are one later. */
struct packing_piece {
    int64_t at, next; /* next: of the pieces of its sample; -1: it is the last one */
    int32_t n;
};

/* An open sample: its number, its last piece, and the places that are filled. */
struct packing_open {
    int64_t sample, last;
    int32_t n;
};

struct packing {
    int64_t context; /* places of a sample */
    int64_t n_samples, n_pieces;
    int64_t n_places; /* that are filled */
    int64_t *first;   /* [n_samples] the first piece of each */
    struct packing_piece *piece;
    struct packing_open open[PACKING_OPEN + 1]; /* one more, which is filled at once */
    int n_open;
};

void packing_init(struct packing *p, int64_t context);
void packing_fini(struct packing *p); /* zeroes are fine */

/* Add the document whose n tokens begin at number `at` of all tokens. */
int packing_add(struct packing *p, int64_t at, int64_t n, struct err *err);

/* The pieces of sample i in their order: the first one, and the one behind another; NULL: there is
 * none. */
const struct packing_piece *packing_first(const struct packing *p, int64_t i);
const struct packing_piece *packing_next(const struct packing *p, const struct packing_piece *of);

/* Where the document of each place of sample i begins: to[context]. */
void packing_starts(const struct packing *p, int64_t i, int32_t *to);

#endif
