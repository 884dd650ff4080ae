/* The two requests that a running driver answers, --status and --drain, as JSON.
 * Names that peers gave are cleaned before they are shown. */
#include "driver/answer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "base/util.h"
#include "report/status.h"

/* A JSON string of a text that may hold names that peers gave. */
static json_t *clean_string(const char *text)
{
    char *clean = xstrdup(text);
    json_t *o;

    text_clean(clean);
    o = json_string(clean);
    free(clean);
    return o;
}

/* Append o as one line; takes o. */
static void put(json_t *o, struct buf *out)
{
    char *text = json_dumps(o, JSON_COMPACT);

    ASSERT(text);
    buf_printf(out, "%s\n", text);
    free(text);
    json_decref(o);
}

static void put_error(const char *why, struct buf *out)
{
    put(json_pack("{s:o}", "error", clean_string(why)), out);
}

static void put_status(struct driver *d, int64_t now_ns, struct buf *out)
{
    struct status s;

    driver_status(d, now_ns, &s);
    status_put_both(&s, out);
    status_fini(&s);
}

static json_t *leaver_json(const struct leaver *l)
{
    return json_pack("{s:o, s:o, s:o, s:I, s:s}", "rank",
                     l->rank >= 0 ? json_integer(l->rank) : json_null(), "spare",
                     l->spare ? json_integer(l->spare) : json_null(), "host", clean_string(l->host),
                     "pid", (json_int_t)l->pid, "when", l->when);
}

static void put_drained(const struct drained *x, struct buf *out)
{
    json_t *leaving = json_array();
    struct buf lines = {0};

    for (int i = 0; i < x->n; i++) {
        json_array_append_new(leaving, leaver_json(&x->leaver[i]));
        buf_printf(&lines, "%s\n", x->leaver[i].line);
    }
    put(json_pack("{s:o, s:o}", "text", clean_string(buf_cstr(&lines)), "leaving", leaving), out);
    buf_fini(&lines);
}

static void drain(struct driver *d, int64_t now_ns, const char *who, struct buf *out)
{
    struct drained drained = {.n = 0};
    struct err err;

    if (driver_drain(d, now_ns, who, &drained, &err) < 0)
        put_error(err.msg, out);
    else
        put_drained(&drained, out);
    drained_fini(&drained);
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
        put_error("this driver was asked for neither \"status\" nor \"drain WHO\"", out);
}
