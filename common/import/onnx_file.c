/* onnx_file - the message of a file, and its initializers by name.
 *
 * The whole message is in memory; elements that lie in files beside it are not.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "import/even.h"
#include "import/onnx_impl.h"

int onnx_is_name(const char *path)
{
    const size_t n = strlen(path);

    return n > 5 && !strcmp(path + n - 5, ".onnx");
}

static int file_index(struct onnx_file *f, struct err *err)
{
    const Onnx__GraphProto *g = f->model->graph;

    f->initializers = json_object();
    for (size_t i = 0; i < g->n_initializer; i++) {
        const char *name = g->initializer[i]->name;

        if (!name || !*name || json_object_get(f->initializers, name) ||
            json_object_set_new(f->initializers, name, json_integer((json_int_t)i)) < 0)
            return err_set(err, ERR_CORRUPT,
                           "%s: initializer %zu has no name, or one that another has, too; the "
                           "file is damaged: export it again",
                           f->path, i);
    }
    return 0;
}

int onnx_open_bytes(const void *bytes, size_t len, const char *path, struct onnx_file **out,
                    struct err *err)
{
    struct onnx_file *f = xcalloc(1, sizeof *f);
    int rc = 0;

    f->path = xstrdup(path);
    f->model = onnx__model_proto__unpack(NULL, len, bytes);
    if (!f->model || !f->model->graph || f->model->n_opset_import == 0)
        rc = err_set(err, ERR_CONFIG,
                     "%s is no network in ONNX's format (%s); want a file of torch.onnx.export or "
                     "of another exporter of ONNX",
                     path,
                     !f->model          ? "it is no such message"
                     : !f->model->graph ? "it has no graph"
                                        : "it names no operator set");
    if (rc == 0)
        rc = file_index(f, err);
    if (rc < 0)
        onnx_close(f);
    else
        *out = f;
    return rc;
}

int onnx_open(const char *path, struct onnx_file **out, struct err *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    void *bytes = MAP_FAILED;
    int rc = 0;

    if (fd < 0 || fstat(fd, &st) < 0)
        rc = err_sys(err, errno, "%s", path);
    else if (!S_ISREG(st.st_mode) || st.st_size < 1 || st.st_size > INT32_MAX)
        rc = err_set(err, ERR_CONFIG, "%s: want a regular file of 1 byte to 2 GiB", path);
    if (rc == 0) {
        bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        rc = bytes == MAP_FAILED ? err_sys(err, errno, "%s", path)
                                 : onnx_open_bytes(bytes, (size_t)st.st_size, path, out, err);
    }
    if (bytes != MAP_FAILED)
        munmap(bytes, (size_t)st.st_size);
    if (fd >= 0)
        close(fd);
    return rc;
}

void onnx_close(struct onnx_file *f)
{
    if (!f)
        return;
    if (f->model)
        onnx__model_proto__free_unpacked(f->model, NULL);
    json_decref(f->initializers);
    free(f->path);
    free(f);
}

int onnx_read_tensor(const struct onnx_file *f, const char *name, int64_t first, int64_t n,
                     void *to, struct err *err)
{
    json_t *at = json_object_get(f->initializers, name);

    ASSERT(at);
    if (onnx_tensor_read(f->path, f->model->graph->initializer[json_integer_value(at)], first, n,
                         to, err) < 0)
        return err_wrap(err, "%s", f->path);
    return 0;
}

/* As even_reader: from the initializer of its name. */
static int onnx_file_elements(void *from, const struct import_tensor *t, int64_t first, int64_t n,
                              void *to, struct err *err)
{
    return onnx_read_tensor(from, t->name, first, n, to, err);
}

int onnx_read(const char *path, struct import_network **out, struct err *err)
{
    struct onnx_file *f;
    int rc;

    if (onnx_open(path, &f, err) < 0)
        return err->code;
    rc = onnx_parse(f, out, err);
    if (rc == 0)
        import_find_even(*out, onnx_file_elements, f);
    onnx_close(f);
    return rc;
}
