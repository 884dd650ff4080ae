/* test_fold - nodes of constants give PyTorch's elements and types; masks have a form.  The
 * expected elements are what PyTorch 2.15 gives. */
#include "../test.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "import/fold.h"
#include "text_network.h"

#define C "tensor c c I64 0 [5] = 3 -1 4 4 9\nvalue x I64 [5] of c\n"
#define H "tensor h c F32 0 [2] = 0.5 -2\nvalue h F32 [2] of h\n"

/* The last node's elements; "" of `gives`: it fails with `error` in its message. */
static const struct {
    const char *nodes, *gives, *error;
} fold_rows[] = {
    {"value a I64 [4]\nnode arange.default - end=i4 -> a\n", "0 1 2 3 ", NULL},
    {"value a I64 [3]\nnode arange.start_step - start=i7 end=i-1 step=i-3 -> a\n", "7 4 1 ", NULL},
    {"value a I64 [2]\nnode arange.start_step - start=i0 end=i4 step=i3 -> a\n", "0 3 ", NULL},
    {"value a F32 [2]\nnode ones.default - size=I2 -> a\n", "1 1 ", NULL},
    {C "value a I64 [2]\nnode new_ones.default - self=vx size=I2 -> a\n", "1 1 ", NULL},
    {C "value a I64 [5]\nnode cumsum.default - self=vx dim=i-1 -> a\n", "3 2 6 10 19 ", NULL},
    {C "value a I64 [4]\nnode diff.default - self=vx -> a\n", "-4 5 0 5 ", NULL},
    {C "value a I64 [2]\nnode slice.Tensor - self=vx dim=i0 start=i-4 end=i-1 step=i2 -> a\n",
     "-1 4 ", NULL},
    {C "value s I64 [4]\nvalue a I64 [3]\nnode slice.Tensor - self=vx dim=i0 start=i1 -> s\n"
       "node diff.default - self=vs -> a\n",
     "5 0 5 ", NULL},
    {C "value a BOOL [5]\nnode ne.Scalar - self=vx other=i4 -> a\n", "1 1 0 0 1 ", NULL},
    {C "value a F32 [5]\nnode mul.Tensor - self=vx other=r0.5 -> a\n", "1.5 -0.5 2 2 4.5 ", NULL},
    {C "value a I64 [5]\nnode mul.Tensor - self=vx other=r0.5 -> a\n", "", "the export says I64"},
    {C H "value a F32 [2]\nvalue s I64 [2]\nnode slice.Tensor - self=vx dim=i0 end=i2 -> s\n"
         "node add.Tensor - self=vs other=vh -> a\n",
     "3.5 -3 ", NULL},
    {H "value a BOOL [2]\nnode gt.Scalar - self=vh other=i0 -> a\n", "1 0 ", NULL},
    {C H "value a I64 [2]\nnode add.Tensor - self=vx other=vh -> a\n", "", "extents 5 and 2"},
    {"value a I64 [3]\nvalue c I64 [3,1]\nvalue m BOOL [3,3]\nvalue n BOOL [3,3]\n"
     "value b BOOL [3,3]\nnode arange.default - end=i3 -> a\n"
     "node unsqueeze.default - self=va dim=i-1 -> c\nnode le.Tensor - self=va other=vc -> m\n"
     "node ne.Tensor - self=va other=vc -> n\nnode __and__.Tensor - self=vm other=vn -> b\n",
     "0 0 0 1 0 0 1 1 0 ", NULL},
    {H "value e F32 [2,2]\nvalue a I64 [2,2]\nnode expand.default - self=vh size=I2,-1 -> e\n"
       "node to.dtype - self=ve dtype=dI64 -> a\n",
     "0 -2 0 -2 ", NULL},
    {H "value i I64 [3]\nvalue j I64 [2]\nvalue c I64 [2,1]\nvalue e F32 [2,2]\nvalue a F32 [2,3]\n"
       "node arange.start_step - start=i1 end=i-2 step=i-1 -> i\n"
       "node arange.default - end=i2 -> j\nnode unsqueeze.default - self=vj dim=i1 -> c\n"
       "node expand.default - self=vh size=I2,2 -> e\n"
       "node index.Tensor - self=ve indices=Vc,i -> a\n",
     "-2 0.5 -2 -2 0.5 -2 ", NULL},
    {H "value i I64 [3]\nvalue j I64 [2]\nvalue c I64 [2,1]\nvalue e F32 [2,2]\nvalue a F32 [2,3]\n"
       "value z I64 [2,3]\nnode arange.start_step - start=i1 end=i-2 step=i-1 -> i\n"
       "node arange.default - end=i2 -> j\nnode unsqueeze.default - self=vj dim=i1 -> c\n"
       "node expand.default - self=vh size=I2,2 -> e\n"
       "node expand.default - self=vc size=I2,3 -> z\n"
       "node index.Tensor - self=ve indices=Vi,z -> a\n",
     "0.5 0.5 0.5 -2 -2 -2 ", NULL},
    {H "value j I64 [3]\nvalue a F32 [3]\nnode arange.default - end=i3 -> j\n"
       "node index.Tensor - self=vh indices=Vj -> a\n",
     "", "index 2 of 2"},
    /* an index that repeats along its last dimension */
    {"value a I64 [4]\nvalue i I64 [3]\nvalue c I64 [3,1]\nvalue e I64 [3,2]\nvalue y I64 [3,2]\n"
     "node arange.default - end=i4 -> a\nnode arange.start_step - start=i3 end=i0 step=i-1 -> i\n"
     "node unsqueeze.default - self=vi dim=i1 -> c\nnode expand.default - self=vc size=I3,2 -> e\n"
     "node index.Tensor - self=va indices=Ve -> y\n",
     "3 3 2 2 1 1 ", NULL},
    {H "value a I64 [2]\nnode cumsum.default - self=vh dim=i0 dtype=dI64 -> a\n", "",
     "other than one sum"},
    {H "value a I64 []\nnode sum.default - self=vh dtype=dI64 -> a\n", "",
     "it sums real numbers as integers"},
    {"value a F32 [100000,100000]\nnode zeros.default - size=I100000,100000 -> a\n", "",
     "elements at most"},
    /* a view sees what is written in place, a copy does not */
    {"value a F32 [4]\nvalue b F32 [2]\nvalue e F32 [4]\nvalue g F32 [2]\nvalue s F32 [4]\n"
     "node ones.default - size=I4 -> a\nnode slice.Tensor - self=va dim=i0 start=i1 end=i3 -> b\n"
     "node clone.default - self=va -> e\nnode fill_.Scalar - self=vb value=r3.5 -> g\n"
     "node sub.Tensor - self=va other=ve -> s\n",
     "0 2.5 2.5 0 ", NULL},
    {C "value a I64 [5]\nnode add_.Tensor - self=vx other=i1 -> a\n", "", "of the file in place"},
    {C "value p I64 [5]\nvalue a I64 [5]\nnode add.Tensor - self=vx other=i1 -> p\n"
       "node __and__.Tensor - self=vx other=vp -> a\n",
     "0 0 4 4 8 ", NULL},
    {C "value a I64 [5]\nnode bitwise_not.default - self=vx -> a\n", "-4 0 -5 -5 -10 ", NULL},
    {C "value m BOOL [5]\nvalue n BOOL [5]\nvalue a BOOL [5]\nnode gt.Scalar - self=vx other=i3 -> "
       "m\n"
       "node ge.Scalar - self=vx other=i3 -> n\nnode add.Tensor - self=vm other=vn -> a\n",
     "1 0 1 1 1 ", NULL},
    {C "value m BOOL [5]\nvalue a I64 [3]\nnode gt.Scalar - self=vx other=i3 -> m\n"
       "node index.Tensor - self=vx indices=Vm -> a\n",
     "4 4 9 ", NULL},
    {C
     "value i I64 [2]\nvalue a I64 [2]\nnode arange.start_step - start=i-1 end=i-3 step=i-1 -> i\n"
     "node index.Tensor - self=vx indices=Vi -> a\n",
     "9 4 ", NULL},
    {C "value a I64 [5]\nnode floor_divide.default - self=vx other=i2 -> a\n", "1 -1 2 2 4 ", NULL},
    {C "value a I64 [5]\nnode fmod.Scalar - self=vx other=i-4 -> a\n", "3 -1 0 0 1 ", NULL},
    {C "value p I64 [2]\nvalue a I64 [5]\nnode slice.Tensor - self=vx dim=i0 end=i2 -> p\n"
       "node slice_scatter.default - self=vx src=vp dim=i0 start=i-3 end=i-1 -> a\n",
     "3 -1 3 -1 9 ", NULL},
    {C "value a I64 [5]\nnode remainder.Scalar - self=vx other=i-4 -> a\n", "-1 -1 0 0 -3 ", NULL},
    {C "value a F32 [5]\nnode div.Tensor - self=vx other=i2 -> a\n", "1.5 -0.5 2 2 4.5 ", NULL},
    {C "value p I64 [1]\nvalue a I64 [5]\nnode slice.Tensor - self=vx dim=i0 end=i1 -> p\n"
       "node diff.default - self=vx prepend=vp -> a\n",
     "0 -4 5 0 5 ", NULL},
    {C "value e I64 [2,5]\nvalue p I64 [2,1]\nvalue a I64 [2,5]\n"
       "node expand.default - self=vx -> e\nnode slice.Tensor - self=ve dim=i1 end=i1 -> p\n"
       "node diff.default - self=ve prepend=vp -> a\n",
     "0 -4 5 0 5 0 -4 5 0 5 ", NULL},
    {"value a I64 [6]\nvalue m I64 [2,3]\nvalue t I64 [3,2]\nvalue r I64 [6]\nvalue s I64 "
     "[2]\nvalue s2 I64 [2,3]\n"
     "node arange.default - end=i6 -> a\nnode view.default - self=va size=I2,3 -> m\n"
     "node transpose.int - self=vm dim0=i0 dim1=i1 -> t\nnode reshape.default - self=vt -> r\n"
     "node fill_.Scalar - self=vm value=i7 -> s2\nnode slice.Tensor - self=vr dim=i0 end=i2 -> s\n",
     "0 3 ", NULL}, /* the reshape was a copy */
    {C
     "value e I64 [2,5]\nvalue m BOOL [2,5]\nvalue s I64 [2]\nnode expand.default - self=vx -> e\n"
     "node ge.Scalar - self=ve other=i4 -> m\nnode sum.dim_IntList - self=vm dim=I1 -> s\n",
     "3 3 ", NULL},
    {C
     "value e I64 [2,5]\nvalue a I64 [2,5]\nvalue b I64 [2,5]\nnode expand.default - self=vx -> e\n"
     "node add.Tensor - self=ve other=i1 -> a\nnode zero_.default - self=va -> b\n",
     "", "repeats its elements"},
    {H "value a F32 [2]\nnode histc.default - self=vh -> a\n", "", "not computed"},
};

/* Fold all nodes; the elements of the last in *seen. */
static int fold_all(const char *text, struct buf *seen, struct err *err)
{
    struct import_network *n = text_network(text);
    struct host_tensor *value[32] = {0}, t[32];
    const struct host_tensor *last;
    struct arena a = {0};
    struct fold_host h = {.a = &a, .value = value};
    int rc = 0;

    assert_true(n->n_values <= 32);
    for (int i = 0; i < n->n_values; i++)
        if (n->value[i].tensor >= 0) {
            t[i] = host_of_file(&n->tensor[n->value[i].tensor]);
            value[i] = &t[i];
        }
    for (int i = 0; i < n->n_nodes && rc == 0; i++)
        rc = fold_node(&h, n, &n->node[i], err);
    last = value[n->node[n->n_nodes - 1].out[0]];
    for (int64_t i = 0; rc == 0 && i < host_count(last); i++)
        buf_printf(seen, "%g ", host_element(last, i));
    arena_fini(&a);
    import_network_free(n);
    return rc;
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof fold_rows / sizeof *fold_rows; i++) {
        struct buf seen = {0};
        struct err err;
        const int rc = fold_all(fold_rows[i].nodes, &seen, &err);

        if (fold_rows[i].error) {
            if (rc != ERR_UNSUPPORTED)
                fail_msg("row %zu is computed: %s", i, buf_cstr(&seen));
            assert_non_null(strstr(err.msg, fold_rows[i].error));
        } else {
            if (rc != 0)
                fail_msg("row %zu: %s", i, err.msg);
            assert_string_equal(buf_cstr(&seen), fold_rows[i].gives);
        }
        buf_fini(&seen);
    }
}

enum { MASK_EDGE = 6 };

/* A mask of two heads: key k of query q if q + offset - width < k <= q + offset. */
static void make_mask(float *to, int64_t offset, int64_t width)
{
    for (int64_t i = 0; i < 2 * MASK_EDGE * MASK_EDGE; i++) {
        const int64_t q = i / MASK_EDGE % MASK_EDGE, k = i % MASK_EDGE;

        to[i] = k <= q + offset && k > q + offset - width ? 0 : -FLT_MAX;
    }
}

static void test_masks(void **state)
{
    static const struct {
        int64_t offset, width;
        enum mask_kind kind;
    } row[] = {{9, 99, MASK_ALL},    {0, 99, MASK_CAUSAL}, {2, 99, MASK_CAUSAL},
               {0, 3, MASK_SLIDING}, {1, 2, MASK_SLIDING}, {-1, 99, MASK_OTHER},
               {4, 2, MASK_OTHER}};
    float m[2 * MASK_EDGE * MASK_EDGE];
    struct host_tensor t = {.type = IMPORT_F32, .n_dims = 3, .data = m};

    (void)state;
    memcpy(t.dim, (int64_t[]){2, MASK_EDGE, MASK_EDGE}, 3 * sizeof *t.dim);
    memcpy(t.stride, (int64_t[]){MASK_EDGE * MASK_EDGE, MASK_EDGE, 1}, 3 * sizeof *t.stride);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct mask_form f;

        make_mask(m, row[i].offset, row[i].width);
        f = mask_form_of(&t);
        assert_int_equal(f.kind, row[i].kind);
        if (f.kind == MASK_CAUSAL || f.kind == MASK_SLIDING)
            assert_int_equal(f.offset, row[i].offset);
        if (f.kind == MASK_SLIDING)
            assert_int_equal(f.width, row[i].width);
    }
    make_mask(m, 0, 99);
    m[MASK_EDGE * MASK_EDGE + 1] = 0; /* the second head differs */
    assert_int_equal(mask_form_of(&t).kind, MASK_OTHER);
    make_mask(m, 0, 99);
    m[1] = -1; /* a bias is no mask */
    assert_int_equal(mask_form_of(&t).kind, MASK_OTHER);
}

/* Long constants are read in runs: rows end inside a run, and runs inside a row. */
static void test_runs(void **state)
{
    enum { A = 3, B = 2, C_ = 7, D = 41 };
    static int32_t data[A * C_ * D];
    const struct host_tensor t = {.type = IMPORT_I32,
                                  .n_dims = 4,
                                  .dim = {A, B, C_, D}, /* B repeats, and the rest is turned */
                                  .stride = {1, 0, A, A * C_},
                                  .data = data};
    struct fold_num v[FOLD_RUN];
    int64_t i = 0, m = 0, read = 0;

    (void)state;
    for (int k = 0; k < A * C_ * D; k++)
        data[k] = k;
    for (int a = 0; a < A; a++)
        for (int b = 0; b < B; b++)
            for (int c = 0; c < C_; c++)
                for (int d = 0; d < D; d++, i++) {
                    if (i == read) {
                        m = fold_read(&t, i, A * B * C_ * D - i, v);
                        assert_int_equal(m, i + FOLD_RUN <= A * B * C_ * D ? FOLD_RUN
                                                                           : A * B * C_ * D - i);
                        read += m;
                    }
                    assert_int_equal(v[i - (read - m)].i, a + A * c + A * C_ * d);
                }
    assert_int_equal(i, read);
    assert_true(host_is_even(&t, 1));
    assert_false(host_is_even(&t, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_masks),
                                       cmocka_unit_test(test_runs)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
