/* documents - the documents of a corpus, one after the other: a .txt file is one, and so is each
 * line of a .jsonl file, a mapping of JSON with the key `text`.  Other keys are left out, and so
 * are lines of blanks.
 *
 * Threads: pure.
 * Errors:  ERR_CORRUPT, as FILE: line N: seen, wanted; ERR_IO. */
#ifndef DATA_DOCUMENTS_H
#define DATA_DOCUMENTS_H

#include <stddef.h>

#include "data/corpus.h"

struct document {
    const char *text; /* n bytes; of a .txt file they may be anything */
    size_t n;
};

/* Takes the next document, which is borrowed during the call.  Messages get its file, and its line,
 * in front. */
typedef int documents_take(void *arg, const struct document *d, struct err *err);

/* Hand all documents of the corpus to `take`, until it fails. */
int documents_each(const struct corpus *c, documents_take *take, void *arg, struct err *err);

#endif
