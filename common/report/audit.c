/* The lines of audit.jsonl, one function for each event.
 * Texts that came from peers are cleaned. */
#include "report/audit.h"

#include <jansson.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/util.h"

struct audit {
    struct lines *lines;
};

struct audit *audit_new(struct lines *lines)
{
    struct audit *a = xcalloc(1, sizeof *a);

    a->lines = lines;
    return a;
}

void audit_free(struct audit *a)
{
    if (!a)
        return;
    lines_free(a->lines);
    free(a);
}

static json_t *text_of(const char *text)
{
    char *clean = text ? xstrdup(text) : NULL;
    json_t *o;

    if (clean)
        text_clean(clean);
    o = clean ? json_string(clean) : json_null();
    free(clean);
    return o;
}

/* Takes o. */
static void add(struct audit *a, json_t *o)
{
    char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(16));

    ASSERT(text);
    json_decref(o);
    lines_add(a->lines, text);
    free(text);
}

void audit_asked(struct audit *a, const char *request, int64_t uid, int64_t pid,
                 const char *refused)
{
    add(a, json_pack("{s:s, s:f, s:o, s:I, s:I, s:o}", "event", "asked", "time", clock_wall_s(),
                     "request", text_of(request), "uid", (json_int_t)uid, "pid", (json_int_t)pid,
                     "refused", text_of(refused)));
}

void audit_refused(struct audit *a, const char *reason)
{
    add(a, json_pack("{s:s, s:f, s:o}", "event", "refused", "time", clock_wall_s(), "reason",
                     text_of(reason)));
}
