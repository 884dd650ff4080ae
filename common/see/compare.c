/* The runs are read one after another, by their files; then the page is made of them in one piece,
 * without a script. */
#include "see/compare.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/util.h"
#include "job/job.h"
#include "report/json_text.h"
#include "report/status.h"
#include "see/compare_impl.h"
#include "see/curves_impl.h"
#include "see/report_impl.h"

/* ---- reading ---- */

static void compare_take_key(void *arg, const char *key, const char *value)
{
    struct compare_run *r = arg;

    r->key = xrealloc(r->key, (size_t)(r->n_keys + 1) * sizeof *r->key);
    r->key[r->n_keys++] = (struct compare_key){xstrdup(key), xstrdup(value)};
}

static void compare_read_job(struct compare_run *r)
{
    char *path = xasprintf("%s/job.yaml", r->from->dir);
    struct job *job = NULL;
    struct err ignored; /* past_read has told it */

    if (job_load(path, NULL, 0, &job, &ignored) == 0)
        job_each(job, compare_take_key, r);
    job_free(job);
    free(path);
}

static int compare_read(struct compare_run *r, double now_s, struct err *err)
{
    int rc = past_read(r->from->dir, now_s, &r->past, err);

    if (rc == 0)
        rc = history_read(r->from->dir, &r->history, err);
    if (rc == 0)
        compare_read_job(r);
    return rc;
}

static char *compare_folder(const char *dir)
{
    char *real = realpath(dir, NULL);
    char *name = xstrdup(real && real[1] ? strrchr(real, '/') + 1 : dir);

    free(real);
    return name;
}

static void compare_name(struct compare *c)
{
    int is_double[COMPARE_MOST] = {0};

    for (int i = 0; i < c->n; i++)
        c->run[i].name = compare_folder(c->run[i].from->dir);
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < c->n; k++)
            is_double[i] |= k != i && !strcmp(c->run[i].name, c->run[k].name);
    for (int i = 0; i < c->n; i++)
        if (is_double[i]) {
            free(c->run[i].name);
            c->run[i].name = xstrdup(c->run[i].from->dir);
        }
}

static void compare_fini(struct compare *c)
{
    for (int i = 0; i < c->n; i++) {
        struct compare_run *r = &c->run[i];

        for (int k = 0; k < r->n_keys; k++) {
            free(r->key[k].key);
            free(r->key[k].value);
        }
        free(r->key);
        free(r->name);
        past_fini(&r->past);
        history_fini(&r->history);
    }
}

/* ---- the page ---- */

/* A run for scripts. */
static json_t *compare_json(const struct compare_run *r)
{
    struct buf text = {0};
    json_t *o = json_object(), *job = json_object();

    if (r->from->status)
        buf_printf(&text, "%s", r->from->status);
    else
        status_put_json(&r->past.status, &text);
    for (int i = 0; i < r->n_keys; i++)
        json_object_set_new(job, r->key[i].key, json_text(r->key[i].value));
    json_object_set_new(o, "run_dir", json_text(r->from->dir));
    json_object_set_new(o, "status", json_loadb((const char *)text.data, text.len, 0, NULL));
    json_object_set_new(o, "job", job);
    buf_fini(&text);
    return o;
}

static void compare_time(double now_s, char *out, size_t cap)
{
    const time_t now = (time_t)now_s;
    struct tm local;

    if (!localtime_r(&now, &local) || !strftime(out, cap, "%F %T", &local))
        snprintf(out, cap, "%.0f s since 1970", now_s);
}

static void compare_put_page(struct buf *out, const struct compare *c, double now_s)
{
    json_t *runs = json_array();
    struct buf title = {0};
    char time[64];

    for (int i = 0; i < c->n; i++)
        buf_printf(&title, "%s%s", i ? ", " : "", c->run[i].name);
    report_put_head(out, buf_cstr(&title));
    compare_put_style(out);
    buf_printf(out, "</head>\n<body>\n<header>\n  <h1>");
    curves_escape(out, buf_cstr(&title));
    compare_time(now_s, time, sizeof time);
    buf_printf(out,
               "</h1>\n  <span id=\"link\" class=\"soft\">%d runs, as of %s</span>\n</header>\n"
               "<main>\n",
               c->n, time);
    compare_put_results(out, c);
    compare_put_curves(out, c);
    compare_put_jobs(out, c);
    buf_printf(out, "</main>\n");
    for (int i = 0; i < c->n; i++)
        json_array_append_new(runs, compare_json(&c->run[i]));
    report_put_json(out, "runs", runs);
    buf_printf(out, "</body>\n</html>\n");
    buf_fini(&title);
}

int compare_put(const struct report_run *run, int n, double now_s, struct buf *out, struct err *err)
{
    struct compare *c = xcalloc(1, sizeof *c);
    int rc = 0;

    ASSERT(n >= 2 && n <= COMPARE_MOST);
    for (int i = 0; i < n && rc == 0; i++) {
        c->run[c->n++].from = &run[i];
        rc = compare_read(&c->run[i], now_s, err);
    }
    if (rc == 0) {
        compare_name(c);
        compare_put_page(out, c, now_s);
    }
    compare_fini(c);
    free(c);
    return rc;
}
