/* The golden test: 20 steps of training from the same weights, on the same samples, give PyTorch's
 * losses.  If the backend can record, launching a recorded step gives the same bits.
 *
 *     test_golden [GOLDEN.JSON] */
#include "../test.h"

#include <jansson.h>
#include <math.h>

#include "golden_backend.h"
#include "golden_rig.h"

/* Relative, for every step's loss; PyTorch's float32 losses are within 1e-6 of its float64 ones.
 * The first loss, before any update, is nearer. */
#define LOSS_TOLERANCE       1e-4
#define FIRST_LOSS_TOLERANCE 1e-5

#define WEIGHTS "[2, 1, 0.5, 0, 1, 0.3, 1, 0.025, 1, 1.7]"

static const struct golden_case {
    const char *name;
    const char *model; /* the value of "model" in the job file */
    const char *extra; /* more lines of the job file */
} cases[] = {
    {"lenet", "{arch: lenet}", ""},
    {"lenet5", "{arch: lenet5}", ""},
    {"mlp", "{arch: mlp}", ""},
    {"mlp_momentum", "{arch: mlp}", ""},
    {"mlp_nesterov", "{arch: mlp}", ""},
    {"mlp_weight_decay", "{arch: mlp}", ""},
    {"mlp_weight_decay_momentum", "{arch: mlp}", ""},
    {"mlp_clip_norm", "{arch: mlp}", "train: {clip_norm: 0.5}\n"},
    {"mlp_label_smoothing", "{arch: mlp}", "train: {label_smoothing: 0.1}\n"},
    {"mlp_ignore_index", "{arch: mlp}", "train: {ignore_index: 3}\n"},
    {"mlp_class_weights", "{arch: mlp}", "train: {class_weights: " WEIGHTS "}\n"},
    {"mlp_class_weights_all", "{arch: mlp}",
     "train: {class_weights: " WEIGHTS ", label_smoothing: 0.1, ignore_index: 4}\n"},
    {"mlp_mean_squared_error", "{arch: mlp, loss: mse}", ""},
    {"mlp_absolute_error", "{arch: mlp, loss: l1}", ""},
    {"mlp_bce", "{arch: mlp, loss: bce}", ""},
    {"mlp_tanh", "{arch: mlp, activation: tanh}", ""},
    {"mlp_sigmoid", "{arch: mlp, activation: sigmoid}", ""},
    {"mlp_gelu", "{arch: mlp, activation: gelu}", ""},
    {"mlp_batch_norm", "{arch: mlp, batch_norm: true}", ""},
    {"layers", GOLDEN_LAYERS, ""},
};

static json_t *golden;

static void open_rig(struct golden_rig *r, const struct golden_case *c, json_t *run)
{
    struct backend *b;
    struct err err;

    if (golden_backend_open(&b, &err) < 0)
        fail_msg("%s", err.msg);
    golden_rig_open(r, b, c->model, c->extra, run);
}

static void assert_near(const char *run, const char *what, size_t i, double seen, double want,
                        double tolerance)
{
    if (!(fabs(seen - want) <= tolerance))
        fail_msg("%s: %s %zu is %.9g, PyTorch's %.9g", run, what, i, seen, want);
}

static void check_norm(const struct golden_rig *r, const char *run, json_t *norms, size_t k)
{
    double want = json_real_value(json_array_get(norms, k)), check[2];
    struct err err;

    assert_int_equal(
        backend_copy_out(r->backend, check, r->buffers->numbers->check, sizeof check, &err), 0);
    if (norms)
        assert_near(run, "gradient norm", k, sqrt(check[0]), want, 1e-4 * want);
}

static void check_logits(struct golden_rig *r, const char *run, json_t *want)
{
    float seen[GOLDEN_EVALUATED * GOLDEN_CLASSES];

    golden_rig_logits(r, seen);
    for (size_t n = 0; n < GOLDEN_EVALUATED; n++)
        for (size_t c = 0; c < GOLDEN_CLASSES; c++)
            assert_near(run, "logit", n * GOLDEN_CLASSES + c, (double)seen[n * GOLDEN_CLASSES + c],
                        json_real_value(json_array_get(json_array_get(want, n), c)), 2e-4);
}

static void check_running(struct golden_rig *r, const char *run, json_t *want, const char *name)
{
    const float *stats = state_data(r->state, &slot_statistics);
    const struct segment *s = NULL;

    for (int i = 0; i < r->layout->n_states && want; i++)
        if (!strcmp(r->layout->state[i].name, name))
            s = &r->layout->state[i];
    assert_true(!want || s);
    for (size_t i = 0; i < json_array_size(want); i++) {
        float seen;

        golden_rig_read(r, stats + s->offset + (int64_t)i, DTYPE_F32, 1, &seen);
        assert_near(run, name, i, (double)seen, json_real_value(json_array_get(want, i)), 1e-5);
    }
}

/* Train from the beginning by launches of a recorded step: every loss has the same bits. */
static void check_recorded(const double *eager, const struct golden_case *c, json_t *run)
{
    struct golden_rig r;
    int applied;

    open_rig(&r, c, run);
    golden_rig_record(&r, run);
    for (int k = 0; k < GOLDEN_STEPS; k++) {
        double loss = golden_rig_step(&r, k, &applied);

        if (memcmp(&loss, &eager[k], sizeof loss) != 0)
            fail_msg("%s: loss %d is %.17g by a recorded step, %.17g by its kernels", c->name, k,
                     loss, eager[k]);
    }
    golden_rig_close(&r);
}

static void test_case(void **state)
{
    const struct golden_case *c = *state;
    json_t *run = json_object_get(json_object_get(golden, "runs"), c->name);
    json_t *want = json_object_get(run, "losses");
    double losses[GOLDEN_STEPS];
    struct golden_rig r;
    int applied;

    assert_int_equal(json_array_size(want), GOLDEN_STEPS);
    open_rig(&r, c, run);
    for (int k = 0; k < GOLDEN_STEPS; k++) {
        double theirs = json_real_value(json_array_get(want, (size_t)k));

        losses[k] = golden_rig_step(&r, k, &applied);
        assert_int_equal(applied, 1);
        assert_near(c->name, "loss", (size_t)k, losses[k], theirs,
                    (k ? LOSS_TOLERANCE : FIRST_LOSS_TOLERANCE) * theirs);
        check_norm(&r, c->name, json_object_get(run, "gradient_norms"), (size_t)k);
    }
    check_logits(&r, c->name, json_object_get(run, "logits"));
    check_running(&r, c->name, json_object_get(run, "running_mean"), "bn1.running_mean");
    check_running(&r, c->name, json_object_get(run, "running_var"), "bn1.running_var");
    if (backend_can_record(r.backend))
        check_recorded(losses, c, run);
    golden_rig_close(&r);
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : GOLDEN_JSON;
    struct CMUnitTest tests[ARRAY_LEN(cases)];
    json_error_t error;
    int rc;

    rc = golden_backend_find();
    if (rc != 0)
        return rc;
    golden = json_load_file(path, 0, &error);
    if (!golden) {
        fprintf(stderr, "%s:%d: %s\n", path, error.line, error.text);
        return 1;
    }
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        tests[i] = (struct CMUnitTest){
            .name = cases[i].name, .test_func = test_case, .initial_state = (void *)&cases[i]};
    rc = cmocka_run_group_tests_name("golden", tests, NULL, NULL);
    json_decref(golden);
    return rc;
}
