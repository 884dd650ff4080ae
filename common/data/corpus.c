/* corpus - walks folders for texts.
 *
 * A folder is closed before those in it are opened, so depth costs no descriptors. */
#include "data/corpus.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"

/* A folder that is being listed. */
struct corpus_level {
    const struct corpus_level *outer; /* the folder that it is in; NULL: it was named itself */
    const char *path;
    size_t root;
    dev_t dev;
    ino_t ino;
    struct buf names; /* of what is in it, each with a NUL at its end */
};

static int corpus_ends(const char *path, const char *end)
{
    const size_t n = strlen(path), len = strlen(end);

    return n > len && !strcmp(path + n - len, end);
}

static int corpus_is_lines(const char *path)
{
    return corpus_ends(path, ".jsonl") || corpus_ends(path, ".ndjson");
}

/* ---- files ---- */

/* Endings that tell of files which would be read as if they were a text. */
static const char *corpus_remedy(const char *path)
{
    static const struct {
        const char *end, *remedy;
    } others[] = {
        {".json", "JSON in one piece; write it with one mapping a line, as .jsonl"},
        {".gz", "compressed; decompress it (gunzip)"},
        {".zst", "compressed; decompress it (unzstd)"},
        {".parquet", "a Parquet file; write its rows as .jsonl (pandas.DataFrame.to_json with "
                     "orient=\"records\" and lines=True)"},
        {".arrow", "an Arrow file; write its rows as .jsonl (datasets' to_json)"},
        {".bin", "a file of token numbers, perhaps; that is data.format tokens"},
        {".npy", "an array of NumPy; token numbers are data.format tokens"},
    };

    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (corpus_ends(path, others[i].end))
            return others[i].remedy;
    return NULL;
}

static int corpus_add(struct corpus *c, const char *path, size_t root, const struct stat *st,
                      struct err *err)
{
    struct corpus_file *f;

    if (!S_ISREG(st->st_mode))
        return err_set(err, ERR_ARG, "%s is a pipe or device, want a regular file or a folder",
                       path);
    if (st->st_size == 0)
        return err_set(err, ERR_CORRUPT, "%s is empty; want a text, or remove it", path);
    if ((c->n & (c->n - 1)) == 0 &&
        try_realloc((void **)&c->file, (size_t)(c->n ? 2 * c->n : 1) * sizeof *c->file,
                    "the names of texts", err) < 0)
        return err->code;
    f = &c->file[c->n++];
    *f = (struct corpus_file){.path = xstrdup(path),
                              .root = root,
                              .n_bytes = st->st_size,
                              .mtime_ns =
                                  (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec,
                              .is_lines = corpus_is_lines(path)};
    c->n_bytes += f->n_bytes;
    return 0;
}

/* ---- folders ---- */

/* A symbolic link may lead to a folder that the link is in: then there would be no end. */
static int corpus_check_loop(const struct corpus_level *l, struct err *err)
{
    for (const struct corpus_level *o = l->outer; o; o = o->outer)
        if (o->dev == l->dev && o->ino == l->ino)
            return err_set(err, ERR_CORRUPT,
                           "folder %s is folder %s again, by a symbolic link; remove the link",
                           l->path, o->path);
    return 0;
}

/* Keep the names of the folder. */
static int corpus_read_names(struct corpus_level *l, struct err *err)
{
    DIR *d = opendir(l->path);
    const struct dirent *e;
    int rc = 0;

    if (!d)
        return err_sys(err, errno, "folder %s", l->path);
    while ((errno = 0, e = readdir(d)))
        if (e->d_name[0] != '.')
            buf_append(&l->names, e->d_name, strlen(e->d_name) + 1);
    if (errno)
        rc = err_sys(err, errno, "folder %s", l->path);
    closedir(d);
    return rc;
}

static int corpus_walk(struct corpus *c, struct corpus_level *l, const struct stat *st,
                       struct err *err);

/* Add `path`, a file or a folder in the folder `l`. */
static int corpus_take(struct corpus *c, const struct corpus_level *l, const char *path,
                       struct err *err)
{
    struct corpus_level deeper = {.outer = l, .path = path, .root = l->root};
    struct stat st;

    if (stat(path, &st) < 0)
        return err_sys(err, errno, "file %s", path);
    if (S_ISDIR(st.st_mode))
        return corpus_walk(c, &deeper, &st, err);
    if (corpus_ends(path, ".txt") || corpus_is_lines(path))
        return corpus_add(c, path, l->root, &st, err);
    if (c->n_other++ == 0)
        c->other = xstrdup(path);
    return 0;
}

static int corpus_walk(struct corpus *c, struct corpus_level *l, const struct stat *st,
                       struct err *err)
{
    int rc;

    l->dev = st->st_dev;
    l->ino = st->st_ino;
    rc = corpus_check_loop(l, err);
    if (rc == 0)
        rc = corpus_read_names(l, err);
    for (size_t at = 0; rc == 0 && at < l->names.len;) {
        const char *name = (const char *)l->names.data + at;
        char *path = xasprintf("%s/%s", l->path, name);

        rc = corpus_take(c, l, path, err);
        at += strlen(name) + 1;
        free(path);
    }
    buf_fini(&l->names);
    return rc;
}

/* ---- the whole ---- */

static int corpus_by_path(const void *a, const void *b)
{
    const struct corpus_file *x = a, *y = b;

    return strcmp(x->path + x->root, y->path + y->root);
}

/* Add what the user named: the files of a folder are sorted by themselves. */
static int corpus_take_named(struct corpus *c, const char *path, struct err *err)
{
    const int64_t first = c->n;
    struct corpus_level l = {.path = path, .root = strlen(path) + 1};
    const char *const slash = strrchr(path, '/');
    const char *const remedy = corpus_remedy(path);
    struct stat st;
    int rc;

    if (stat(path, &st) < 0)
        return err_sys(err, errno, "file %s (of data.path, data.train or data.validation)", path);
    if (!S_ISDIR(st.st_mode) && remedy)
        return err_set(err, ERR_CORRUPT, "%s is %s", path, remedy);
    if (!S_ISDIR(st.st_mode))
        return corpus_add(c, path, slash ? (size_t)(slash - path) + 1 : 0, &st, err);
    rc = corpus_walk(c, &l, &st, err);
    if (rc == 0 && c->n == first)
        rc = err_set(err, ERR_CORRUPT, "folder %s has no file that ends in .txt or .jsonl%s%s",
                     path, c->other ? ", but others, such as " : "", c->other ? c->other : "");
    if (rc == 0)
        qsort(c->file + first, (size_t)(c->n - first), sizeof *c->file, corpus_by_path);
    return rc;
}

int corpus_list(struct corpus *out, const char *root, const char *items, struct err *err)
{
    char *all = items ? xstrdup(items) : NULL, *next = all, *item;
    int rc = 0;

    *out = (struct corpus){0};
    if (!items)
        rc = corpus_take_named(out, root, err);
    while (rc == 0 && items && (item = strsep(&next, ","))) {
        char *path = xasprintf("%s/%s", root, item + strspn(item, " "));

        rc = corpus_take_named(out, path, err);
        free(path);
    }
    free(all);
    if (rc < 0)
        corpus_fini(out);
    return rc;
}

void corpus_fini(struct corpus *c)
{
    for (int64_t i = 0; i < c->n; i++)
        free(c->file[i].path);
    free(c->file);
    free(c->other);
    *c = (struct corpus){0};
}

void corpus_print(const struct corpus *c, struct hasher *h)
{
    hasher_add_i64(h, c->n);
    for (int64_t i = 0; i < c->n; i++) {
        hasher_add_text(h, c->file[i].path + c->file[i].root);
        hasher_add_i64(h, c->file[i].n_bytes);
        hasher_add_i64(h, c->file[i].mtime_ns);
        hasher_add_i64(h, c->file[i].is_lines);
    }
}
