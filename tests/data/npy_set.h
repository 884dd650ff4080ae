/* npy_set - makes arrays as numpy.save() writes them, and opens them as data sets. */
#ifndef TESTS_DATA_NPY_SET_H
#define TESTS_DATA_NPY_SET_H

#include "../test.h"

#include "idx_file.h"
#include "open_set.h"

/* Write a .npy of version `major`; keys: what stands between the braces of its header. */
static inline void write_npy(const char *folder, const char *name, int major, const char *keys,
                             const void *data, size_t n_bytes)
{
    struct buf b = {0};
    char header[512];
    int len = snprintf(header, sizeof header, "{%s}\n", keys);

    buf_append(&b, "\x93NUMPY", 6);
    buf_append(&b, &(uint8_t){(uint8_t)major}, 1);
    buf_append(&b, "", 1);
    for (int i = 0; i < (major > 1 ? 4 : 2); i++)
        buf_append(&b, &(uint8_t){(uint8_t)(len >> 8 * i)}, 1);
    buf_append(&b, header, (size_t)len);
    buf_append(&b, data, n_bytes);
    write_file(folder, name, &b);
    buf_fini(&b);
}

#define KEYS(descr, shape) "'descr': '" descr "', 'fortran_order': False, 'shape': " shape ", "

static inline struct dataset_request purpose(enum dataset_purpose p)
{
    return (struct dataset_request){.purpose = p};
}

static inline struct dataset *open_ok(const char *folder, enum dataset_purpose p)
{
    const struct setting settings[] = {
        {"data.path", folder}, {"data.validation", "vx.npy,vy.npy"}, {NULL}};
    const struct dataset_request r = purpose(p);
    struct dataset *ds = NULL;
    struct err err = {0};

    if (open_set(&ds, &format_npy, settings, &r, &err) != 0)
        fail_msg("%s", err.msg);
    return ds;
}

/* The warning of the last set that was opened with it; "": none. */
static char told[1024];

static inline void tell(void *arg, const char *text)
{
    (void)arg;
    ASSERT(!told[0]);
    snprintf(told, sizeof told, "%s", text);
}

#endif
