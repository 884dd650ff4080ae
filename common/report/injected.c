/* Reads the inject events of a run's events.jsonl, line by line.
 * A line that is no JSON (a torn last one) is skipped. */
#include "report/injected.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
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

static int spend_file(const char *path, struct injection_list *l)
{
    FILE *f = l->n ? fopen(path, "re") : NULL;
    char *line = NULL;
    size_t cap = 0;
    int n = 0;

    if (!f)
        return 0;
    while (getline(&line, &cap, f) > 0)
        n += spend_line(line, l);
    free(line);
    fclose(f);
    return n;
}

int injected_spend(const char *events_path, struct injection_list *l)
{
    int n = 0;

    for (int i = 0; i <= LINES_OLD; i++) {
        char *part = lines_part(events_path, i);

        n += spend_file(part, l);
        free(part);
    }
    return n;
}
