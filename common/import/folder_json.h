/* folder_json - what the readers of config.json share: its keys, and errors that name it.
 *
 * Threads: one reading is one thread's.
 * Errors:  as folder.h. */
#ifndef IMPORT_FOLDER_JSON_H
#define IMPORT_FOLDER_JSON_H

#include <jansson.h>

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

/* Fill r->c->rope, after the sizes. */
int folder_config_rope(const struct config_read *r);

#endif
