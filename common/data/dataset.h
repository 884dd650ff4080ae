/* dataset - labelled samples by their number: the readers' one interface.
 *
 * Samples have one shape [H,W,C], 8-bit values and a class; they stay in memory as bytes and become
 * floats when gathered.  Readers: `mnist` (IDX files, data/idx.h), `digits` (drawn, data/digits.h).
 * A new reader is one file and one row of the table in dataset.c.
 *
 * Life:    dataset_open -> gather, fingerprint ... -> dataset_close.
 * Threads: any number may gather from one dataset at once; it does not change.
 * Errors:  opening checks everything, and names file, offset, seen, wanted and the remedy:
 *          ERR_ARG (options), ERR_IO (missing, unreadable), ERR_CORRUPT (content), ERR_NOMEM. */
#ifndef DATA_DATASET_H
#define DATA_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "tensor/shape.h"

enum dataset_purpose { DATASET_TRAIN, DATASET_VALIDATION };

/* All strings are borrowed during dataset_open only. */
struct dataset_options {
    const char *format; /* a name of the table: "mnist", "digits" */
    const char *path;   /* mnist: the folder of the IDX files; digits: unused */
    const char *prefix; /* mnist: "train", "t10k", ...; NULL: by purpose these two */
    int64_t n_samples;  /* the first so many; 0: all (digits: 20,000 training, 4,000 validation) */
    uint64_t seed;      /* digits: which drawings; mnist: unused */
    enum dataset_purpose purpose;
};

struct dataset; /* below: the base of every reader's own struct */

struct dataset_ops {
    const char *name;
    /* As dataset_gather, whose checks have passed. */
    int (*gather)(const struct dataset *ds, const int64_t *index, int64_t n, float *x, int32_t *y,
                  struct err *err);
    void (*close)(struct dataset *ds);
};

struct dataset {
    const struct dataset_ops *ops;
    int64_t n_samples;   /* >= 1 */
    struct shape sample; /* [H,W,C], each >= 1 */
    int32_t n_classes;   /* labels are 0 .. n_classes-1 */
};

int dataset_open(struct dataset **out, const struct dataset_options *o, struct err *err);
void dataset_close(struct dataset *ds); /* NULL is fine */

/* Samples index[0..n) into x [n,H,W,C], values v/255 in [0,1] (exactly (float)v / 255.0f), and
 * their labels into y [n].  n may be 0; x may be NULL (labels only). An index outside [0,n_samples)
 * is a bug of the caller's (asserted).  mnist and digits never fail. */
int dataset_gather(const struct dataset *ds, const int64_t *index, int64_t n, float *x, int32_t *y,
                   struct err *err);

/* Shape, counts, and evenly spaced samples and labels; the same on every machine for the same data.
 * Bounded whatever the size (below 1 ms for MNIST): it finds a wrong or stale copy, not one changed
 * pixel. */
int dataset_fingerprint(const struct dataset *ds, struct hash128 *out, struct err *err);

/* Name of the i-th reader, NULL past the last. */
const char *dataset_format_name(size_t i);

#endif
