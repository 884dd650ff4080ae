/* mnist_files - writes the two files of a set like MNIST, with images and labels that follow from
 * the samples' numbers, sound or damaged. */
#ifndef TESTS_DATA_MNIST_FILES_H
#define TESTS_DATA_MNIST_FILES_H

#include "base/alloc.h"
#include "idx_file.h"

enum { N = 40, H = 5, W = 3, BYTES = H * W };

/* A pair of files, and the damage to it. */
struct pair {
    const char *prefix;
    int dotted, gz;
    int n_images, n_labels; /* 0: N; -1: no such file */
    int bad_at, bad_label;  /* label number bad_at is bad_label, if that is not 0 */
    int first;              /* added to the other labels */
    int wide;               /* labels are QMNIST's, so many integers each */
};

static inline uint8_t pixel(int64_t sample, int64_t i) { return (uint8_t)(sample * 31 + i * 7); }

static inline void write_images(const char *folder, const struct pair *p)
{
    struct buf b = {0};
    char *name =
        xasprintf("%s-images%cidx3-ubyte%s", p->prefix, p->dotted ? '.' : '-', p->gz ? ".gz" : "");
    int n = p->n_images ? p->n_images : N;

    put_u32(&b, 0x803);
    put_u32(&b, (uint32_t)n);
    put_u32(&b, H);
    put_u32(&b, W);
    for (int i = 0; i < n * BYTES; i++)
        buf_append(&b, &(uint8_t){pixel(i / BYTES, i % BYTES)}, 1);
    if (p->gz)
        gzip_buf(&b);
    write_file(folder, name, &b);
    buf_fini(&b);
    free(name);
}

static inline int label_of(const struct pair *p, int i)
{
    return p->bad_label && i == p->bad_at ? p->bad_label : p->first + i % 10;
}

static inline void write_labels(const char *folder, const struct pair *p)
{
    struct buf b = {0};
    char *name = xasprintf("%s-labels%c%s%s", p->prefix, p->dotted ? '.' : '-',
                           p->wide ? "idx2-int" : "idx1-ubyte", p->gz ? ".gz" : "");
    int n = p->n_labels ? p->n_labels : N;

    put_u32(&b, p->wide ? 0xc02 : 0x801);
    put_u32(&b, (uint32_t)n);
    if (p->wide)
        put_u32(&b, (uint32_t)p->wide);
    for (int i = 0; i < n && !p->wide; i++)
        buf_append(&b, &(uint8_t){(uint8_t)label_of(p, i)}, 1);
    for (int i = 0; i < n * p->wide; i++)
        put_u32(&b, i % p->wide ? 0x80000000U + (unsigned)i : (uint32_t)label_of(p, i / p->wide));
    if (p->gz)
        gzip_buf(&b);
    write_file(folder, name, &b);
    buf_fini(&b);
    free(name);
}

static inline void write_pair(const char *folder, const struct pair *p)
{
    if (p->n_images >= 0)
        write_images(folder, p);
    if (p->n_labels >= 0)
        write_labels(folder, p);
}

#endif
