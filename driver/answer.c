#include "driver/answer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "base/util.h"
#include "report/status.h"

/* One pair; the text holds names that peers gave. */
static void put(const char *key, const char *value, struct buf *out)
{
    char *clean = xstrdup(value), *text;
    json_t *o;

    text_clean(clean);
    o = json_pack("{s:s}", key, clean);
    text = json_dumps(o, JSON_COMPACT);
    ASSERT(text);
    buf_printf(out, "%s\n", text);
    free(text);
    json_decref(o);
    free(clean);
}

static void put_status(struct driver *d, int64_t now_ns, struct buf *out)
{
    struct status s;

    driver_status(d, now_ns, &s);
    status_put_both(&s, out);
    status_fini(&s);
}

static void drain(struct driver *d, int64_t now_ns, const char *who, struct buf *out)
{
    struct buf lines = {0};
    struct err err;

    if (driver_drain(d, now_ns, who, &lines, &err) < 0)
        put("error", err.msg, out);
    else
        put("text", buf_cstr(&lines), out);
    buf_fini(&lines);
}

void answer_request(struct driver *d, int64_t now_ns, const char *request, struct buf *out)
{
    static const char drain_word[] = "drain ";
    const size_t n = sizeof drain_word - 1;

    if (request && strcmp(request, "status") == 0)
        put_status(d, now_ns, out);
    else if (request && strncmp(request, drain_word, n) == 0)
        drain(d, now_ns, request + n, out);
    else
        put("error", "this driver was asked for neither \"status\" nor \"drain WHO\"", out);
}
