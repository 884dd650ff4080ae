/* onnx_tensor - the elements of initializers: raw bytes, typed numbers, or a part of a file beside
 * the network's, which must lie in its folder or below. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "import/onnx_impl.h"

int onnx_type(int32_t data_type)
{
    static const int types[] = {
        [ONNX__TENSOR_PROTO__DATA_TYPE__UNDEFINED] = -1,
        [ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT] = IMPORT_F32,
        [ONNX__TENSOR_PROTO__DATA_TYPE__UINT8] = IMPORT_U8,
        [ONNX__TENSOR_PROTO__DATA_TYPE__INT8] = IMPORT_I8,
        [ONNX__TENSOR_PROTO__DATA_TYPE__UINT16] = -1,
        [ONNX__TENSOR_PROTO__DATA_TYPE__INT16] = IMPORT_I16,
        [ONNX__TENSOR_PROTO__DATA_TYPE__INT32] = IMPORT_I32,
        [ONNX__TENSOR_PROTO__DATA_TYPE__INT64] = IMPORT_I64,
        [ONNX__TENSOR_PROTO__DATA_TYPE__STRING] = -1,
        [ONNX__TENSOR_PROTO__DATA_TYPE__BOOL] = IMPORT_BOOL,
        [ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16] = IMPORT_F16,
        [ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE] = IMPORT_F64,
        [ONNX__TENSOR_PROTO__DATA_TYPE__UINT32] = -1,
        [ONNX__TENSOR_PROTO__DATA_TYPE__UINT64] = -1,
        [ONNX__TENSOR_PROTO__DATA_TYPE__COMPLEX64] = -1,
        [ONNX__TENSOR_PROTO__DATA_TYPE__COMPLEX128] = -1,
        [ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16] = IMPORT_BF16,
    };

    return data_type >= 0 && data_type < (int)ARRAY_LEN(types) ? types[data_type] : -1;
}

static const char *tensor_name(const Onnx__TensorProto *t)
{
    return t->name && *t->name ? t->name : "(without a name)";
}

int onnx_tensor_shape(const Onnx__TensorProto *t, struct import_value *v, int64_t *n,
                      struct err *err)
{
    const int type = onnx_type(t->data_type);

    *v = (struct import_value){.name = "", .tensor = -1};
    *n = 1;
    if (type < 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "tensor %s has elements of type %d, want floats, integers or booleans of 16 "
                       "to 64 bits",
                       tensor_name(t), t->data_type);
    if (t->n_dims > IMPORT_MAX_DIMS)
        return err_set(err, ERR_UNSUPPORTED, "tensor %s has %zu dimensions, want %d at most",
                       tensor_name(t), t->n_dims, IMPORT_MAX_DIMS);
    v->type = (enum import_type)type;
    v->n_dims = (int)t->n_dims;
    for (int d = 0; d < v->n_dims; d++) {
        v->dim[d] = t->dims[d];
        v->symbol[d] = -1;
        if (v->dim[d] < 0 || (v->dim[d] > 0 && *n > ONNX_MAX_ELEMENTS / v->dim[d]))
            return err_set(err, ERR_CORRUPT,
                           "tensor %s has extent %lld in dimension %d; the file is damaged: export "
                           "it again",
                           tensor_name(t), (long long)v->dim[d], d);
        *n *= v->dim[d];
    }
    return 0;
}

/* ---- files beside it ---- */

static const char *tensor_entry(const Onnx__TensorProto *t, const char *key)
{
    for (size_t i = 0; i < t->n_external_data; i++)
        if (t->external_data[i]->key && !strcmp(t->external_data[i]->key, key))
            return t->external_data[i]->value ? t->external_data[i]->value : "";
    return NULL;
}

static int tensor_number(const Onnx__TensorProto *t, const char *key, int64_t def, int64_t *out,
                         struct err *err)
{
    const char *text = tensor_entry(t, key);
    char *end;

    *out = def;
    if (!text)
        return 0;
    errno = 0;
    *out = strtoll(text, &end, 10);
    if (errno || end == text || *end || *out < 0)
        return err_set(err, ERR_CORRUPT,
                       "tensor %s: %s of its external data is \"%.40s\", want a "
                       "number of bytes",
                       tensor_name(t), key, text);
    return 0;
}

/* Open the file `location`, which must lie in the folder of the network's file. */
static int tensor_open(const char *path, const Onnx__TensorProto *t, struct err *err)
{
    const char *location = tensor_entry(t, "location"), *slash = strrchr(path, '/');
    char *folder = slash ? xasprintf("%.*s", (int)(slash - path + 1), path) : xasprintf("./");
    char *whole = xasprintf("%s%s", folder, location ? location : ""), *base, *real;
    int fd = -1, is_inside;
    size_t n;

    base = realpath(folder, NULL);
    real = realpath(whole, NULL);
    n = base ? strlen(base) : 0;
    is_inside = base && real && !strncmp(base, real, n) && (n == 1 || real[n] == '/');
    if (!location || !*location || location[0] == '/' || strstr(location, ".."))
        err_set(err, ERR_CORRUPT,
                "tensor %s: its external data are in \"%.200s\", want a file in the folder of the "
                "network's file",
                tensor_name(t), location ? location : "");
    else if (!base || !real)
        err_sys(err, errno, "tensor %s: its external data: %s (keep it beside the network's file)",
                tensor_name(t), whole);
    else if (!is_inside)
        err_set(err, ERR_CORRUPT,
                "tensor %s: its external data \"%.200s\" are a link to %.200s, want a file in the "
                "folder of the network's file: copy it there",
                tensor_name(t), location, real);
    else if ((fd = open(real, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) < 0)
        err_sys(err, errno, "tensor %s: its external data: %s", tensor_name(t), whole);
    free(folder);
    free(whole);
    free(base);
    free(real);
    return fd;
}

/* range[1] of t's `whole` bytes, from byte range[0] on. */
static int tensor_beside(const char *path, const Onnx__TensorProto *t, const int64_t range[2],
                         int64_t whole, void *to, struct err *err)
{
    int64_t offset, length, done = 0;
    const int fd = tensor_open(path, t, err);
    struct stat st;
    int rc;

    if (fd < 0)
        return err->code;
    rc = tensor_number(t, "offset", 0, &offset, err) < 0 ||
                 tensor_number(t, "length", whole, &length, err) < 0
             ? err->code
             : 0;
    if (rc == 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)))
        rc = err_set(err, ERR_CORRUPT, "tensor %s: its external data are no regular file",
                     tensor_name(t));
    if (rc == 0 && (length != whole || offset > st.st_size || length > st.st_size - offset))
        rc = err_set(err, ERR_CORRUPT,
                     "tensor %s: its external data are bytes %lld to %lld of a file of %lld, want "
                     "%lld bytes; copy the whole file, or export it again",
                     tensor_name(t), (long long)offset, (long long)offset + (long long)length,
                     (long long)st.st_size, (long long)whole);
    while (rc == 0 && done < range[1]) {
        const ssize_t got =
            pread(fd, (char *)to + done, (size_t)(range[1] - done), offset + range[0] + done);

        if (got <= 0)
            rc =
                err_sys(err, got < 0 ? errno : EIO, "tensor %s: its external data", tensor_name(t));
        else
            done += got;
    }
    close(fd);
    return rc;
}

/* ---- numbers in the message ---- */

/* Element i of the typed fields, as bytes of `type`. */
static void tensor_typed(const Onnx__TensorProto *t, enum import_type type, int64_t i, void *to)
{
    union {
        int64_t i64;
        int32_t i32;
        uint8_t u8;
        uint16_t u16;
    } u = {.i64 = 0};

    switch (type) {
    case IMPORT_F32:
        memcpy(to, &t->float_data[i], 4);
        return;
    case IMPORT_F64:
        memcpy(to, &t->double_data[i], 8);
        return;
    case IMPORT_I64:
        memcpy(to, &t->int64_data[i], 8);
        return;
    case IMPORT_I32:
        u.i32 = t->int32_data[i];
        break;
    case IMPORT_BOOL:
        u.u8 = t->int32_data[i] != 0;
        break;
    case IMPORT_F16:
    case IMPORT_BF16:
    case IMPORT_I16:
        u.u16 = (uint16_t)t->int32_data[i];
        break;
    default:
        u.u8 = (uint8_t)t->int32_data[i];
    }
    memcpy(to, &u, import_type_size(type)); /* little-endian */
}

static size_t tensor_n_typed(const Onnx__TensorProto *t, enum import_type type)
{
    return type == IMPORT_F32   ? t->n_float_data
           : type == IMPORT_F64 ? t->n_double_data
           : type == IMPORT_I64 ? t->n_int64_data
                                : t->n_int32_data;
}

int onnx_tensor_read(const char *path, const Onnx__TensorProto *t, int64_t first, int64_t n,
                     void *to, struct err *err)
{
    struct import_value v;
    int64_t count, size;

    if (onnx_tensor_shape(t, &v, &count, err) < 0)
        return err->code;
    size = (int64_t)import_type_size(v.type);
    ASSERT(first >= 0 && n >= 0 && n <= count - first);
    if (t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL)
        return tensor_beside(path, t, (int64_t[]){first * size, n * size}, count * size, to, err);
    if (t->has_raw_data ? t->raw_data.len != (size_t)(count * size)
                        : tensor_n_typed(t, v.type) != (size_t)count)
        return err_set(err, ERR_CORRUPT,
                       "tensor %s has %zu %s, want %lld for its shape; the file is damaged: export "
                       "it again",
                       tensor_name(t),
                       t->has_raw_data ? t->raw_data.len : tensor_n_typed(t, v.type),
                       t->has_raw_data ? "bytes" : "numbers",
                       (long long)(t->has_raw_data ? count * size : count));
    if (t->has_raw_data && n > 0)
        memcpy(to, t->raw_data.data + first * size, (size_t)(n * size));
    for (int64_t i = 0; i < n && !t->has_raw_data; i++)
        tensor_typed(t, v.type, first + i, (char *)to + i * size);
    return 0;
}
