/* decentralized - the options of the strategy decentralized, and which rank meets which.
 *
 * Threads: pure. */
#ifndef STRATEGY_DECENTRALIZED_H
#define STRATEGY_DECENTRALIZED_H

#include <stdint.h>

enum decentralized_peers { PEERS_ALL, PEERS_SHIFT_ONE };

struct decentralized_options {
    int64_t every;
    enum decentralized_peers peers;
};

enum { DECENTRALIZED_RESTS = -1 };

/* The rank that `rank` of n_ranks >= 2 meets in this round of shift_one, or DECENTRALIZED_RESTS.
 * The peer's peer is `rank`. */
int decentralized_peer(int n_ranks, int rank, int64_t round);

#endif
