/* Fuzz target: a folder of checkpoints whose files the input changes.  A checkpoint that loads is
 * whole, and a changed file is not taken for the original.
 *
 * The folder holds a good generation, step 8, and a newer one, step 9, of the same files with the
 * input's changes.  The input's first byte is a set of flags (FIX_FILES ...): whether the changed
 * files get the right hashes, and other oddities of the folder.  Commands of four bytes follow. */
#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"
#include "ckpt/ckpt.h"
#include "ckpt/owner.h"
#include "scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    FIX_FILES = 1, /* state.json has the hashes of the changed tensor files */
    FIX_STATE = 2, /* state.json's own hash is right */
    NO_OLDER = 4,
    OLDER_IS_LINK = 8,
    FOLDER_FOR_FILE = 16,        /* in the place of model.safetensors */
    LATEST = 32,                 /* "latest" is a plain file */
    STRANGERS = 64,              /* other entries whose names begin alike */
    OWNED = 128,                 /* this process owns the run directory */
    COPIED = LATEST | STRANGERS, /* "latest" is a folder with the good files */
};

enum { MODEL, OPTIMIZER, AVERAGE, STATE, N_FILES };

static const char *const names[N_FILES] = {"model.safetensors", "optimizer.safetensors",
                                           "model_average.safetensors", "state.json"};

static struct buf good[N_FILES]; /* made at the first input */
static const struct ckpt_state good_at = {.step = 9,
                                          .steps_per_epoch = 4,
                                          .epoch_loss = 5,
                                          .epoch_correct = 1,
                                          .epoch_samples = 2,
                                          .grad_norm = NAN, /* not in the files */
                                          .n_updates = 9,
                                          .n_ranks = 2};

/* ---- files ---- */

static void read_file(const char *folder, const char *name, struct buf *out)
{
    char *path = xasprintf("%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    char block[4096];
    size_t n;

    ASSERT(f);
    while ((n = fread(block, 1, sizeof block, f)) > 0)
        buf_append(out, block, n);
    fclose(f);
    free(path);
}

static void write_file(const char *folder, const char *name, const void *data, size_t len)
{
    char *path = xasprintf("%s/%s", folder, name);

    scratch_write(path, data, len);
    free(path);
}

static char *make_folder(const char *in, const char *name)
{
    char *path = xasprintf("%s/%s", in, name);

    ASSERT(mkdir(path, 0700) == 0);
    return path;
}

static void remove_all(const char *path)
{
    DIR *d = opendir(path);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        char *inner = xasprintf("%s/%s", path, e->d_name);
        struct stat st;

        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            if (lstat(inner, &st) == 0 && S_ISDIR(st.st_mode))
                remove_all(inner);
            else
                unlink(inner);
        }
        free(inner);
    }
    if (d)
        closedir(d);
    rmdir(path);
}

/* ---- the good files ---- */

static void make_good(void)
{
    static const float w[6] = {1, 2, 3, 4, 5, 6}, bias[2] = {7, 8};
    const struct st_tensor model[] = {{"fc1.weight", DTYPE_F32, SHAPE(2, 3), w},
                                      {"fc1.bias", DTYPE_F32, SHAPE(2), bias},
                                      {"bn1.num_batches_tracked", DTYPE_I64, {0}, &good_at.step}};
    const struct st_tensor optimizer = {"fc1.weight.momentum_buffer", DTYPE_F32, SHAPE(2, 3), w};
    const struct ckpt_content c = {.state = good_at,
                                   .model = model,
                                   .n_model = ARRAY_LEN(model),
                                   .optimizer = &optimizer,
                                   .n_optimizer = 1,
                                   .average = model,
                                   .n_average = 2,
                                   .best = {9, 8},
                                   .n_best = 2};
    char *run = scratch_folder(), *path = NULL;
    struct err err;

    ASSERT(ckpt_save(run, &c, 1, &path, &err) == 0);
    for (int i = 0; i < N_FILES; i++)
        read_file(path, names[i], &good[i]);
    remove_all(run);
    free(path);
    free(run);
}

/* ---- changes ---- */

struct files {
    struct buf file[N_FILES];
};

static void cut_in(struct buf *b, size_t at, size_t gone, const void *data, size_t len)
{
    struct buf out = {0};

    at = at < b->len ? at : b->len;
    gone = gone < b->len - at ? gone : b->len - at;
    buf_append(&out, b->data, at);
    buf_append(&out, data, len);
    buf_append(&out, b->data + at + gone, b->len - at - gone);
    buf_fini(b);
    *b = out;
}

/* Do a command of four bytes: file and kind of change, position (two), a byte or a length. */
static void change(struct files *f, const uint8_t **at, const uint8_t *end)
{
    const uint8_t *c = *at;
    struct buf *b = &f->file[c[0] & 3];
    size_t where = (size_t)c[1] | (size_t)c[2] << 8, n = c[3];

    *at += 4;
    n = (c[0] & 64) && n > (size_t)(end - *at) ? (size_t)(end - *at) : n;
    switch (c[0] >> 6) {
    case 0: /* one byte is changed */
        cut_in(b, where, 1, &c[3], 1);
        break;
    case 1: /* bytes are inserted */
        cut_in(b, where, 0, *at, n);
        *at += n;
        break;
    case 2: /* the end is cut off */
        cut_in(b, where, b->len, NULL, 0);
        break;
    case 3: /* bytes are replaced */
        cut_in(b, where, n, *at, n);
        *at += n;
        break;
    }
}

static void set_text(json_t *root, const char *key, struct hash128 h)
{
    char text[HASH_TEXT_LEN];

    hash_to_text(h, text);
    json_object_set_new(root, key, json_string(text));
}

/* Write right hashes into state.json, as an attacker who knows the format would. */
static void fix_hashes(struct files *f, unsigned how)
{
    struct buf *b = &f->file[STATE];
    json_t *root = json_loadb((const char *)b->data, b->len, 0, NULL);
    char *text;

    if (json_is_object(root)) {
        for (int i = MODEL; i <= AVERAGE && (how & FIX_FILES); i++)
            if (i != AVERAGE || json_object_get(root, names[i]))
                set_text(root, names[i], hash_of(f->file[i].data, f->file[i].len));
        if (how & FIX_STATE) {
            json_object_del(root, "hash");
            text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
            set_text(root, "hash", hash_of(text, strlen(text)));
            free(text);
        }
        text = json_dumps(root, JSON_INDENT(2));
        cut_in(b, 0, b->len, text, strlen(text));
        free(text);
    }
    json_decref(root);
}

static int is_good(const struct files *f, int i)
{
    return f->file[i].len == good[i].len &&
           (!good[i].len || !memcmp(f->file[i].data, good[i].data, good[i].len));
}

/* ---- the folder ---- */

static void put_files(const char *folder, const struct buf *file, int without)
{
    for (int i = 0; i < N_FILES; i++)
        if (i != without)
            write_file(folder, names[i], file[i].data, file[i].len);
}

static void make_checkpoints(const char *folder, const struct files *f, unsigned how)
{
    char *newer = make_folder(folder, "step-00000009"), *older, *odd = NULL;
    char *copy = NULL;

    put_files(newer, f->file, how & FOLDER_FOR_FILE ? MODEL : -1);
    if (how & FOLDER_FOR_FILE)
        odd = make_folder(newer, names[MODEL]);
    if (!(how & NO_OLDER)) {
        older = make_folder(folder, how & OLDER_IS_LINK ? "elsewhere" : "step-00000008");
        put_files(older, good, -1);
        if (how & OLDER_IS_LINK) {
            char *link = xasprintf("%s/step-00000008", folder);

            ASSERT(symlink("elsewhere", link) == 0);
            free(link);
        }
        free(older);
    }
    if ((how & COPIED) == COPIED) {
        copy = make_folder(folder, "latest");
        put_files(copy, good, -1);
    } else if (how & LATEST)
        write_file(folder, "latest", "step-00000001", 13);
    if (how & STRANGERS) {
        write_file(folder, "step-00000010", "", 0);
        write_file(folder, "step-99999999999999999999", "", 0);
        write_file(folder, "step-0000001x", "", 0);
        free(make_folder(folder, "step.tmp"));
    }
    free(copy);
    free(odd);
    free(newer);
}

/* arg: counts the warnings */
static void warn(void *arg, const char *text)
{
    ASSERT(text[0]);
    ++*(int *)arg;
}

static void read_tensors(const struct st_file *f)
{
    for (int i = 0; i < st_count(f); i++) {
        const struct st_tensor *t = st_at(f, i);
        size_t n = dtype_size(t->dtype) * (size_t)shape_elements(&t->shape);
        uint8_t *bytes = malloc(n + 1);
        struct err err;

        ASSERT(bytes && st_read(f, t, 0, bytes, n, &err) == 0);
        free(bytes);
        ASSERT(st_find(f, t->name));
    }
}

/* Check a loaded checkpoint.  In the newer generation, everything whose hash was not fixed equals
 * the original, except for blanks in state.json. */
static void check_loaded(const struct ckpt *c, const struct files *f, unsigned how)
{
    const int has_copy = (how & COPIED) == COPIED;
    int is_newer = !has_copy && strstr(c->path, "step-00000009") != NULL;

    ASSERT(c->state.step >= 0 && c->state.steps_per_epoch > 0 && c->state.epoch_samples >= 0);
    read_tensors(c->model);
    read_tensors(c->optimizer);
    if (c->average)
        read_tensors(c->average);
    if (is_newer && !((how & FIX_FILES) && (how & FIX_STATE)))
        ASSERT(is_good(f, MODEL) && is_good(f, OPTIMIZER) && is_good(f, AVERAGE));
    if ((!is_newer && !has_copy) || !(how & FIX_STATE))
        ASSERT(!memcmp(&c->state, &good_at, sizeof good_at));
}

/* An owner sets damaged generations aside, so the next one that loads finds none; others leave all
 * as it is. */
static void check_again(const char *run, const struct ckpt *first, int n_damaged, unsigned how)
{
    struct ckpt *c;
    struct err err;
    int n = 0;

    ASSERT(ckpt_load_latest(run, warn, &n, &c, &err) == 0);
    ASSERT(!strcmp(c->path, first->path) && n == (how & OWNED ? 0 : n_damaged));
    ckpt_close(c);
}

static void load(const char *run, const struct files *f, unsigned how)
{
    struct ckpt *c = NULL;
    struct err err = {0};
    char *best = NULL;
    int n_damaged = 0, n_told = 0, rc;

    rc = ckpt_find_best(run, &best, &err);
    ASSERT(rc == 0 ? best != NULL : !best && (rc == CKPT_NONE || err.msg[0]));
    free(best);
    ckpt_check_links(run, warn, &n_told);
    if (how & OWNED)
        ASSERT(owner_claim(run, 1, &err) == 0);
    rc = ckpt_load_latest(run, warn, &n_damaged, &c, &err);
    if (rc == 0) {
        check_loaded(c, f, how);
        check_again(run, c, n_damaged, how);
    } else {
        ASSERT(err.msg[0] && ((rc == ERR_IO && (how & NO_OLDER)) ||
                              (rc == ERR_UNSUPPORTED && (how & FIX_STATE))));
    }
    ckpt_close(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct files f = {0};
    const uint8_t *at = data + 1, *end = data + size;
    unsigned how = size ? data[0] : 0;
    char *run, *folder;

    if (!good[STATE].len)
        make_good();
    for (int i = 0; i < N_FILES; i++)
        buf_append(&f.file[i], good[i].data, good[i].len);
    while (size && end - at >= 4)
        change(&f, &at, end);
    if (how & (FIX_FILES | FIX_STATE))
        fix_hashes(&f, how);
    run = scratch_folder();
    folder = make_folder(run, "checkpoints");
    make_checkpoints(folder, &f, how);
    load(run, &f, how);
    remove_all(run);
    for (int i = 0; i < N_FILES; i++)
        buf_fini(&f.file[i]);
    free(folder);
    free(run);
    return 0;
}
