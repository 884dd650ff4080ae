/* resume: a checkpoint that a run wrote under any strategy is resumed under any other.  Parameters,
 * the optimizer's slots and the position go on; slots of the strategy before are dropped, and those
 * of the new one begin; the user is told.  Under the same strategy nothing is told. */
#include "../test.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "../remove_tree.h"
#include "base/alloc.h"
#include "base/util.h"
#include "ckpt/ckpt.h"
#include "job/job.h"
#include "ranks.h"

/* Adam, because qadam wants it.  With this beta2 the warm-up of qadam below is long enough. */
#define JOB_WITH(model)                                              \
    "model: {arch: mlp, hidden: [24]" model "}\n"                    \
    "data: {format: digits, samples: 240, validation_samples: 40}\n" \
    "train: {global_batch: 48}\noptimizer: {name: adam, lr: 0.005, betas: [0.9, 0.7]}\n"
#define JOB JOB_WITH("")

enum { N_STEPS = 5, N_RANKS = 3 }; /* of an epoch */

/* The first steps of a resumed run beside those of the plain all-reduce. */
enum nearness {
    EQUAL, /* up to the order of sums */
    CODED, /* gradients are rounded, or not those of the mean */
    APART, /* each rank trains by its own gradients */
};

static const struct {
    const char *strategy;
    enum nearness nearness;
    const char *saved;  /* its own slots in a checkpoint, or NULL */
    const char *begins; /* its own slots when it comes after another strategy, or NULL */
} table[] = {
    {"{name: allreduce}", EQUAL, NULL, NULL},
    {"{name: allreduce, zero: 1}", EQUAL, NULL, NULL},
    {"{name: allreduce, zero: 2}", EQUAL, NULL, NULL},
    {"{name: allreduce, zero: 3}", EQUAL, NULL, NULL},
    {"{name: allreduce, zero: 2, buddy: false}", EQUAL, NULL, NULL},
    {"{name: allreduce, shards: 4}", EQUAL, NULL, NULL},
    {"{name: allreduce, compress: float16}", CODED, NULL, NULL},
    {"{name: allreduce, compress: uint8}", CODED, NULL, NULL},
    {"{name: allreduce, compress: powersgd, rank: 2}", CODED, NULL, "error"},
    {"{name: allreduce, compress: onebit}", CODED, NULL, "error"},
    {"{name: adasum}", CODED, NULL, NULL},
    {"{name: bytegrad}", CODED, NULL, NULL},
    {"{name: qadam, warmup_steps: 8}", CODED, NULL, NULL},
    {"{name: local_sgd, every: 2}", APART, NULL, NULL},
    {"{name: local_sgd, every: 2, outer: nesterov}", APART,
     "outer_parameters, outer_momentum_buffer, outer_start_taken",
     "parameters of the last exchange, outer momentum, outer start taken"},
    {"{name: decentralized}", APART, NULL, NULL},
    {"{name: decentralized, every: 2, peers: shift_one}", APART, NULL, NULL},
    {"{name: low_precision_decentralized}", APART, NULL, NULL},
    {"{name: async, interval: 0}", APART, NULL, NULL},
};

enum { N = ARRAY_LEN(table) };

static void job_of(size_t i, char job[512])
{
    snprintf(job, 512, JOB "strategy: %s\n", table[i].strategy);
}

/* The driver writes the run's resolved job, from which the former strategy is known. */
static void write_job(const char *dir, const char *text)
{
    struct job *job = NULL;
    struct buf out = {0};
    char path[64];
    struct err err;
    FILE *f;

    assert_int_equal(job_parse(text, strlen(text), "job", NULL, &job, &err), 0);
    job_write(job, &out);
    snprintf(path, sizeof path, "%s/job.yaml", dir);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(out.data, 1, out.len, f), out.len);
    assert_int_equal(fclose(f), 0);
    buf_fini(&out);
    job_free(job);
}

/* Train an epoch under strategy i, with a checkpoint at its end in dir. */
static void begin(char *dir, size_t i)
{
    static struct run_result r;
    char job[512];

    assert_non_null(mkdtemp(dir));
    job_of(i, job);
    write_job(dir, job);
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = N_RANKS, .n_epochs = 1, .run_dir = dir},
               &r);
    assert_int_equal(r.step[0], N_STEPS);
}

/* Go on under another strategy.  Its own checkpoint is removed again. */
static void go_on(const char *dir, const char *job, int n_ranks, struct run_result *r)
{
    char path[64];

    run_job_ok(
        &(struct run_plan){
            .job = job, .n_ranks = n_ranks, .n_epochs = 1, .run_dir = dir, .resume = 1},
        r);
    assert_int_equal(r->step[0], 2 * N_STEPS);
    assert_int_equal(r->n_steps, N_STEPS);
    snprintf(path, sizeof path, "%s/checkpoints/step-%08d", dir, 2 * N_STEPS);
    assert_int_equal(remove_tree(path), 0);
}

static void want_told(const struct run_result *r, size_t from, size_t to)
{
    char want[512];

    if (from == to) {
        assert_string_equal(r->warning, "");
        return;
    }
    snprintf(want, sizeof want, "resume: strategy was %s and is now %s%s%s%s%s",
             table[from].strategy, table[to].strategy,
             table[from].saved ? "; dropped from the checkpoint: " : "",
             table[from].saved ? table[from].saved : "",
             table[to].begins ? "; not in the checkpoint, so begun as in a new run: " : "",
             table[to].begins ? table[to].begins : "");
    assert_string_equal(r->warning, want);
}

/* The first step computes its loss from the checkpoint's parameters, whatever the strategy.  The
 * next losses are those of the all-reduce where its optimizer's slots have been taken as they were.
 * A strategy that begins with a wrong state of its own soon has a worse loss. */
static void want_losses(const struct run_result *plain, const struct run_result *r, size_t to)
{
    static const double most[] = {[EQUAL] = 1e-5, [CODED] = 0.1, [APART] = 0.2};

    for (int i = 0; i < N_STEPS; i++) {
        const double want = plain->step_loss[i], bound = i == 0 ? 1e-5 : most[table[to].nearness];

        if (!(fabs(r->step_loss[i] - want) <= bound * want))
            fail_msg("%s, step %d: loss %.9g, with the all-reduce %.9g", table[to].strategy,
                     N_STEPS + i, r->step_loss[i], want);
    }
}

static void from_each_to_each(void **state)
{
    static struct run_result plain, r;

    (void)state;
    for (size_t from = 0; from < N; from++) {
        char dir[] = "/tmp/resume-XXXXXX", job[512];

        begin(dir, from);
        job_of(0, job);
        go_on(dir, job, N_RANKS, &plain);
        for (size_t to = 0; to < N; to++) {
            if (to != from && !is_run((int)(from + to)))
                continue;
            job_of(to, job);
            go_on(dir, job, N_RANKS, &r);
            want_told(&r, from, to);
            want_losses(&plain, &r, to);
        }
        assert_int_equal(remove_tree(dir), 0);
    }
}

/* Another number of ranks besides: one alone, and more than wrote the checkpoint. */
static void with_other_numbers_of_ranks(void **state)
{
    static const size_t some[] = {0, 3, 5, 9, 12, 14, 17};
    static const int n_ranks[] = {1, 2, MOST_RANKS};
    static struct run_result plain, r;

    (void)state;
    for (size_t f = 0; f < ARRAY_LEN(some); f++) {
        char dir[] = "/tmp/resume-XXXXXX", job[512];

        begin(dir, some[f]);
        job_of(0, job);
        go_on(dir, job, N_RANKS, &plain);
        for (size_t k = 0; k < ARRAY_LEN(some); k++) {
            const int n = n_ranks[(f + k) % ARRAY_LEN(n_ranks)];

            job_of(some[k], job);
            if (!is_run((int)(f + k)))
                continue;
            if (n > 4 && strstr(job, "shards"))
                continue;
            go_on(dir, job, n, &r);
            assert_true(fabs(r.step_loss[0] - plain.step_loss[0]) <= 1e-5 * plain.step_loss[0]);
            assert_true(r.step_loss[N_STEPS - 1] < 1.2 * plain.step_loss[N_STEPS - 1]);
        }
        assert_int_equal(remove_tree(dir), 0);
    }
}

#define OUTER(start) \
    JOB "strategy: {name: local_sgd, every: 2, outer: nesterov, start: " start "}\n"

/* Outer steps start from the parameters with which the run goes on, in step 5, also if the present
 * `start` was an earlier step and the former one a later step.  Then no step was the first local
 * one.  With start 5 the resumed step is. */
static void local_steps_begin_where_the_run_is(void **state)
{
    static struct run_result want, r;
    char dir[] = "/tmp/resume-XXXXXX";

    (void)state;
    assert_non_null(mkdtemp(dir));
    run_job_ok(
        &(struct run_plan){.job = OUTER("100"), .n_ranks = N_RANKS, .n_epochs = 1, .run_dir = dir},
        &r);
    go_on(dir, OUTER("5"), N_RANKS, &want);
    go_on(dir, OUTER("3"), N_RANKS, &r); /* with exchanges after the same steps */
    for (int i = 0; i < N_STEPS; i++)
        assert_true(r.step_loss[i] == want.step_loss[i]);
    assert_true(hash_equal(r.replica[0], want.replica[0]));
    assert_int_equal(remove_tree(dir), 0);
}

/* ---- whether outer steps have begun ---- */

/* With the exchange of parameters in the second epoch. */
#define LATE_OUTER "strategy: {name: local_sgd, every: 7, outer: nesterov}\n"
/* Weights so small that they are zeros, as the biases are. */
#define ZEROS ", init: {name: normal, std: 1.0e-60}"

/* The ranks' parameters after two epochs without a break, and after the same with a resume. */
static void assert_resumed_is_same(const char *job, void (*between)(const char *dir))
{
    static struct run_result want, r;
    char dir[] = "/tmp/resume-XXXXXX";

    assert_non_null(mkdtemp(dir));
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = N_RANKS, .n_epochs = 2}, &want);
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = N_RANKS, .n_epochs = 1, .run_dir = dir},
               &r);
    between(dir);
    go_on(dir, job, N_RANKS, &r);
    assert_string_equal(r.warning, "");
    assert_true(hash_equal(r.replica[0], want.replica[0]));
    assert_int_equal(remove_tree(dir), 0);
}

static void leave_it(const char *dir) { (void)dir; }

/* The parameters with which the local steps began may be zeros alone. */
static void a_start_of_zeros_is_kept(void **state)
{
    (void)state;
    assert_resumed_is_same(JOB_WITH(ZEROS) LATE_OUTER, leave_it);
}

static void ignore(void *arg, const char *text) { (void)arg, (void)text; }

/* Read all tensors of the file but one. */
static int read_but(const struct st_file *f, const char *but, struct st_tensor *t)
{
    int n = 0;
    struct err err;

    for (int i = 0; i < st_count(f); i++) {
        const struct st_tensor *from = st_at(f, i);
        void *data;

        if (!strcmp(from->name, but))
            continue;
        data = xmalloc(st_bytes(from));
        assert_int_equal(st_read(f, from, 0, data, st_bytes(from), &err), 0);
        t[n] = *from;
        t[n++].data = data;
    }
    return n;
}

static void free_data(const struct st_tensor *t, int n)
{
    for (int i = 0; i < n; i++)
        free((void *)t[i].data);
}

/* Write the checkpoint again as a version did that had no slot for this. */
static void write_as_older_version(const char *dir)
{
    struct st_tensor model[16], optimizer[64];
    struct ckpt_content to = {.model = model, .optimizer = optimizer};
    struct ckpt *c = NULL;
    char *path = NULL;
    struct err err;

    assert_int_equal(ckpt_load_latest(dir, ignore, NULL, &c, &err), 0);
    to.state = c->state;
    to.n_model = read_but(c->model, "", model);
    to.n_optimizer = read_but(c->optimizer, "outer_start_taken", optimizer);
    assert_int_equal(to.n_optimizer, st_count(c->optimizer) - 1);
    assert_int_equal(ckpt_save(dir, &to, 1, &path, &err), 0);
    free_data(model, to.n_model);
    free_data(optimizer, to.n_optimizer);
    ckpt_close(c);
    free(path);
}

static void older_checkpoints_keep_their_start(void **state)
{
    (void)state;
    assert_resumed_is_same(JOB LATE_OUTER, write_as_older_version);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_each_to_each),
        cmocka_unit_test(with_other_numbers_of_ranks),
        cmocka_unit_test(local_steps_begin_where_the_run_is),
        cmocka_unit_test(a_start_of_zeros_is_kept),
        cmocka_unit_test(older_checkpoints_keep_their_start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
