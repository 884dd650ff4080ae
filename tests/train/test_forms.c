/* forms - a new formation keeps the programs of the former one that it wants, and trains to the
 * same bits as with programs made anew. */
#include "../test.h"

#include "base/util.h"
#include "ranks.h"
#include "step/programs.h"
#include "train/trainer_impl.h"

static int n_made; /* kernels, since the test began */

int __real_backend_make_kernel(struct backend *b, const struct graph *g, const struct node *n,
                               struct kernel **out, struct err *err);
int __wrap_backend_make_kernel(struct backend *b, const struct graph *g, const struct node *n,
                               struct kernel **out, struct err *err);

int __wrap_backend_make_kernel(struct backend *b, const struct graph *g, const struct node *n,
                               struct kernel **out, struct err *err)
{
    n_made++;
    return __real_backend_make_kernel(b, g, n, out, err);
}

static struct err failure;

static void must(int rc)
{
    if (rc < 0)
        fail_msg("%s", failure.msg);
}

/* ---- one rank ---- */

static struct trainer *open_job(const char *job)
{
    const struct trainer_options o = {.n_threads = 1};
    const struct trainer_hooks hooks = run_idle_hooks(NULL);
    struct trainer *t = trainer_new(&o, &hooks);
    struct report *r = report_new(REPORT_OPENED, 1);
    struct cmd *c = cmd_new(CMD_OPEN, 1);

    c->open.n_ranks = 1;
    c->open.job = blob_of(job, strlen(job));
    must(trainer_open(t, c, r, &failure));
    cmd_free(c);
    report_free(r);
    return t;
}

/* Returns how many kernels were made. */
static int prepare(struct trainer *t, int n_ranks)
{
    const int before = n_made;

    must(trainer_prepare(t, 0, n_ranks, n_ranks, n_ranks, &failure));
    return n_made - before;
}

/* The one rank forms, and trains and validates an epoch. */
static double train(struct trainer *t, int64_t epoch)
{
    struct coll_group *group = coll_group_new(1);
    struct report *r = report_new(REPORT_EPOCH, 1), *v = report_new(REPORT_VALIDATED, 1);
    struct coll *coll;
    double loss;

    must(coll_new_local(group, 0, &coll, &failure));
    ring_begin(trainer_ring(t), epoch);
    trainer_take_coll(t, coll);
    must(trainer_form(t, 0, &failure));
    must(trainer_train(t, epoch, r, &failure));
    assert_int_equal(r->epoch.end, EPOCH_WHOLE);
    must(trainer_validate(t, epoch, v, &failure));
    loss = v->validated.loss_sum;
    report_free(r);
    report_free(v);
    trainer_leave(t);
    coll_group_free(group);
    return loss;
}

/* ---- tests ---- */

/* The last step of an epoch has fewer samples, as has the last batch of a validation. */
#define DATA "data: {format: digits, samples: 500, validation_samples: 203}\n"

static const char *const jobs[] = {
    "model: {arch: mlp, hidden: [40, 24], batch_norm: true, dropout: 0.25}\n" DATA
    "optimizer: {lr: 0.1, momentum: 0.9}\ntrain: {global_batch: 61, epochs: 2}\n",
    "model: {arch: lenet}\n" DATA
    "optimizer: {name: adamw, lr: 0.01}\ntrain: {global_batch: 60, epochs: 2}\n",
    "model: {arch: mlp, hidden: [40], batch_norm: true}\n" DATA
    "train: {global_batch: 60, accumulate: 3, epochs: 2, average: {name: ema}}\n",
    "model: {arch: mlp, hidden: [40], batch_norm: true}\n" DATA
    "strategy: {zero: 1}\ntrain: {global_batch: 60, epochs: 2}\n",
};

struct outcome {
    struct hash128 state;
    double loss;
};

/* Train an epoch, do `between`, form again, and train another one.  *n_made_again: the kernels of
 * the last formation. */
static struct outcome train_twice(const char *job, void (*between)(struct trainer *t),
                                  int *n_made_first, int *n_made_again)
{
    struct trainer *t = open_job(job);
    struct outcome out;

    *n_made_first = prepare(t, 1);
    (void)train(t, 1);
    between(t);
    *n_made_again = prepare(t, 1);
    out.loss = train(t, 2);
    out.state = run_state_hash(t);
    trainer_free(t);
    return out;
}

static void nothing(struct trainer *t) { (void)t; }

static void forget(struct trainer *t)
{
    programs_free(t->step.programs);
    t->step.programs = NULL;
}

static void be_one_of_two(struct trainer *t) { assert_true(prepare(t, 2) > 0); }

static void assert_same(struct outcome a, struct outcome b)
{
    assert_true(hash_equal(a.state, b.state));
    assert_true(a.loss == b.loss);
}

static void test_equal_shares(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(jobs); i++) {
        int first, again;
        const struct outcome fresh = train_twice(jobs[i], forget, &first, &again);

        assert_true(first > 0);
        assert_int_equal(again, first);
        assert_same(train_twice(jobs[i], nothing, &first, &again), fresh);
        assert_int_equal(again, 0);
    }
}

/* Shares of one rank, of two and of one again: programs of batch sizes that are wanted no more are
 * freed, and those that are left are mixed with new ones. */
static void test_other_shares(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(jobs); i++) {
        int first, again;
        const struct outcome fresh = train_twice(jobs[i], forget, &first, &again);

        assert_same(train_twice(jobs[i], be_one_of_two, &first, &again), fresh);
        assert_true(again > 0);
        assert_true(again < first); /* the validation batch is the same */
    }
}

/* A larger share needs a larger arena, so that programs which could be kept have to be made anew,
 * at other addresses. */
static void test_growing_arena(void **state)
{
    struct outcome out[2];
    int n[2];

    (void)state;
    for (int grows = 0; grows < 2; grows++) {
        struct trainer *t = open_job(jobs[1]);

        if (grows)
            (void)prepare(t, 2);
        n[grows] = prepare(t, 1);
        out[grows].loss = train(t, 1);
        out[grows].state = run_state_hash(t);
        trainer_free(t);
    }
    assert_int_equal(n[1], n[0]);
    assert_same(out[0], out[1]);
}

/* The order of a kernel's sums follows the number of threads that it was made for. */
static void test_other_threads(void **state)
{
    struct trainer *t = open_job(jobs[0]);
    const int first = prepare(t, 1);

    (void)state;
    t->o.n_threads = 2;
    assert_int_equal(prepare(t, 1), first);
    assert_int_equal(prepare(t, 1), 0);
    trainer_free(t);
}

/* Rank 0 of two has the only sample of a step, and as many samples in each validation batch, as
 * when it is alone.  Only with batch norm that sums over all ranks does its program differ. */
static void test_batch_norm_over_ranks(void **state)
{
#define NORMED                                                                      \
    "model: {arch: layers, layers: [{conv: {channels: 2, kernel: 3}}, batch_norm, " \
    "flatten, {linear: {units: 10}}], "
    static const char *const of[] = {
        NORMED "sync_batch_norm: false}\n",
        NORMED "sync_batch_norm: true}\n",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(of); i++) {
        char job[512];
        struct trainer *t;

        snprintf(job, sizeof job, "%s%s", of[i],
                 "data: {format: digits, samples: 10, validation_samples: 128}\n"
                 "train: {global_batch: 1}\n");
        t = open_job(job);
        assert_true(prepare(t, 1) > 0);
        assert_int_equal(prepare(t, 2) > 0, i);
        assert_int_equal(prepare(t, 3) > 0, 1); /* other validation batches */
        trainer_free(t);
    }
}

static int n_asked; /* times that a trainer asked whether it is canceled */

static int canceled(void *arg) { return (void)arg, ++n_asked; }

/* Only samples that may have them are read again for numbers that are not finite, until somebody
 * cancels it. */
static void test_looking_for_numbers_again(void **state)
{
    struct trainer *t = open_job("model: {arch: lenet}\n" DATA "train: {global_batch: 60}\n");
    char *note = NULL;

    (void)state;
    prepare(t, 1);
    t->hooks.canceled = canceled;
    n_asked = 0;
    assert_int_equal(t->valid_set->spec.field[0].stored, DTYPE_U8);
    assert_int_equal(explain_validation(t, &note, &failure), 0);
    assert_int_equal(n_asked, 0);
    t->valid_set->spec.field[0].stored = DTYPE_F64;
    assert_int_equal(explain_validation(t, &note, &failure), ERR_CANCELED);
    assert_int_equal(n_asked, 1);
    assert_int_equal(explain_validation(t, &note, &failure), 0); /* it looks once */
    assert_int_equal(n_asked, 1);
    assert_null(note);
    trainer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_shares),
        cmocka_unit_test(test_other_shares),
        cmocka_unit_test(test_growing_arena),
        cmocka_unit_test(test_other_threads),
        cmocka_unit_test(test_batch_norm_over_ranks),
        cmocka_unit_test(test_looking_for_numbers_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
