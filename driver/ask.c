/* The client of the requests to a running driver, such as --status and --drain: finds the one
 * driver that is meant, and prints its answer. Without --run-dir every folder in runs/ is tried. */
#include "driver/ask.h"

#include <glob.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "driver/request.h"
#include "driver/status_socket.h"
#include "driver/watching.h"

struct question {
    char *option; /* "--status", for messages */
    char *request;
    int log_format;
};

static int ask_is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int show_json(const json_t *answer)
{
    const json_t *status = json_object_get(answer, "status");

    json_dumpf(status ? status : answer, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
    printf("\n");
    return STATUS_OK;
}

static int ask_show(const struct question *q, const struct buf *answer)
{
    json_t *o = json_loadb((const char *)answer->data, answer->len, 0, NULL);
    const char *text = json_string_value(json_object_get(o, "text"));
    const char *error = json_string_value(json_object_get(o, "error"));
    int status = STATUS_OK;

    if (error) {
        log_error("%s: %s", q->option, error);
        status = STATUS_REFUSED;
    } else if (text && q->log_format == LOG_JSON) {
        status = show_json(o);
    } else if (text) {
        printf("%s", text);
    } else {
        log_error("%s: the driver's answer is cut short; ask again", q->option);
        status = STATUS_FAILED;
    }
    json_decref(o);
    return status;
}

static int ask_failed(const struct question *q, const struct err *err)
{
    log_error("%s: %s", q->option, err->msg);
    return STATUS_FAILED;
}

static int ask_one(const struct question *q, const char *run_dir)
{
    struct buf answer = {0};
    struct err err;
    int rc = status_socket_ask(run_dir, q->request, &answer, &err), status;

    if (rc == STATUS_NOBODY) {
        log_error("%s: no driver is running in %s", q->option, run_dir);
        status = STATUS_REFUSED;
    } else {
        status = rc < 0 ? ask_failed(q, &err) : ask_show(q, &answer);
    }
    buf_fini(&answer);
    return status;
}

char *ask_find_run(const char *option, const char *word)
{
    char *in_runs = xasprintf("runs/%s", word), *found = NULL;

    if (ask_is_folder(word))
        found = xstrdup(word);
    else if (ask_is_folder(in_runs))
        return in_runs;
    else
        log_error("%s: there is no run directory %s, nor %s", option, word, in_runs);
    free(in_runs);
    return found;
}

/* ---- which one ---- */

struct found {
    char *run_dir;   /* of the last */
    int n;           /* drivers that run */
    struct buf list; /* of their run directories */
    int has_failed;
    struct err err;
};

static void try_one(struct found *f, const char *run_dir)
{
    struct err err;
    int rc = status_socket_find(run_dir, &err);

    if (rc < 0) {
        f->has_failed = 1;
        f->err = err;
    }
    if (rc != 0)
        return;
    buf_printf(&f->list, "%s%s", f->n++ ? ", " : "", run_dir);
    free(f->run_dir);
    f->run_dir = xstrdup(run_dir);
}

static int ask_conclude(const char *option, struct found *f)
{
    if (f->n == 1)
        return STATUS_OK;
    if (f->n > 1) {
        log_error("%s: several drivers are running: %s; say which by --run-dir", option,
                  buf_cstr(&f->list));
        return STATUS_USAGE;
    }
    if (f->has_failed) {
        log_error("%s: %s", option, f->err.msg);
        return STATUS_FAILED;
    }
    log_error("%s: no driver is running in runs/* of this folder; --run-dir says where else",
              option);
    return STATUS_REFUSED;
}

/* *run_dir: that of the one driver whose run directory is in runs/, for free(). */
static int ask_any(const char *option, char **run_dir)
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
    status = ask_conclude(option, &f);
    *run_dir = status == STATUS_OK ? f.run_dir : NULL;
    if (status != STATUS_OK)
        free(f.run_dir);
    buf_fini(&f.list);
    return status;
}

/* The run directory whose driver is meant, for free(). */
static int ask_which(const struct options *o, const char *option, char **run_dir)
{
    if (!o->run_dir)
        return ask_any(option, run_dir);
    *run_dir = ask_find_run(option, o->run_dir);
    return *run_dir ? STATUS_OK : STATUS_USAGE;
}

static char *ask_request(const struct options *o, enum request_kind kind)
{
    const char *name = request_names[kind];

    if (kind == ASK_drain)
        return xasprintf("%s %s", name, o->drain);
    if (kind == ASK_trace)
        return xasprintf("%s %.9g", name, o->trace_s);
    if (kind == ASK_set_live)
        return xasprintf("%s %s", name, o->set_live);
    return xstrdup(name);
}

static enum request_kind ask_kind(const struct options *o)
{
    return o->drain            ? ASK_drain
           : o->trace_s > 0    ? ASK_trace
           : o->checkpoint_now ? ASK_checkpoint_now
           : o->pause          ? ASK_pause
           : o->go             ? ASK_go
           : o->set_live       ? ASK_set_live
                               : ASK_status;
}

/* "--set-live" of the request set_live. */
static char *ask_option(enum request_kind kind)
{
    char *option = xasprintf("--%s", request_names[kind]);

    for (char *at = option; *at; at++)
        *at = *at == '_' ? '-' : *at;
    return option;
}

int ask_run(const struct options *o)
{
    const enum request_kind kind = ask_kind(o);
    struct question q = {.option = ask_option(kind),
                         .request = ask_request(o, kind),
                         .log_format = o->common.log_format};
    char *run_dir = NULL;
    int status = ask_which(o, q.option, &run_dir);

    if (status == STATUS_OK)
        status = o->watch ? watching_run(run_dir, o->common.log_format) : ask_one(&q, run_dir);
    free(run_dir);
    free(q.option);
    free(q.request);
    return status;
}
