/* npy_file - the header of .npy, read and written, and its elements as numbers.  The header is a
 * line of Python; it is read by its three keys, in any order. */
#include "data/npy_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "data/foreign.h"
#include "tensor/half.h"

enum { MOST_HEADER = 4096, MOST_ROW = 1 << 28 };

/* Elements of each type, which may lie at any address, as floats, doubles and whole numbers.  Each
 * float of 16 bits is a float, too. */
#define X(name, descr, type, is_whole, to_float)                           \
    static void name##_reals(const uint8_t *from, int64_t n, float *to)    \
    {                                                                      \
        for (int64_t i = 0; i < n; i++) {                                  \
            type v;                                                        \
                                                                           \
            memcpy(&v, from + i * (int64_t)sizeof v, sizeof v);            \
            to[i] = to_float(v);                                           \
        }                                                                  \
    }                                                                      \
    static void name##_doubles(const uint8_t *from, int64_t n, double *to) \
    {                                                                      \
        for (int64_t i = 0; i < n; i++) {                                  \
            type v;                                                        \
                                                                           \
            memcpy(&v, from + i * (int64_t)sizeof v, sizeof v);            \
            to[i] = sizeof v > 2 ? (double)v : (double)to_float(v);        \
        }                                                                  \
    }                                                                      \
    static void name##_wholes(const uint8_t *from, int64_t n, int64_t *to) \
    {                                                                      \
        for (int64_t i = 0; i < n; i++) {                                  \
            type v;                                                        \
                                                                           \
            memcpy(&v, from + i * (int64_t)sizeof v, sizeof v);            \
            to[i] = (is_whole) ? (int64_t)v : 0;                           \
        }                                                                  \
    }
NPY_LIST(X)
#undef X

static const struct type {
    const char *descr;
    size_t n_bytes;
    int is_whole;
    void (*reals)(const uint8_t *from, int64_t n, float *to);
    void (*doubles)(const uint8_t *from, int64_t n, double *to);
    void (*wholes)(const uint8_t *from, int64_t n, int64_t *to);
} types[] = {
#define X(name, descr, type, is_whole, to_float) \
    [name] = {descr, sizeof(type), is_whole, name##_reals, name##_doubles, name##_wholes},
    NPY_LIST(X)
#undef X
};

size_t npy_size(enum npy_type t) { return types[t].n_bytes; }

const char *npy_type_name(enum npy_type t) { return types[t].descr; }

int npy_is_whole(enum npy_type t) { return types[t].is_whole; }

int64_t npy_row(const struct npy *a) { return shape_elements(&a->shape) / a->shape.dim[0]; }

/* ---- the header ---- */

/* The value of a key, such as 'shape', in the header; NULL: there is no such key. */
static const char *npy_file_value_of(const char *header, const char *key)
{
    const char *at = strstr(header, key);

    if (!at)
        return NULL;
    at += strlen(key);
    at += strspn(at, " ");
    return *at == ':' ? at + 1 + strspn(at + 1, " ") : NULL;
}

static int read_type(struct npy *a, const char *descr, struct err *err)
{
    const size_t len = strcspn(descr + 1, "'");
    struct buf known = {0};

    for (int t = 0; t < NPY_N_TYPES; t++) {
        if (len == strlen(types[t].descr) && !memcmp(descr + 1, types[t].descr, len)) {
            a->type = (enum npy_type)t;
            buf_fini(&known);
            return 0;
        }
        buf_printf(&known, "%s%s", t ? ", " : "", types[t].descr);
    }
    err_set(err, ERR_CORRUPT, "its type is %.*s, want one of %s; convert it with astype()",
            (int)min_i64((int64_t)len, 20), descr + 1, buf_cstr(&known));
    buf_fini(&known);
    return err->code;
}

/* `text` is "(60, 28, 28)", or "(60,)". */
static int read_shape(struct npy *a, const char *text, struct err *err)
{
    const char *const whole = text;
    struct shape s = {0};
    int64_t n = 1;

    for (text++; *text && *text != ')'; text += strspn(text, ", ")) {
        char *end;
        const long long v = strtoll(text, &end, 10);

        if (end == text || s.n == SHAPE_MAX_DIMS || v < 1 || n > INT64_MAX / 16 / v)
            return err_set(err, ERR_CORRUPT, "its shape is %.*s), want up to %d extents from 1 on",
                           (int)min_i64((int64_t)strcspn(whole, ")"), 60), whole, SHAPE_MAX_DIMS);
        s.dim[s.n++] = v;
        n *= v;
        text = end;
    }
    if (s.n == 0)
        return err_set(err, ERR_CORRUPT,
                       "it is one number, want an array with a row for each "
                       "sample");
    if (n / s.dim[0] > MOST_ROW)
        return err_set(err, ERR_CORRUPT, "a row has %lld numbers, want at most %d",
                       (long long)(n / s.dim[0]), MOST_ROW);
    a->shape = s;
    return 0;
}

static int read_keys(struct npy *a, const char *header, struct err *err)
{
    const char *descr = npy_file_value_of(header, "'descr'");
    const char *order = npy_file_value_of(header, "'fortran_order'"),
               *shape = npy_file_value_of(header, "'shape'");

    if (!descr || *descr != '\'' || !order || !shape || *shape != '(')
        return err_set(err, ERR_CORRUPT,
                       "offset 10: the header is \"%.60s\", want descr, fortran_order and shape; "
                       "write it with numpy.save()",
                       header);
    if (*order != 'F')
        return err_set(err, ERR_CORRUPT,
                       "its order is Fortran's, want C's; write it anew with "
                       "numpy.ascontiguousarray()");
    return read_type(a, descr, err) < 0 || read_shape(a, shape, err) < 0 ? err->code : 0;
}

static int refuse_other(const struct npy *a, struct err *err)
{
    const struct foreign *other = foreign_find(a->file.bytes, a->file.n_bytes);

    return err_set(err, ERR_CORRUPT,
                   "offset 0: this is no file of numpy.save(), which begins with 0x93 NUMPY%s%s",
                   other ? "; it is " : "", other ? other->what : "");
}

static int npy_file_read_header(struct npy *a, struct err *err)
{
    const uint8_t *p = a->file.bytes;
    const size_t n = a->file.n_bytes;
    char header[MOST_HEADER + 1];
    size_t at = 10, len;

    if (n < 12 || memcmp(p, NPY_MAGIC, sizeof NPY_MAGIC - 1) != 0)
        return refuse_other(a, err);
    len = p[8] | (size_t)p[9] << 8;
    if (p[6] > 1) {
        len |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
        at = 12;
    }
    if (p[6] < 1 || p[6] > 3)
        return err_set(err, ERR_CORRUPT, "offset 6: version %d of the format, want 1 to 3", p[6]);
    if (len > MOST_HEADER || at + len > n)
        return err_set(err, ERR_CORRUPT,
                       "offset 8: a header of %zu bytes, want at most %d, within the file's %zu",
                       len, MOST_HEADER, n);
    memcpy(header, p + at, len);
    header[len] = 0;
    a->offset = (int64_t)(at + len);
    return read_keys(a, header, err);
}

static int npy_file_check_size(const struct npy *a, struct err *err)
{
    const int64_t want = shape_elements(&a->shape) * (int64_t)npy_size(a->type);
    const int64_t seen = (int64_t)a->file.n_bytes - a->offset;
    char text[SHAPE_TEXT_LEN];

    if (seen == want)
        return 0;
    return err_set(err, ERR_CORRUPT,
                   "offset %lld: %lld bytes follow the header, want %lld, as many as %s of %s; was "
                   "it copied whole?",
                   (long long)a->offset, (long long)seen, (long long)want,
                   shape_text(&a->shape, text), types[a->type].descr);
}

int npy_parse(struct npy *a, struct err *err)
{
    if (npy_file_read_header(a, err) < 0 || npy_file_check_size(a, err) < 0)
        return err->code;
    a->data = a->file.bytes + a->offset;
    return 0;
}

int npy_open(struct npy *out, const char *path, struct err *err)
{
    *out = (struct npy){0};
    if (mapped_open(&out->file, path, err) < 0)
        return err->code;
    if (npy_parse(out, err) < 0) {
        npy_close(out);
        return err_wrap(err, "%s", path);
    }
    return 0;
}

void npy_close(struct npy *a) { mapped_close(&a->file); }

/* The header's length, with the bytes before it, is a multiple of 64. */
void npy_write_header(struct buf *b, enum npy_type type, int64_t n_rows, const struct shape *row)
{
    enum { BEFORE = 10, ALIGN = 64 };
    struct buf text = {0};
    size_t len;

    buf_printf(&text, "{'descr': '%s', 'fortran_order': False, 'shape': (%lld,", types[type].descr,
               (long long)n_rows);
    for (int i = 0; i < row->n; i++)
        buf_printf(&text, " %lld%s", (long long)row->dim[i], i + 1 < row->n ? "," : "");
    buf_printf(&text, "), }");
    len = (size_t)round_up_i64((int64_t)(BEFORE + text.len + 1), ALIGN) - BEFORE;
    buf_append(b, NPY_MAGIC "\x01\x00", 8);
    buf_append(b, (const uint8_t[]){(uint8_t)len, (uint8_t)(len >> 8)}, 2);
    buf_printf(b, "%s%*s\n", buf_cstr(&text), (int)(len - text.len - 1), "");
    buf_fini(&text);
}

/* ---- elements ---- */

const uint8_t *npy_element(const struct npy *a, int64_t i)
{
    return a->data + i * (int64_t)npy_size(a->type);
}

int npy_read(const struct npy *a, int64_t first, int64_t n, void *to, struct err *err)
{
    const size_t size = npy_size(a->type);

    return mapped_read(&a->file, (size_t)a->offset + (size_t)first * size, to, (size_t)n * size,
                       err);
}

void npy_reals(const struct npy *a, const void *from, int64_t n, float *to)
{
    types[a->type].reals(from, n, to);
}

void npy_doubles(const struct npy *a, const void *from, int64_t n, double *to)
{
    types[a->type].doubles(from, n, to);
}

void npy_wholes(const struct npy *a, const void *from, int64_t n, int64_t *to)
{
    ASSERT(npy_is_whole(a->type));
    types[a->type].wholes(from, n, to);
}

int npy_is_huge(const struct npy *a, int64_t v) { return a->type == NPY_U64 && v < 0; }

const char *npy_whole_text(const struct npy *a, int64_t v, char out[NPY_WHOLE_TEXT])
{
    if (npy_is_huge(a, v))
        snprintf(out, NPY_WHOLE_TEXT, "%llu", (unsigned long long)v);
    else
        snprintf(out, NPY_WHOLE_TEXT, "%lld", (long long)v);
    return out;
}
