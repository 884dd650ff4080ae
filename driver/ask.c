#include "driver/ask.h"

#include <glob.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"
#include "driver/status_socket.h"

static int is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int show(const struct buf *answer, int log_format)
{
    json_t *o = json_loadb((const char *)answer->data, answer->len, 0, NULL);
    const char *text = json_string_value(json_object_get(o, "text"));
    const json_t *status = json_object_get(o, "status");
    int is_whole = text && json_is_object(status);

    if (is_whole && log_format == LOG_JSON) {
        json_dumpf(status, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
        printf("\n");
    } else if (is_whole) {
        printf("%s", text);
    } else {
        log_error("--status: the driver's answer is cut short; ask again");
    }
    json_decref(o);
    return is_whole ? STATUS_OK : STATUS_FAILED;
}

static int failed(const struct err *err)
{
    log_error("--status: %s", err->msg);
    return STATUS_FAILED;
}

static int ask_one(const char *run_dir, int log_format)
{
    struct buf answer = {0};
    struct err err;
    int rc = status_socket_ask(run_dir, &answer, &err), status;

    if (rc == STATUS_NOBODY) {
        log_error("--status: no driver is running in %s", run_dir);
        status = STATUS_REFUSED;
    } else {
        status = rc < 0 ? failed(&err) : show(&answer, log_format);
    }
    buf_fini(&answer);
    return status;
}

static int ask_named(const char *run_dir, int log_format)
{
    char *in_runs = xasprintf("runs/%s", run_dir);
    int status = STATUS_USAGE;

    if (is_folder(run_dir))
        status = ask_one(run_dir, log_format);
    else if (is_folder(in_runs))
        status = ask_one(in_runs, log_format);
    else
        log_error("--status: there is no run directory %s, nor %s", run_dir, in_runs);
    free(in_runs);
    return status;
}

/* ---- which one ---- */

struct found {
    struct buf answer; /* of the last */
    int n;             /* drivers that run */
    struct buf list;   /* of their run directories */
    int has_failed;
    struct err err;
};

static void try_one(struct found *f, const char *run_dir)
{
    struct buf answer = {0};
    struct err err;
    int rc = status_socket_ask(run_dir, &answer, &err);

    if (rc < 0) {
        f->has_failed = 1;
        f->err = err;
    }
    if (rc == 0) {
        buf_printf(&f->list, "%s%s", f->n++ ? ", " : "", run_dir);
        buf_fini(&f->answer);
        f->answer = answer;
        return;
    }
    buf_fini(&answer);
}

static int conclude(struct found *f, int log_format)
{
    if (f->n == 1)
        return show(&f->answer, log_format);
    if (f->n > 1) {
        log_error("--status: several drivers are running: %s; say which by --run-dir",
                  buf_cstr(&f->list));
        return STATUS_USAGE;
    }
    if (f->has_failed)
        return failed(&f->err);
    log_error("--status: no driver is running in runs/* of this folder; --run-dir says where else");
    return STATUS_REFUSED;
}

static int ask_any(int log_format)
{
    struct found f = {0};
    glob_t g;
    int status;

    if (glob("runs/*/status.sock", 0, NULL, &g) == 0) {
        for (size_t i = 0; i < g.gl_pathc; i++) {
            *strrchr(g.gl_pathv[i], '/') = '\0';
            try_one(&f, g.gl_pathv[i]);
        }
        globfree(&g);
    }
    status = conclude(&f, log_format);
    buf_fini(&f.answer);
    buf_fini(&f.list);
    return status;
}

int ask_run(const struct options *o)
{
    int format = o->common.log_format;

    return o->run_dir ? ask_named(o->run_dir, format) : ask_any(format);
}
