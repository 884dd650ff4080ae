/* memory_set - data sets of the tests' own.  They have any spec, and rows in memory that are filled
 * with numbers which tell the sample and the field. */
#ifndef TESTS_DATA_MEMORY_SET_H
#define TESTS_DATA_MEMORY_SET_H

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/dataset.h"

struct memory_set {
    struct dataset base;
    char *at[SAMPLE_MAX_FIELDS]; /* rows of each field, as stored */
};

static inline int memory_row(const struct dataset *ds, int64_t i, int field, void *room,
                             const void **row, struct err *err)
{
    const struct memory_set *m = container_of(ds, struct memory_set, base);

    (void)room, (void)err;
    *row = m->at[field] + (size_t)i * sample_stored_bytes(&ds->spec.field[field]);
    return 0;
}

static inline void memory_close(struct dataset *ds)
{
    struct memory_set *m = container_of(ds, struct memory_set, base);

    for (int i = 0; i < ds->spec.n_fields; i++)
        free(m->at[i]);
    free(m);
}

/* Element e of sample i's field, before it is scaled. */
static inline int64_t memory_number(const struct sample_field *f, int field, int64_t i, int64_t e)
{
    const int64_t v = i * 31 + field * 17 + e * 7;

    return f->dtype == DTYPE_I32 ? v % f->n_classes : v % 256;
}

static inline void memory_fill(const struct sample_field *f, int field, char *at, int64_t n)
{
    const int64_t each = shape_elements(&f->shape);

    for (int64_t k = 0; k < n * each; k++) {
        const int64_t v = memory_number(f, field, k / each, k % each);

        if (f->stored == DTYPE_U8)
            ((uint8_t *)at)[k] = (uint8_t)v;
        else if (f->stored == DTYPE_I32)
            ((int32_t *)at)[k] = (int32_t)v;
        else
            ((float *)at)[k] = (float)v / 16;
    }
}

static inline struct memory_set *memory_set_new(const struct sample_spec *spec, int64_t n)
{
    static const struct dataset_ops ops = {
        .name = "memory", .row = memory_row, .close = memory_close};
    struct memory_set *m = xcalloc(1, sizeof *m);

    m->base = (struct dataset){.ops = &ops, .n_samples = n, .spec = *spec};
    for (int i = 0; i < spec->n_fields; i++) {
        m->at[i] = xcalloc((size_t)n, sample_stored_bytes(&spec->field[i]));
        memory_fill(&spec->field[i], i, m->at[i], n);
    }
    return m;
}

/* The number that programs must see. */
static inline float memory_value(const struct sample_field *f, int field, int64_t i, int64_t e)
{
    const float v = (float)memory_number(f, field, i, e);

    return f->stored == DTYPE_F32 ? v / 16 : f->scale == SAMPLE_UNIT ? v / 255.0f : v;
}

/* Fail the test unless `seen` holds `field` of the samples index[0..n). */
static inline void memory_set_check(const struct memory_set *m, int field, const void *seen,
                                    const int64_t *index, int64_t n)
{
    const struct sample_field *f = &m->base.spec.field[field];
    const int64_t each = shape_elements(&f->shape);

    for (int64_t k = 0; k < n * each; k++) {
        const float want = memory_value(f, field, index[k / each], k % each);
        const float got =
            f->dtype == DTYPE_I32 ? (float)((const int32_t *)seen)[k] : ((const float *)seen)[k];

        if (got != want)
            fail_msg("%s of sample %lld, element %lld: %g, want %g", f->name,
                     (long long)index[k / each], (long long)(k % each), (double)got, (double)want);
    }
}

/* ---- the sets ---- */

/* Two inputs of real numbers, one of them stored as bytes, and a target of two numbers. */
static inline struct memory_set *regression_set(int64_t n)
{
    static const struct sample_spec spec = {
        3,
        {{"a", SAMPLE_INPUT, DTYPE_F32, {1, {3}}, 0, DTYPE_F32, SAMPLE_AS_IS},
         {"b", SAMPLE_INPUT, DTYPE_F32, {2, {2, 5}}, 0, DTYPE_U8, SAMPLE_AS_IS},
         {"y", SAMPLE_REAL, DTYPE_F32, {1, {2}}, 0, DTYPE_F32, SAMPLE_AS_IS}}};

    return memory_set_new(&spec, n);
}

/* Eleven tokens of 300, and a class at each position. */
static inline struct memory_set *token_set(int64_t n)
{
    static const struct sample_spec spec = {
        2,
        {{"tokens", SAMPLE_INPUT, DTYPE_I32, {1, {11}}, 300, DTYPE_I32, SAMPLE_AS_IS},
         {"targets", SAMPLE_CLASS, DTYPE_I32, {1, {11}}, 300, DTYPE_I32, SAMPLE_AS_IS}}};

    return memory_set_new(&spec, n);
}

/* Small images of bytes, and labels. */
static inline struct memory_set *image_set(int64_t n)
{
    static const struct sample_spec spec = SAMPLE_IMAGES(4, 3, 2, 5);

    return memory_set_new(&spec, n);
}

#endif
