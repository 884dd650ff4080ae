/* The documents of --http.  They are made in the loop's thread when
 * somebody looks, at most once a second; the engine does not know of them. */
#include "driver/web.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "driver/files.h"
#include "driver/web_address.h"
#include "net/http.h"
#include "net/secret.h"
#include "report/incidents.h"
#include "report/status.h"
#include "see/curves.h"
#include "see/live.h"
#include "see/page.h"
#include "see/recent.h"
#include "see/scrape.h"

enum {
    WEB_OK = 200,
    WEB_NOT_FOUND = 404,
    WEB_FAILED = 500,
    WEB_UNAVAILABLE = 503,
    WEB_NAME = 24,
    WEB_ID = 48,
};

struct web {
    struct web_sources from;
    struct http *http;
    struct http_file *files; /* of the page */
    struct live *live;       /* NULL: there are no events */
    char *run_dir;           /* NULL: not known yet */
    struct recent recent;    /* events of the run, those of earlier drivers, too */
    char name[WEB_NAME];     /* of this server, for the ids of events */
};

/* ---- the token ---- */

/* Off loopback the secret makes a token.  On loopback none is needed. */
static int web_token(const struct options *o, const char *host, int port, char out[GATE_TOKEN],
                     struct err *err)
{
    struct sockaddr_storage sa = {0};
    struct secret secret;
    int rc = addr_resolve(host, port, &sa, err);

    out[0] = '\0';
    if (rc < 0 || addr_is_loopback((struct sockaddr *)&sa) || !o->common.secret_files.n)
        return rc;
    rc = secret_read(o->common.secret_files.item[0], &secret, err);
    if (rc == 0 && gate_token(&secret, out) < 0)
        rc = err_set(err, ERR_DEVICE, "--http: OpenSSL cannot make a token");
    secret_wipe(&secret);
    return rc;
}

/* ---- documents ---- */

/* Returns 0 before the session has begun. */
static int web_status(const struct web *w, struct status *out)
{
    if (!*w->from.driver)
        return 0;
    driver_status(*w->from.driver, clock_mono_ns(), out);
    return 1;
}

static int web_not_yet(struct buf *out)
{
    buf_printf(out, "{\"status\":\"starting\"}\n");
    return WEB_UNAVAILABLE;
}

static int web_make_status(void *arg, struct buf *out)
{
    struct status s;

    if (!web_status(arg, &s))
        return web_not_yet(out);
    status_put_json(&s, out);
    status_fini(&s);
    return WEB_OK;
}

static int web_make_metrics(void *arg, struct buf *out)
{
    struct status s;

    if (!web_status(arg, &s))
        return WEB_UNAVAILABLE;
    scrape_put(&s, clock_wall_s(), out);
    status_fini(&s);
    return WEB_OK;
}

static int web_make_health(void *arg, struct buf *out)
{
    const struct web *w = arg;
    struct status s;
    int is_well;

    if (!web_status(w, &s))
        return web_not_yet(out);
    is_well = scrape_health(&s, 1e-3 * (double)w->from.job->cluster.deadlines.step_ms, out);
    status_fini(&s);
    return is_well ? WEB_OK : WEB_UNAVAILABLE;
}

static int web_make_job(void *arg, struct buf *out)
{
    const struct web *w = arg;

    job_write(w->from.job, out);
    return WEB_OK;
}

static int web_make_curves(void *arg, struct buf *out)
{
    struct web *w = arg;
    struct history now = {0};

    if (w->live && !live_now(w->live, &now)) {
        buf_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"400\" height=\"40\">"
                        "<text x=\"8\" y=\"26\" fill=\"gray\">reading the run so far</text></svg>"
                        "\n");
        return WEB_UNAVAILABLE;
    }
    curves_svg(&now, w->from.job->name, out);
    return WEB_OK;
}

static int web_make_recent(void *arg, struct buf *out)
{
    const struct web *w = arg;
    const int64_t first = recent_first(&w->recent);

    buf_printf(out, "[");
    for (int64_t i = first; i < w->recent.n; i++)
        buf_printf(out, "%s%s", i > first ? ",\n" : "", recent_line(&w->recent, i));
    buf_printf(out, "]\n");
    return WEB_OK;
}

/* ---- the stream ---- */

/* Event i, from 0, has the id NAME-(i + 1).  Each driver has a NAME of its own. */
static void web_put_id(const struct web *w, int64_t i, char out[WEB_ID])
{
    snprintf(out, WEB_ID, "%s-%lld", w->name, (long long)i + 1);
}

/* The number of events that a reader has heard whose newest one has the id `last`, as it says. */
static int64_t web_n_known(const struct web *w, const char *last)
{
    const size_t n = strlen(w->name);

    if (!last || strncmp(last, w->name, n) != 0 || last[n] != '-')
        return 0;
    return strtoll(last + n + 1, NULL, 10);
}

static int web_knows(void *arg, const char *last)
{
    const struct web *w = arg;

    return web_n_known(w, last) > recent_first(&w->recent);
}

static void web_begin(void *arg, const char *last, struct buf *out)
{
    const struct web *w = arg;
    const int64_t first = max_i64(web_n_known(w, last), recent_first(&w->recent));
    char id[WEB_ID];

    for (int64_t i = first; i < w->recent.n; i++) {
        const char *line = recent_line(&w->recent, i);

        web_put_id(w, i, id);
        http_put_note(out, "event", id, line, strlen(line));
    }
}

static const struct http_document documents[] = {
    {"/api/status", "application/json", web_make_status},
    {"/metrics", SCRAPE_TYPE, web_make_metrics},
    {"/health", "application/json", web_make_health, .is_open = 1}, /* probes have no token */
    {"/api/job", "text/plain; charset=utf-8", web_make_job},
    {"/api/curves.svg", "image/svg+xml", web_make_curves},
    {"/api/recent", "application/json", web_make_recent},
};

/* ---- incidents ---- */

static char *web_run_dir(void *arg)
{
    const struct web *w = arg;

    return w->run_dir ? xstrdup(w->run_dir) : NULL;
}

/* In a thread of the pool. */
static int web_read_incidents(const char *root, const char *name, struct buf *out)
{
    struct err err;
    int rc = *name ? incidents_read(root, name, out, &err) : incidents_list(root, out, &err);

    if (rc == 0)
        return WEB_OK;
    buf_clear(out);
    if (rc == INCIDENTS_NONE) {
        buf_printf(out, "{\"error\":\"there is no such incident: /api/incidents lists them\"}\n");
        return WEB_NOT_FOUND;
    }
    log_warn("--http: %s", err.msg);
    buf_printf(out, "{\"error\":\"it cannot be read: the driver's log says why\"}\n");
    return WEB_FAILED;
}

static const struct http_folder folders[] = {
    {"/api/incidents", "application/json", web_run_dir, web_read_incidents},
};

/* ---- life ---- */

static int web_count_assets(void)
{
    int n = 0;

    while (page_assets[n].path)
        n++;
    return n;
}

/* The page's files as the server wants them. */
static struct http_file *web_files(int n)
{
    struct http_file *f = xcalloc((size_t)n, sizeof *f);

    for (int i = 0; i < n; i++)
        f[i] = (struct http_file){page_assets[i].path, page_assets[i].type, page_assets[i].bytes,
                                  page_assets[i].n};
    return f;
}

static void web_free(struct web *w)
{
    recent_fini(&w->recent);
    live_free(w->live);
    free(w->files);
    free(w->run_dir);
    free(w);
}

int web_open(uv_loop_t *loop, const struct web_sources *from, struct web **out, struct err *err)
{
    struct http_options h = {.documents = documents,
                             .n_documents = ARRAY_LEN(documents),
                             .live = &documents[0],
                             .live_event = "status",
                             .stream = "/api/events",
                             .begin = web_begin,
                             .knows = web_knows,
                             .folders = folders,
                             .n_folders = ARRAY_LEN(folders),
                             .patience_ms = from->patience_ms};
    char host[ADDR_MAX_HOST];
    struct web *w = xcalloc(1, sizeof *w);
    int rc = web_address(from->options->http, host, &h.port, err);

    w->from = *from;
    snprintf(w->name, sizeof w->name, "%llx", (unsigned long long)(1e6 * clock_wall_s()));
    h.host = host;
    h.arg = w;
    h.n_files = web_count_assets();
    h.files = w->files = web_files(h.n_files);
    h.most =
        (int)max_i64(HTTP_LEAST, files_for_strangers(from->options, from->job, 2 * HTTP_MOST) / 2);
    if (rc == 0)
        rc = web_token(from->options, host, h.port, h.token, err);
    if (rc == 0)
        rc = http_open(loop, &h, &w->http, err);
    if (rc < 0) {
        web_free(w);
        return rc;
    }
    log_info("to be looked at: %s", http_url(w->http));
    *out = w;
    return 0;
}

void web_close(struct web *w)
{
    if (!w)
        return;
    http_close(w->http);
    web_free(w);
}

/* ---- events ---- */

static void web_hear(void *arg, const char *line, size_t n, int is_row)
{
    struct web *w = arg;
    char id[WEB_ID];

    live_hear(w->live, line, n);
    web_put_id(w, w->recent.n, id);
    http_publish(w->http, is_row ? "row" : "event", is_row ? NULL : id, line, n);
    if (!is_row)
        recent_add(&w->recent, line, n);
}

void web_listen(struct web *w, struct events *events, const char *run_dir, struct writer *disk)
{
    if (!w || !events)
        return;
    w->run_dir = xstrdup(run_dir);
    w->live = live_new(run_dir, disk);
    recent_read(&w->recent, run_dir);
    events_listen(events, web_hear, w, 1);
}
