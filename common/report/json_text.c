/* json_text - jansson takes UTF-8 only, and whoever reads the JSON may show it on a terminal, so
 * the text is cleaned first. */
#include "report/json_text.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/text.h"
#include "base/util.h"

json_t *json_text(const char *text)
{
    char *clean = text ? xstrdup(text) : NULL;
    json_t *o;

    if (clean)
        text_clean(clean);
    o = clean ? json_string(clean) : json_null();
    free(clean);
    return o;
}

char *json_text_of(json_t *o)
{
    char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(16));

    ASSERT(text);
    json_decref(o);
    return text;
}

void json_text_line(struct lines *l, json_t *o)
{
    char *text = json_text_of(o);

    lines_add(l, text);
    free(text);
}
