/* labels - the classes that the labels of a training set have, for formats whose files do not tell
 * the number of classes.
 *
 * Life:    zeroes -> labels_add ... -> labels_doubt -> labels_fini (fine on zeroes).
 * Threads: one at a time.
 * Errors:  ERR_NOMEM. */
#ifndef DATA_LABELS_H
#define DATA_LABELS_H

#include "data/dataset.h"

struct labels {
    uint8_t *seen;   /* [n_room] 1: the class has a sample */
    int64_t n_room;  /* internal */
    int64_t n_seen;  /* classes that have a sample */
    int64_t largest; /* the largest class that has a sample; 0 if there is none */
};

/* Note a label, which is >= 0 and is not ignored. */
int labels_add(struct labels *l, int64_t label, struct err *err);
void labels_fini(struct labels *l);

/* Warn if the labels are perhaps no classes, or if classes have no sample; `where` names their file
 * in the message. */
void labels_doubt(const struct labels *l, const char *where, const struct dataset_request *request);

#endif
