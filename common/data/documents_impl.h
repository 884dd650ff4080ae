/* documents_impl - what documents.c, which reads lines of JSON, shares with document_pairs.c, which
 * reads those of pairs of answers.
 *
 * Threads: pure.
 * Errors:  ERR_CORRUPT. */
#ifndef DATA_DOCUMENTS_IMPL_H
#define DATA_DOCUMENTS_IMPL_H

#include <jansson.h>

#include "base/buf.h"
#include "data/documents.h"

/* The value of a key; NULL: the line has no such key, or null for it, as tables of several kinds of
 * lines write. */
const json_t *documents_key(const json_t *root, const char *key);

/* Fail, naming the keys that the line has; want: the end of the message. */
int documents_fail_keys(json_t *root, const char *want, struct err *err);

/* Append a struct chat_message for each of the list `messages`, the value of `key`; their texts are
 * the line's.  Fails if there is none, or more than can be. */
int documents_read_messages(const json_t *messages, const char *key, struct buf *out,
                            struct err *err);

/* Hand both documents of a line of pairs to `take`. */
int documents_take_pair(json_t *root, documents_take *take, void *arg, struct err *err);

#endif
