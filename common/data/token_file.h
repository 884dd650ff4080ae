/* token_file - the tokens of a corpus on disk: made once, and mapped by all ranks and runs of a
 * machine that read the same texts by the same tokenizer.
 *
 *     header      64 bytes: magic, version, kind, key, counts
 *     tokens      one of 32 bits each, little-endian: its number, and UNLEARNT
 *     documents   where each begins, 64 bits each, and the end of the last one
 *
 * Between documents is the end token, as the last token of each.  A file has its name, and its
 * header, once it is whole.
 *
 * Life:    token_file_open -> use -> token_file_close (fine on zeroes);
 *          token_writer_open -> put ... -> token_writer_finish, or token_writer_drop.
 * Threads: any may read; a writer belongs to one.
 * Errors:  ERR_IO (unreadable, a full disk), ERR_CORRUPT (it changed), ERR_NOMEM. */
#ifndef DATA_TOKEN_FILE_H
#define DATA_TOKEN_FILE_H

#include "base/buf.h"
#include "base/hash.h"
#include "data/mapped.h"

enum { TOKEN_FILE_NONE = 1 }; /* token_file_open: there is no such file, or it is not whole */

enum token_file_kind {
    TOKEN_FILE_TEXTS,    /* documents in one stream */
    TOKEN_FILE_EXAMPLES, /* prompts and conversations: each document is a sample of its own */
    TOKEN_FILE_PAIRS,    /* documents 2i and 2i + 1 are a sample: prompt i with the answer that was
                          * rejected, and with the one that was chosen */
};

/* The facts that a header tells beside its key. */
struct token_facts {
    enum token_file_kind kind;
    int64_t n_tokens, n_documents;
    int64_t vocab; /* all numbers are below it */
    int32_t end;   /* the end token's number; -1: there is none */
};

struct token_file {
    struct mapped file;
    struct token_facts facts;
};

/* Open the file that was made for `key`. */
int token_file_open(struct token_file *out, const char *path, struct hash128 key, struct err *err);
void token_file_close(struct token_file *f);

/* Document i has the tokens *first .. *first + *n - 1, at least one. */
int token_file_document(const struct token_file *f, int64_t i, int64_t *first, int64_t *n,
                        struct err *err);

/* Read the n tokens from number `first` on.  token[n] gets their numbers; unlearnt[n], which may be
 * NULL, 1 for each that no sample learns to give: those of a prompt. */
int token_file_read(const struct token_file *f, int64_t first, int64_t n, int32_t *token,
                    uint8_t *unlearnt, struct err *err);

/* ---- making ---- */

struct token_writer {
    int fd;
    const char *path;     /* of the file that is being written, borrowed */
    struct buf tokens;    /* not yet written */
    struct buf documents; /* uint64_t: where they begin */
    int64_t n_tokens;     /* in all */
    int64_t offset;       /* of the next byte on disk */
};

/* Begin to write to `fd`, which the caller closes; `path` is its name, for messages. */
void token_writer_open(struct token_writer *w, int fd, const char *path);

/* Add n tokens to the document that was begun last; is_learnt: 0 marks them as unlearnt. */
int token_writer_put(struct token_writer *w, const int32_t *token, size_t n, int is_learnt,
                     struct err *err);

/* The tokens so far belong to documents that are whole, of which the last one ends here. */
int token_writer_end(struct token_writer *w, struct err *err);

/* Write the rest and the header, and bring all to the disk; facts: kind, vocab and end. */
int token_writer_finish(struct token_writer *w, struct hash128 key, const struct token_facts *facts,
                        struct err *err);
void token_writer_drop(struct token_writer *w); /* frees the memory; after finish, too */

#endif
