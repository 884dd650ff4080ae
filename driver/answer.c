/* Answers the requests to a running driver, such as --status and --drain, as JSON.
 *
 * Names that peers gave are cleaned before they are shown. */
#include "driver/answer.h"

#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "driver/request.h"
#include "report/json_text.h"
#include "report/status.h"

/* Append the JSON value o as one line.  Takes o. */
static void answer_put(json_t *o, struct buf *out)
{
    char *text = json_dumps(o, JSON_COMPACT);

    ASSERT(text);
    buf_printf(out, "%s\n", text);
    free(text);
    json_decref(o);
}

static void answer_put_error(const char *why, struct buf *out)
{
    answer_put(json_pack("{s:o}", "error", json_text(why)), out);
}

/* Every answer has this form; `argument` is "" for a request that has none. */
#define X(name, argument_text)                                                        \
    static void answer_##name(struct driver *d, int64_t now_ns, const char *argument, \
                              struct buf *out);
REQUEST_LIST(X)
#undef X

static void answer_status(struct driver *d, int64_t now_ns, const char *argument, struct buf *out)
{
    struct status s;

    (void)argument;
    driver_status(d, now_ns, &s);
    status_put_both(&s, 0, out);
    status_fini(&s);
}

/* The status for somebody who has room for so many rows of ranks; 0: for all. */
static void answer_watch(struct driver *d, int64_t now_ns, const char *rows, struct buf *out)
{
    char *end;
    const long n = strtol(rows, &end, 10);
    struct status s;

    if (end == rows || *end != '\0' || n < 0 || n > INT_MAX) {
        answer_put_error("want the number of rows, such as 20, or 0 for all", out);
        return;
    }
    driver_status(d, now_ns, &s);
    status_put_both(&s, (int)n, out);
    status_fini(&s);
}

static json_t *leaver_json(const struct leaver *l)
{
    return json_pack("{s:o, s:o, s:o, s:I, s:s}", "rank",
                     l->rank >= 0 ? json_integer(l->rank) : json_null(), "spare",
                     l->spare ? json_integer(l->spare) : json_null(), "host", json_text(l->host),
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
    answer_put(json_pack("{s:o, s:o}", "text", json_text(buf_cstr(&lines)), "leaving", leaving),
               out);
    buf_fini(&lines);
}

static void answer_drain(struct driver *d, int64_t now_ns, const char *who, struct buf *out)
{
    struct drained drained = {.n = 0};
    struct err err;

    if (driver_drain(d, now_ns, who, &drained, &err) < 0)
        answer_put_error(err.msg, out);
    else
        put_drained(&drained, out);
    drained_fini(&drained);
}

static void answer_trace(struct driver *d, int64_t now_ns, const char *seconds, struct buf *out)
{
    char *end;
    const double s = strtod(seconds, &end);
    struct err err;
    char *text;
    int n_ranks;

    if (end == seconds || *end != '\0' || !(s > 0) || s > 1e6) {
        answer_put_error("want a number of seconds, such as 1.5", out);
    } else if (driver_trace(d, now_ns, (int64_t)(1e9 * s), &n_ranks, &err) < 0) {
        answer_put_error(err.msg, out);
    } else {
        text = xasprintf("%d rank%s from the next step on, for %g s; then the timeline is in the "
                         "run directory, as the driver's log says\n",
                         n_ranks, n_ranks == 1 ? " records" : "s record", s);
        answer_put(json_pack("{s:s, s:i, s:f}", "text", text, "ranks", n_ranks, "seconds", s), out);
        free(text);
    }
}

/* The answer to a request that is granted with rc 0. */
static void answer_put_text(int rc, const struct err *err, const char *text, struct buf *out)
{
    if (rc < 0)
        answer_put_error(err->msg, out);
    else
        answer_put(json_pack("{s:s}", "text", text), out);
}

static void answer_checkpoint_now(struct driver *d, int64_t now_ns, const char *argument,
                                  struct buf *out)
{
    struct err err;

    (void)argument;
    answer_put_text(driver_save(d, now_ns, &err), &err,
                    "a checkpoint is written after the step under way\n", out);
}

static void answer_pause(struct driver *d, int64_t now_ns, const char *argument, struct buf *out)
{
    struct err err;

    (void)argument;
    answer_put_text(driver_pause(d, now_ns, &err), &err,
                    "the ranks wait after the step under way, until \"dpdriver go\"\n", out);
}

static void answer_go(struct driver *d, int64_t now_ns, const char *argument, struct buf *out)
{
    struct err err;

    (void)argument;
    answer_put_text(driver_go(d, now_ns, &err), &err, "the ranks go on\n", out);
}

static void answer_set_live(struct driver *d, int64_t now_ns, const char *setting, struct buf *out)
{
    struct err err;

    answer_put_text(driver_set_live(d, now_ns, setting, &err), &err,
                    "the ranks have the new value once the step under way is done\n", out);
}

/* The argument of request `i` in this line; NULL: the line is another request. */
static const char *argument_in(const char *line, int i)
{
    size_t n = strlen(request_names[i]);

    if (strncmp(line, request_names[i], n) != 0)
        return NULL;
    if (!*request_arguments[i])
        return line[n] == '\0' ? line + n : NULL;
    return line[n] == ' ' ? line + n + 1 : NULL;
}

static void put_unknown(struct buf *out)
{
    struct buf text = {0};

    buf_printf(&text, "this driver answers only");
    for (int i = 0; i < N_REQUESTS; i++)
        buf_printf(&text, "%s \"%s%s%s\"", i ? " and" : "", request_names[i],
                   *request_arguments[i] ? " " : "", request_arguments[i]);
    answer_put_error(buf_cstr(&text), out);
    buf_fini(&text);
}

void answer_request(struct driver *d, int64_t now_ns, const char *request, struct buf *out)
{
#define X(name, argument) answer_##name,
    static void (*const answers[])(struct driver *, int64_t, const char *,
                                   struct buf *) = {REQUEST_LIST(X)};
#undef X

    for (int i = 0; request && i < N_REQUESTS; i++) {
        const char *argument = argument_in(request, i);
        if (argument) {
            answers[i](d, now_ns, argument, out);
            return;
        }
    }
    put_unknown(out);
}

/* An answer that grants a request may be large, so it is not parsed: it does not begin like an
 * error. */
char *answer_error(const struct buf *answer)
{
    static const char start[] = "{\"error\":";
    json_t *o = NULL;
    char *why = NULL;

    if (answer->len > sizeof start && !memcmp(answer->data, start, sizeof start - 1))
        o = json_loadb((const char *)answer->data, answer->len, JSON_DISABLE_EOF_CHECK, NULL);
    if (o)
        why = xstrdup(json_string_value(json_object_get(o, "error")));
    json_decref(o);
    return why;
}
