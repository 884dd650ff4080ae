/* card - a backend whose memory the host must not touch, like a GPU's.  The memory is this process'
 * own, but only the backend's calls, and collectives that say so, may be given it.  Copies are
 * counted.  A card has no kernels.
 *
 * Life: card_open in the caller's storage; nothing to close once all memory is freed. */
#ifndef TESTS_STATE_CARD_H
#define TESTS_STATE_CARD_H

#include "backend/backend.h"

enum { CARD_MOST_PIECES = 24 };

struct card {
    struct backend base;
    struct {
        char *at;
        size_t n_bytes;
    } piece[CARD_MOST_PIECES]; /* the pieces that were allocated and not freed */
    int n_pieces;
    int is_full;         /* allocations fail */
    int n_through_host;  /* copies in and out */
    size_t largest_copy; /* the largest of those, bytes */
    int n_copies;        /* from card to card */
};

void card_open(struct card *c);

/* 1: the n_bytes at p are the card's. */
int card_holds(const struct card *c, const void *p, size_t n_bytes);

#endif
