/* state - state.json: where the run stands, and the hashes of the files beside it.
 *
 * The file also holds a hash of itself.  Reading checks that hash first, then the format. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "ckpt/ckpt_impl.h"
#include "ckpt/file.h"

enum { FORMAT = 1, MAX_STATE_BYTES = 64 << 10 };

static char *state_path(const char *folder) { return xasprintf("%s/" CKPT_STATE, folder); }

static const struct {
    const char *key;
    size_t offset;
} numbers[] = {
    {"step", offsetof(struct ckpt_state, step)},
    {"steps_per_epoch", offsetof(struct ckpt_state, steps_per_epoch)},
    {"epoch_loss", offsetof(struct ckpt_state, epoch_loss)},
    {"epoch_correct", offsetof(struct ckpt_state, epoch_correct)},
    {"epoch_samples", offsetof(struct ckpt_state, epoch_samples)},
    {"epoch_targets", offsetof(struct ckpt_state, epoch_targets)},
    {"epoch_skipped", offsetof(struct ckpt_state, epoch_skipped)},
    {"updates", offsetof(struct ckpt_state, n_updates)},
    {"row_loss", offsetof(struct ckpt_state, row_loss)},
    {"row_targets", offsetof(struct ckpt_state, row_targets)},
    {"row_steps", offsetof(struct ckpt_state, row_steps)},
    {"epoch_weight", offsetof(struct ckpt_state, epoch_weight)},
    {"row_weight", offsetof(struct ckpt_state, row_weight)},
    {"step_loss", offsetof(struct ckpt_state, step_loss)},
    {"step_weight", offsetof(struct ckpt_state, step_weight)},
    {"average_first", offsetof(struct ckpt_state, average_first)},
};

static int64_t *number_at(struct ckpt_state *s, size_t i)
{
    return (int64_t *)((char *)s + numbers[i].offset);
}

/* Hash of the object without its own "hash". */
static void hash_object(json_t *root, char text[HASH_TEXT_LEN])
{
    json_t *copy = json_copy(root);
    char *all;

    json_object_del(copy, "hash");
    all = json_dumps(copy, JSON_COMPACT | JSON_SORT_KEYS);
    ASSERT(all);
    hash_to_text(hash_of(all, strlen(all)), text);
    free(all);
    json_decref(copy);
}

static json_t *hash_json(struct hash128 h)
{
    char text[HASH_TEXT_LEN];

    hash_to_text(h, text);
    return json_string(text);
}

static json_t *best_json(const struct ckpt_content *c)
{
    json_t *steps = json_array();

    for (int i = 0; i < c->n_best; i++)
        json_array_append_new(steps, json_integer(c->best[i]));
    return steps;
}

static json_t *recent_json(const struct ckpt_state *s)
{
    json_t *losses = json_array();

    for (int64_t i = 0; i < s->n_recent; i++)
        json_array_append_new(losses, json_real(s->recent_loss[i]));
    return losses;
}

/* of_file [CKPT_FILES]: the hashes of the files beside state.json. */
static char *state_text(const struct ckpt_content *c, const struct hash128 *of_file)
{
    const struct ckpt_state *s = &c->state;
    struct ckpt_state copy = *s;
    json_t *root = json_object();
    char hash[HASH_TEXT_LEN], *text;

    json_object_set_new(root, "format", json_integer(FORMAT));
    json_object_set_new(root, "version", json_string(DPTRAIN_VERSION));
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        json_object_set_new(root, numbers[i].key, json_integer(*number_at(&copy, i)));
    json_object_set_new(root, "ranks", json_integer(s->n_ranks));
    json_object_set_new(root, "bucket_bytes", json_integer(s->bucket_bytes));
    json_object_set_new(root, "data", hash_json(s->data));
    if (!hash_equal(s->base, (struct hash128){0}))
        json_object_set_new(root, "base", hash_json(s->base));
    if (s->live_lr > 0)
        json_object_set_new(root, "live_lr", json_real(s->live_lr));
    if (s->n_recent > 0)
        json_object_set_new(root, "recent_losses", recent_json(s));
    json_object_set_new(root, "best", best_json(c));
    if (c->class_names)
        json_object_set_new(root, "class_names", json_loads(c->class_names, 0, NULL));
    for (int i = 0; i < CKPT_FILES; i++)
        if (ckpt_has_file(c, (enum ckpt_file)i))
            json_object_set_new(root, ckpt_file_name((enum ckpt_file)i), hash_json(of_file[i]));
    hash_object(root, hash);
    json_object_set_new(root, "hash", json_string(hash));
    text = json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    ASSERT(text);
    return text;
}

/* text NULL: there is no such file. */
static int state_write_text(const char *folder, const char *name, const char *text, struct err *err)
{
    char *path;
    int fd = -1, rc;

    if (!text)
        return 0;
    path = xasprintf("%s/%s", folder, name);
    rc = file_create(path, &fd, err);
    if (rc == 0)
        rc = file_put(fd, path, text, strlen(text), err);
    if (rc == 0)
        rc = file_finish(fd, path, err);
    else if (fd >= 0)
        close(fd);
    free(path);
    return rc;
}

int ckpt_write_state(const char *folder, const struct ckpt_content *c, const struct hash128 *hash,
                     struct err *err)
{
    char *text = state_text(c, hash);
    int rc = state_write_text(folder, CKPT_CONFIG, c->config, err);

    if (rc == 0)
        rc = state_write_text(folder, CKPT_ADAPTER_CONFIG, c->adapter_config, err);
    if (rc == 0)
        rc = state_write_text(folder, CKPT_STATE, text, err);
    if (rc == 0)
        rc = file_sync_folder(folder, err);
    free(text);
    return rc;
}

/* ---- reading ---- */

/* Version 0.1.0 had models with one target a sample alone, and wrote no "epoch_targets". */
static json_t *find_number(json_t *root, const char *key)
{
    json_t *v = json_object_get(root, key);

    return v || strcmp(key, "epoch_targets") != 0 ? v : json_object_get(root, "epoch_samples");
}

/* Version 0.1.0 wrote no sums of a row of metrics.csv: they are 0 then.  Versions without class
 * weights wrote no sums of weights, and older ones not where the mean of weights begins, nor the
 * last step's loss. */
static int may_be_missing(const char *key)
{
    return !strncmp(key, "row_", 4) || !strncmp(key, "step_", 5) || !strcmp(key, "epoch_weight") ||
           !strcmp(key, "average_first");
}

/* Without class weights each target weighs 1. */
static int64_t weight_of(int64_t n_targets)
{
    return n_targets > INT64_MAX >> 24 ? INT64_MAX : n_targets << 24;
}

/* A sum of losses: a network's own loss may be below 0, and a weight that is not known is -1. */
static int may_be_negative(const char *key)
{
    const size_t n = strlen(key);

    return (n > 5 && !strcmp(key + n - 5, "_loss")) || !strcmp(key, "step_weight");
}

static int state_read_numbers(json_t *root, const char *path, struct ckpt_state *s, struct err *err)
{
    s->step_weight = -1;
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        json_t *v = find_number(root, numbers[i].key);

        if (!v && may_be_missing(numbers[i].key))
            continue;
        if (!json_is_integer(v) || (json_integer_value(v) < 0 && !may_be_negative(numbers[i].key)))
            return err_set(err, ERR_CORRUPT, "%s: \"%s\" is missing or not a number >= 0", path,
                           numbers[i].key);
        *number_at(s, i) = json_integer_value(v);
    }
    if (!json_object_get(root, "epoch_weight")) {
        s->epoch_weight = weight_of(s->epoch_targets);
        s->row_weight = weight_of(s->row_targets);
    }
    if (s->steps_per_epoch < 1)
        return err_set(err, ERR_CORRUPT, "%s: \"steps_per_epoch\" is 0", path);
    s->n_ranks = (int)json_integer_value(json_object_get(root, "ranks"));
    s->bucket_bytes = json_integer_value(json_object_get(root, "bucket_bytes")); /* 0: missing */
    s->grad_norm = NAN;
    return 0;
}

/* A hash that may be missing: version 0.1.0 wrote no fingerprint of the data, and few runs have a
 * base. */
static int state_read_hash(json_t *root, const char *path, const char *key, struct hash128 *out,
                           struct err *err)
{
    const char *text = json_string_value(json_object_get(root, key));

    *out = (struct hash128){0};
    if (text && hash_from_text(text, out, err) < 0)
        return err_wrap(err, "%s: \"%s\"", path, key);
    return 0;
}

/* The losses of train.on_spike, and the rate of --set-live.  Most runs have neither. */
static int state_read_live(json_t *root, const char *path, struct ckpt_state *s, struct err *err)
{
    json_t *losses = json_object_get(root, "recent_losses"), *loss;
    size_t i;

    s->n_recent = 0;
    s->live_lr = fmax(0, json_number_value(json_object_get(root, "live_lr"))); /* 0: missing */
    if (!losses)
        return 0;
    if (!json_is_array(losses) || json_array_size(losses) > CKPT_RECENT)
        return err_set(err, ERR_CORRUPT, "%s: \"recent_losses\" is no list of at most %d numbers",
                       path, CKPT_RECENT);
    json_array_foreach(losses, i, loss)
    {
        if (!json_is_real(loss))
            return err_set(err, ERR_CORRUPT, "%s: \"recent_losses\": element %zu is no real number",
                           path, i);
        s->recent_loss[s->n_recent++] = json_real_value(loss);
    }
    return 0;
}

static int state_check_root(json_t *root, const char *path, struct err *err)
{
    json_t *format = json_object_get(root, "format");
    const char *seen = json_string_value(json_object_get(root, "hash"));
    char want[HASH_TEXT_LEN];

    hash_object(root, want);
    if (!seen || strcmp(seen, want) != 0)
        return err_set(err, ERR_CORRUPT, "%s: its hash is %s, its content has %s", path,
                       seen ? seen : "missing", want);
    if (!json_is_integer(format) || json_integer_value(format) != FORMAT)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: format %lld, this version reads %d; resume with the version of dptrain "
                       "that wrote it",
                       path, (long long)json_integer_value(format), FORMAT);
    return 0;
}

/* The file is read whole, so it must not be huge. */
static int read_small(const char *path, char text[MAX_STATE_BYTES], size_t *len, struct err *err)
{
    int64_t n_bytes;
    int fd, rc = ckpt_check_there(path, err);

    if (rc == 0)
        rc = file_open(path, &fd, &n_bytes, err);
    if (rc < 0)
        return rc;
    *len = (size_t)n_bytes;
    if (n_bytes > MAX_STATE_BYTES)
        rc = err_set(err, ERR_CORRUPT, "%s: %lld bytes, want at most %d", path, (long long)n_bytes,
                     MAX_STATE_BYTES);
    else
        rc = file_read_at(fd, path, text, *len, 0, err);
    close(fd);
    return rc;
}

/* The object in the file `path`, whose own hash and format are right. */
static int load_root(const char *path, json_t **out, struct err *err)
{
    char *text = xmalloc(MAX_STATE_BYTES);
    json_t *root = NULL;
    json_error_t why;
    size_t len;
    int rc = read_small(path, text, &len, err);

    if (rc == 0) {
        root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
        if (!json_is_object(root))
            rc = err_set(err, ERR_CORRUPT, "%s: line %d: %s", path, root ? 1 : why.line,
                         root ? "not an object" : why.text);
    }
    free(text);
    if (rc == 0)
        rc = state_check_root(root, path, err);
    if (rc < 0) {
        json_decref(root);
        return rc;
    }
    *out = root;
    return 0;
}

static void read_hashes(json_t *root, struct ckpt_hashes *out)
{
    for (int i = 0; i < CKPT_FILES; i++) {
        const char *text =
            json_string_value(json_object_get(root, ckpt_file_name((enum ckpt_file)i)));

        snprintf(out->text[i], sizeof out->text[i], "%s", text ? text : "");
    }
}

int ckpt_read_state(const char *folder, struct ckpt_state *s, struct ckpt_hashes *of,
                    struct err *err)
{
    char *path = state_path(folder);
    json_t *root = NULL;
    int rc = load_root(path, &root, err);

    if (rc == 0)
        rc = state_read_numbers(root, path, s, err);
    if (rc == 0)
        rc = state_read_hash(root, path, "data", &s->data, err);
    if (rc == 0)
        rc = state_read_hash(root, path, "base", &s->base, err);
    if (rc == 0)
        rc = state_read_live(root, path, s, err);
    if (rc == 0)
        read_hashes(root, of);
    json_decref(root);
    free(path);
    return rc;
}

int ckpt_read_best(const char *folder, int64_t best[CKPT_MOST_BEST], int *n, struct err *err)
{
    char *path = state_path(folder);
    json_t *root = NULL, *steps, *step;
    int rc = load_root(path, &root, err);
    size_t i;

    steps = json_object_get(root, "best");
    *n = json_is_array(steps) ? 0 : -1;
    json_array_foreach(steps, i, step) if (json_is_integer(step) && *n < CKPT_MOST_BEST)
        best[(*n)++] = json_integer_value(step);
    json_decref(root);
    free(path);
    return rc;
}

int ckpt_is_folder(const char *folder)
{
    char *path = state_path(folder);
    const int is = access(path, F_OK) == 0;

    free(path);
    return is;
}
