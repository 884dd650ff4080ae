/* began - reads the start events of a run's events.jsonl, the last of which counts.
 *
 * A line that is no JSON (a torn last one) is skipped, and so is a number that no run can have. */
#include "report/began.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "ckpt/ckpt.h"
#include "config/cluster.h"
#include "report/lines.h"

static int in_range(int64_t n) { return n >= 1 && n <= CLUSTER_MAX_RANKS ? (int)n : 0; }

static int read_line(const char *line)
{
    json_t *o = strstr(line, "\"start\"") ? json_loads(line, 0, NULL) : NULL;
    const char *event = json_string_value(json_object_get(o, "event"));
    const int n = event && strcmp(event, "start") == 0
                      ? in_range(json_integer_value(json_object_get(o, "nranks")))
                      : 0;

    json_decref(o);
    return n;
}

/* The last number in the file; `before` if it has none. */
static int read_file(const char *path, int before)
{
    FILE *f = fopen(path, "re");
    char *line = NULL;
    size_t cap = 0;
    int n = before, more;

    if (!f)
        return before;
    while (getline(&line, &cap, f) > 0)
        if ((more = read_line(line)))
            n = more;
    free(line);
    fclose(f);
    return n;
}

int began_n_ranks(const char *dir)
{
    char *events = xasprintf("%s/events.jsonl", dir);
    int n = 0;

    for (int i = 0; i <= LINES_OLD; i++) {
        char *part = lines_part(events, i);

        n = read_file(part, n);
        free(part);
    }
    free(events);
    return n ? n : in_range(ckpt_n_ranks(dir));
}
