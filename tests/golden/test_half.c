/* Golden runs in half precision, most of them LeNet's: by the cpu backend, and by our own kernels
 * on the simulated GPU.  There the cpu backend computes the results of libraries in float32, and
 * rounds them once, as tensor cores do.
 *
 * The losses differ from PyTorch's float32 losses only by the rounding of the half-precision type.
 * With a gradient lost, unscaled twice or rounded in the wrong place, they differ much more. */
#include "../test.h"

#include <jansson.h>
#include <math.h>

#include "backend/cuda/cuda.h"
#include "golden_rig.h"
#include "op/scaler.h"
#include "sim.h"
#include "tensor/half.h"

#define LENET "lenet", "{arch: lenet}"

static const struct half_case {
    const char *name, *extra;
    double tolerance; /* relative, for every step's loss */
    int on_cpu;
    const char *run, *model; /* the golden run, and its model */
} cases[] = {
    {"bfloat16 on a CPU", "precision: bfloat16\n", 2e-3, 1, LENET},
    {"bfloat16 gradients on a CPU", "precision: bfloat16\ntrain: {grad_dtype: bfloat16}\n", 2e-3, 1,
     LENET},
    {"norms in bfloat16 on a CPU", "precision: bfloat16\n", 2e-2, 1, "layers", GOLDEN_LAYERS},
    {"bfloat16", "precision: bfloat16\n", 2e-3, 0, LENET},
    {"bfloat16 gradients", "precision: bfloat16\ntrain: {grad_dtype: bfloat16}\n", 2e-3, 0, LENET},
    {"float16", "precision: float16\n", 2e-3, 0, LENET},
};

static json_t *golden;

static json_t *golden_run(const char *name)
{
    return json_object_get(json_object_get(golden, "runs"), name);
}

static struct backend *open_sim(void)
{
    struct backend *b;
    struct err err;

    assert_int_equal(cuda_open(0, &b, &err), 0);
    container_of(b, struct cuda, base)->max_blocks = 2; /* fewer fibers are faster */
    return b;
}

static struct backend *open_cpu(void)
{
    struct backend *b;
    struct err err;

    assert_int_equal(backend_open_cpu(1, &b, &err), 0);
    return b;
}

static void open_lenet(struct golden_rig *r, struct backend *b, const char *extra)
{
    golden_rig_open(r, b, "{arch: lenet}", extra, golden_run("lenet"));
}

/* The working copies equal the rounded parameters: the optimizer wrote both. */
static void check_copies(struct golden_rig *r)
{
    const int64_t n = r->layout->n_trained;
    const enum dtype type = r->layout->copy_dtype;
    float *param = malloc((size_t)n * sizeof *param), *copy = malloc((size_t)n * sizeof *copy);

    golden_rig_read(r, state_data(r->state, &slot_parameters), DTYPE_F32, n, param);
    golden_rig_read(r, r->buffers->copy, type, n, copy);
    for (int64_t i = 0; i < n; i++) {
        uint16_t bits;

        real_put(&bits, type, 0, param[i]);
        assert_true(copy[i] == real_get(&bits, type, 0));
    }
    free(param);
    free(copy);
}

static void losses(void **state)
{
    const struct half_case *c = *state;
    json_t *run = golden_run(c->run), *wanted = json_object_get(run, "losses");
    double largest = 0;
    struct golden_rig r;

    golden_rig_open(&r, c->on_cpu ? open_cpu() : open_sim(), c->model, c->extra, run);
    for (int k = 0; k < GOLDEN_STEPS; k++) {
        const double want = json_real_value(json_array_get(wanted, (size_t)k));
        int applied;
        const double seen = golden_rig_step(&r, k, &applied);

        assert_true(applied);
        largest = fmax(largest, fabs(seen - want) / want);
        if (!(fabs(seen - want) <= c->tolerance * want))
            fail_msg("%s: loss %d is %.9g, float32's %.9g", c->name, k, seen, want);
    }
    printf("%s: losses are within %.2g of float32's\n", c->name, largest);
    assert_true(largest > 1e-6); /* else nothing was rounded */
    check_copies(&r);
    golden_rig_close(&r);
    assert_int_equal(sim_open_things(), 0);
}

static void put_scale(struct golden_rig *r, float scale)
{
    const float scaler[SCALER_LEN] = {scale, 0, 1, 0};
    struct err err;

    assert_int_equal(backend_copy_in(r->backend, state_data(r->state, &slot_scaler), scaler,
                                     sizeof scaler, &err),
                     0);
}

static void get_scaler(struct golden_rig *r, float scaler[SCALER_LEN])
{
    golden_rig_read(r, state_data(r->state, &slot_scaler), DTYPE_F32, SCALER_LEN, scaler);
}

/* The loss scale is too large: steps are skipped, and only the scale changes until gradients fit.
 */
static void overflow(void **state)
{
    struct golden_rig r;
    float scaler[SCALER_LEN], before[64], after[64], scale = 0x1p24f;
    int applied = 0, n_skipped = 0;

    (void)state;
    open_lenet(&r, open_sim(), "precision: float16\n");
    put_scale(&r, scale);
    golden_rig_read(&r, state_data(r.state, &slot_parameters), DTYPE_F32, 64, before);
    for (; !applied; n_skipped++) {
        (void)golden_rig_step(&r, 0, &applied);
        golden_rig_read(&r, state_data(r.state, &slot_parameters), DTYPE_F32, 64, after);
        get_scaler(&r, scaler);
        assert_true(applied == (memcmp(before, after, sizeof before) != 0));
        scale = applied ? scale : scale / 2;
        assert_true(scaler[SCALER_SCALE] == scale && scaler[SCALER_STUCK] == 0);
        assert_true(scaler[SCALER_GOOD] == (float)applied);
        assert_true(n_skipped < 20);
    }
    assert_true(n_skipped > 1);
    golden_rig_close(&r);
}

/* Clipping uses the norm of the gradient without the scale: the scale only changes roundings. */
static void clipping(void **state)
{
    static const float scales[] = {1024, 4096};
    float param[2][512], largest = 0;

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct golden_rig r;
        int applied;

        open_lenet(&r, open_sim(), "precision: float16\ntrain: {clip_norm: 0.05}\n");
        put_scale(&r, scales[i]);
        (void)golden_rig_step(&r, 0, &applied);
        assert_true(applied);
        golden_rig_read(&r, state_data(r.state, &slot_parameters), DTYPE_F32, 512, param[i]);
        golden_rig_close(&r);
    }
    for (int k = 0; k < 512; k++)
        largest = fmaxf(largest, fabsf(param[0][k] - param[1][k]));
    assert_true(largest < 2e-6f);
}

int main(void)
{
    struct CMUnitTest tests[ARRAY_LEN(cases) + 2];
    json_error_t error;
    int rc;

    golden = json_load_file(GOLDEN_JSON, 0, &error);
    if (!golden) {
        fprintf(stderr, "%s:%d: %s\n", GOLDEN_JSON, error.line, error.text);
        return 1;
    }
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        tests[i] = (struct CMUnitTest){
            .name = cases[i].name, .test_func = losses, .initial_state = (void *)&cases[i]};
    tests[ARRAY_LEN(cases)] = (struct CMUnitTest)cmocka_unit_test(overflow);
    tests[ARRAY_LEN(cases) + 1] = (struct CMUnitTest)cmocka_unit_test(clipping);
    rc = cmocka_run_group_tests_name("half", tests, NULL, NULL);
    json_decref(golden);
    return rc;
}
