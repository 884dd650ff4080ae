/* dataset - labelled samples by their number: the readers' one interface.
 *
 * Samples have one shape [H,W,C], 8-bit values and a class; they stay in memory as bytes and become
 * floats when gathered.  Readers: `mnist` (IDX files, data/idx.h), `digits` (drawn, data/digits.h).
 * A format is one entry, `format_NAME` in a file of data/, and its word in data/meson.build.  The
 * entry brings its name, its help, its own keys of the job file with the struct that they fill, and
 * the function that opens the data.
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
#include "config/option.h"
#include "tensor/shape.h"

#include "data/format_list.h" /* generated: FORMAT_LIST(X) with X(name) for each entry */

enum dataset_purpose { DATASET_TRAIN, DATASET_VALIDATION };

enum { DATASET_NONE = 1 };

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

struct dataset_request {
    enum dataset_purpose purpose;
    uint64_t seed; /* of the job; for formats that draw their samples */
};

struct data_format {
    struct option_group group;
    /* As dataset_open; strings in `options` are borrowed during the call only. */
    int (*open)(struct dataset **out, const void *options, const struct dataset_request *request,
                struct err *err);
};

#define X(name) extern const struct data_format format_##name;
FORMAT_LIST(X)
#undef X

extern const struct option_group *const data_formats[]; /* all of them; NULL at the end */

/* The section `data` of a job. */
struct data_options {
    const struct data_format *kind;
    const void *options; /* of kind: its own struct */
};

/* DATASET_NONE, and *out is NULL: the options name no data for this purpose (validation only). */
int dataset_open(struct dataset **out, const struct data_options *o,
                 const struct dataset_request *request, struct err *err);
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

#endif
