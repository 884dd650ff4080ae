/* folder_json - what the readers of config.json share: its keys, and errors that name it.
 *
 * Threads: one reading is one thread's.
 * Errors:  as folder.h. */
#ifndef IMPORT_FOLDER_JSON_H
#define IMPORT_FOLDER_JSON_H

#include <jansson.h>
#include <stddef.h>

#include "import/folder_impl.h"

struct config_read {
    json_t *root;
    struct folder_config *c;
    struct err *err;
};

/* Fail with a message that begins with the file's name. */
#define config_bad(r, code, ...) folder_config_named((r), err_set((r)->err, (code), __VA_ARGS__))
int folder_config_named(const struct config_read *r, int rc);

const json_t *folder_key(const struct config_read *r, const char *key); /* NULL: missing, or null */
int folder_is_in(const char *const *list, const char *key);             /* it ends with NULL */

enum row_kind { ROW_COUNT, ROW_REAL, ROW_FLAG };

/* A key whose value goes to a member of struct folder_config. */
struct folder_row {
    const char *key;
    enum row_kind kind;
    size_t at;
    int is_needed;
    double least, most;
    int is_of_few; /* 1: only of families that have it among their own keys */
};

#define FOLDER_AT(member) offsetof(struct folder_config, member)

/* A family that is not like Llama. */
struct folder_form {
    int is_of_pictures; /* 1: samples have no tokens, so that model.context is none of its keys */
    const struct folder_row *row;
    size_t n_rows;
    /* After `begin`, which sets what keys that are missing leave, the rows are read; after them
     * `finish` checks and completes. */
    void (*begin)(struct folder_config *c);
    int (*finish)(const struct config_read *r);
    void (*make)(struct import_network *n, const struct folder_config *c);
};

/* The key must have this value, or be missing. */
int folder_only(const struct config_read *r, const char *key, double value);

/* Read pad_token_id, which may be null; -1 counts from the end, as PyTorch's embedding has it. */
int folder_padding(const struct config_read *r);

/* Encoders that classify have gelu, heads of one width, and as many classes as id2label has names;
 * transformers has two without it. */
int folder_finish_classes(const struct config_read *r);

/* Fill r->c->rope, after the sizes. */
int folder_config_rope(const struct config_read *r);

#endif
