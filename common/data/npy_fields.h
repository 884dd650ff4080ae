/* npy_fields - which files of arrays hold which fields of the samples: what data.train and
 * data.validation of the format npy say.
 *
 *     [x.npy, y.npy]                               fields x and y
 *     {input_ids: ids.npy, labels: y.npy}          fields by name
 *
 * The target is the field `labels` if there is one, else the last one.
 *
 * Life:    npy_fields_read or npy_fields_open -> npy_fields_fini (fine after a failure, and on
 *          zeroes).
 * Threads: any; nothing is kept.
 * Errors:  ERR_CONFIG; messages begin with the key. */
#ifndef DATA_NPY_FIELDS_H
#define DATA_NPY_FIELDS_H

#include "data/dataset.h"

struct npy_fields {
    int n; /* the target is the last one, the others stand in the order of data.train */
    char *name[SAMPLE_MAX_FIELDS], *path[SAMPLE_MAX_FIELDS];
    int is_named;      /* they were given by name */
    int lacks_targets; /* the target's path is that of the training set, whose form it has */
};

/* The job's texts. */
struct npy_texts {
    const char *folder, *train, *validation;
};

/* The fields of the value `text` of `key`, with paths within `folder`. */
int npy_fields_read(struct npy_fields *out, const char *folder, const char *text, const char *key,
                    struct err *err);

/* The fields of the data for a purpose; those of data.validation are the same as data.train's, but
 * for a target that may be missing (dataset_request.may_lack_labels). */
int npy_fields_open(struct npy_fields *out, const struct npy_texts *texts,
                    const struct dataset_request *request, struct err *err);

void npy_fields_fini(struct npy_fields *f);

/* Check the texts that are mappings; NULL is none. */
int npy_fields_check(const struct npy_texts *texts, struct err *err);

#endif
