/* text_packed - packed documents (data.pack) of a file of tokens: which are in which sample
 * (data/packing.h), and the rows of the samples.
 *
 * Threads: any may read.
 * Errors:  as the file's; ERR_NOMEM. */
#ifndef DATA_TEXT_PACKED_H
#define DATA_TEXT_PACKED_H

#include "data/packing.h"
#include "data/token_file.h"

/* The documents number .. end - 1 of the file, as far as their tokens are of from .. to - 1. */
struct text_packed_part {
    int64_t number, end, from, to;
    int64_t most; /* tokens of a document; the others are left out.  0: all count */
};

/* Pack them into samples of `context` tokens.  *p is to be finished after a failure, too. */
int text_packed_find(struct packing *p, int64_t context, const struct token_file *f,
                     const struct text_packed_part *part, struct err *err);

/* Field `field` of sample i; what is not learnt is no target.  to[context]; unlearnt: room
 * [context].
 */
int text_packed_row(const struct packing *p, const struct token_file *f, int64_t i, int field,
                    int32_t *to, uint8_t *unlearnt, struct err *err);

#endif
