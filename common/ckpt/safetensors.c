/* safetensors - writes and reads files of tensors.
 *
 * A file comes from a stranger: its header is checked completely before any tensor is used.  The
 * data stay on disk until they are asked for. */
#include "ckpt/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "ckpt/file.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tensors are stored as they lie in memory");

enum { LENGTH_BYTES = 8, ALIGN = 8 };

/* ---- writing ---- */

size_t st_bytes(const struct st_tensor *t)
{
    return dtype_size(t->dtype) * (size_t)shape_elements(&t->shape);
}

static json_t *safetensors_describe(const struct st_tensor *t, uint64_t begin)
{
    json_t *shape = json_array();

    for (int i = 0; i < t->shape.n; i++)
        json_array_append_new(shape, json_integer(t->shape.dim[i]));
    return json_pack("{s:s, s:o, s:[I,I]}", "dtype", dtype_name(t->dtype), "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)(begin + st_bytes(t)));
}

/* The header is padded with spaces so that the data start aligned. */
char *st_head(const struct st_tensor *tensor, int n, const char *class_names, size_t *len)
{
    json_t *root = json_object(), *about = json_pack("{s:s}", "format", "pt");
    uint64_t begin = 0, header;
    char *text, *all;

    if (class_names)
        json_object_set_new(about, "class_names", json_string(class_names));
    json_object_set_new(root, "__metadata__", about);
    for (int i = 0; i < n; i++) {
        json_object_set_new(root, tensor[i].name, safetensors_describe(&tensor[i], begin));
        begin += st_bytes(&tensor[i]);
    }
    text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    ASSERT(text);
    header = (strlen(text) + ALIGN - 1) / ALIGN * ALIGN;
    all = xmalloc(LENGTH_BYTES + header);
    memset(all, ' ', LENGTH_BYTES + header);
    memcpy(all, &header, LENGTH_BYTES);
    memcpy(all + LENGTH_BYTES, text, strlen(text));
    free(text);
    *len = LENGTH_BYTES + header;
    return all;
}

static int safetensors_put(int fd, const char *path, const void *data, size_t n_bytes,
                           struct hasher *h, struct err *err)
{
    hasher_add(h, data, n_bytes);
    return file_put(fd, path, data, n_bytes, err);
}

int st_write(const char *path, const struct st_tensor *tensor, int n, const char *class_names,
             struct hash128 *hash, struct err *err)
{
    struct hasher *h;
    char *header;
    size_t len;
    int fd, rc = file_create(path, &fd, err);

    if (rc < 0)
        return rc;
    h = hasher_new();
    header = st_head(tensor, n, class_names, &len);
    rc = safetensors_put(fd, path, header, len, h, err);
    for (int i = 0; i < n && rc == 0; i++)
        rc = safetensors_put(fd, path, tensor[i].data, st_bytes(&tensor[i]), h, err);
    if (rc == 0)
        rc = file_finish(fd, path, err);
    else
        close(fd);
    *hash = hasher_end(h);
    hasher_free(h);
    free(header);
    return rc;
}

/* ---- reading ---- */

struct st_file {
    char *origin;
    int fd;               /* -1: the file is in memory */
    const uint8_t *bytes; /* the whole file in memory, or NULL */
    uint64_t n_bytes;     /* of the whole file */
    uint64_t data_at;     /* where the data begin */
    json_t *header;       /* owns the names */
    struct st_tensor *tensor;
    uint64_t *begin; /* [n] of each tensor's bytes, from data_at */
    int n;
};

struct piece { /* the bytes that a header entry claims; for the check that pieces tile the data */
    uint64_t begin, end;
    const char *name;
};

static int safetensors_bad(const struct st_file *f, struct err *err, const char *name,
                           const char *what)
{
    return err_set(err, ERR_CORRUPT, "%s: tensor \"%.80s\": %s", f->origin, name, what);
}

static int parse_shape(const struct st_file *f, const char *name, json_t *list, struct shape *out,
                       struct err *err)
{
    size_t n = json_array_size(list);

    if (!json_is_array(list) || n > SHAPE_MAX_DIMS)
        return err_set(err, ERR_CORRUPT,
                       "%s: tensor \"%.80s\": \"shape\" is not a list of at most %d sizes",
                       f->origin, name, SHAPE_MAX_DIMS);
    out->n = (int)n;
    for (size_t i = 0; i < n; i++) {
        json_t *d = json_array_get(list, i);
        json_int_t v = json_integer_value(d);

        if (!json_is_integer(d) || v < 0 || v > (json_int_t)1 << 40)
            return safetensors_bad(f, err, name,
                                   "a size in \"shape\" is not a number from 0 to 2^40");
        out->dim[i] = v;
    }
    return 0;
}

/* The number of elements, or -1 if it is more than a file could hold. */
static int64_t checked_elements(const struct shape *s)
{
    int64_t n = 1;

    for (int i = 0; i < s->n; i++)
        if (__builtin_mul_overflow(n, s->dim[i], &n) || n > (int64_t)1 << 50)
            return -1;
    return n;
}

static int parse_tensor(const struct st_file *f, const char *name, json_t *entry,
                        struct st_tensor *t, struct piece *p, struct err *err)
{
    json_t *dtype = json_object_get(entry, "dtype"), *at = json_object_get(entry, "data_offsets");
    json_t *begin = json_array_get(at, 0), *end = json_array_get(at, 1);
    int d = json_is_string(dtype) ? dtype_from_name(json_string_value(dtype)) : -1;
    int64_t n;

    if (d < 0)
        return safetensors_bad(
            f, err, name, "\"dtype\" is not F32, F64, I32, I64, U8, BF16, F16, I16, I8 or BOOL");
    if (parse_shape(f, name, json_object_get(entry, "shape"), &t->shape, err) < 0)
        return err->code;
    if (!json_is_integer(begin) || !json_is_integer(end) || json_array_size(at) != 2 ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
        return safetensors_bad(f, err, name, "\"data_offsets\" is not [begin, end]");
    *p = (struct piece){(uint64_t)json_integer_value(begin), (uint64_t)json_integer_value(end),
                        name};
    n = checked_elements(&t->shape);
    if (n < 0 || (uint64_t)n * dtype_size((enum dtype)d) != p->end - p->begin)
        return safetensors_bad(f, err, name, "\"data_offsets\" do not fit dtype and shape");
    t->name = name;
    t->dtype = (enum dtype)d;
    return 0;
}

static int by_begin(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* The format allows neither holes nor overlaps. */
static int check_tiling(const struct st_file *f, struct piece *p, int n, uint64_t data_bytes,
                        struct err *err)
{
    uint64_t at = 0;

    qsort(p, (size_t)n, sizeof *p, by_begin);
    for (int i = 0; i < n; i++) {
        if (p[i].begin != at)
            return err_set(err, ERR_CORRUPT,
                           "%s: tensor \"%.80s\" begins at data offset %llu, want %llu (the end of "
                           "the one before)",
                           f->origin, p[i].name, (unsigned long long)p[i].begin,
                           (unsigned long long)at);
        at = p[i].end;
    }
    if (at != data_bytes)
        return err_set(err, ERR_CORRUPT,
                       "%s: has %llu bytes of data, its header describes %llu; the file was cut "
                       "short or is not whole",
                       f->origin, (unsigned long long)data_bytes, (unsigned long long)at);
    return 0;
}

/* Bytes of the file, from memory or from disk. */
static int safetensors_read_at(const struct st_file *f, void *out, size_t n_bytes, uint64_t at,
                               struct err *err)
{
    if (f->fd >= 0)
        return file_read_at(f->fd, f->origin, out, n_bytes, (int64_t)at, err);
    if (n_bytes)
        memcpy(out, f->bytes + at, n_bytes);
    return 0;
}

static int parse_entries(struct st_file *f, struct err *err)
{
    size_t n = json_object_size(f->header);
    struct piece *piece = NULL;
    const char *name;
    json_t *entry;
    int rc = try_alloc((void **)&piece, n * sizeof *piece, "a file's table of tensors", err);

    if (rc == 0)
        rc = try_alloc((void **)&f->tensor, n * sizeof *f->tensor, "a file's tensors", err);
    if (rc == 0)
        rc = try_alloc((void **)&f->begin, n * sizeof *f->begin, "where a file's tensors are", err);
    if (rc < 0) {
        free(piece);
        return err_wrap(err, "%s", f->origin);
    }
    json_object_foreach(f->header, name, entry)
    {
        if (!strcmp(name, "__metadata__"))
            continue;
        rc = parse_tensor(f, name, entry, &f->tensor[f->n], &piece[f->n], err);
        if (rc < 0)
            break;
        f->begin[f->n] = piece[f->n].begin; /* not read until checked */
        f->n++;
    }
    if (rc == 0)
        rc = check_tiling(f, piece, f->n, f->n_bytes - f->data_at, err);
    free(piece);
    return rc;
}

static int parse_header(struct st_file *f, size_t len, struct err *err)
{
    json_error_t why;
    char *text = NULL;
    int rc = try_alloc((void **)&text, len, "a file's header", err);

    if (rc < 0)
        return err_wrap(err, "%s", f->origin);
    rc = safetensors_read_at(f, text, len, LENGTH_BYTES, err);
    if (rc == 0) {
        f->header = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
        if (!json_is_object(f->header))
            rc = err_set(err, ERR_CORRUPT, "%s: offset 8: the header is not a JSON object: %s",
                         f->origin, f->header ? "another type" : why.text);
    }
    free(text);
    return rc;
}

static int safetensors_parse(struct st_file *f, struct err *err)
{
    uint64_t len = 0;
    int rc;

    if (f->n_bytes < LENGTH_BYTES)
        return err_set(err, ERR_CORRUPT, "%s: %llu bytes, a safetensors file has at least 8",
                       f->origin, (unsigned long long)f->n_bytes);
    rc = safetensors_read_at(f, &len, LENGTH_BYTES, 0, err);
    if (rc < 0)
        return rc;
    if (!memcmp(&len, "PK\3\4", 4))
        return err_set(err, ERR_CORRUPT,
                       "%s: offset 0: a zip archive, as torch.save() writes it; write the weights "
                       "with safetensors.torch.save_file(), or name a file of torch.export.save() "
                       "in model.import",
                       f->origin);
    if (len > ST_MAX_HEADER || len > f->n_bytes - LENGTH_BYTES)
        return err_set(err, ERR_CORRUPT,
                       "%s: offset 0: header length %llu, the file has %llu bytes after it; not a "
                       "safetensors file, or cut short",
                       f->origin, (unsigned long long)len,
                       (unsigned long long)(f->n_bytes - LENGTH_BYTES));
    f->data_at = LENGTH_BYTES + len;
    rc = parse_header(f, (size_t)len, err);
    return rc == 0 ? parse_entries(f, err) : rc;
}

static int finish_open(struct st_file *f, struct st_file **out, struct err *err)
{
    int rc = safetensors_parse(f, err);

    if (rc < 0) {
        st_close(f);
        return rc;
    }
    *out = f;
    return 0;
}

int st_parse(const void *data, size_t n_bytes, const char *origin, struct st_file **out,
             struct err *err)
{
    struct st_file *f = xcalloc(1, sizeof *f);

    f->origin = xstrdup(origin);
    f->fd = -1;
    f->bytes = data;
    f->n_bytes = n_bytes;
    return finish_open(f, out, err);
}

int st_open(const char *path, struct st_file **out, struct err *err)
{
    struct st_file *f;
    int64_t n_bytes;
    int fd, rc = file_open(path, &fd, &n_bytes, err);

    if (rc < 0)
        return rc;
    f = xcalloc(1, sizeof *f);
    f->origin = xstrdup(path);
    f->fd = fd;
    f->n_bytes = (uint64_t)n_bytes;
    return finish_open(f, out, err);
}

void st_close(struct st_file *f)
{
    if (!f)
        return;
    if (f->fd >= 0)
        close(f->fd);
    json_decref(f->header);
    free(f->tensor);
    free(f->begin);
    free(f->origin);
    free(f);
}

int st_count(const struct st_file *f) { return f->n; }

const struct st_tensor *st_at(const struct st_file *f, int i)
{
    ASSERT(i >= 0 && i < f->n);
    return &f->tensor[i];
}

const struct st_tensor *st_find(const struct st_file *f, const char *name)
{
    for (int i = 0; i < f->n; i++)
        if (!strcmp(f->tensor[i].name, name))
            return &f->tensor[i];
    return NULL;
}

int st_has(const struct st_file *f, const struct st_tensor *t)
{
    for (int i = 0; i < f->n; i++)
        if (t == &f->tensor[i])
            return 1;
    return 0;
}

int st_read(const struct st_file *f, const struct st_tensor *t, size_t from, void *out,
            size_t n_bytes, struct err *err)
{
    size_t i = (size_t)(t - f->tensor);

    ASSERT(i < (size_t)f->n && from + n_bytes <= st_bytes(t));
    return safetensors_read_at(f, out, n_bytes, f->data_at + f->begin[i] + from, err);
}

int st_hash(const struct st_file *f, struct hash128 *out, struct err *err)
{
    if (f->fd >= 0)
        return file_hash(f->fd, f->origin, (int64_t)f->n_bytes, out, err);
    *out = hash_of(f->bytes, f->n_bytes);
    return 0;
}
