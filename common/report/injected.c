/* Reads the inject events of a run's events.jsonl, line by line.
 * A line that is no JSON (a torn last one) is skipped. */
#include "report/injected.h"

#include <jansson.h>
#include <string.h>

#include "report/lines.h"

static int spend_line(const char *line, struct injection_list *l)
{
    json_t *o = json_loads(line, 0, NULL);
    const char *event = json_string_value(json_object_get(o, "event"));
    const char *spec = json_string_value(json_object_get(o, "spec"));
    int n = event && spec && !strcmp(event, "inject") ? inject_spend(l, spec) : 0;

    json_decref(o);
    return n;
}

struct spending {
    struct injection_list *list;
    int n;
};

static void spend_next(void *arg, const char *line, size_t n)
{
    struct spending *s = arg;

    (void)n;
    s->n += spend_line(line, s->list);
}

int injected_spend(const char *events_path, struct injection_list *l)
{
    struct spending s = {l, 0};
    struct err err;

    if (l->n)
        (void)lines_each(events_path, spend_next, &s, &err);
    return s.n;
}
