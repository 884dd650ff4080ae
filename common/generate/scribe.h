/* scribe - the tokens of a text, by the tokenizer that a network was trained with: a file
 * tokenizer.json, or bytes or characters, as data.format text has them.
 *
 * A stream turns new tokens into text as they come.  A character may take several tokens, so it
 * gives whole characters alone.
 *
 * Life:    scribe_open -> scribe_encode, scribe_stream_put ... -> scribe_close.
 * Threads: one at a time.
 * Errors:  as tokenizer/tokenizer.h; ERR_CONFIG for a text that has a character of no number. */
#ifndef GENERATE_SCRIBE_H
#define GENERATE_SCRIBE_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct scribe; /* opaque */

struct scribe_request {
    const char *tokenizer; /* bytes, chars, or a tokenizer.json, or the folder of one */
    const char *corpus;    /* chars: the text whose characters have numbers */
    const char *end;       /* data.end_token; NULL: what lies beside the file says */
    int has_end_number;    /* 1: end_number is the end token, whatever `end` and the file say */
    int32_t end_number;
};

int scribe_open(const struct scribe_request *r, struct scribe **out, struct err *err);
void scribe_close(struct scribe *t); /* NULL is fine */

int64_t scribe_vocab(const struct scribe *t); /* the highest number, and 1 */
int32_t scribe_end(const struct scribe *t);   /* that ends a document; -1: there is none */

/* *token [*n], for free(): those of the text, with what the tokenizer puts before a text; but not
 * the end token behind it, since the text is to go on. */
int scribe_encode(struct scribe *t, const char *text, int32_t **token, int64_t *n, struct err *err);

/* Zeroed at the start; what it has is freed by scribe_stream_fini. */
struct scribe_stream {
    int32_t *token;
    int64_t n, shown, first; /* tokens; those whose text is given; where decoding begins */
};

/* Append the characters that the token completes to `out`. */
int scribe_stream_put(struct scribe_stream *s, struct scribe *t, int32_t token, struct buf *out,
                      struct err *err);
/* ... and at the end what is left, which is no whole character. */
int scribe_stream_end(struct scribe_stream *s, struct scribe *t, struct buf *out, struct err *err);
/* Begin behind these tokens, whose text is known. */
void scribe_stream_begin(struct scribe_stream *s, const int32_t *token, int64_t n);
void scribe_stream_fini(struct scribe_stream *s);

#endif
