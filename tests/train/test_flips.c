/* The sweep: a bit flips in each place that a fault on purpose can reach, with each strategy, on 2
 * to 5 ranks, and all steps are looked at.  Each flip that is looked for is found, the right rank
 * is named and no other one, and what can be mended is: the run then ends with the bits of an
 * undisturbed one.  Places that nothing looks at are told of at the start. */
#include "../test.h"

#include <stdlib.h>

#include "base/util.h"
#include "ranks.h"

#define DATA "data: {format: digits, samples: 120, validation_samples: 20}\n"
#define MLP  "model: {arch: mlp, hidden: [16]}\noptimizer: {name: adamw, lr: 0.002}\n" DATA
#define HEAL "cluster: {on_divergence: heal}\n"

enum { LEAST_RANKS = 2, FLIP_STEP = 2 };

/* A flip's outcome. */
enum outcome {
    UNSEEN, /* it is not looked for */
    MENDED, /* the rank is named, and its bits are replaced */
    NAMED,  /* the rank is named by the votes of the others, and the run ends */
    PAIRED, /* the rank and the holder of its copy are named, and the run ends */
};

/* The places of a flip. */
enum { IN_GRADIENT, IN_BATCH, IN_SUM, IN_PARAM, IN_SLOT, N_PLACES };
static const char *const places[N_PLACES] = {"bucket0", "batch", "reduced0", "param0", "slot0"};

static const struct way {
    const char *strategy;
    enum outcome gradient, sum, param, slot;
} ways[] = {
    {"", MENDED, MENDED, MENDED, MENDED},
    {"strategy: {shards: 8}\n", MENDED, MENDED, MENDED, MENDED},
    {"strategy: {compress: float16}\n", MENDED, MENDED, MENDED, MENDED},
    {"strategy: {compress: bfloat16}\n", MENDED, MENDED, MENDED, MENDED},
    {"strategy: {compress: uint8}\n", MENDED, MENDED, MENDED, MENDED},
    {"strategy: {compress: powersgd}\n", MENDED, MENDED, MENDED, MENDED},
    {"strategy: {compress: onebit}\n", MENDED, MENDED, MENDED, MENDED},
    {"strategy: {name: gradient_allreduce}\n", MENDED, MENDED, MENDED, MENDED},
    {"strategy: {name: bytegrad}\n", MENDED, MENDED, MENDED, MENDED},
    {"strategy: {name: qadam, warmup_steps: 2}\n", MENDED, MENDED, MENDED, MENDED},
    {"strategy: {name: adasum}\n", MENDED, MENDED, MENDED, MENDED},
    {"strategy: {zero: 1}\n", MENDED, PAIRED, NAMED, PAIRED},
    {"strategy: {zero: 1, buddy: false}\n", MENDED, UNSEEN, NAMED, UNSEEN},
    {"strategy: {zero: 2}\n", MENDED, PAIRED, NAMED, PAIRED},
    {"strategy: {zero: 2, buddy: false}\n", MENDED, UNSEEN, NAMED, UNSEEN},
    {"strategy: {zero: 3}\n", MENDED, PAIRED, PAIRED, PAIRED},
    {"strategy: {zero: 3, buddy: false}\n", MENDED, UNSEEN, UNSEEN, UNSEEN},
    {"strategy: {name: local_sgd}\n", UNSEEN, UNSEEN, UNSEEN, UNSEEN},
    {"strategy: {name: decentralized}\n", UNSEEN, UNSEEN, UNSEEN, UNSEEN},
    {"strategy: {name: low_precision_decentralized}\n", UNSEEN, UNSEEN, UNSEEN, UNSEEN},
    {"strategy: {name: async}\n", UNSEEN, UNSEEN, UNSEEN, UNSEEN},
};

static enum outcome outcome_of(const struct way *w, int place)
{
    const enum outcome of[N_PLACES] = {w->gradient, w->gradient, w->sum, w->param, w->slot};

    return of[place];
}

/* State and sums are equal before the update, so a flip after it counts as a wrong update, unless
 * it is in a part that only two ranks hold. */
static enum corruption what_of(const struct way *w, int place)
{
    if (place <= IN_BATCH)
        return place == IN_BATCH ? CORRUPTION_BATCH : CORRUPTION_GRADIENT;
    return place == IN_SUM || outcome_of(w, place) == PAIRED ? CORRUPTION_STATE : CORRUPTION_UPDATE;
}

static void write_job(char *to, size_t size, const char *strategy, int looks)
{
    snprintf(to, size, MLP "train: {global_batch: 24, audit: %d, replica_check: %d}\n%s" HEAL,
             looks, looks, strategy);
}

/* Each rank that is named has this step and this word. */
static int is_told_as(const struct run_result *r, enum corruption what)
{
    int is_right = 1;

    for (int i = 0; i < r->n_found; i++)
        is_right &=
            r->found[i].what == what && r->found[i].step == FLIP_STEP + (what == CORRUPTION_STATE);
    return is_right;
}

/* One rank of several is named, and mended. */
static int is_mended(const struct run_result *r, const struct run_result *calm, int rank)
{
    return r->n_found == 1 && r->found[0].rank == rank && r->found[0].is_proven &&
           r->found[0].is_healed && r->rc[0] == 0 && hash_equal(r->replica[0], calm->replica[0]);
}

/* One rank is named, and the run ends. */
static int is_named(const struct run_result *r, int rank)
{
    return r->n_found == 1 && r->found[0].rank == rank && r->found[0].is_proven &&
           !r->found[0].is_healed && r->found[0].ends && r->rc[0] == ERR_CANCELED;
}

/* Nobody knows which of two ranks is right: both are named, and the run ends. */
static int is_given_up(const struct run_result *r, int a, int b)
{
    int is_right = r->n_found == 2;

    for (int k = 0; k < r->n_found; k++)
        is_right &= r->found[k].rank == (k ? (a > b ? a : b) : (a < b ? a : b)) &&
                    !r->found[k].is_proven && !r->found[k].is_healed &&
                    r->found[k].ends == (k == 1) && r->rc[k] == ERR_CANCELED;
    return is_right;
}

static void check_flip(const struct way *w, int n, int rank, int place,
                       const struct run_result *calm)
{
    static struct run_result r;
    const enum outcome want = outcome_of(w, place);
    char job[512], inject[64];
    int is_right;

    write_job(job, sizeof job, w->strategy, 1);
    snprintf(inject, sizeof inject, "flip:rank%d@step%d:%s", rank, FLIP_STEP, places[place]);
    run_job(&(struct run_plan){.job = job, .n_ranks = n, .n_epochs = 1, .inject = inject}, &r);
    if (!*r.injected)
        fail_msg("%s%d ranks, %s: nothing has flipped", w->strategy, n, inject);
    is_right = want == PAIRED || (place > IN_BATCH && n == 2)
                   ? is_given_up(&r, rank, (rank + 1) % n)
               : want == NAMED ? is_named(&r, rank)
                               : is_mended(&r, calm, rank);
    if (!is_right || !is_told_as(&r, what_of(w, place)))
        fail_msg("%s%d ranks, %s: %d found, the first rank %d, step %d, as %s; rank 0 ends with %d "
                 "(%s)",
                 w->strategy, n, inject, r.n_found, r.found[0].rank, (int)r.found[0].step,
                 corruption_name(r.found[0].what), r.rc[0], r.rc[0] < 0 ? r.err[0].msg : "");
}

static void test_each_flip_is_found(void **state)
{
    static struct run_result calm;
    char job[512];
    int row = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ways); i++)
        for (int n = LEAST_RANKS; n <= MOST_RANKS; n++) {
            if (!is_run(row++))
                continue;
            write_job(job, sizeof job, ways[i].strategy, 0);
            if (ways[i].gradient == MENDED)
                run_job_ok(&(struct run_plan){.job = job, .n_ranks = n, .n_epochs = 1}, &calm);
            for (int k = 0; k < N_PLACES; k++)
                if (outcome_of(&ways[i], k) != UNSEEN)
                    check_flip(&ways[i], n, ((int)i + k + n) % n, k, &calm);
        }
}

/* Nothing is found in a run without a fault, and the start says where gradients are not audited. */
static void test_the_start_says_what_is_not_audited(void **state)
{
    static struct run_result r;
    char job[512];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        write_job(job, sizeof job, ways[i].strategy, 1);
        run_job_ok(&(struct run_plan){.job = job, .n_ranks = 3, .n_epochs = 1}, &r);
        assert_int_equal(r.n_found, 0);
        if (!strstr(r.warning, "no gradient is audited") != (ways[i].gradient != UNSEEN))
            fail_msg("%s: warns \"%s\"", ways[i].strategy, r.warning);
    }
}

/* 10,000 steps without a fault: 1 in 50 is looked at, as users have it, and then each one. */
static void test_ten_thousand_steps_without_a_fault(void **state)
{
    static const char job[] =
        "model: {arch: mlp, hidden: [4]}\n"
        "data: {format: digits, samples: 20000, validation_samples: 20}\n"
        "train: {global_batch: 8, audit: %g, replica_check: %g, max_steps: 10000}\n%s" HEAL;
    static const struct {
        double part;
        int n_ranks;
        const char *strategy;
    } runs[] = {{0.02, 3, ""},
                {1, 2, "strategy: {shards: 2}\n"},
                {0.02, 3, "strategy: {zero: 2}\n"},
                {1, 2, "strategy: {zero: 3}\n"}};
    static struct run_result r;
    char text[512];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(runs); i++) {
        if (!is_run((int)i))
            continue;
        snprintf(text, sizeof text, job, runs[i].part, runs[i].part, runs[i].strategy);
        run_job_ok(&(struct run_plan){.job = text, .n_ranks = runs[i].n_ranks, .n_epochs = 4}, &r);
        assert_int_equal(r.step[0], 10000);
        assert_int_equal(r.n_found, 0);
        assert_string_equal(r.warning, "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_flip_is_found),
        cmocka_unit_test(test_the_start_says_what_is_not_audited),
        cmocka_unit_test(test_ten_thousand_steps_without_a_fault),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
