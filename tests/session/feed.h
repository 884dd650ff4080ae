/* feed - gives foreign bytes to live sessions; a fuzzer calls it.
 *
 * The bytes are what one peer sends.  A driver of two ranks, whose own engine answers every command
 * at once, takes them as a follower's; a follower takes them as its driver's.  A standby takes them
 * as its driver's, or, when it has lost its driver, as those of a follower that comes to it.  Seeds
 * are in tests/fuzz/corpus/wire (conversation: a whole job of one epoch).
 *
 * A message that is not valid ends its connection, and the next ones come on another: from another
 * follower, or from a driver that is found again.  A body of one byte 0 loses a connection without
 * a reason. */
#ifndef TESTS_SESSION_FEED_H
#define TESTS_SESSION_FEED_H

#include <stddef.h>
#include <stdint.h>

struct feed_result {
    int n_messages; /* valid ones */
    int status;     /* the session's; -1: it has not ended */
    int n_epochs;   /* EVENT_EPOCH */
    int was_closed; /* the session closed or lost the connection */
    int is_leader;  /* the standby leads the run now */
};

void feed_driver(const uint8_t *data, size_t len, struct feed_result *out);
void feed_follower(const uint8_t *data, size_t len, struct feed_result *out);

/* is_driver: the bytes are the driver's; else a follower's, to a standby of the samples' run. */
void feed_standby(const uint8_t *data, size_t len, int is_driver, struct feed_result *out);

/* All of them, for LLVMFuzzerTestOneInput. */
void feed_all(const uint8_t *data, size_t len);

#endif
