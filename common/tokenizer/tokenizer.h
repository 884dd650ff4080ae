/* tokenizer - texts to token numbers and back, by a file tokenizer.json.
 *
 * The file is that of Hugging Face's tokenizers library, with a model of byte pair encoding: of
 * bytes (GPT-2, Llama 3, Qwen), or of characters in SentencePiece's manner (Llama 2, Gemma).  The
 * numbers are those that the library gives, token for token.  Parts of the file that are not
 * known here are refused by name.  Its truncation and padding are left-overs of the last call of
 * the library, and are not obeyed.
 *
 * Life:    tokenizer_read -> tokenizer_work_new (one for each thread) -> tokenizer_encode ...
 *          -> tokenizer_work_free -> tokenizer_free.
 * Threads: a tokenizer does not change once it is read; a work belongs to one thread.
 * Errors:  ERR_IO (missing, unreadable), ERR_CORRUPT (no JSON, what the parts of the file do not
 *          agree on, text that is no UTF-8), ERR_CONFIG (a part that is not supported), ERR_NOMEM.
 */
#ifndef TOKENIZER_TOKENIZER_H
#define TOKENIZER_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/hash.h"

struct tokenizer;      /* opaque: what the file says */
struct tokenizer_work; /* opaque: the memory of one thread that encodes */

/* Read the file `path`, or the bytes `text` of one.  A message of tokenizer_read begins with the
 * path. */
int tokenizer_read(struct tokenizer **out, const char *path, struct err *err);
int tokenizer_parse(struct tokenizer **out, const char *text, size_t n, struct err *err);
void tokenizer_free(struct tokenizer *t); /* NULL is fine */

/* The highest number of a token, and 1: the vocabulary that a network needs at least. */
int64_t tokenizer_vocab(const struct tokenizer *t);

/* The number of the token with this text, as the file writes it; -1: there is none. */
int32_t tokenizer_number(const struct tokenizer *t, const char *text);

/* The hash of the file's bytes. */
struct hash128 tokenizer_hash(const struct tokenizer *t);

struct tokenizer_work *tokenizer_work_new(const struct tokenizer *t);
void tokenizer_work_free(struct tokenizer_work *w); /* NULL is fine */

/* Takes the next n token numbers of a text; a failure ends the encoding. */
typedef int tokenizer_take(void *arg, const int32_t *token, size_t n, struct err *err);

enum {
    TOKENIZER_BARE = 0,    /* the text alone */
    TOKENIZER_SPECIAL = 1, /* and what the file's post-processor puts around a text */
};

/* Encode n bytes of UTF-8.  Special tokens within the text become their numbers, as in the library.
 * A message names the offset of the byte at fault. */
int tokenizer_encode(struct tokenizer_work *w, const char *text, size_t n, int special,
                     tokenizer_take *take, void *arg, struct err *err);

/* Append the text of n tokens to `out`, without the special ones if `special` is TOKENIZER_BARE.
 * Bytes that are no UTF-8 become U+FFFD, as in the library.  Fails with ERR_ARG if a number is none
 * of a token's. */
int tokenizer_decode(const struct tokenizer *t, const int32_t *token, size_t n, int special,
                     struct buf *out, struct err *err);

#endif
