/* Reads the numbers of a run's events, line by line, from the oldest file of them to the newest.
 * A line that is no JSON (a torn last one) is skipped.
 *
 * A run may go back, to a checkpoint or to an older state of its followers.  The line `form` tells
 * the step from which the run goes on; what was trained beyond it before is lost, and the lines of
 * those epochs tell nothing of the branch that follows. */
#include "report/led.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "report/lines.h"

static int64_t number(const json_t *o, const char *key)
{
    return max_i64(0, json_integer_value(json_object_get(o, key)));
}

/* Numbers beyond the step of a formation belong to a branch that is lost. */
static void go_back(int64_t step, struct led *out)
{
    out->step = step;
    out->epoch_step = min_i64(out->epoch_step, step);
    out->validated_step = min_i64(out->validated_step, step);
}

static void note_line(const char *line, struct led *out)
{
    json_t *o = json_loads(line, 0, NULL);
    const char *event = json_string_value(json_object_get(o, "event"));

    if (event) {
        out->generation = max_i64(out->generation, number(o, "generation"));
        out->step = max_i64(out->step, number(o, "step"));
    }
    if (event && strcmp(event, "form") == 0 && json_is_integer(json_object_get(o, "step")))
        go_back(number(o, "step"), out); /* an older version wrote no step there */
    if (event && strcmp(event, "epoch") == 0)
        out->epoch_step = max_i64(out->epoch_step, number(o, "step"));
    if (event && strcmp(event, "epoch") == 0 && json_object_get(o, "validation_loss"))
        out->validated_step = max_i64(out->validated_step, number(o, "step"));
    json_decref(o);
}

static void note_file(const char *path, struct led *out)
{
    FILE *f = fopen(path, "re");
    char *line = NULL;
    size_t cap = 0;

    if (!f)
        return;
    while (getline(&line, &cap, f) > 0)
        note_line(line, out);
    free(line);
    fclose(f);
}

void led_read(const char *events_path, struct led *out)
{
    *out = (struct led){0};
    for (int i = 0; i <= LINES_OLD; i++) {
        char *path = lines_part(events_path, i);

        note_file(path, out);
        free(path);
    }
}
