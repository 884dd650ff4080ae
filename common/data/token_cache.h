/* token_cache - the token file of a corpus: found where an earlier run, or another rank, made it,
 * or made here.
 *
 * The file lies in data.cache; or else beside the data; or, if nothing can be written there, in
 * $XDG_CACHE_HOME/dptrain or ~/.cache/dptrain.  Its name has the hash of all that its tokens follow
 * from, so a text that changes, or another tokenizer, has another file.  Processes of a machine
 * that want the same file make it once: one works, and the others wait for its lock, which ends
 * with its process.  A file that was not finished is written anew.
 *
 * Threads: any; pure but for the files.
 * Errors:  ERR_CONFIG (the tokenizer, the end token), ERR_CORRUPT (texts), ERR_IO, ERR_NOMEM. */
#ifndef DATA_TOKEN_CACHE_H
#define DATA_TOKEN_CACHE_H

#include "data/chat.h"
#include "data/corpus.h"
#include "data/token_file.h"

/* A request; all is borrowed. */
struct token_cache {
    const struct corpus *corpus;
    const char *tokenizer; /* a tokenizer.json */
    const char *end_token; /* data.end_token; NULL: the files beside the tokenizer say */
    enum chat_form form;   /* data.template */
    int of_pairs;          /* 1: pairs of answers are wanted */
    const char *cache;     /* data.cache; NULL: there is none */
    const char *beside;    /* the folder of the data */
};

int token_cache_open(struct token_file *out, const struct token_cache *what, struct err *err);

#endif
