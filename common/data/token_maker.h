/* token_maker - makes the tokens of a corpus, and writes them to a file (data/token_file.h).
 *
 * Texts are a stream: each has its end token behind it.  Prompts and conversations are examples:
 * the tokens of a prompt, and of all that is no answer, are marked as unlearnt.  A text is encoded
 * as a whole, as the tokenizers library does it.  So a token may have the last bytes of a prompt
 * and the first of the answer; it is learnt.  Of pairs both texts are such examples, the one with
 * the rejected answer first.
 *
 * Threads: any; pure but for the file.
 * Errors:  ERR_CONFIG (the tokenizer, the end token), ERR_CORRUPT (texts), ERR_IO, ERR_NOMEM. */
#ifndef DATA_TOKEN_MAKER_H
#define DATA_TOKEN_MAKER_H

#include "data/chat.h"
#include "data/corpus.h"
#include "data/token_marks.h"

struct token_maker_job {
    const struct corpus *corpus;
    const char *tokenizer; /* a tokenizer.json */
    struct hash128 hash;   /* of that file */
    const struct token_marks *marks;
    enum chat_form form; /* data.template */
    int of_pairs;        /* 1: the documents are pairs of answers, and nothing else is read */
    struct hash128 key;  /* of the token file */
};

/* Fill the empty file `fd`, whose name for messages is `path`, and bring it to the disk. */
int token_maker_run(const struct token_maker_job *job, int fd, const char *path, struct err *err);

#endif
