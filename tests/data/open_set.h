/* open_set - opens a data set by a format's own table of options, as a job file would: each test
 * gives the keys that it needs, and the others have their defaults. */
#ifndef TESTS_DATA_OPEN_SET_H
#define TESTS_DATA_OPEN_SET_H

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/dataset.h"

struct setting {
    const char *key, *value; /* key NULL: the end of a list */
};

static inline const char *setting_of(const struct setting *settings, const struct option *o)
{
    for (; settings && settings->key; settings++)
        if (!strcmp(settings->key, o->key))
            return settings->value;
    return o->def;
}

/* Open with the format's defaults and these settings. */
static inline int open_set(struct dataset **out, const struct data_format *format,
                           const struct setting *settings, const struct dataset_request *request,
                           struct err *err)
{
    const struct option_group *g = &format->group;
    void *options = xcalloc(1, g->size ? g->size : 1);
    struct arena arena;
    int rc = 0;

    arena_init(&arena);
    for (int i = 0; i < g->n_options; i++) {
        const struct option *o = &g->option[i];
        const char *text = setting_of(settings, o);

        if (text)
            ASSERT(option_parse(o, (char *)options + o->offset, &arena, text, strlen(text),
                                o->type >= OPT_NAME, err) == 0);
    }
    if (g->check)
        rc = g->check(options, err);
    if (rc == 0)
        rc = dataset_open(out, &(struct data_options){format, options}, request, err);
    arena_fini(&arena);
    free(options);
    return rc;
}

#endif
