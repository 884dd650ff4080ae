/* adapters - what adapter_config.json says of a job's adapters, and whether a job says the same.
 *
 * Keys that only say how PEFT found the layers are not compared: the tensors' names tell. */
#include "job/adapters.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/util.h"
#include "model/lora.h"
#include "program/layout.h"

static const char config_name[] = "adapter_config.json", model_name[] = "adapter_model.safetensors";

/* ---- the job's keys ---- */

/* A base that is packed cannot be trained, and no checkpoint has it. */
static int adapters_check_base(const struct model_options *m, struct err *err)
{
    static const char *const bases[] = {BASE_LIST(WORD_NAME) NULL};

    if (m->base == BASE_FLOAT32)
        return 0;
    if (m->lora.rank == 0)
        return err_set(err, ERR_CONFIG,
                       "model.base is %s, which is for frozen weights, but there is no model.lora; "
                       "want model.lora: {rank: 8}, or model.base: float32",
                       bases[m->base]);
    if (m->init.name == INIT_FILE && m->init.missing == MISSING_DRAW)
        return err_set(
            err, ERR_CONFIG,
            "model.base is %s, and model.init.missing is draw: checkpoints have no base, "
            "so a resumed run would lack what was drawn; want model.init.missing: error",
            bases[m->base]);
    if (m->init.name != INIT_FILE && m->init.name != INIT_IMPORT)
        return err_set(err, ERR_CONFIG,
                       "model.base is %s, the form of a trained network, but the network begins "
                       "with random weights; want model.init: {name: file, path: ITS FILE}, or "
                       "model.base: float32",
                       bases[m->base]);
    return 0;
}

int adapters_check_keys(const struct model_options *m, struct err *err)
{
    if (m->lora.path && m->lora.rank == 0)
        return err_set(err, ERR_CONFIG,
                       "model.lora.path is %s, but model.lora.rank is 0; want the rank of these "
                       "adapters, r in adapter_config.json",
                       m->lora.path);
    if (m->lora.path && m->init.name != INIT_FILE && m->init.name != INIT_IMPORT)
        return err_set(err, ERR_CONFIG,
                       "model.lora.path is %s, adapters of a trained network, but the network "
                       "begins with random weights; want model.init: {name: file, path: ITS FILE}",
                       m->lora.path);
    return adapters_check_base(m, err);
}

char *adapters_doubt(const struct lora_options *o)
{
    const int is_used = o->match || o->dropout > 0 || o->rslora || o->alpha != LORA_ALPHA;

    return o->rank == 0 && is_used
               ? xstrdup("model.lora has other keys, but model.lora.rank is 0: there are no "
                         "adapters, and all parameters are trained")
               : NULL;
}

/* ---- writing ---- */

static json_t *adapters_layers(const struct layout *l)
{
    json_t *names = json_array();

    for (int i = 0; i < l->n_params; i++) {
        const size_t n = lora_layer_length(l->param[i].name);

        if (n)
            json_array_append_new(names, json_stringn(l->param[i].name, n));
    }
    return names;
}

/* A number as PEFT writes it: whole ones as integers. */
static json_t *adapters_json(double v)
{
    return v == floor(v) ? json_integer((json_int_t)v) : json_real(v);
}

void adapters_write(const struct lora_options *o, const struct layout *l, struct buf *out)
{
    json_t *root =
        json_pack("{s:s, s:I, s:o, s:f, s:b, s:s, s:b, s:n, s:n, s:o}", "peft_type", "LORA", "r",
                  (json_int_t)o->rank, "lora_alpha", adapters_json(o->alpha), "lora_dropout",
                  o->dropout, "use_rslora", o->rslora, "bias", "none", "inference_mode", 1,
                  "base_model_name_or_path", "task_type", "target_modules", adapters_layers(l));
    char *text;

    ASSERT(root);
    text = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(9));
    buf_printf(out, "%s\n", text);
    free(text);
    json_decref(root);
}

/* ---- reading ---- */

/* The folder of the adapters, with '/' at its end; for free(). */
static char *adapters_folder(const struct lora_options *o)
{
    const char *slash = strrchr(o->path, '/');
    struct stat st;

    if (stat(o->path, &st) < 0 || S_ISDIR(st.st_mode)) /* one that is not there is told as it is */
        return xasprintf("%s/", o->path);
    return xasprintf("%.*s", slash ? (int)(slash - o->path) + 1 : 0, o->path);
}

char *adapters_path(const struct lora_options *o)
{
    struct stat st;

    if (stat(o->path, &st) == 0 && S_ISDIR(st.st_mode))
        return xasprintf("%s/%s", o->path, model_name);
    return xstrdup(o->path);
}

/* Keys whose values would make another function of the same tensors, unless they are null, false,
 * empty, or the one given. */
static const struct {
    const char *key, *allowed;
} adapters_plain[] = {
    {"use_dora", NULL},          {"rank_pattern", NULL},      {"alpha_pattern", NULL},
    {"layer_replication", NULL}, {"modules_to_save", NULL},   {"bias", "none"},
    {"peft_type", "LORA"},       {"target_parameters", NULL}, {"alora_invocation_tokens", NULL},
    {"lora_bias", NULL}};

static int adapters_is_plain(const json_t *v, const char *allowed)
{
    return !v || json_is_null(v) || json_is_false(v) || (json_is_array(v) && !json_array_size(v)) ||
           (json_is_object(v) && !json_object_size(v)) ||
           (allowed && json_is_string(v) && !strcmp(json_string_value(v), allowed));
}

static int adapters_check_plain(const json_t *root, const char *path, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(adapters_plain); i++) {
        const json_t *v = json_object_get(root, adapters_plain[i].key);
        char *seen;

        if (adapters_is_plain(v, adapters_plain[i].allowed))
            continue;
        seen = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
        err_set(err, ERR_CONFIG, "%s: \"%s\" is %.80s, want %s: dptrain has plain LoRA alone", path,
                adapters_plain[i].key, seen ? seen : "?",
                adapters_plain[i].allowed ? adapters_plain[i].allowed : "nothing");
        free(seen);
        return err->code;
    }
    return 0;
}

static double adapters_number(const json_t *root, const char *key, double missing)
{
    const json_t *v = json_object_get(root, key);

    return json_is_number(v) ? json_number_value(v) : missing;
}

enum { PEFT_RANK = 8, PEFT_ALPHA = 8 }; /* its defaults */

static int adapters_check_numbers(const struct lora_options *o, const json_t *root,
                                  const char *path, struct err *err)
{
    const double rank = adapters_number(root, "r", PEFT_RANK),
                 alpha = adapters_number(root, "lora_alpha", PEFT_ALPHA);
    const int rslora = json_is_true(json_object_get(root, "use_rslora"));

    if (rank != (double)o->rank)
        return err_set(err, ERR_CONFIG, "%s: r is %g, and model.lora.rank is %lld", path, rank,
                       (long long)o->rank);
    if ((float)alpha != (float)o->alpha) /* as the network has it */
        return err_set(err, ERR_CONFIG, "%s: lora_alpha is %.9g, and model.lora.alpha is %.9g",
                       path, alpha, o->alpha);
    if (rslora != o->rslora)
        return err_set(err, ERR_CONFIG, "%s: use_rslora is %s, and model.lora.rslora is %s", path,
                       rslora ? "true" : "false", o->rslora ? "true" : "false");
    return 0;
}

int adapters_check(const struct lora_options *o, struct err *err)
{
    char *folder = adapters_folder(o), *path = xasprintf("%s%s", folder, config_name);
    json_error_t why;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    int rc = 0;

    if (!json_is_object(root))
        rc = err_set(err, ERR_CONFIG, "%s: %s; want the JSON that PEFT writes beside %s", path,
                     root ? "no object" : why.text, model_name);
    if (rc == 0)
        rc = adapters_check_plain(root, path, err);
    if (rc == 0)
        rc = adapters_check_numbers(o, root, path, err);
    json_decref(root);
    free(path);
    free(folder);
    return rc;
}
