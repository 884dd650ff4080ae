/* coll/fabric/port - the interface between the program and dptrain-fabric.so, which calls
 * libfabric.
 *
 * A port is one endpoint for messages without connections (FI_EP_RDM).  It sends whole messages to
 * the ports of other ranks.  Messages from one port to another arrive complete and in order, but
 * two of them may be reported in any order.
 *
 * Life:    open -> address, add, memory -> receive, send, poll ... -> close.  A message's memory
 *          belongs to the port until poll has reported it, or until close has returned.
 * Threads: one at a time for each port.  A port makes no progress but in send, receive and poll.
 * Errors:  ERR_UNSUPPORTED: no such provider; ERR_DEVICE: the library, with its own words. */
#ifndef COLL_FABRIC_PORT_H
#define COLL_FABRIC_PORT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    FABRIC_ABI = 1,
    FABRIC_NAME = 48,     /* a provider's name with its NUL, "verbs;ofi_rxm" */
    FABRIC_ADDRESS = 256, /* the most bytes of a port's address */
    FABRIC_BUSY = 1,      /* send, receive: not now; poll, and try again */
};

#define FABRIC_SYMBOL "dptrain_fabric"

struct fabric_port; /* opaque: the plugin's */

/* The first member of a message under way: room for the library, which reports it by its address.
 */
struct fabric_op {
    void *library[8];
};

/* The memory of a message, in what `memory` has prepared. */
struct fabric_bytes {
    void *at;
    size_t n_bytes;
    void *handle; /* memory's */
};

enum fabric_outcome {
    FABRIC_DONE,
    FABRIC_TOO_LONG, /* a message came that is longer than the room for it */
    FABRIC_CANCELED,
    FABRIC_FAILED,
};

struct fabric_done {
    struct fabric_op *op;
    size_t n_bytes; /* of a message that was received */
    enum fabric_outcome outcome;
};

struct fabric_ops {
    uint32_t abi;        /* FABRIC_ABI; stays the first member for ever */
    uint32_t layout;     /* FABRIC_LAYOUT */
    const char *version; /* of dptrain */
    /* Open a port of this provider.  ip: this rank's address, to which a provider that has IP
     * addresses binds.  n_bytes: the longest message. */
    int (*open)(const char *provider, const char *ip, size_t n_bytes, struct fabric_port **out,
                struct err *err);
    void (*close)(struct fabric_port *p);
    const char *(*name)(const struct fabric_port *p); /* the provider's whole name */
    const void *(*address)(const struct fabric_port *p, size_t *len);
    /* *to: the number by which send knows the port of this address. */
    int (*add)(struct fabric_port *p, const void *address, size_t len, uint64_t *to,
               struct err *err);
    /* Prepare memory for messages.  *handle goes with each message in it.  Until close. */
    int (*memory)(struct fabric_port *p, void *at, size_t n_bytes, void **handle, struct err *err);
    int (*send)(struct fabric_port *p, uint64_t to, struct fabric_bytes bytes, struct fabric_op *op,
                struct err *err);
    int (*receive)(struct fabric_port *p, struct fabric_bytes bytes, struct fabric_op *op,
                   struct err *err);
    /* Report up to n messages that were sent or received: how many. */
    int (*poll)(struct fabric_port *p, struct fabric_done *done, int n, struct err *err);
    /* A descriptor that becomes readable when poll has something to report or to do; -1: do not
     * sleep now, but poll again, at once (*has_fd is 1) or soon (0: there is no descriptor). */
    int (*sleep_on)(struct fabric_port *p, int *has_fd);
};

/* A number made of the sizes of all that the two pass to each other: see PLUGIN_LAYOUT. */
#define FABRIC_LAYOUT                                                                    \
    ((uint32_t)(sizeof(struct err) + 31 * sizeof(struct fabric_op) +                     \
                961 * sizeof(struct fabric_done) + 29791 * sizeof(struct fabric_bytes) + \
                923521 * sizeof(struct fabric_ops)))

typedef const struct fabric_ops *fabric_fn(void);

#endif
