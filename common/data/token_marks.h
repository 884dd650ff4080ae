/* token_marks - what a folder of Hugging Face says beside its tokenizer.json: the token that ends a
 * text, the tokens of conversations, and their template.
 *
 *     tokenizer_config.json     eos_token
 *     special_tokens_map.json   eos_token
 *     generation_config.json    eos_token_id, the first one
 *     config.json               eos_token_id, the first one
 *
 * The first of these files that says it is right: a network that was tuned for conversations may
 * end its answers by others, too.  The template is chat_template.jinja, or chat_template of
 * chat_template.json or of tokenizer_config.json, as transformers reads them.
 *
 * Life:    token_marks_read -> use -> token_marks_fini (fine on zeroes).
 * Threads: pure.
 * Errors:  ERR_CONFIG (no JSON), ERR_IO. */
#ifndef DATA_TOKEN_MARKS_H
#define DATA_TOKEN_MARKS_H

#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "tokenizer/tokenizer.h"

#define TOKEN_MARKS_NONE "none" /* the value of data.end_token without an end token */

struct token_marks {
    char *end;          /* the end token's text; NULL: it is known by its number, or not at all */
    int64_t end_number; /* of the end token, if `end` is NULL; -1: none is known */
    char *found;        /* where it was found, for messages; NULL: nowhere */
    /* bos_token and eos_token of tokenizer_config.json, or special_tokens_map.json; NULL: they are
     * not there. */
    char *bos, *eos;
    char *template;      /* NULL: there is none */
    char *template_path; /* the file that has it */
};

/* Read what lies beside the file `tokenizer`.  named: data.end_token, which overrides the files;
 * TOKEN_MARKS_NONE is no end token; NULL: the files say. */
int token_marks_read(struct token_marks *out, const char *tokenizer, const char *named,
                     struct err *err);
void token_marks_fini(struct token_marks *m);

/* The end token's number in *number; -1: there is none.  Fails with ERR_CONFIG if the tokenizer has
 * no such token. */
int token_marks_end(const struct token_marks *m, const struct tokenizer *t, int32_t *number,
                    struct err *err);

/* Add to the hash what tells these marks from others. */
void token_marks_print(const struct token_marks *m, struct hasher *h);

#endif
