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

static int reports_write(const struct options *o, const char *run_dir, struct err *err)
{
    char *path = o->out ? xstrdup(o->out) : xasprintf("%s/report.html", run_dir);
    struct report_run run = {.dir = run_dir, .status = reports_status(run_dir)};
    struct buf out = {0};
    int rc = reports_check(path, err);

    if (rc == 0)
        rc = report_put(&run, clock_wall_s(), &out, err);
    if (rc == 0 && run_dir_replace(path, out.data, out.len, err) < 0)
        rc = err_wrap(err, "--out FILE writes the report elsewhere");
    if (rc == 0)
        printf("%s\n", path);
    buf_fini(&out);
    free((char *)run.status);
    free(path);
    return rc;
}

int reports_run(const struct options *o)
{
    char *run_dir = ask_find_run("--report", o->reports.item[0]);
    struct err err;
    int status = STATUS_OK;

    if (!run_dir)
        return STATUS_USAGE;
    if (reports_write(o, run_dir, &err) < 0) {
        log_error("--report: %s", err.msg);
        status = daemon_status_of(&err);
    }
    free(run_dir);
    return status;
}
