/* An incident as JSON, written aside and renamed under the first free number.
 * At most INCIDENTS_MOST files are kept in a run directory. */
#include "report/incidents.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "ckpt/owner.h"
#include "report/json_text.h"
#include "report/run_dir.h"

static json_t *seconds_ago(int64_t ns) { return ns ? json_real(-1e-9 * (double)ns) : json_null(); }

static json_t *bucket_of(int64_t bucket)
{
    if (bucket >= 0)
        return json_integer(bucket);
    return json_string(bucket == RING_STATE ? "state" : "statistics");
}

static json_t *collective_of(const struct collective *c)
{
    return json_pack("{s:I, s:I, s:I, s:o, s:I, s:s, s:s, s:o, s:o, s:o}", "generation",
                     (json_int_t)c->generation, "number", (json_int_t)c->number, "step",
                     (json_int_t)c->step, "bucket", bucket_of(c->bucket), "bytes",
                     (json_int_t)c->n_bytes, "phase", phase_name((enum phase)c->phase), "state",
                     collective_state(c), "handed", seconds_ago(c->handed_ns), "began",
                     seconds_ago(c->began_ns), "ended", seconds_ago(c->ended_ns));
}

static json_t *ring_of(const struct incident_rank *r)
{
    json_t *list = json_array();

    if (!r->has_answered) {
        json_decref(list);
        return json_null();
    }
    for (int i = 0; i < r->n_ring; i++)
        json_array_append_new(list, collective_of(&r->ring[i]));
    return list;
}

static json_t *incidents_rank_of(const struct incident_rank *r)
{
    return json_pack("{s:i, s:o, s:I, s:b, s:s, s:I, s:o, s:f, s:f, s:o}", "rank", r->rank, "host",
                     json_text(r->host ? r->host : ""), "pid", (json_int_t)r->pid, "behind",
                     r->is_behind, "phase", phase_name(r->at.phase), "step", (json_int_t)r->at.step,
                     "bucket", r->at.bucket >= 0 ? json_integer(r->at.bucket) : json_null(),
                     "phase_seconds", r->phase_s, "heard_seconds", r->heard_s, "collectives",
                     ring_of(r));
}

static json_t *incident_json(const struct incident *i)
{
    json_t *ranks = json_array();
    int64_t step = 0;

    for (int k = 0; k < i->n; k++) {
        step = max_i64(step, i->rank[k].at.step);
        json_array_append_new(ranks, incidents_rank_of(&i->rank[k]));
    }
    return json_pack("{s:f, s:o, s:I, s:s, s:I, s:i, s:o}", "time", clock_wall_s(), "message",
                     json_text(i->text ? i->text : ""), "generation", (json_int_t)i->generation,
                     "stage", i->stage, "step", (json_int_t)step, "nranks", i->n_ranks, "ranks",
                     ranks);
}

/* The first name that is free; NULL: none is. */
static char *free_name(const char *folder)
{
    for (int n = 1; n <= INCIDENTS_MOST; n++) {
        char *path = xasprintf("%s/incident-%d.json", folder, n);

        if (access(path, F_OK) < 0)
            return path;
        free(path);
    }
    return NULL;
}

char *incidents_text(const struct incident *i)
{
    json_t *o = incident_json(i);
    char *text = json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(15));

    ASSERT(text);
    json_decref(o);
    return text;
}

int incidents_write(const char *run_dir, const char *text, char **path, struct err *err)
{
    char *folder = xasprintf("%s/incidents", run_dir), *name;
    int rc = owner_check(run_dir, err);

    if (rc == 0 && mkdir(folder, 0777) < 0 && errno != EEXIST)
        rc = err_sys(err, errno, "%s: cannot be made", folder);
    name = rc == 0 ? free_name(folder) : NULL;
    free(folder);
    if (!name)
        return rc < 0 ? rc : INCIDENTS_FULL;
    rc = run_dir_replace(name, text, strlen(text), err);
    if (rc == 0)
        *path = name;
    else
        free(name);
    return rc;
}
