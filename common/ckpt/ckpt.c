/* ckpt - saving, finding and loading generations of a run's state.
 *
 * ckpt.h tells the order of a save and the failures that it survives. */
#include "ckpt/ckpt.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "ckpt/ckpt_impl.h"
#include "ckpt/file.h"
#include "ckpt/owner.h"

static const char *const file_name[CKPT_FILES] = {[CKPT_MODEL] = "model.safetensors",
                                                  [CKPT_OPTIMIZER] = "optimizer.safetensors",
                                                  [CKPT_AVERAGE] = "model_average.safetensors"};
static const char state_file[] = "state.json";

enum { FORMAT = 1, MAX_STATE_BYTES = 64 << 10 };

/* ---- state.json ---- */

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

/* of_file [n_files]: the hashes of the files beside state.json. */
static char *state_text(const struct ckpt_state *s, const struct hash128 *of_file, int n_files)
{
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
    for (int i = 0; i < n_files; i++)
        json_object_set_new(root, file_name[i], hash_json(of_file[i]));
    hash_object(root, hash);
    json_object_set_new(root, "hash", json_string(hash));
    text = json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    ASSERT(text);
    return text;
}

/* Version 0.1.0 had models with one target a sample alone, and wrote no "epoch_targets". */
static json_t *find_number(json_t *root, const char *key)
{
    json_t *v = json_object_get(root, key);

    return v || strcmp(key, "epoch_targets") ? v : json_object_get(root, "epoch_samples");
}

/* Version 0.1.0 wrote no sums of a row of metrics.csv: they are 0 then.  Versions without class
 * weights wrote no sums of weights. */
static int may_be_missing(const char *key)
{
    return strncmp(key, "row_", 4) == 0 || strcmp(key, "epoch_weight") == 0;
}

/* Without class weights each target weighs 1. */
static int64_t weight_of(int64_t n_targets)
{
    return n_targets > INT64_MAX >> 24 ? INT64_MAX : n_targets << 24;
}

static int read_numbers(json_t *root, const char *path, struct ckpt_state *s, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        json_t *v = find_number(root, numbers[i].key);

        if (!v && may_be_missing(numbers[i].key))
            continue;
        if (!json_is_integer(v) || json_integer_value(v) < 0)
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

/* Version 0.1.0 wrote no fingerprint of the data. */
static int read_data(json_t *root, const char *path, struct ckpt_state *s, struct err *err)
{
    const char *text = json_string_value(json_object_get(root, "data"));

    s->data = (struct hash128){0};
    if (text && hash_from_text(text, &s->data, err) < 0)
        return err_wrap(err, "%s: \"data\"", path);
    return 0;
}

static int check_root(json_t *root, const char *path, struct err *err)
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

/* A file that is not there is damage of its generation. */
static int check_there(const char *path, struct err *err)
{
    if (access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR))
        return 0;
    err_sys(err, errno, "%s", path);
    return err->code = ERR_CORRUPT;
}

/* The file is read whole, so it must not be huge. */
static int read_small(const char *path, char text[MAX_STATE_BYTES], size_t *len, struct err *err)
{
    int64_t n_bytes;
    int fd, rc = check_there(path, err);

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

static int load_state(const char *path, json_t **out, struct ckpt_state *s, struct err *err)
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
        rc = check_root(root, path, err);
    if (rc == 0)
        rc = read_numbers(root, path, s, err);
    if (rc == 0)
        rc = read_data(root, path, s, err);
    if (rc < 0) {
        json_decref(root);
        return rc;
    }
    *out = root;
    return 0;
}

/* ---- generations ---- */

enum { GENERATION_NAME = 32 };

struct generation {
    int64_t step;
    char name[GENERATION_NAME]; /* "step-00002350" */
};

/* 1 and the step if `name` is step- and at least 8 digits. */
static int generation_step(const char *name, int64_t *step)
{
    size_t digits = 0;

    if (strncmp(name, "step-", 5) != 0)
        return 0;
    while (isdigit((unsigned char)name[5 + digits]))
        digits++;
    if (digits < 8 || digits > 18 || name[5 + digits])
        return 0;
    *step = strtoll(name + 5, NULL, 10);
    return 1;
}

static int newest_first(const void *a, const void *b)
{
    const struct generation *x = a, *y = b;

    return (x->step < y->step) - (x->step > y->step);
}

/* All generations in folder, newest first; heap.  None where there is no folder yet. */
static int list(const char *folder, struct generation **out, int *n, struct err *err)
{
    DIR *d = opendir(folder);
    struct generation *g = NULL;
    struct dirent *entry;

    *n = 0;
    *out = NULL;
    if (!d && errno == ENOENT)
        return 0;
    if (!d)
        return err_sys(err, errno, "%s", folder);
    while ((entry = readdir(d))) {
        int64_t step;

        if (!generation_step(entry->d_name, &step))
            continue;
        g = xrealloc(g, sizeof *g * (size_t)(*n + 1));
        g[*n].step = step;
        snprintf(g[(*n)++].name, sizeof g->name, "%.31s", entry->d_name);
    }
    closedir(d);
    if (*n)
        qsort(g, (size_t)*n, sizeof *g, newest_first);
    *out = g;
    return 0;
}

/* ---- saving ---- */

static int write_text(const char *path, const char *text, struct err *err)
{
    int fd, rc = file_create(path, &fd, err);

    if (rc < 0)
        return rc;
    rc = file_put(fd, path, text, strlen(text), err);
    if (rc < 0) {
        close(fd);
        return rc;
    }
    return file_finish(fd, path, err);
}

int ckpt_n_files(const struct ckpt_content *c)
{
    return c->n_average > 0 ? CKPT_FILES : CKPT_AVERAGE;
}

const struct st_tensor *ckpt_tensors(const struct ckpt_content *c, enum ckpt_file file, int *n)
{
    switch (file) {
    case CKPT_MODEL:
        *n = c->n_model;
        return c->model;
    case CKPT_OPTIMIZER:
        *n = c->n_optimizer;
        return c->optimizer;
    case CKPT_AVERAGE:
    case CKPT_FILES:
        break;
    }
    *n = c->n_average;
    return c->average;
}

char *ckpt_file_path(const char *folder, enum ckpt_file file)
{
    return xasprintf("%s/%s", folder, file_name[file]);
}

int ckpt_write_state(const char *folder, const struct ckpt_content *c, const struct hash128 *hash,
                     struct err *err)
{
    char *path = xasprintf("%s/%s", folder, state_file);
    char *text = state_text(&c->state, hash, ckpt_n_files(c));
    int rc = write_text(path, text, err);

    if (rc == 0)
        rc = file_sync_folder(folder, err);
    free(text);
    free(path);
    return rc;
}

static int write_files(const char *folder, const struct ckpt_content *c, struct err *err)
{
    struct hash128 hash[CKPT_FILES];
    int rc = 0;

    for (int i = 0; i < ckpt_n_files(c) && rc == 0; i++) {
        char *path = ckpt_file_path(folder, (enum ckpt_file)i);
        int n;
        const struct st_tensor *tensor = ckpt_tensors(c, (enum ckpt_file)i, &n);

        rc = st_write(path, tensor, n, &hash[i], err);
        free(path);
    }
    return rc == 0 ? ckpt_write_state(folder, c, hash, err) : rc;
}

/* Put folder `from` at `to`.  A folder that was at `to` is then at `from`. */
static int put_in_place(const char *from, const char *to, struct err *err)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) == 0)
        return 0;
    if (errno == ENOENT && rename(from, to) == 0)
        return 0;
    return err_sys(err, errno, "%s: cannot rename to %s", from, to);
}

/* Make the link `which` ("latest", "best") lead to the generation `name`. */
static int point(const char *which, const char *run_dir, const char *folder, const char *name,
                 struct err *err)
{
    char *link = xasprintf("%s/%s", folder, which);
    char *aside = xasprintf("%s/%s.%s.tmp", folder, which, owner_own_id());
    int rc = owner_check(run_dir, err);

    if (rc < 0)
        goto out;
    unlink(aside);
    if (symlink(name, aside) < 0 || rename(aside, link) < 0)
        rc = err_sys(err, errno, "%s: cannot point it to %s", link, name);
    if (rc == 0)
        rc = file_sync_folder(folder, err);
out:
    free(link);
    free(aside);
    return rc;
}

static void name_of(int64_t step, char name[GENERATION_NAME])
{
    snprintf(name, GENERATION_NAME, "step-%08" PRId64, step);
}

/* A generation may be missing in the list: its save failed, or it was damaged and set aside. */
static int point_best(const char *run_dir, const char *folder, const struct ckpt_content *c,
                      struct err *err)
{
    for (int i = 0; i < c->n_best; i++) {
        char name[GENERATION_NAME], *path;
        int is_there;

        name_of(c->best[i], name);
        path = xasprintf("%s/%s", folder, name);
        is_there = access(path, F_OK) == 0;
        free(path);
        if (is_there)
            return point("best", run_dir, folder, name, err);
    }
    return 0;
}

static int is_among_best(const struct ckpt_content *c, int64_t step)
{
    int n = c->n_best;

    while (n > 0 && c->best[n - 1] != step)
        n--;
    return n > 0;
}

/* Remove the generations beyond `keep`, but never `name` nor one of the best.  A failure here loses
 * nothing: a later save tries again. */
static void prune(const char *run_dir, const char *folder, const char *name,
                  const struct ckpt_content *c, int keep)
{
    struct generation *g = NULL;
    struct err err;
    int n, kept = 1;

    if (owner_check(run_dir, &err) < 0 || list(folder, &g, &n, &err) < 0)
        return;
    for (int i = 0; i < n; i++) {
        char *path;

        if (!strcmp(g[i].name, name) || ++kept <= keep || is_among_best(c, g[i].step))
            continue;
        path = xasprintf("%s/%s", folder, g[i].name);
        (void)file_remove_folder(path, &err);
        free(path);
    }
    free(g);
}

/* Once the new folder is in place, the folder aside is the old one, which must not be removed
 * before the exchange is on disk. */
static int place(const char *run_dir, const char *folder, const char *aside, const char *name,
                 struct err *err)
{
    char *path = xasprintf("%s/%s", folder, name);
    struct err ignored;
    int is_placed = 0;
    int rc = owner_check(run_dir, err); /* another driver may have come while the files were
                                           written */

    if (rc == 0) {
        rc = put_in_place(aside, path, err);
        is_placed = rc == 0;
    }
    if (rc == 0)
        rc = file_sync_folder(folder, err);
    if (rc == 0)
        rc = point("latest", run_dir, folder, name, err);
    if (rc == 0 || !is_placed)
        (void)file_remove_folder(aside, &ignored); /* a failed save gives its space back */
    free(path);
    return rc;
}

int ckpt_place(const char *run_dir, const char *aside, const struct ckpt_content *c, int keep,
               char **path, struct err *err)
{
    char *folder = xasprintf("%s/checkpoints", run_dir);
    char name[GENERATION_NAME];
    int rc;

    name_of(c->state.step, name);
    rc = place(run_dir, folder, aside, name, err);
    if (rc == 0)
        rc = point_best(run_dir, folder, c, err);
    if (rc == 0) {
        prune(run_dir, folder, name, c, keep);
        *path = xasprintf("%s/%s", folder, name);
    }
    free(folder);
    return rc;
}

int ckpt_make_aside(const char *run_dir, const char *aside, struct err *err)
{
    char *folder = xasprintf("%s/checkpoints", run_dir);
    int rc = file_make_folder(folder, err);

    if (rc == 0)
        rc = file_sync_folder(run_dir, err); /* whoever made the folder may not have synced it */
    if (rc == 0)
        rc = owner_check(run_dir, err);
    if (rc == 0)
        rc = file_remove_folder(aside, err);
    if (rc == 0 && mkdir(aside, 0777) < 0) /* a link put there meanwhile is not followed */
        rc = err_sys(err, errno, "%s: cannot make this folder", aside);
    free(folder);
    return rc;
}

int ckpt_save(const char *run_dir, const struct ckpt_content *c, int keep, char **path,
              struct err *err)
{
    char *aside = xasprintf("%s/checkpoints/step.%s.tmp", run_dir, owner_own_id());
    struct err ignored;
    int rc = ckpt_make_aside(run_dir, aside, err);

    if (rc == 0) {
        rc = write_files(aside, c, err);
        if (rc < 0)
            (void)file_remove_folder(aside, &ignored);
        else
            rc = ckpt_place(run_dir, aside, c, keep, path, err);
    }
    free(aside);
    return rc;
}

/* 1: a save makes such an entry, and a save that ends removes it. */
static int is_unfinished(const char *name)
{
    size_t len = strlen(name);

    return (!strncmp(name, "step.", 5) || !strncmp(name, "latest.", 7) ||
            !strncmp(name, "best.", 5)) &&
           len > 4 && !strcmp(name + len - 4, ".tmp");
}

void ckpt_clear(const char *run_dir)
{
    char *folder = xasprintf("%s/checkpoints", run_dir);
    DIR *d = opendir(folder);
    struct dirent *entry;
    struct err ignored;

    while (d && (entry = readdir(d))) {
        char *path = xasprintf("%s/%s", folder, entry->d_name);

        if (is_unfinished(entry->d_name))
            (void)file_remove_folder(path, &ignored);
        free(path);
    }
    if (d)
        closedir(d);
    free(folder);
}

/* ---- loading ---- */

static int open_checked(const char *folder, enum ckpt_file file, json_t *state,
                        struct st_file **out, struct err *err)
{
    const char *want = json_string_value(json_object_get(state, file_name[file]));
    char *path = ckpt_file_path(folder, file);
    char seen[HASH_TEXT_LEN];
    struct hash128 hash;
    int rc = check_there(path, err);

    if (rc == 0)
        rc = st_open(path, out, err);
    if (rc == 0)
        rc = st_hash(*out, &hash, err);
    if (rc == 0) {
        hash_to_text(hash, seen);
        if (!want || strcmp(seen, want) != 0)
            rc = err_set(err, ERR_CORRUPT, "%s: its content has hash %s, %s says %s", path, seen,
                         state_file, want ? want : "nothing");
    }
    free(path);
    return rc;
}

int ckpt_is_folder(const char *folder)
{
    char *path = xasprintf("%s/%s", folder, state_file);
    const int is = access(path, F_OK) == 0;

    free(path);
    return is;
}

int ckpt_load_folder(const char *folder, struct ckpt **out, struct err *err)
{
    struct ckpt *c = xcalloc(1, sizeof *c);
    char *path = xasprintf("%s/%s", folder, state_file);
    json_t *state = NULL;
    int rc = load_state(path, &state, &c->state, err);

    if (rc == 0)
        rc = open_checked(folder, CKPT_MODEL, state, &c->model, err);
    if (rc == 0)
        rc = open_checked(folder, CKPT_OPTIMIZER, state, &c->optimizer, err);
    if (rc == 0 && json_object_get(state, file_name[CKPT_AVERAGE]))
        rc = open_checked(folder, CKPT_AVERAGE, state, &c->average, err);
    json_decref(state);
    free(path);
    if (rc < 0) {
        ckpt_close(c);
        return rc;
    }
    c->path = xstrdup(folder);
    *out = c;
    return 0;
}

/* Tell of a damaged generation. */
static void tell_damage(void (*warn)(void *, const char *), void *arg, const struct err *why)
{
    char *text = xasprintf("skipping a damaged checkpoint: %s", why->msg);

    warn(arg, text);
    free(text);
}

/* The link "best" must not lead nowhere.  The next save makes it again. */
static void unpoint_best(const char *folder, const char *name)
{
    char *link = xasprintf("%s/best", folder), to[GENERATION_NAME] = "";

    if (readlink(link, to, sizeof to - 1) > 0 && !strcmp(to, name))
        (void)unlink(link);
    free(link);
}

/* The first n generations are damaged, and the next one, `good`, is not.  A step of
 * this that fails is tried again when the run is resumed again. */
static void set_aside(const char *run_dir, const char *folder, const struct generation *g, int n,
                      const char *good)
{
    struct err ignored;

    for (int i = 0; i < n; i++) {
        char *from = xasprintf("%s/%s", folder, g[i].name);
        char *to = xasprintf("%s/damaged-%s", folder, g[i].name);

        unpoint_best(folder, g[i].name);
        (void)file_remove_folder(to, &ignored);
        (void)rename(from, to);
        free(from);
        free(to);
    }
    if (n)
        (void)point("latest", run_dir, folder, good, &ignored);
}

static int is_own(const char *run_dir)
{
    struct owner o;
    struct err ignored;

    return owner_read(run_dir, &o, &ignored) == 0 && owner_is_self(&o);
}

static int load_first_good(const char *run_dir, const char *folder, const struct generation *g,
                           int n, void (*warn)(void *, const char *), void *arg, struct ckpt **out,
                           struct err *err)
{
    for (int i = 0; i < n; i++) {
        char *path = xasprintf("%s/%s", folder, g[i].name);
        int rc = ckpt_load_folder(path, out, err);

        free(path);
        if (rc == 0 && is_own(run_dir))
            set_aside(run_dir, folder, g, i, g[i].name);
        if (rc == 0)
            return 0;
        if (rc != ERR_CORRUPT)
            return rc;
        tell_damage(warn, arg, err);
    }
    return err_set(err, ERR_IO,
                   "%s holds no complete checkpoint (%d looked at); restore one, or start anew in "
                   "another --run-dir",
                   folder, n);
}

int ckpt_load_latest(const char *run_dir, void (*warn)(void *arg, const char *text), void *arg,
                     struct ckpt **out, struct err *err)
{
    char *folder = xasprintf("%s/checkpoints", run_dir);
    struct generation *g = NULL;
    int n = 0, rc = list(folder, &g, &n, err);

    if (rc == 0)
        rc = n ? load_first_good(run_dir, folder, g, n, warn, arg, out, err) : CKPT_NONE;
    free(g);
    free(folder);
    return rc;
}

void ckpt_close(struct ckpt *c)
{
    if (!c)
        return;
    st_close(c->model);
    st_close(c->optimizer);
    st_close(c->average);
    free(c->path);
    free(c);
}
