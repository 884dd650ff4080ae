/* text_impl - the format text, for text.c, which has bytes and characters, and text_tokens.c, which
 * has the tokens of a tokenizer.json.
 *
 * Threads: see dataset.h. */
#ifndef DATA_TEXT_IMPL_H
#define DATA_TEXT_IMPL_H

#include "data/chat.h"
#include "data/dataset.h"

#define TEXT_LAST_TENTH "last_tenth" /* the value of data.validation */

enum text_too_long { TEXT_CUT, TEXT_REFUSE };

struct text_options {
    const char *path, *train, *validation;
    const char *tokenizer; /* bytes, chars, or the absolute path of a file or folder */
    const char *end_token, *cache;
    enum chat_form form;
    enum text_too_long too_long;
    int pack;
};

int text_tokens_open(struct dataset **out, const struct text_options *o,
                     const struct dataset_request *request, struct err *err);

/* Make the tokens of training and validation, where they are not yet. */
int text_tokens_prepare(const struct text_options *o, const struct dataset_request *request,
                        struct err *err);

#endif
