/* decentralized - the options of the strategy decentralized, and the pairs of ranks of each round.
 *
 * decentralized.c defines the strategy and explains it.
 *
 * Threads: pure. */
#ifndef STRATEGY_DECENTRALIZED_H
#define STRATEGY_DECENTRALIZED_H

#include <stdint.h>

enum decentralized_peers { PEERS_ALL, PEERS_SHIFT_ONE };

struct decentralized_options {
    int64_t every; /* steps from one exchange of parameters to the next */
    enum decentralized_peers peers;
};

enum { DECENTRALIZED_RESTS = -1 };

/* The rank with which `rank` exchanges parameters in round `round` (>= 0) of shift_one, among
 * n_ranks >= 2; DECENTRALIZED_RESTS if it has no peer in this round.  The relation is symmetric:
 * the peer of the peer is `rank`. */
int decentralized_peer(int n_ranks, int rank, int64_t round);

#endif
