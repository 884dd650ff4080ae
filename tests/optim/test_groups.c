/* The settings that a parameter has by optimizer.no_decay and optimizer.groups, and keys that are
 * refused. */
#include "../test.h"

#include "job/job.h"
#include "optim/groups.h"

static const char *const sgd = "optimizer: {weight_decay: 0.5}\n";

static struct job *job_of(const char *optimizer)
{
    struct buf text = {0};
    struct job *job = NULL;
    struct err err;

    buf_printf(&text, "model: {arch: mlp}\ndata: {format: digits}\n%s", optimizer);
    if (job_parse((const char *)text.data, text.len, "test", NULL, &job, &err) < 0)
        fail_msg("%s", err.msg);
    buf_fini(&text);
    return job;
}

static void expect(const char *optimizer, const char *name, enum param_kind kind, double lr_scale,
                   double decay, int frozen)
{
    struct job *job = job_of(optimizer);
    const struct settings s = groups_settings(&job->optimizer, name, kind, &SHAPE(4, 3));

    if (s.lr_scale != lr_scale || s.decay != decay || s.frozen != frozen)
        fail_msg("%s: %s has lr_scale %g, decay %g, frozen %d", optimizer, name, s.lr_scale,
                 s.decay, s.frozen);
    job_free(job);
}

static void kinds_without_decay(void **state)
{
    static const char bias[] = "optimizer: {weight_decay: 0.5, no_decay: [bias]}\n";
    static const char both[] = "optimizer: {weight_decay: 0.5, no_decay: [norm, embedding]}\n";

    (void)state;
    expect(sgd, "fc1.bias", PARAM_BIAS, 1, 0.5, 0);
    expect(bias, "fc1.bias", PARAM_BIAS, 1, 0, 0);
    expect(bias, "fc1.weight", PARAM_WEIGHT, 1, 0.5, 0);
    expect(bias, "bn1.bias", PARAM_NORM, 1, 0, 0);
    expect(bias, "bn1.weight", PARAM_NORM, 1, 0.5, 0);
    expect(both, "bn1.weight", PARAM_NORM, 1, 0, 0);
    expect(both, "bn1.bias", PARAM_NORM, 1, 0, 0);
    expect(both, "fc1.bias", PARAM_BIAS, 1, 0.5, 0);
    expect(both, "wte.weight", PARAM_EMBEDDING, 1, 0, 0);
}

/* Matrices have Muon's settings, all else those of AdamW, relative to Muon's rate. */
static void muon_and_the_rest(void **state)
{
    static const char muon[] =
        "optimizer: {name: muon, lr: 0.5, adamw: {match: [head.*, '*.out'], lr: 0.125, "
        "weight_decay: 0.25}, groups: [{match: 'h.1.*', lr_scale: 2}]}\n";

    (void)state;
    expect(muon, "h.0.weight", PARAM_WEIGHT, 1, 0.1, 0);
    expect(muon, "h.1.weight", PARAM_WEIGHT, 2, 0.1, 0);
    expect(muon, "h.1.bias", PARAM_BIAS, 0.5, 0.25, 0);
    expect(muon, "ln.weight", PARAM_NORM, 0.25, 0.25, 0);
    expect(muon, "wte.weight", PARAM_EMBEDDING, 0.25, 0.25, 0);
    expect(muon, "head.weight", PARAM_WEIGHT, 0.25, 0.25, 0);
    expect(muon, "h.0.out", PARAM_WEIGHT, 0.25, 0.25, 0);
}

static void the_last_group_that_gives_a_key_has_it(void **state)
{
    static const char groups[] = "optimizer:\n"
                                 "  weight_decay: 0.5\n"
                                 "  no_decay: [bias]\n"
                                 "  groups:\n"
                                 "    - {match: 'fc*', lr_scale: 10}\n"
                                 "    - {match: '*.bias', weight_decay: 0.25}\n"
                                 "    - {match: fc1.*, weight_decay: 0}\n"
                                 "    - {match: 'fc[2-3].weight', frozen: true, lr_scale: 0}\n"
                                 "    - {match: fc3.weight, lr_scale: 3}\n";

    (void)state;
    expect(groups, "conv1.weight", PARAM_WEIGHT, 1, 0.5, 0);
    expect(groups, "conv1.bias", PARAM_BIAS, 1, 0.25, 0);
    expect(groups, "fc1.bias", PARAM_BIAS, 10, 0, 0);
    expect(groups, "fc2.weight", PARAM_WEIGHT, 0, 0.5, 1);
    expect(groups, "fc3.weight", PARAM_WEIGHT, 3, 0.5, 1);
    expect(groups, "fc3.weights", PARAM_WEIGHT, 10, 0.5, 0);
}

static struct graph *graph_of_two(void)
{
    struct graph *g = graph_new(1, 1);

    graph_param(g, SHAPE(3, 2), (struct param_info){.kind = PARAM_WEIGHT}, "fc1.weight");
    graph_param(g, SHAPE(3), (struct param_info){.kind = PARAM_BIAS}, "fc1.bias");
    return g;
}

static void expect_frozen(const char *optimizer, int weight, int bias)
{
    struct job *job = job_of(optimizer);
    struct graph *g = graph_of_two();
    struct err err;

    assert_int_equal(groups_freeze(&job->optimizer, g, &err), 0);
    assert_int_equal(graph_find(g, "fc1.weight")->info->frozen, weight);
    assert_int_equal(graph_find(g, "fc1.bias")->info->frozen, bias);
    assert_int_equal(graph_find(g, "fc1.bias")->info->kind, PARAM_BIAS);
    graph_free(g);
    job_free(job);
}

static void expect_refused(const char *optimizer, const char *message)
{
    struct job *job = job_of(optimizer);
    struct graph *g = graph_of_two();
    struct err err;

    assert_int_equal(groups_freeze(&job->optimizer, g, &err), ERR_CONFIG);
    assert_string_equal(err.msg, message);
    graph_free(g);
    job_free(job);
}

static void freezing(void **state)
{
    (void)state;
    expect_frozen(sgd, 0, 0);
    expect_frozen("optimizer: {groups: [{match: '*.weight', frozen: true}]}\n", 1, 0);
    expect_frozen("optimizer: {groups: [{match: '*.bias', frozen: false}]}\n", 0, 0);
    expect_refused("optimizer: {groups: [{match: '*'}, {match: fc2.*, lr_scale: 2}]}\n",
                   "optimizer.groups[1].match \"fc2.*\" matches no parameter; the parameters are "
                   "fc1.weight, fc1.bias");
    expect_frozen("optimizer: {name: muon, adamw: {match: ['*.bias', fc1.weight]}}\n", 0, 0);
    expect_refused("optimizer: {name: muon, adamw: {match: ['fc1.*', head.*]}}\n",
                   "optimizer.adamw.match \"head.*\" matches no parameter; the parameters are "
                   "fc1.weight, fc1.bias");
    expect_refused("optimizer: {groups: [{match: '*', frozen: true}]}\n",
                   "optimizer.groups freezes every parameter, want one that trains; the parameters "
                   "are fc1.weight, fc1.bias");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_without_decay),
        cmocka_unit_test(muon_and_the_rest),
        cmocka_unit_test(the_last_group_that_gives_a_key_has_it),
        cmocka_unit_test(freezing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
