/* text_place - a corpus and a tokenizer for the tests of data.format text, in a folder of their
 * own.
 */
#ifndef TESTS_DATA_TEXT_PLACE_H
#define TESTS_DATA_TEXT_PLACE_H

#include <sys/stat.h>

#include "sequence_set.h"
#include "tokenizer_file.h"

enum { MOST_SETTINGS = 8 };

/* A corpus in FOLDER/data, and a tokenizer in FOLDER. */
struct place {
    char *data, *tokenizer;
    struct setting settings[MOST_SETTINGS];
    int n;
};

static inline void place_set(struct place *p, const char *key, const char *value)
{
    p->settings[p->n++] = (struct setting){key, value};
}

static inline struct place place_new(const char *folder)
{
    struct place p = {.data = xasprintf("%s/data", folder), .tokenizer = xstrdup(folder)};

    if (mkdir(p.data, 0777) < 0)
        fail();
    write_tokenizer(folder, 0);
    place_set(&p, "data.path", p.data);
    place_set(&p, "data.tokenizer", p.tokenizer);
    return p;
}

static inline void place_free(struct place *p)
{
    free(p->data);
    free(p->tokenizer);
}

#endif
