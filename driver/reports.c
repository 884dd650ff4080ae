/* A run whose driver is at work on this machine is shown with the driver's own status; any other
 * one by its files alone. */
#include "driver/reports.h"

#include <jansson.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "driver/ask.h"
#include "driver/status_socket.h"
#include "report/run_dir.h"
#include "see/compare.h"
#include "see/report.h"

/* The status that the run's driver tells, for free(); NULL: no driver tells one. */
static char *reports_status(const char *run_dir)
{
    struct buf answer = {0};
    struct err err;
    char *text = NULL;
    int rc = status_socket_ask(run_dir, "status", &answer, &err);

    if (rc < 0)
        log_warn("%s: its driver does not tell the status (%s); the report has what the files tell",
                 run_dir, err.msg);
    if (rc == 0) {
        json_t *o = json_loadb((const char *)answer.data, answer.len, 0, NULL);

        text = json_dumps(json_object_get(o, "status"), JSON_COMPACT | JSON_REAL_PRECISION(9));
        json_decref(o);
    }
    buf_fini(&answer);
    return text;
}

/* A device or a folder is not replaced. */
static int reports_check(const char *path, struct err *err)
{
    struct stat st;

    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return err_set(err, ERR_ARG, "%s is no file that a report could replace; want FILE.html",
                       path);
    return 0;
}

/* The page of the runs.  Of one run it is the page of --http. */
static int reports_make(const struct report_run *run, int n, struct buf *out, struct err *err)
{
    const double now_s = clock_wall_s();

    return n == 1 ? report_put(run, now_s, out, err) : compare_put(run, n, now_s, out, err);
}

static int reports_write(const struct options *o, const struct report_run *run, int n,
                         struct err *err)
{
    char *path = o->out   ? xstrdup(o->out)
                 : n == 1 ? xasprintf("%s/report.html", run->dir)
                          : xstrdup("report.html");
    struct buf out = {0};
    int rc = reports_check(path, err);

    if (rc == 0)
        rc = reports_make(run, n, &out, err);
    if (rc == 0 && run_dir_replace(path, out.data, out.len, err) < 0)
        rc = err_wrap(err, "--out FILE writes the report elsewhere");
    if (rc == 0)
        printf("%s\n", path);
    buf_fini(&out);
    free(path);
    return rc;
}

/* 1: an earlier one of the runs is the same folder. */
static int reports_is_double(const struct report_run *run, int n)
{
    struct stat a, b;

    for (int i = 0; i < n; i++)
        if (stat(run[i].dir, &a) == 0 && stat(run[n].dir, &b) == 0 && a.st_dev == b.st_dev &&
            a.st_ino == b.st_ino)
            return 1;
    return 0;
}

/* The runs that are named; returns their number, or 0 if one is not there. */
static int reports_find(const struct arg_list *names, struct report_run *run)
{
    for (int i = 0; i < (int)names->n; i++) {
        run[i].dir = ask_find_run("--report", names->item[i]);
        if (!run[i].dir)
            return 0;
        if (reports_is_double(run, i)) {
            log_error("--report: %s is given twice; leave one out", run[i].dir);
            return 0;
        }
        run[i].status = reports_status(run[i].dir);
    }
    return (int)names->n;
}

int reports_run(const struct options *o)
{
    struct report_run run[COMPARE_MOST] = {{0}};
    struct err err;
    int status = STATUS_USAGE, n = 0;

    if (o->reports.n > COMPARE_MOST)
        log_error("--report: %zu runs are given, and at most %d can be compared", o->reports.n,
                  COMPARE_MOST);
    else
        n = reports_find(&o->reports, run);
    if (n > 0 && reports_write(o, run, n, &err) < 0) {
        log_error("--report: %s", err.msg);
        status = daemon_status_of(&err);
    } else if (n > 0) {
        status = STATUS_OK;
    }
    for (int i = 0; i < COMPARE_MOST; i++) {
        free((char *)run[i].dir);
        free((char *)run[i].status);
    }
    return status;
}
