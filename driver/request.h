/* request - the requests that `dpdriver` sends to a running driver: one list.
 *
 * A request is a line of text: its name, and after a space its argument if it has one.  The option
 * of the command line is --NAME (driver/options.c).  Enum, names and the driver's dispatch are made
 * from the list; a request without its answer_NAME in driver/answer.c does not link. */
#ifndef DRIVER_REQUEST_H
#define DRIVER_REQUEST_H

/* NAME, and its argument for people; "": none */
#define REQUEST_LIST(X) \
    X(status, "")       \
    X(drain, "WHO")

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
