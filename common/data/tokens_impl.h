/* tokens_impl - what the files of the format tokens share: its texts, and how tokens are read.
 *
 *   tokens.c         files of all kinds, and samples that are cut from the texts
 *   tokens_packed.c  samples that are made of whole documents (data.pack)
 *
 * Threads: as the data set.
 * Errors:  as the data set's. */
#ifndef DATA_TOKENS_IMPL_H
#define DATA_TOKENS_IMPL_H

#include "data/npy_file.h"
#include "data/packing.h"
#include "data/sequence.h"

enum { TOKENS_BLOCK = 1024 }; /* tokens that are checked at a time */

struct tokens_text {
    struct npy array; /* [N]; its file may have another header than NumPy's, or none */
    char *path;
    int is_bare;   /* 1: data.dtype says the type */
    int64_t first; /* the data set's number of its first sample; not with data.pack */
    int64_t at;    /* the number of its first token among those of all texts */
};

struct tokens {
    struct dataset base;
    struct tokens_text *text;
    int n_texts;
    int64_t n_tokens;   /* of all texts */
    int vocab_is_given; /* as dataset_request's */
    int packs;
    struct packing packing; /* data.pack */
};

static inline int64_t tokens_count(const struct tokens_text *t) { return t->array.shape.dim[0]; }

static inline size_t token_bytes(const struct tokens_text *t) { return npy_size(t->array.type); }

/* Check v [n], the tokens from number `first` of the text on. */
int tokens_check(const struct tokens *s, const struct tokens_text *t, int64_t first, int64_t n,
                 const int64_t *v, struct err *err);

/* Read n tokens from number `first` of the text on; raw: room for them as the file stores them. */
int tokens_read(const struct tokens *s, const struct tokens_text *t, int64_t first, int64_t n,
                int32_t *to, uint8_t *raw, struct err *err);

/* Find the documents of all texts, each of which the token `end` ends, and make samples of them. */
int tokens_pack(struct tokens *s, int64_t end, struct err *err);

/* A field of sample i of packed documents; room [context]. */
int tokens_packed_row(const struct tokens *s, int64_t i, int field, int32_t *room, uint8_t *raw,
                      struct err *err);

#endif
