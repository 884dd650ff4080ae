/* operators - the lists that report.operators has a run write (train/listing.h): read, and two of
 * them compared.
 *
 * Life:    zeroed -> operators_read -> operators_compare -> operators_fini.
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
    int64_t n_lines, damaged; /* private; damaged: the first line that is no object, or 0 */
};

/* The parts that two lists have in common. */
struct operators_common {
    int64_t batches;               /* micro-batches of the same samples */
    int64_t tensors;               /* of these, of the same operator and name */
    const struct listed *first[2]; /* the first of those that differ, in both; NULL: none does */
};

int operators_read(const char *path, struct operators *out, struct err *err);
void operators_fini(struct operators *o);

/* The order of tensors is that of the micro-batches of a rank, then that in the micro-batch, then
 * that of the samples. */
struct operators_common operators_compare(const struct operators *a, const struct operators *b);

#endif
