/* live - a driver and its followers in the middle of a job, misled by a string of bytes.  A fuzzer
 * calls it.
 *
 * The sessions are the real ones.  Their engines answer at once or when told, and connections
 * deliver in order.  The bytes say what happens next: a message of the right sequence is delivered
 * as it is, changed in some bytes, or twice; another valid message comes in its place, from either
 * side; connections come and go; engines fail; time passes; operators stop.  These must hold.  No
 * session acts after it has ended, or on a closed connection.  All that it sends passes the checks
 * of the other side.  All sessions have ended in bounded time once nothing more happens.  Seeds:
 * tests/fuzz/corpus/session (any text will do: "r" runs things as they should). */
#ifndef TESTS_SESSION_LIVE_H
#define TESTS_SESSION_LIVE_H

#include <stddef.h>
#include <stdint.h>

struct live_result {
    int status;      /* the driver's */
    int n_epochs;    /* EVENT_EPOCH */
    int n_recovered; /* EVENT_RECOVERED */
    int n_changed;   /* messages that were changed and still valid */
    int n_refused;   /* messages that were changed and not valid: their connection was closed */
};

void live_run(const uint8_t *data, size_t len, struct live_result *out);

#endif
