/* Tests of the judge: a confusion matrix that the ranks add up in several collectives is that of
 * all samples together, on each of them. */
#include "../test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../coll/local.h"
#include "base/rng.h"
#include "judge/judge.h"
#include "session/ring.h"

enum { N_RANKS = 3, N_CLASSES = JUDGE_MOST_MATRIX, N_SAMPLES = 6000 };

static const struct sample_spec spec = SAMPLE_IMAGES(1, 1, 1, N_CLASSES);

/* Sample i is of class target[i], and predicted as guess[i]. */
static int32_t target[N_SAMPLES], guess[N_SAMPLES];

static void draw_samples(void)
{
    struct rng_stream rng;

    rng_stream_init(&rng, 5, RNG_TEST, 0);
    for (int i = 0; i < N_SAMPLES; i++) {
        target[i] = (int32_t)rng_next_below(&rng, N_CLASSES);
        guess[i] = rng_next_below(&rng, 4) ? target[i] : (int32_t)rng_next_below(&rng, N_CLASSES);
    }
    target[0] = guess[0] = N_CLASSES - 1; /* the last count of the matrix is none that is 0 */
    target[1] = guess[1] = 0;
}

/* The outputs of a rank, with what a judge needs of its stepper. */
static void dress(struct outputs *o, struct stepper *step, struct job *job, struct state *state)
{
    *step = (struct stepper){.state = state, .ring = ring_new()};
    *o = (struct outputs){.job = job, .spec = &spec, .step = step};
    ring_begin(step->ring, 1);
}

static void count(struct judge *j, int first, int end)
{
    static _Thread_local float row[N_CLASSES];

    for (int i = first; i < end; i++) {
        row[guess[i]] = 1;
        judge_count(j, row, &target[i], 1);
        row[guess[i]] = 0;
    }
}

static char *figures_of(const struct judge *j)
{
    json_t *o = json_object();
    char *text;

    judge_tell(j, o);
    text = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    return text;
}

struct rank {
    int number;
    struct coll_group *group;
    struct job *job;
    struct state *state;
    pthread_t thread;
    int rc;
    char *figures;
    int64_t n_collectives;
};

static void *run_rank(void *arg)
{
    struct rank *r = arg;
    struct outputs o;
    struct stepper step;
    struct judge *j;
    struct err err;
    struct ring_head head;

    dress(&o, &step, r->job, r->state);
    r->rc = coll_new_local(r->group, r->number, &step.coll, &err);
    j = judge_new(&o, N_CLASSES);
    count(j, r->number * N_SAMPLES / N_RANKS, (r->number + 1) * N_SAMPLES / N_RANKS);
    if (r->rc == 0)
        r->rc = judge_sum(j, &err);
    r->figures = figures_of(j);
    ring_head(step.ring, &head);
    r->n_collectives = head.n_handed;
    judge_free(j);
    coll_free(step.coll);
    ring_free(step.ring);
    return NULL;
}

static void test_sum_in_pieces(void **state)
{
    static struct job job = {.model.loss = LOSS_CROSS_ENTROPY};
    static struct state held;
    struct rank rank[N_RANKS];
    struct coll_group *group = coll_group_new(N_RANKS);
    struct outputs one;
    struct stepper step;
    struct judge *j;
    char *want;

    (void)state;
    draw_samples();
    for (int i = 0; i < N_RANKS; i++) {
        rank[i] = (struct rank){.number = i, .group = group, .job = &job, .state = &held, .rc = -1};
        assert_int_equal(pthread_create(&rank[i].thread, NULL, run_rank, &rank[i]), 0);
    }
    dress(&one, &step, &job, &held);
    j = judge_new(&one, N_CLASSES);
    count(j, 0, N_SAMPLES);
    want = figures_of(j);
    for (int i = 0; i < N_RANKS; i++) {
        pthread_join(rank[i].thread, NULL);
        assert_int_equal(rank[i].rc, 0);
        assert_true(rank[i].n_collectives > 1); /* 8 MiB of each rank, 16 MiB in one of them */
        assert_string_equal(rank[i].figures, want);
        free(rank[i].figures);
    }
    free(want);
    judge_free(j);
    ring_free(step.ring);
    coll_group_free(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum_in_pieces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
