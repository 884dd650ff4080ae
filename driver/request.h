/* request - the list of requests that `dpdriver` can send to a running driver.
 *
 * A request is a line of text: its name, and after a space its argument if it has one.  Its option
 * on the command line is --NAME (driver/options.c); --status --watch sends `watch`.  Enum, names
 * and the driver's dispatch are made from this list.  A request needs a function answer_NAME in
 * driver/answer.c.
 *
 * Threads: any; the list is constant. */
#ifndef DRIVER_REQUEST_H
#define DRIVER_REQUEST_H

/* NAME, and the word for its argument in the help; "": it has none */
#define REQUEST_LIST(X)   \
    X(status, "")         \
    X(watch, "ROWS")      \
    X(drain, "WHO")       \
    X(trace, "SECONDS")   \
    X(checkpoint_now, "") \
    X(pause, "")          \
    X(go, "")             \
    X(set_live, "KEY=VALUE")

enum request_kind {
#define X(name, argument) ASK_##name,
    REQUEST_LIST(X)
#undef X
        N_REQUESTS
};

#define X(name, argument) #name,
static const char *const request_names[] = {REQUEST_LIST(X)};
#undef X

#define X(name, argument) argument,
static const char *const request_arguments[] = {REQUEST_LIST(X)};
#undef X

#endif
