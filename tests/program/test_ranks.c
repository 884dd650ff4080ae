/* test_ranks - one batch in one program and its parts in the programs of several ranks give the
 * same sums, and the stages of all ranks meet. */
#include "../test.h"

#include <math.h>

#include "base/alloc.h"
#include "program/impl.h"
#include "ref_backend.h"
#include "rig.h"

static const struct sample_spec colour = SAMPLE_IMAGES(4, 3, 2, 4);

static struct rig_model big_mlp(void)
{
    struct rig_model model = rig_model(&arch_mlp);

    model.mlp.hidden.n = 2;
    model.mlp.hidden.v[0] = 7;
    model.mlp.hidden.v[1] = 5;
    model.mlp.activation = ACT_TANH;
    model.mlp.batch_norm = 1;
    model.mlp.dropout = 0.3;
    return model;
}

static void expect_near(double seen, double want, double most, const char *what)
{
    if (!(fabs(seen - want) <= 2e-5 * most))
        fail_msg("%s: %g, want %g (largest %g)", what, seen, want, most);
}

/* Compare with the whole: the sums of the parts' gradients and metrics, and the parts' shadows. */
static void compare(struct rig *const *part, int n, struct rig *whole)
{
    const struct layout *l = whole->layout;
    double metrics[METRIC_COUNT] = {0};
    float *total = xcalloc((size_t)l->n_grad, sizeof *total);

    for (int k = 0; k < n; k++)
        for (int64_t i = 0; i < l->n_grad; i++)
            total[i] += ((const float *)part[k]->spaces.grad)[i];
    for (int s = 0; s < l->n_params; s++)
        for (int64_t i = 0; i < l->param[s].length; i++)
            expect_near(total[l->param[s].offset + i],
                        ((const float *)whole->spaces.grad)[l->param[s].offset + i], 0.1,
                        l->param[s].name);
    for (int k = 0; k < n; k++)
        for (int i = 0; i < METRIC_COUNT; i++)
            metrics[i] += part[k]->metrics[i];
    for (int i = 0; i < METRIC_COUNT; i++)
        expect_near(metrics[i], whole->metrics[i], i == METRIC_LOSS_SUM ? 1 + whole->metrics[i] : 0,
                    "metrics");
    for (int k = 0; k < n; k++)
        for (int64_t i = 0; i < l->n_state_total; i++)
            expect_near(((const float *)part[k]->spaces.shadow)[i],
                        ((const float *)whole->spaces.shadow)[i], 1, "shadow");
    free(total);
}

static void check_split(const struct rig_model *model, const struct sample_spec *in,
                        unsigned fusions, const int64_t *share, int n)
{
    struct rig whole, rig[8], *part[8];
    int64_t first = 0;

    for (int k = 0; k < n; k++)
        first += share[k];
    rig_open(&whole, fusions, rig_graph(model, in, first, 1, 1), NULL);
    rig_init(&whole, 4);
    rig_fill(&whole, 0);
    first = 0;
    for (int k = 0; k < n; k++) {
        part[k] = &rig[k];
        rig_open(&rig[k], fusions, rig_graph(model, in, share[k], 1, 1), NULL);
        assert_true(hash_equal(rig[k].layout->hash, whole.layout->hash));
        rig_init(&rig[k], 4);
        rig_fill(&rig[k], first);
        rig[k].scalars.loss_scale = whole.scalars.loss_scale;
        first += share[k];
    }
    rig_run(&whole);
    rigs_run(part, n);
    compare(part, n, &whole);
    rig_close(&whole);
    for (int k = 0; k < n; k++)
        rig_close(&rig[k]);
}

static void shares_add_up(void **state)
{
    static const struct {
        int n;
        int64_t share[4];
    } splits[] = {{2, {4, 4}}, {3, {3, 3, 2}}, {4, {1, 1, 1, 5}}, {2, {6, 0}}, {4, {0, 2, 0, 1}}};
    static const struct sample_spec small = SAMPLE_IMAGES(14, 14, 1, 5);
    struct rig_model lenet = rig_model(&arch_lenet), mlp = big_mlp();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(splits); i++)
        for (unsigned fusions = REF_FUSE_NONE; fusions <= REF_FUSE_ALL; fusions += REF_FUSE_ALL) {
            check_split(&mlp, &colour, fusions, splits[i].share, splits[i].n);
            check_split(&lenet, &small, fusions, splits[i].share, splits[i].n);
        }
}

/* A rank without samples has the same collectives in the same order, and adds only zeros. */
static void batch_0_takes_part(void **state)
{
    struct rig_model model = big_mlp();
    struct rig none, some;
    int i = 0, k = 0, n_sync = 0, n_bucket = 0;

    (void)state;
    rig_open(&none, REF_FUSE_ALL, rig_graph(&model, &colour, 0, 1, 1), NULL);
    rig_open(&some, REF_FUSE_ALL, rig_graph(&model, &colour, 3, 1, 1), NULL);
    rig_init(&none, 1);
    rig_run(&none);
    for (int64_t e = 0; e < none.layout->n_trained; e++)
        for (int s = 0; s < none.layout->n_params; s++)
            if (e >= none.layout->param[s].offset &&
                e < none.layout->param[s].offset + none.layout->param[s].length)
                assert_true(((const float *)none.spaces.grad)[e] == 0);
    for (int m = 0; m < METRIC_COUNT; m++)
        assert_true(none.metrics[m] == 0);
    for (; i < program_n_stages(some.program); i++) {
        const struct stage *want = program_stage(some.program, i), *seen;

        if (want->kind == STAGE_RUN)
            continue;
        while (program_stage(none.program, k)->kind == STAGE_RUN)
            k++;
        seen = program_stage(none.program, k++);
        assert_int_equal(seen->kind, want->kind);
        assert_int_equal(seen->bucket, want->bucket);
        assert_int_equal(seen->n_sync, want->n_sync);
        assert_int_equal(seen->backward, want->backward);
        n_sync += want->kind == STAGE_SYNC;
        n_bucket += want->kind == STAGE_BUCKET;
    }
    assert_int_equal(n_sync, 4); /* two norms, forward and backward */
    assert_int_equal(n_bucket, some.layout->n_buckets);
    rig_close(&none);
    rig_close(&some);
}

/* If nothing is trained, only the control vector is reduced: once, after the loss. */
static void control_goes_alone(void **state)
{
    const struct rig_model model = big_mlp();
    const struct model_options options = rig_options(&model);

    (void)state;
    for (int64_t batch = 0; batch <= 3; batch += 3) {
        struct graph *g;
        struct rig r;
        int n = 0;

        rig_must(model_build(&options, &colour, batch, 1, 0, &g, &rig_err));
        for (int v = 0; v < g->n_values; v++)
            if (g->value[v].role == VALUE_PARAM) {
                struct param_info info = *g->value[v].info;

                info.frozen = 1;
                g->value[v].info = arena_copy(&g->arena, &info, sizeof info);
            }
        rig_must(program_differentiate(g, &rig_err));
        rig_open(&r, REF_FUSE_ALL, g, NULL);
        assert_int_equal(r.layout->n_buckets, 1);
        for (int i = 0; i < program_n_stages(r.program); i++) {
            const struct stage *st = program_stage(r.program, i);

            n += st->kind == STAGE_BUCKET;
            assert_true(n == 0 || st->kind == STAGE_BUCKET ||
                        st->from >= r.program->n_forward_steps);
        }
        assert_int_equal(n, 1);
        rig_close(&r);
    }
}

/* A bucket is announced soon after all its gradients are written, and not earlier. */
static void buckets_are_ready(void **state)
{
    struct rig_model model = rig_model(&arch_lenet);
    static const struct sample_spec small = SAMPLE_IMAGES(14, 14, 1, 5);
    struct rig r;
    struct err err;
    int n = 0;

    (void)state;
    for (unsigned fusions = REF_FUSE_NONE; fusions <= REF_FUSE_ALL; fusions += REF_FUSE_ALL) {
        rig_open(&r, fusions, rig_graph(&model, &small, 1, 1, 0), NULL);
        assert_true(r.layout->n_buckets >= 2);
        rig_init(&r, 2);
        rig_fill(&r, 0);
        n = 0;
        memset(r.spaces.grad, 0xff, (size_t)r.layout->n_grad * 4);
        for (int i = 0; i < program_n_stages(r.program); i++) {
            const struct stage *st = program_stage(r.program, i);
            const struct bucket *b = &r.layout->bucket[st->bucket];

            assert_int_equal(program_run_stage(r.program, i, &err), 0);
            if (st->kind != STAGE_BUCKET)
                continue;
            assert_int_equal(st->bucket, n++);
            for (int s = 0; s <= b->last_segment; s++)
                for (int64_t e = 0; e < r.layout->param[s].length; e++)
                    assert_true(
                        isfinite(((const float *)r.spaces.grad)[r.layout->param[s].offset + e]));
            if (n < r.layout->n_buckets)
                assert_true(isnan(((const float *)r.spaces.grad)[b->offset + b->length]));
        }
        assert_int_equal(n, r.layout->n_buckets);
        rig_close(&r);
    }
}

/* Evaluation gives logits and metrics, without gradients or buckets; dropout drops nothing, and
 * batch norm uses the running statistics. */
static void evaluation(void **state)
{
    struct rig_model model = big_mlp();
    struct rig train, eval;

    (void)state;
    rig_open(&train, REF_FUSE_ALL, rig_graph(&model, &colour, 3, 1, 1), NULL);
    rig_open(&eval, REF_FUSE_ALL, rig_graph(&model, &colour, 5, 0, 1), train.layout);
    rig_init(&eval, 6);
    rig_fill(&eval, 0);
    rig_run(&eval);
    assert_true(eval.metrics[METRIC_TARGETS] == 5 && eval.metrics[METRIC_LOSS_SUM] > 0);
    assert_int_equal(program_n_stages(eval.program), 1);
    assert_int_equal(program_stage(eval.program, 0)->backward, 0);
    for (int i = 0; i < 20; i++)
        assert_true(isfinite(((const float *)program_logits(eval.program))[i]));
    rig_close(&eval);
    rig_close(&train);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_add_up),      cmocka_unit_test(batch_0_takes_part),
        cmocka_unit_test(control_goes_alone), cmocka_unit_test(buckets_are_ready),
        cmocka_unit_test(evaluation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
