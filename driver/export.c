/* Loads the checkpoint, opens the training data, which say what a sample is, and has export/ write
 * the file. */
#include "driver/export.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/log.h"
#include "ckpt/ckpt.h"
#include "export/export.h"
#include "export/merge.h"

static void export_warn(void *arg, const char *text)
{
    (void)arg;
    log_warn("%s", text);
}

int export_load(const struct options *o, const struct evaluation *e, struct ckpt **out,
                struct err *err)
{
    int rc = e->is_latest ? ckpt_load_latest(e->from, export_warn, NULL, out, err)
                          : ckpt_load_folder(e->from, out, err);

    if (rc == CKPT_NONE)
        return err_set(err, ERR_CONFIG, "there is no checkpoint in %s", e->from);
    if (rc < 0)
        return err_wrap(err, "checkpoint");
    if (!o->averaged || (*out)->average)
        return 0;
    return err_set(err, ERR_CONFIG,
                   "--weights average: %s has no averaged weights, which train.average makes",
                   (*out)->path);
}

/* The network of the merged weights. */
static int export_with_adapters(struct export_request r, const char *path, struct err *err)
{
    struct model_options model = *r.model;
    struct st_file *merged = NULL;
    char *bytes = NULL;
    size_t n;
    int rc = merge_weights(&r, &bytes, &n, err);

    if (rc < 0)
        return rc;
    rc = st_parse(bytes, n, "merged weights", &merged, err);
    if (rc == 0) {
        model.lora.rank = 0;
        r.model = &model;
        r.weights = merged;
        rc = export_onnx(&r, path, err);
    }
    st_close(merged);
    free(bytes);
    return rc;
}

static int export_network(const struct options *o, const struct job *job, const struct ckpt *c,
                          struct err *err)
{
    struct dataset_request request = job_request(job, DATASET_TRAIN);
    struct export_request r = {.model = &job->model,
                               .weights = o->averaged ? c->average : c->model,
                               .step = c->state.step,
                               .class_names = job->data.class_names};
    struct dataset *data = NULL;
    int rc;

    request.warn = export_warn;
    request.keeps_nothing = 1; /* the spec and the names are wanted */
    rc = dataset_open(&data, &job->data, &request, err);
    if (rc < 0)
        return err_wrap(err, "training data");
    r.data = data;
    rc = o->merge                   ? export_merged(&r, o->export, err)
         : job->model.lora.rank > 0 ? export_with_adapters(r, o->export, err)
                                    : export_onnx(&r, o->export, err);
    dataset_close(data);
    return rc;
}

static int export_weights(const struct options *o, const struct ckpt *c, struct err *err)
{
    char *path = xasprintf("%s/%s.safetensors", c->path, o->averaged ? "model_average" : "model");
    const int is_whole = hash_equal(c->state.base, (struct hash128){0});
    const int rc = is_whole ? export_state_dict(path, o->export, err)
                            : err_set(err, ERR_CONFIG,
                                      "%s lacks the frozen base, which model.base keeps out of "
                                      "checkpoints; want dpdriver merge FILE.safetensors, which "
                                      "writes it with its adapters",
                                      path);

    free(path);
    return rc;
}

/* One line on standard output: text, or JSON with --log-format json. */
static void export_tell(const struct options *o, const struct ckpt *c)
{
    struct buf text = {0};
    char *json;

    if (o->common.log_format == LOG_JSON) {
        json_t *line = json_pack("{s:s, s:I, s:s}", "checkpoint", c->path, "step",
                                 (json_int_t)c->state.step, "exported", o->export);

        json = json_dumps(line, JSON_COMPACT);
        buf_printf(&text, "%s\n", json);
        free(json);
        json_decref(line);
    } else {
        buf_printf(&text, "%s: exported to %s\n", c->path, o->export);
    }
    log_put(STDOUT_FILENO, (const char *)text.data, text.len);
    buf_fini(&text);
}

int export_run(const struct options *o, const struct evaluation *e, const struct job *job)
{
    struct ckpt *c = NULL;
    struct err err;
    int rc = export_load(o, e, &c, &err);

    if (rc == 0)
        rc = job ? export_network(o, job, c, &err) : export_weights(o, c, &err);
    if (rc == 0)
        export_tell(o, c);
    else
        log_error("--%s: %s", o->merge ? "merge" : "export", err.msg);
    ckpt_close(c);
    return rc == 0 ? STATUS_OK : daemon_status_of(&err);
}
