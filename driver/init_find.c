/* The table of recognisers, and those of pictures and of token numbers.  Tables, arrays and texts
 * have files of their own beside this one. */
#include "driver/init_find.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/files.h"
#include "data/mnist_sets.h"
#include "data/npy_file.h"

enum {
    SMALL_IMAGE = 14, /* lenet's second pool leaves nothing of smaller images */
    LARGE_IMAGE = 64, /* for larger ones the first layers should shrink them */
    GPT2_TOKENS = 50257,
};

const char *const init_validation_names[] = {"validation", "val", "valid", "test",
                                             "eval",       "dev", NULL};

/* ---- settings that suit a kind of network ---- */

static void find_set_training(struct init_job *j, int batch, int epochs, const char *optimizer,
                              const char *lr)
{
    init_set(j, "train.global_batch", "%d", batch);
    init_set(j, "train.epochs", "%d", epochs);
    init_set(j, "optimizer.name", "%s", optimizer);
    init_set(j, "optimizer.lr", "%s", lr);
    init_set(j, "schedule.name", "cosine");
}

void init_set_network(struct init_job *j, int64_t height, int64_t width)
{
    const int64_t side = min_i64(height, width);

    if (side < SMALL_IMAGE) {
        init_set(j, "model.arch", "mlp");
        find_set_training(j, 64, 10, "adamw", "0.001");
    } else if (side < LARGE_IMAGE) {
        init_set(j, "model.arch", "lenet");
        find_set_training(j, 64, 5, "sgd", "0.05");
        init_set(j, "optimizer.momentum", "0.9");
    } else {
        init_set(j, "model.arch", "resnet18");
        find_set_training(j, 64, 20, "sgd", "0.05");
        init_set(j, "optimizer.momentum", "0.9");
        init_set(j, "optimizer.weight_decay", "0.0001");
    }
}

void init_set_language(struct init_job *j, int64_t context)
{
    if (j->network) {
        init_set_text(j, "model.import", j->network->folder);
        init_set(j, "model.context", "%lld", (long long)context);
        find_set_training(j, 8, 1, "adamw", "2e-5");
    } else {
        init_set(j, "model.arch", "gpt");
        init_set(j, "model.layers", "4");
        init_set(j, "model.heads", "4");
        init_set(j, "model.width", "128");
        init_set(j, "model.context", "%lld", (long long)context);
        init_set(j, "model.dropout", "0");
        find_set_training(j, 8, 1, "adamw", "0.001");
    }
    init_set(j, "train.clip_norm", "1");
}

/* ---- mnist ---- */

/* The first set of IDX files that the format reads by a split, or MNIST itself; its image file. */
static const char *find_idx_images(const struct init_look *l, enum split *split)
{
    const char *found = NULL;

    for (int i = 0; i < l->n; i++) {
        const char *name = l->name[i], *end = mnist_end_of_prefix(name);
        const size_t n = end ? (size_t)(end - name) : 0;
        const char *tail = end ? end + strlen("-images-idx3-ubyte") : NULL;
        const enum split s = mnist_split_of(name);
        const char *wanted = s ? mnist_set_of(s)->train : "train";

        if (!end || (*tail && strcmp(tail, ".gz") != 0) || n != strlen(wanted) ||
            strncmp(name, wanted, n) != 0 || (found && s != SPLIT_NONE))
            continue;
        found = name;
        *split = s;
    }
    return found;
}

/* The header of images: a magic number, then how many, their height and their width, all
 * big-endian. */
static int64_t find_idx_number(const uint8_t *b)
{
    return (int64_t)b[0] << 24 | b[1] << 16 | b[2] << 8 | b[3];
}

static int find_mnist(const struct init_look *l, struct init_job *j, struct err *err)
{
    static const char *const tests[] = {"t10k-images-idx3-ubyte", "t10k-images-idx3-ubyte.gz",
                                        "t10k-images.idx3-ubyte", "t10k-images.idx3-ubyte.gz",
                                        NULL};
    enum split split = SPLIT_NONE;
    const char *images = find_idx_images(l, &split);
    uint8_t head[16];
    size_t got = 0;

    if (!images)
        return INIT_NONE;
    if (init_look_head(l, images, head, sizeof head, &got, err) < 0)
        return err->code;
    init_set_text(j, "data.path", l->folder);
    if (split)
        init_set(j, "data.split", "%s", split_names[split]);
    else if (init_look_first(l, tests))
        init_set(j, "data.validation", "t10k");
    init_set(j, "data.normalize.source", "auto");
    if (got == sizeof head)
        init_set_network(j, find_idx_number(head + 8), find_idx_number(head + 12));
    else
        init_set_network(j, 28, 28);
    return 0;
}

/* ---- cifar10, cifar100 ---- */

static int find_cifar(const struct init_look *l, struct init_job *j, int validates)
{
    init_set_text(j, "data.path", l->folder);
    if (!validates)
        init_set(j, "data.validation", "none");
    init_set(j, "data.augment.crop", "4");
    init_set(j, "data.augment.flip", "true");
    init_set(j, "data.normalize.source", "auto");
    init_set_network(j, LARGE_IMAGE, LARGE_IMAGE);
    init_set(j, "model.stem", "cifar");
    init_set(j, "train.global_batch", "128");
    init_note(j, "On CPUs model.arch lenet trains some hundred times as fast as resnet18, and "
                 "learns less.");
    return 0;
}

static int find_cifar10(const struct init_look *l, struct init_job *j, struct err *err)
{
    static const char *const first[] = {"data_batch_1.bin", "data_batch_1.bin.gz", NULL};
    static const char *const tests[] = {"test_batch.bin", "test_batch.bin.gz", NULL};

    (void)err;
    return init_look_first(l, first) ? find_cifar(l, j, init_look_first(l, tests) != NULL)
                                     : INIT_NONE;
}

/* Other formats have files of these names, too; CIFAR-100's records have 3,074 bytes. */
static int find_cifar100(const struct init_look *l, struct init_job *j, struct err *err)
{
    enum { RECORD = 3074 };
    char *path = init_look_join(l, "train.bin");
    struct stat st;
    const int is_there = stat(path, &st) == 0 && st.st_size > 0 && st.st_size % RECORD == 0 &&
                         init_look_has(l, "test.bin") && !init_look_has(l, "val.bin");

    (void)err;
    free(path);
    return is_there ? find_cifar(l, j, 1) : INIT_NONE;
}

/* ---- images ---- */

/* 1: one of its files is a picture, or (tars) an archive; 0: none of the first ones is. */
static int find_holds(const struct init_look *l, int tars)
{
    for (int i = 0; i < l->n; i++)
        if (tars ? init_ends(l->name[i], ".tar") : files_is_picture(l->name[i]))
            return 1;
    return 0;
}

/* 1: the folder has folders with pictures in them, each a class, or archives. */
static int find_has_classes(const struct init_look *l)
{
    enum { MOST_LOOKED_AT = 20 };
    struct init_look inner;
    struct err err;
    int found = find_holds(l, 1);

    for (int i = 0; i < l->n && i < MOST_LOOKED_AT && !found; i++) {
        char *path = init_look_join(l, l->name[i]);

        if (init_look_open(&inner, path, &err) == 0 && !strcmp(inner.folder, inner.path))
            found = find_holds(&inner, 0);
        init_look_close(&inner);
        free(path);
    }
    return found;
}

static int find_folder_has_classes(const struct init_look *l, const char *name)
{
    char *path = init_look_join(l, name);
    struct init_look inner;
    struct err err;
    int found = 0;

    if (init_look_open(&inner, path, &err) == 0 && !strcmp(inner.folder, inner.path))
        found = find_has_classes(&inner);
    init_look_close(&inner);
    free(path);
    return found;
}

static int find_images(const struct init_look *l, struct init_job *j, struct err *err)
{
    static const char *const trains[] = {"train", "training", "Train", NULL};
    const char *train = init_look_first(l, trains), *validation = NULL;

    (void)err;
    if (train && !find_folder_has_classes(l, train))
        train = NULL;
    for (int i = 0; train && !validation && init_validation_names[i]; i++)
        if (find_folder_has_classes(l, init_validation_names[i]))
            validation = init_validation_names[i];
    if (!train && (strcmp(l->folder, l->path) != 0 || !find_has_classes(l)))
        return INIT_NONE;
    init_set_text(j, "data.path", l->folder);
    init_set(j, "data.train", "%s", train ? train : ".");
    init_set(j, "data.validation", "%s", validation ? validation : "none");
    if (!validation)
        init_note(j, "No folder of pictures was found that could validate.");
    init_set(j, "data.size", "224");
    init_set(j, "data.resize", "256");
    init_set(j, "data.augment.random_resized_crop", "true");
    init_set(j, "data.augment.flip", "true");
    init_set(j, "data.normalize.source", "auto");
    init_set_network(j, 224, 224);
    return 0;
}

/* ---- tokens ---- */

/* The facts that the beginning of a bare file tells: nearly all upper halves of 32-bit numbers are
 * small.  Sets the type where it is not the default, and the vocabulary where it is not GPT-2's. */
static int find_token_type(const struct init_look *l, const char *name, struct init_job *j,
                           struct err *err)
{
    enum { MOST = 1 << 20, LLM_C = 20240520 };
    uint8_t *b = xcalloc(1, MOST);
    size_t got = 0, small = 0;
    uint32_t most = 0;
    int rc = 0, is_wide;

    rc = init_look_head(l, name, b, MOST, &got, err);
    if (rc < 0 || (got > 4 && (b[0] | b[1] << 8 | b[2] << 16 | (uint32_t)b[3] << 24) == LLM_C) ||
        !memcmp(b, NPY_MAGIC, strlen(NPY_MAGIC))) {
        free(b);
        return rc;
    }
    for (size_t i = 0; i + 4 <= got; i += 4)
        small += (b[i + 2] | b[i + 3] << 8) <= 15;
    is_wide = got >= 128 && small >= got / 4 - got / 400;
    for (size_t i = 0; i + 4 <= got; i += 4) {
        const uint32_t low = (uint32_t)(b[i] | b[i + 1] << 8),
                       high = (uint32_t)(b[i + 2] | b[i + 3] << 8),
                       v = is_wide ? low | high << 16 : (low > high ? low : high);

        most = v > most ? v : most;
    }
    free(b);
    if (is_wide)
        init_set(j, "data.dtype", "uint32");
    if (most >= GPT2_TOKENS && most < 1U << 24) {
        init_set(j, "model.vocab", "%lld", (long long)round_up_i64((int64_t)most + 1, 64));
        init_note(j,
                  "model.vocab follows from the first numbers of %s: set it to that of the "
                  "tokenizer.",
                  name);
    }
    return 0;
}

static int find_is_index_of(const struct init_look *l, const char *name)
{
    char index[256];

    snprintf(index, sizeof index, "%.*s.idx", (int)min_i64((int64_t)strlen(name) - 4, 250), name);
    return init_look_has(l, index);
}

/* The names of token files for a purpose; returns their number. */
static int find_token_files(const struct init_look *l, const char *const *purposes, int is_training,
                            const char **name, int most)
{
    int n = 0;

    for (int k = 0; purposes[k] && n == 0; k++)
        for (int i = 0; i < l->n && n < most; i++)
            if (init_ends(l->name[i], ".bin") && strstr(l->name[i], purposes[k]))
                name[n++] = l->name[i];
    for (int i = 0; is_training && n == 0 && i < l->n && n < most; i++)
        if (init_ends(l->name[i], ".bin") && find_is_index_of(l, l->name[i]))
            name[n++] = l->name[i];
    return n;
}

static int find_token_data(const struct init_look *l, struct init_job *j, struct err *err)
{
    enum { MOST_FILES = 32 };
    static const char *const trains[] = {"train", NULL};
    const char *name[MOST_FILES];
    int n = find_token_files(l, trains, 1, name, MOST_FILES);

    if (n == 0 || init_is_network(l))
        return INIT_NONE;
    if (!find_is_index_of(l, name[0]) && find_token_type(l, name[0], j, err) < 0)
        return err->code;
    init_set_text(j, "data.path", l->folder);
    init_set_texts(j, "data.train", name, n);
    n = find_token_files(l, init_validation_names, 0, name, MOST_FILES);
    if (n > 0)
        init_set_texts(j, "data.validation", name, n);
    init_set_language(j, 128);
    init_note(j, "The network is a small one for a first run; model.arch gpt2 is the next larger.");
    return 0;
}

/* ---- the table ---- */

/* In the order in which they are tried: the first one that recognises the folder counts. */
static const struct {
    const char *format;
    init_finder *find;
} finders[] = {
    {"mnist", find_mnist},       {"cifar10", find_cifar10}, {"cifar100", find_cifar100},
    {"images", find_images},     {"npy", init_find_npy},    {"csv", init_find_csv},
    {"tokens", find_token_data}, {"text", init_find_text},
};

static int find_here(const struct init_look *l, struct init_job *j, struct err *err)
{
    int rc = INIT_NONE;

    for (size_t i = 0; i < ARRAY_LEN(finders) && rc == INIT_NONE; i++) {
        rc = finders[i].find(l, j, err);
        if (rc == 0)
            init_set(j, "data.format", "%s", finders[i].format);
    }
    return rc;
}

int init_find(const struct init_look *l, struct init_job *j, struct err *err)
{
    struct init_look inner;
    int rc = find_here(l, j, err);

    for (int i = 0; i < l->n && rc == INIT_NONE && !strcmp(l->folder, l->path); i++) {
        char *path = init_look_join(l, l->name[i]);

        if (init_look_open(&inner, path, err) == 0 && !strcmp(inner.folder, inner.path))
            rc = find_here(&inner, j, err);
        init_look_close(&inner);
        free(path);
    }
    return rc;
}
