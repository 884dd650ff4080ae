/* idx - reads an IDX file: the header is checked against the size of the file before any memory is
 * allocated for the array. */
#include "data/idx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/gzin.h"
#include "tensor/shape.h"

enum { MAGIC_BYTES = 4, DIM_BYTES = 4 };

static int64_t header_bytes(const struct idx *x) { return MAGIC_BYTES + x->n_dims * DIM_BYTES; }

static uint32_t big_endian(const uint8_t *b)
{
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

int64_t idx_element_bytes(const struct idx *x) { return x->type == IDX_I32 ? 4 : 1; }

int32_t idx_int(const struct idx *x, int64_t i)
{
    ASSERT(x->type == IDX_I32 && i >= 0 && i < x->n_bytes / 4);
    return (int32_t)big_endian(x->data + 4 * i);
}

static const char *idx_extents(const struct idx *x, char text[SHAPE_TEXT_LEN])
{
    struct shape s = {.n = x->n_dims};

    memcpy(s.dim, x->dim, sizeof x->dim);
    return shape_text(&s, text);
}

static int short_header(size_t got, size_t want, struct err *err)
{
    return err_set(err, ERR_CORRUPT,
                   "offset %zu: the file ends within its header, want %zu bytes of it; fetch the "
                   "file again",
                   got, want);
}

static int wrong_dims(int n_dims, const struct idx_want *w, struct err *err)
{
    char want[32];

    snprintf(want, sizeof want, w->max_dims > w->min_dims ? "%d to %d" : "%d", w->min_dims,
             w->max_dims);
    return err_set(err, ERR_CORRUPT,
                   "offset 3: number of dimensions is %d, want %s; are the files of images and "
                   "labels swapped?",
                   n_dims, want);
}

static int read_magic(struct idx *x, struct gzin *g, const struct idx_want *want, struct err *err)
{
    uint8_t b[MAGIC_BYTES];
    uint32_t magic;
    size_t got;

    if (gzin_read(g, b, sizeof b, &got, err) < 0)
        return err->code;
    if (got < sizeof b)
        return short_header(got, sizeof b, err);
    magic = big_endian(b);
    if (magic >> 8 != (uint32_t)want->type)
        return err_set(err, ERR_CORRUPT,
                       "offset 0: magic is 0x%08x, want 0x%08x (IDX, %s, %d dimensions); "
                       "is this the right file?",
                       magic, (unsigned)want->type << 8 | (unsigned)want->min_dims,
                       want->type == IDX_I32 ? "32-bit integers" : "unsigned bytes",
                       want->min_dims);
    x->type = want->type;
    x->n_dims = b[3];
    if (x->n_dims < want->min_dims || x->n_dims > want->max_dims)
        return wrong_dims(x->n_dims, want, err);
    return 0;
}

/* The product of the extents, in x->n_bytes; every factor is checked against the `most` bytes that
 * can follow, so it cannot overflow. */
static int check_dims(struct idx *x, const struct gzin *g, struct err *err)
{
    int64_t most = gzin_most_left(g);
    char text[SHAPE_TEXT_LEN];

    x->n_bytes = idx_element_bytes(x);
    for (int i = 0; i < x->n_dims; i++)
        if (x->dim[i] == 0)
            return err_set(err, ERR_CORRUPT,
                           "offset %d: extents are %s, want none to be 0; is this the right file?",
                           MAGIC_BYTES + i * DIM_BYTES, idx_extents(x, text));
    for (int i = 0; i < x->n_dims; i++) {
        if (x->dim[i] > most / x->n_bytes)
            return err_set(
                err, ERR_CORRUPT,
                "offset %lld: %s%lld bytes follow the header, want as many as %s has; the "
                "file is truncated or no IDX file, fetch it again",
                (long long)header_bytes(x), gzin_compressed(g) ? "at most " : "", (long long)most,
                idx_extents(x, text));
        x->n_bytes *= x->dim[i];
    }
    return 0;
}

static int read_dims(struct idx *x, struct gzin *g, struct err *err)
{
    uint8_t b[IDX_MAX_DIMS * DIM_BYTES];
    size_t got, want = (size_t)x->n_dims * DIM_BYTES;

    if (gzin_read(g, b, want, &got, err) < 0)
        return err->code;
    if (got < want)
        return short_header(MAGIC_BYTES + got, MAGIC_BYTES + want, err);
    for (int i = 0; i < x->n_dims; i++)
        x->dim[i] = big_endian(b + i * DIM_BYTES);
    return check_dims(x, g, err);
}

static int read_array(struct idx *x, struct gzin *g, struct err *err)
{
    char text[SHAPE_TEXT_LEN];
    uint8_t more;
    size_t got;
    void *data;

    if (try_alloc(&data, (size_t)x->n_bytes, "an IDX file's array", err) < 0)
        return err->code;
    x->data = data;
    if (gzin_read(g, x->data, (size_t)x->n_bytes, &got, err) < 0)
        return err->code;
    if ((int64_t)got < x->n_bytes)
        return err_set(err, ERR_CORRUPT,
                       "offset %lld: the file ends, want %lld bytes in all for %s; fetch it again",
                       (long long)(header_bytes(x) + (int64_t)got),
                       (long long)(header_bytes(x) + x->n_bytes), idx_extents(x, text));
    if (gzin_read(g, &more, 1, &got, err) < 0)
        return err->code;
    if (got)
        return err_set(err, ERR_CORRUPT,
                       "offset %lld: bytes follow the array %s, want the end of the file; fetch it "
                       "again",
                       (long long)(header_bytes(x) + x->n_bytes), idx_extents(x, text));
    return 0;
}

/* Read the whole file.  Takes g. */
static int idx_read_all(struct idx *out, struct gzin *g, const struct idx_want *want,
                        struct err *err)
{
    struct idx x = {0};
    int rc;

    ASSERT(want->min_dims >= 1 && want->min_dims <= want->max_dims &&
           want->max_dims <= IDX_MAX_DIMS);
    rc = read_magic(&x, g, want, err);
    if (rc == 0)
        rc = read_dims(&x, g, err);
    if (rc == 0)
        rc = read_array(&x, g, err);
    gzin_close(g);
    if (rc < 0)
        idx_fini(&x);
    *out = x;
    return rc;
}

int idx_parse(struct idx *out, const uint8_t *bytes, size_t n_bytes, const struct idx_want *want,
              struct err *err)
{
    struct gzin *g;

    *out = (struct idx){0};
    if (gzin_open_memory(&g, bytes, n_bytes, err) < 0)
        return err->code;
    return idx_read_all(out, g, want, err);
}

int idx_read(struct idx *out, const char *path, const struct idx_want *want, struct err *err)
{
    struct gzin *g;

    *out = (struct idx){0};
    if (gzin_open_file(&g, path, err) < 0 || idx_read_all(out, g, want, err) < 0)
        return err_wrap(err, "%s", path);
    return 0;
}

void idx_fini(struct idx *x)
{
    free(x->data);
    *x = (struct idx){0};
}
