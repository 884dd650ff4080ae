/* st_set - opens what a path stands for.  The index comes from a stranger: names of files are
 * checked before they are used, and its two directions are compared, from names to files and from
 * files to names. */
#include "ckpt/st_set.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "ckpt/file.h"

#define ONE_FILE "model.safetensors"
#define INDEX    "model.safetensors.index.json"

struct st_set {
    struct st_file **file;
    char **name; /* [n_files] of the files in the index; NULL: there is no index */
    int n_files;
};

/* ---- the index ---- */

static int st_set_read_text(const char *path, char **text, size_t *len, struct err *err)
{
    int64_t n;
    void *room;
    int fd, rc = file_open(path, &fd, &n, err);

    if (rc < 0)
        return rc;
    if (n > ST_MAX_HEADER)
        rc = err_set(err, ERR_CORRUPT, "%s: %lld bytes, want an index of at most %d", path,
                     (long long)n, ST_MAX_HEADER);
    if (rc == 0)
        rc = try_alloc(&room, (size_t)n + 1, "an index of safetensors files", err);
    if (rc == 0) {
        *text = room;
        *len = (size_t)n;
        rc = file_read_at(fd, path, room, *len, 0, err);
    }
    close(fd);
    return rc;
}

static int parse_index(const char *path, json_t **out, struct err *err)
{
    char *text = NULL;
    size_t len = 0;
    json_error_t why;
    json_t *root = NULL;
    int rc = st_set_read_text(path, &text, &len, err);

    if (rc == 0)
        root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    free(text);
    if (rc < 0)
        return rc;
    if (!root)
        return err_set(err, ERR_CORRUPT,
                       "%s:%d:%d: %s; want the JSON of an index of safetensors files, with each "
                       "tensor once",
                       path, why.line, why.column, why.text);
    if (!json_object_size(json_object_get(root, "weight_map"))) {
        json_decref(root);
        return err_set(err, ERR_CORRUPT,
                       "%s: no \"weight_map\" in it, want the names of tensors and of their files; "
                       "give the folder, " ONE_FILE " or " INDEX,
                       path);
    }
    *out = root;
    return 0;
}

static int st_set_number_of(const struct st_set *s, const char *name)
{
    for (int i = s->n_files - 1; i >= 0; i--)
        if (!strcmp(s->name[i], name))
            return i;
    return -1;
}

/* Open the file, unless it is open.  It lies beside the index, so its name has no slash. */
static int add_file(struct st_set *s, const char *index, const char *tensor, const char *name,
                    struct err *err)
{
    const char *slash = strrchr(index, '/');
    struct st_file *f;
    char *path;
    int rc;

    if (!name || !*name || *name == '.' || strchr(name, '/'))
        return err_set(err, ERR_CORRUPT,
                       "%s: the file of tensor \"%.80s\" is \"%.80s\", want the name of a file "
                       "beside the index",
                       index, tensor, name ? name : "no text");
    if (st_set_number_of(s, name) >= 0)
        return 0;
    if (s->n_files == ST_SET_MOST_FILES)
        return err_set(err, ERR_CORRUPT, "%s: more than %d files", index, ST_SET_MOST_FILES);
    path = xasprintf("%.*s%s", slash ? (int)(slash - index) + 1 : 0, index, name);
    rc = st_open(path, &f, err);
    free(path);
    if (rc < 0)
        return err_set(err, rc,
                       "%s: %s; want each file that the index names beside it: fetch index and "
                       "files again, together",
                       index, err->msg);
    s->file = xrealloc(s->file, (size_t)(s->n_files + 1) * sizeof *s->file);
    s->name = xrealloc(s->name, (size_t)(s->n_files + 1) * sizeof *s->name);
    s->file[s->n_files] = f;
    s->name[s->n_files++] = xstrdup(name);
    return 0;
}

/* Each tensor of the file is in the index, as one of this file. */
static int st_set_check_file(const struct st_set *s, int i, const char *index, json_t *map,
                             struct err *err)
{
    for (int k = 0; k < st_count(s->file[i]); k++) {
        const char *name = st_at(s->file[i], k)->name;
        const char *want = json_string_value(json_object_get(map, name));

        if (!want)
            return err_set(err, ERR_CORRUPT,
                           "%s: it does not name tensor \"%.80s\", which is in %s; fetch index and "
                           "files again, together",
                           index, name, s->name[i]);
        if (strcmp(want, s->name[i]) != 0)
            return err_set(err, ERR_CORRUPT,
                           "%s: tensor \"%.80s\" is in %s, by the index in %s; fetch index and "
                           "files again, together",
                           index, name, s->name[i], want);
    }
    return 0;
}

/* The files have as many tensors as the index names, each where the index says: or else one of them
 * is in no file. */
static int check_map(const struct st_set *s, const char *index, json_t *map, struct err *err)
{
    const char *name;
    json_t *file;
    int rc = 0;

    for (int i = 0; i < s->n_files && rc == 0; i++)
        rc = st_set_check_file(s, i, index, map, err);
    if (rc < 0 || (size_t)st_set_count(s) == json_object_size(map))
        return rc;
    json_object_foreach(map, name, file)
    {
        if (!st_find(s->file[st_set_number_of(s, json_string_value(file))], name))
            return err_set(err, ERR_CORRUPT,
                           "%s: tensor \"%.80s\" is not in %s; fetch index and files again, "
                           "together",
                           index, name, json_string_value(file));
    }
    return 0;
}

static int open_index(struct st_set *s, const char *path, struct err *err)
{
    json_t *root, *map, *file;
    const char *name;
    int rc = parse_index(path, &root, err);

    if (rc < 0)
        return rc;
    map = json_object_get(root, "weight_map");
    json_object_foreach(map, name, file)
    {
        rc = add_file(s, path, name, json_string_value(file), err);
        if (rc < 0)
            break;
    }
    if (rc == 0)
        rc = check_map(s, path, map, err);
    json_decref(root);
    return rc;
}

/* ---- any path ---- */

static int open_one(struct st_set *s, const char *path, struct err *err)
{
    struct st_file *f;
    int rc = st_open(path, &f, err);

    if (rc < 0)
        return rc;
    s->file = xmalloc(sizeof *s->file);
    s->file[s->n_files++] = f;
    return 0;
}

/* The file in the folder, for free(); NULL: it is not there. */
static char *file_in(const char *folder, const char *name)
{
    char *path = xasprintf("%s/%s", folder, name);

    if (access(path, F_OK) == 0)
        return path;
    free(path);
    return NULL;
}

static int nothing_in(const char *folder, struct err *err)
{
    char *pickle = file_in(folder, "pytorch_model.bin");
    const int has_pickle = pickle != NULL;

    free(pickle);
    return err_set(err, ERR_IO, "folder %s has neither " ONE_FILE " nor " INDEX "%s", folder,
                   has_pickle ? "; write its pytorch_model.bin anew by transformers' "
                                "save_pretrained(), which makes one of them"
                              : ", want the folder of a model");
}

static int open_folder(struct st_set *s, const char *folder, struct err *err)
{
    char *one = file_in(folder, ONE_FILE), *index = one ? NULL : file_in(folder, INDEX);
    const int rc = one     ? open_one(s, one, err)
                   : index ? open_index(s, index, err)
                           : nothing_in(folder, err);

    free(index);
    free(one);
    return rc;
}

int st_set_open(const char *path, struct st_set **out, struct err *err)
{
    const size_t n = strlen(path);
    struct st_set *s = xcalloc(1, sizeof *s);
    struct stat st;
    int rc;

    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        rc = open_folder(s, path, err);
    else if (n > 5 && !strcmp(path + n - 5, ".json"))
        rc = open_index(s, path, err);
    else
        rc = open_one(s, path, err);
    if (rc < 0) {
        st_set_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

void st_set_close(struct st_set *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->n_files; i++) {
        st_close(s->file[i]);
        if (s->name)
            free(s->name[i]);
    }
    free(s->name);
    free(s->file);
    free(s);
}

int st_set_count(const struct st_set *s)
{
    int n = 0;

    for (int i = 0; i < s->n_files; i++)
        n += st_count(s->file[i]);
    return n;
}

const struct st_tensor *st_set_at(const struct st_set *s, int i)
{
    int k = 0;

    while (k < s->n_files - 1 && i >= st_count(s->file[k]))
        i -= st_count(s->file[k++]);
    return st_at(s->file[k], i);
}

const struct st_tensor *st_set_find(const struct st_set *s, const char *name)
{
    const struct st_tensor *t = NULL;

    for (int i = 0; i < s->n_files && !t; i++)
        t = st_find(s->file[i], name);
    return t;
}

int st_set_read(const struct st_set *s, const struct st_tensor *t, size_t from, void *out,
                size_t n_bytes, struct err *err)
{
    int i = 0;

    while (i < s->n_files && !st_has(s->file[i], t))
        i++;
    ASSERT(i < s->n_files);
    return st_read(s->file[i], t, from, out, n_bytes, err);
}
