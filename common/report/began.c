/* began - reads the events of one kind of a run's events.jsonl, the last of which counts.
 *
 * A line that is no JSON (a torn last one) is skipped, and so is a number that no run can have. */
#include "report/began.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/ckpt.h"
#include "config/cluster.h"
#include "report/lines.h"

/* A number that an event has, if it is in range. */
struct wanted {
    const char *event, *key;
    int64_t least, most;
};

static const struct wanted n_ranks = {"start", "nranks", 1, CLUSTER_MAX_RANKS};
static const struct wanted checkpoint = {"checkpoint", "step", 0, INT64_MAX / 4};

enum { NONE = -1 };

static int64_t began_read_line(const char *line, const struct wanted *w)
{
    json_t *o = strstr(line, w->event) ? json_loads(line, 0, NULL) : NULL;
    const char *event = json_string_value(json_object_get(o, "event"));
    const json_t *number = json_object_get(o, w->key);
    int64_t n = NONE;

    if (event && !strcmp(event, w->event) && json_is_integer(number))
        n = json_integer_value(number);
    json_decref(o);
    return n >= w->least && n <= w->most ? n : NONE;
}

struct began_scan {
    const struct wanted *wanted;
    int64_t n; /* the last one; NONE so far */
};

static void began_take_line(void *arg, const char *line, size_t n)
{
    struct began_scan *scan = arg;
    const int64_t more = began_read_line(line, scan->wanted);

    (void)n;
    scan->n = more != NONE ? more : scan->n;
}

/* The last number in all parts of the events; NONE: they have none, or cannot be read. */
static int64_t read_run(const char *dir, const struct wanted *w)
{
    char *events = xasprintf("%s/events.jsonl", dir);
    struct began_scan scan = {w, NONE};
    struct err err;

    (void)lines_each(events, began_take_line, &scan, &err);
    free(events);
    return scan.n;
}

int began_n_ranks(const char *dir)
{
    int64_t n = read_run(dir, &n_ranks);

    if (n == NONE)
        n = ckpt_n_ranks(dir);
    return n >= 1 && n <= CLUSTER_MAX_RANKS ? (int)n : 0;
}

static void began_take_data(void *arg, const char *line, size_t n)
{
    json_t *o = strstr(line, n_ranks.event) ? json_loads(line, 0, NULL) : NULL;
    const char *event = json_string_value(json_object_get(o, "event"));
    const char *data = json_string_value(json_object_get(o, "data"));

    (void)n;
    if (event && !strcmp(event, n_ranks.event))
        snprintf(arg, HASH_TEXT_LEN, "%s", data ? data : "");
    json_decref(o);
}

void began_data(const char *dir, char out[HASH_TEXT_LEN])
{
    char *events = xasprintf("%s/events.jsonl", dir);
    struct err err;

    out[0] = 0;
    (void)lines_each(events, began_take_data, out, &err);
    free(events);
}

int began_check_checkpoints(const char *dir, struct err *err)
{
    const int64_t step = read_run(dir, &checkpoint);

    return step == NONE ? 0 : ckpt_check_lost(dir, step, err);
}
