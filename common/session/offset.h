/* offset - how far a peer's clock is from ours, by the stamps of heartbeats.
 *
 * Each heartbeat has the sender's clock, the clock that the last heartbeat of the other side had,
 * and how long that one has been here.  So a heartbeat that comes back gives two bounds: the peer
 * received ours after it was sent, and it sent its own before we received it.  The offset lies
 * between the bounds, whose distance is the time on the way, without the peer's pause.  The middle
 * is wrong by at most half of it, however unequal the two ways were.  Of each period the exchange
 * with the least distance counts.  Since clocks drift, an exchange is worth less the older it is.
 *
 * All times are CLOCK_MONOTONIC, in ns.  Pure.
 *
 * Life:    zeroed -> offset_add ... -> offset_at.
 * Threads: one at a time. */
#ifndef SESSION_OFFSET_H
#define SESSION_OFFSET_H

#include <stdint.h>

enum {
    OFFSET_SAMPLES = 16,     /* periods that are kept */
    OFFSET_PERIOD_S = 8,     /* seconds of a period */
    OFFSET_DRIFT_PPM = 100,  /* two clocks of sound machines drift apart by less */
    OFFSET_DRIFT_AFTER_S = 2 /* a drift is told of exchanges that are so far apart */
};

struct offset_sample {
    int64_t at_ns;     /* our clock when the peer's heartbeat came */
    int64_t offset_ns; /* the peer's clock minus ours */
    int64_t error_ns;
};

struct offset {
    struct offset_sample sample[OFFSET_SAMPLES]; /* the n-th is at n % OFFSET_SAMPLES */
    int64_t n;                                   /* periods so far */
};

struct offset_estimate {
    int64_t offset_ns, error_ns;
    double drift_ppm;       /* by which the peer's clock is faster than ours; 0: not measured */
    double drift_error_ppm; /* likewise */
};

/* A heartbeat came at now_ns.  Its stamps: the peer's clock; of ours the clock that it had when we
 * sent it; and for how long the peer held it.  Stamps that contradict each other are ignored, since
 * they prove nothing: 0.  Else 1. */
int offset_add(struct offset *o, int64_t now_ns, int64_t peer_ns, int64_t sent_ns, int64_t held_ns);

/* The offset at this time of ours.  0: nothing was measured. */
int offset_at(const struct offset *o, int64_t at_ns, struct offset_estimate *out);

#endif
