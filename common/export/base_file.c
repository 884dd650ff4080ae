/* base_file - finds weights in the file of model.init or model.import, by their names here or in
 * that file, and reads them as float32. */
#include "export/base_file.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "ckpt/st_set.h"
#include "import/arch.h"
#include "import/lower.h"
#include "import/weights.h"
#include "tensor/half.h"

struct base_file {
    const char *path, *prefix;       /* prefix: may be missing from the file's names; or NULL */
    struct st_set *set;              /* NULL: the file is one of torch.export or ONNX */
    struct import_weights *imported; /* NULL: it is not */
    const struct import_network *network; /* of imported */
};

/* A tensor of the file. */
struct base_tensor {
    const struct st_tensor *st;       /* of set; or NULL */
    const struct import_tensor *from; /* of imported; or NULL */
    enum dtype dtype;
    struct shape shape;
};

int base_file_open(const struct model_options *m, struct base_file **out, struct err *err)
{
    const struct import_options *import = m->init.name == INIT_IMPORT ? import_options_of(m) : NULL;
    struct base_file *f = xcalloc(1, sizeof *f);
    int rc;

    f->path = import ? import->path : m->init.path;
    f->prefix = m->kind->file ? m->kind->file->prefix : NULL;
    if (import && !import->network->config) {
        f->network = import->network;
        rc = import_weights_open(f->path, &f->imported, err);
    } else {
        rc = st_set_open(f->path, &f->set, err);
    }
    if (rc < 0) {
        base_file_close(f);
        return err_wrap(err, "the frozen base, which the checkpoint does not have");
    }
    *out = f;
    return 0;
}

void base_file_close(struct base_file *f)
{
    if (!f)
        return;
    st_set_close(f->set);
    import_weights_close(f->imported);
    free(f);
}

static const struct st_tensor *base_file_in_set(const struct base_file *f, const char *name)
{
    const size_t n = f->prefix ? strlen(f->prefix) : 0;
    const struct st_tensor *t = st_set_find(f->set, name);

    return t || !n || strncmp(name, f->prefix, n) != 0 ? t : st_set_find(f->set, name + n);
}

/* 0: there is no such tensor. */
static int base_file_find(const struct base_file *f, const char *name, struct base_tensor *t)
{
    *t = (struct base_tensor){.st = f->set ? base_file_in_set(f, name) : NULL};
    if (t->st) {
        t->dtype = t->st->dtype;
        t->shape = t->st->shape;
    }
    for (int i = 0; f->network && !t->from && i < f->network->n_tensors; i++)
        if (!strcmp(f->network->tensor[i].name, name))
            t->from = &f->network->tensor[i];
    if (t->from) {
        t->dtype = import_dtype(t->from->type);
        t->shape.n = t->from->n_dims;
        memcpy(t->shape.dim, t->from->dim, (size_t)t->shape.n * sizeof *t->shape.dim);
    }
    return t->st || t->from;
}

int base_file_read(struct base_file *f, const char *name, const struct shape *shape, float *to,
                   struct err *err)
{
    enum { BLOCK = 1 << 16 };
    const int64_t n = shape_elements(shape);
    struct base_tensor t;
    double *room;
    size_t size;
    int rc = 0;

    if (!base_file_find(f, name, &t) || !dtype_is_real(t.dtype) || !shape_equal(&t.shape, shape))
        return err_set(err, ERR_CONFIG,
                       "%s has no tensor \"%s\" of this shape, which the run began with: want the "
                       "file that it began with",
                       f->path, name);
    size = dtype_size(t.dtype);
    room = xmalloc(BLOCK * sizeof *room);
    for (int64_t at = 0; at < n && rc == 0; at += BLOCK) {
        const int64_t part = min_i64(n - at, BLOCK);

        rc = t.st ? st_set_read(f->set, t.st, (size_t)at * size, room, (size_t)part * size, err)
                  : import_weights_read(f->imported, t.from, at, part, room, err);
        for (int64_t i = 0; i < part && rc == 0; i++)
            to[at + i] = real_get(room, t.dtype, i);
    }
    free(room);
    return rc;
}
