/* npy_fields - a list of two files, or a mapping in YAML's flow style, becomes the fields in one
 * order: the inputs as data.train has them, then the target. */
#include "data/npy_fields.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"
#include "config/tree.h"

#define NPY_TARGET "labels"

void npy_fields_fini(struct npy_fields *f)
{
    for (int i = 0; i < f->n; i++) {
        free(f->name[i]);
        free(f->path[i]);
    }
    *f = (struct npy_fields){0};
}

/* An item may be a path of its own. */
static void fields_add(struct npy_fields *f, const char *name, const char *folder, const char *path)
{
    f->name[f->n] = xstrdup(name);
    f->path[f->n++] = *path == '/' ? xstrdup(path) : xasprintf("%s/%s", folder, path);
}

static int fields_find(const struct npy_fields *f, const char *name)
{
    for (int i = 0; i < f->n; i++)
        if (!strcmp(f->name[i], name))
            return i;
    return -1;
}

static void fields_swap(struct npy_fields *f, int a, int b)
{
    char *const name = f->name[a], *const path = f->path[a];

    f->name[a] = f->name[b];
    f->path[a] = f->path[b];
    f->name[b] = name;
    f->path[b] = path;
}

/* ---- the texts ---- */

static int fields_are_named(const char *text) { return text && *text == '{'; }

static int fields_of_list(struct npy_fields *f, const char *folder, const char *items,
                          const char *key, struct err *err)
{
    char *all = xstrdup(items), *y = strchr(all, ',');

    if (!y || strchr(y + 1, ',')) {
        free(all);
        return err_set(err, ERR_CONFIG, "%s is %s, want two files: [x.npy, y.npy]", key, items);
    }
    *y++ = 0;
    fields_add(f, "x", folder, all);
    fields_add(f, "y", folder, y + strspn(y, " "));
    free(all);
    return 0;
}

/* One pair of the mapping. */
static int fields_take(struct npy_fields *f, const char *folder, const char *key,
                       const struct tree *name, const struct tree *path, struct err *err)
{
    if (name->len == 0 || name->len > 256)
        return err_set(
            err, ERR_CONFIG,
            "%s has a field whose name has %zu bytes, want 1 to 256, such as {input_ids: "
            "ids.npy, " NPY_TARGET ": y.npy}",
            key, name->len);
    if (path->kind != TREE_WORD || path->len == 0)
        return err_set(err, ERR_CONFIG, "%s has the field %s, which is %s, want one file", key,
                       name->text,
                       path->kind == TREE_WORD   ? "empty"
                       : path->kind == TREE_LIST ? "a list"
                                                 : "a mapping");
    if (fields_find(f, name->text) >= 0)
        return err_set(err, ERR_CONFIG, "%s has the field %s twice, want each once", key,
                       name->text);
    if (f->n == SAMPLE_MAX_FIELDS)
        return err_set(err, ERR_CONFIG, "%s has more than %d fields, want at most that many", key,
                       SAMPLE_MAX_FIELDS);
    fields_add(f, name->text, folder, path->text);
    return 0;
}

static int fields_of_map(struct npy_fields *f, const char *folder, const char *text,
                         const char *key, struct err *err)
{
    const struct tree *t;
    struct arena arena;
    size_t at;
    int rc;

    arena_init(&arena);
    rc = tree_parse(text, strlen(text), &arena, &t, &at, err);
    if (rc < 0)
        rc = err_set(err, ERR_CONFIG, "%s is %.80s, which is no mapping of fields to files", key,
                     text);
    else if (t->kind != TREE_MAP)
        rc = err_set(err, ERR_CONFIG, "%s is %.80s, want a mapping of fields to files", key, text);
    for (int i = 0; rc == 0 && i < t->n; i++)
        rc = fields_take(f, folder, key, t->key[i], t->child[i], err);
    arena_fini(&arena);
    return rc;
}

int npy_fields_read(struct npy_fields *f, const char *folder, const char *text, const char *key,
                    struct err *err)
{
    int rc;

    *f = (struct npy_fields){.is_named = fields_are_named(text)};
    if (!f->is_named)
        return fields_of_list(f, folder, text, key, err);
    rc = fields_of_map(f, folder, text, key, err);
    if (rc == 0 && fields_find(f, NPY_TARGET) >= 0) /* it goes to the end, the others stay */
        for (int i = fields_find(f, NPY_TARGET); i + 1 < f->n; i++)
            fields_swap(f, i, i + 1);
    return rc;
}

/* An input and a target at least. */
static int fields_are_enough(const struct npy_fields *f, const char *key, struct err *err)
{
    if (f->n > 1)
        return 0;
    return err_set(
        err, ERR_CONFIG,
        "%s has %d field%s, want one for each input of the network, and the target, such "
        "as {input_ids: ids.npy, " NPY_TARGET ": y.npy}",
        key, f->n, f->n == 1 ? "" : "s");
}

/* ---- validation ---- */

static int fields_miss(const char *name, struct err *err)
{
    return err_set(err, ERR_CONFIG,
                   "data.validation has no field %s, want the same fields as data.train", name);
}

/* Put the fields of data.validation in the order of data.train's. */
static int fields_match(struct npy_fields *f, const struct npy_fields *train, int may_lack_targets,
                        struct err *err)
{
    for (int i = 0; i < f->n; i++)
        if (fields_find(train, f->name[i]) < 0)
            return err_set(err, ERR_CONFIG,
                           "data.validation has the field %s, which data.train has not, want the "
                           "same fields in both",
                           f->name[i]);
    for (int i = 0; i < train->n; i++) {
        const int at = fields_find(f, train->name[i]);

        if (at < 0 && i == train->n - 1 && may_lack_targets) {
            f->lacks_targets = 1;
            fields_add(f, train->name[i], "", train->path[i]);
        } else if (at < 0) {
            return fields_miss(train->name[i], err);
        } else {
            fields_swap(f, i, at);
        }
    }
    return 0;
}

/* The file x alone, and the target of the training set. */
static void fields_without_y(struct npy_fields *f, const struct npy_texts *t,
                             const struct npy_fields *train)
{
    *f = (struct npy_fields){.lacks_targets = 1};
    fields_add(f, "x", t->folder, t->validation);
    fields_add(f, "y", "", train->path[train->n - 1]);
}

static int fields_of_validation(struct npy_fields *f, const struct npy_texts *t,
                                const struct npy_fields *train, int may_lack_targets,
                                struct err *err)
{
    if (fields_are_named(t->validation) != train->is_named)
        return err_set(err, ERR_CONFIG,
                       "data.validation is %s, and data.train is %s, want both with names or both "
                       "without",
                       t->validation, t->train);
    if (!train->is_named && may_lack_targets && !strchr(t->validation, ',')) {
        fields_without_y(f, t, train);
        return 0;
    }
    if (npy_fields_read(f, t->folder, t->validation, "data.validation", err) < 0)
        return err->code;
    return fields_match(f, train, may_lack_targets, err);
}

int npy_fields_open(struct npy_fields *f, const struct npy_texts *t,
                    const struct dataset_request *request, struct err *err)
{
    struct npy_fields train;
    int rc = npy_fields_read(&train, t->folder, t->train, "data.train", err);

    *f = (struct npy_fields){0};
    if (rc == 0)
        rc = fields_are_enough(&train, "data.train", err);
    if (rc == 0 && request->purpose == DATASET_TRAIN) {
        *f = train;
        return 0;
    }
    if (rc == 0)
        rc = fields_of_validation(f, t, &train, request->may_lack_labels, err);
    npy_fields_fini(&train);
    return rc;
}

int npy_fields_check(const struct npy_texts *t, struct err *err)
{
    struct npy_fields train = {0}, valid = {0};
    int rc = 0;

    if (fields_are_named(t->train))
        rc = npy_fields_read(&train, "", t->train, "data.train", err);
    if (rc == 0 && fields_are_named(t->train))
        rc = fields_are_enough(&train, "data.train", err);
    if (rc == 0 && fields_are_named(t->validation))
        rc = npy_fields_read(&valid, "", t->validation, "data.validation", err);
    npy_fields_fini(&train);
    npy_fields_fini(&valid);
    return rc;
}
