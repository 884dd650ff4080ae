/* The page's own files are taken as the build has them.  A line of index.html that names another of
 * them is replaced by that file, and the documents stand before the script. */
#include "see/report.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "base/util.h"
#include "report/incidents.h"
#include "report/json_text.h"
#include "report/lines.h"
#include "report/status.h"
#include "see/curves.h"
#include "see/curves_impl.h"
#include "see/history.h"
#include "see/page.h"
#include "see/past.h"
#include "see/report_impl.h"

/* ---- documents ---- */

/* Append JSON for a <script>, where no "<" may stand.  In JSON it stands in strings alone. */
static void report_put_block(struct buf *out, const char *name, const char *json, size_t n)
{
    buf_printf(out, "<script type=\"application/json\" id=\"dptrain-%s\">", name);
    for (const char *at = json, *end = json + n; at < end;) {
        const char *less = memchr(at, '<', (size_t)(end - at));
        const char *stop = less ? less : end;

        buf_append(out, at, (size_t)(stop - at));
        if (less)
            buf_printf(out, "\\u003c");
        at = less ? less + 1 : end;
    }
    buf_printf(out, "</script>\n");
}

void report_put_json(struct buf *out, const char *name, json_t *o)
{
    char *text = json_dumps(o, JSON_COMPACT | JSON_ENCODE_ANY);

    ASSERT(text);
    report_put_block(out, name, text, strlen(text));
    free(text);
    json_decref(o);
}

static void report_put_text(struct buf *out, const char *name, struct buf *text)
{
    char *clean = xstrdup(buf_cstr(text));

    text_clean(clean);
    report_put_json(out, name, json_string(clean));
    free(clean);
}

static int report_put_status(const struct report_run *run, double now_s, struct buf *out,
                             struct err *err)
{
    struct buf text = {0};
    struct past past;
    int rc = 0;

    if (run->status) {
        report_put_block(out, "status", run->status, strlen(run->status));
        return 0;
    }
    rc = past_read(run->dir, now_s, &past, err);
    if (rc < 0)
        return rc;
    status_put_json(&past.status, &text);
    report_put_block(out, "status", (const char *)text.data, text.len);
    buf_fini(&text);
    past_fini(&past);
    return 0;
}

struct report_events {
    char *line[REPORT_EVENTS]; /* line i of all is at i % REPORT_EVENTS */
    int64_t n;
};

static void report_take_event(void *arg, const char *line, size_t n)
{
    struct report_events *e = arg;
    json_t *o = json_loadb(line, n, 0, NULL);
    char **place = &e->line[e->n % REPORT_EVENTS];

    if (json_is_string(json_object_get(o, "event"))) {
        free(*place);
        *place = xasprintf("%.*s", (int)strcspn(line, "\n"), line);
        e->n++;
    }
    json_decref(o);
}

static int report_put_events(const struct report_run *run, struct buf *out, struct err *err)
{
    struct report_events *e = xcalloc(1, sizeof *e);
    struct buf text = {0};
    char *path = xasprintf("%s/events.jsonl", run->dir);
    int rc = lines_each(path, report_take_event, e, err);

    free(path);
    for (int64_t i = max_i64(0, e->n - REPORT_EVENTS); i < e->n; i++)
        buf_printf(&text, "%s%s", text.len ? ",\n" : "[", e->line[i % REPORT_EVENTS]);
    buf_printf(&text, text.len ? "]" : "[]");
    report_put_block(out, "recent", (const char *)text.data, text.len);
    for (int i = 0; i < REPORT_EVENTS; i++)
        free(e->line[i]);
    free(e);
    buf_fini(&text);
    return rc;
}

/* The run's job.yaml as it stands; a run without one, which never trained, has an empty text. */
static int report_put_job(const struct report_run *run, struct buf *out, struct err *err)
{
    char *path = xasprintf("%s/job.yaml", run->dir);
    FILE *f = fopen(path, "re");
    struct buf text = {0};
    char part[4096];
    size_t n;
    int rc = 0;

    if (!f && errno != ENOENT)
        rc = err_sys(err, errno, "%s: cannot be read", path);
    while (f && (n = fread(part, 1, sizeof part, f)) > 0)
        buf_append(&text, part, n);
    if (f && ferror(f))
        rc = err_sys(err, errno, "%s: cannot be read", path);
    if (f)
        fclose(f);
    report_put_text(out, "job", &text);
    buf_fini(&text);
    free(path);
    return rc;
}

static int report_put_curves(const struct report_run *run, struct buf *out, struct err *err)
{
    struct buf text = {0};
    struct history h;
    char *real;
    int rc = history_read(run->dir, &h, err);

    if (rc < 0)
        return rc;
    real = realpath(run->dir, NULL);
    curves_svg(&h, real && real[1] ? strrchr(real, '/') + 1 : run->dir, &text);
    report_put_text(out, "curves.svg", &text);
    buf_fini(&text);
    free(real);
    history_fini(&h);
    return 0;
}

/* Append the incident if it is JSON and there is room.  The page names those that are not here. */
static void report_put_incident(const struct report_run *run, const char *name, size_t *room,
                                struct buf *out)
{
    struct buf text = {0};
    struct err ignored;
    json_t *o;

    if (incidents_read(run->dir, name, &text, &ignored) == 0 && text.len <= *room) {
        char *id = xasprintf("incidents-%s", name);

        o = json_loadb((const char *)text.data, text.len, 0, NULL);
        if (o)
            report_put_block(out, id, (const char *)text.data, text.len);
        *room -= o ? text.len : 0;
        json_decref(o);
        free(id);
    }
    buf_fini(&text);
}

/* The list, and the files from the newest one on. */
static int report_put_incidents(const struct report_run *run, struct buf *out, struct err *err)
{
    struct buf list = {0};
    size_t room = REPORT_INCIDENT_BYTES;
    int rc = incidents_list(run->dir, &list, err);
    json_t *rows = rc == 0 ? json_loadb((const char *)list.data, list.len, 0, NULL) : NULL;

    if (rc == 0)
        report_put_block(out, "incidents", (const char *)list.data, list.len);
    for (size_t i = json_array_size(rows); i-- > 0;)
        report_put_incident(
            run, json_string_value(json_object_get(json_array_get(rows, i), "name")), &room, out);
    json_decref(rows);
    buf_fini(&list);
    return rc;
}

/* ---- the page ---- */

static const char policy[] =
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; "
    "style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action "
    "'none'\">\n";

/* The file of the page that a line of index.html names as "/NAME"; NULL: it names none. */
static const struct page_asset *report_asset(const char *line, size_t n)
{
    for (const struct page_asset *a = page_assets; a->path; a++) {
        char name[64];
        const int len = snprintf(name, sizeof name, "\"%s\"", a->path);

        if (strcmp(a->path, "/") != 0 && memmem(line, n, name, (size_t)len))
            return a;
    }
    return NULL;
}

static void report_put_address(struct buf *out, const struct page_asset *a)
{
    buf_printf(out, "data:%s,", a->type);
    for (size_t i = 0; i < a->n; i++)
        buf_printf(out, "%%%02x", a->bytes[i]);
}

/* Append the file in place of the line; a script is kept for the end of the page. */
static void report_put_asset(struct buf *out, const struct page_asset *a, struct buf *scripts)
{
    if (!strncmp(a->type, "text/css", 8)) {
        buf_printf(out, "<style>\n%.*s</style>\n", (int)a->n, (const char *)a->bytes);
    } else if (!strncmp(a->type, "text/javascript", 15)) {
        buf_printf(scripts, "<script>\n%.*s</script>\n", (int)a->n, (const char *)a->bytes);
    } else {
        buf_printf(out, "<link rel=\"icon\" href=\"");
        report_put_address(out, a);
        buf_printf(out, "\">\n");
    }
}

void report_put_head(struct buf *out, const char *title)
{
    struct buf none = {0};

    buf_printf(out,
               "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n%s"
               "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
               "<title>",
               policy);
    curves_escape(out, title);
    buf_printf(out, "</title>\n");
    for (const struct page_asset *a = page_assets; a->path; a++)
        if (!strncmp(a->type, "text/css", 8) || !strncmp(a->type, "image/", 6))
            report_put_asset(out, a, &none);
}

static void report_put_line(struct buf *out, const char *line, size_t n, struct buf *scripts,
                            const struct buf *documents)
{
    const struct page_asset *a = report_asset(line, n);

    if (a) {
        report_put_asset(out, a, scripts);
    } else if (memmem(line, n, "<noscript>", 10)) {
        buf_printf(out, "<noscript>A report needs JavaScript to be shown.</noscript>\n");
    } else if (memmem(line, n, "</body>", 7)) {
        buf_append(out, documents->data, documents->len);
        buf_append(out, scripts->data, scripts->len);
        buf_append(out, line, n);
    } else {
        buf_append(out, line, n);
    }
    if (memmem(line, n, "<head>", 6))
        buf_append(out, policy, sizeof policy - 1);
}

static void report_put_page(struct buf *out, const struct buf *documents)
{
    const struct page_asset *page = page_assets;
    struct buf scripts = {0};
    const char *at, *end;

    while (strcmp(page->path, "/") != 0)
        page++;
    at = (const char *)page->bytes;
    end = at + page->n;
    while (at < end) {
        const char *nl = memchr(at, '\n', (size_t)(end - at));
        const char *next = nl ? nl + 1 : end;

        report_put_line(out, at, (size_t)(next - at), &scripts, documents);
        at = next;
    }
    buf_fini(&scripts);
}

int report_put(const struct report_run *run, double now_s, struct buf *out, struct err *err)
{
    struct buf documents = {0};
    int rc;

    report_put_json(&documents, "report",
                    json_pack("{s:f, s:s, s:o}", "time", now_s, "version", DPTRAIN_VERSION,
                              "run_dir", json_text(run->dir)));
    rc = report_put_status(run, now_s, &documents, err);
    if (rc == 0)
        rc = report_put_events(run, &documents, err);
    if (rc == 0)
        rc = report_put_job(run, &documents, err);
    if (rc == 0)
        rc = report_put_curves(run, &documents, err);
    if (rc == 0)
        rc = report_put_incidents(run, &documents, err);
    if (rc == 0)
        report_put_page(out, &documents);
    buf_fini(&documents);
    return rc;
}
