/* operators - the lists that report.operators has a run write (train/listing.h): read, and two of
 * them compared.
 *
 * Life:    zeroed -> operators_read -> operators_differ -> operators_fini.
 * Threads: any.
 * Errors:  ERR_IO, ERR_CORRUPT with the file's name. */
#ifndef DRIVER_OPERATORS_H
#define DRIVER_OPERATORS_H

#include <jansson.h>
#include <stdint.h>

#include "base/err.h"

/* A tensor of a micro-batch. */
struct listed {
    int64_t first, samples; /* those of the micro-batch, in the step's batch */
    int64_t micro, number;
    int is_given;            /* 1: the operator reads it, and no operator made it */
    const char *node, *kind; /* the name of the operator in the network, and of what it does */
    const char *tensor, *type, *shape, *hash;
    json_t *line; /* owns the texts */
};

struct operators {
    struct listed *listed; /* [n] */
    int64_t n;
    int is_damaged; /* private */
};

int operators_read(const char *path, struct operators *out, struct err *err);
void operators_fini(struct operators *o);

/* Compare the tensors that both have: of the same samples, operator and name.  1: some differ, and
 * out[] is the first one, in both.  *n_common: how many there are. */
int operators_differ(const struct operators *a, const struct operators *b, int64_t *n_common,
                     const struct listed *out[2]);

#endif
