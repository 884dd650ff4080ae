/* Job files with random changes: each gives an error, or a job that can be written and read again.
 */
#include "../test.h"

#include "../fuzz/round_trip.h"
#include "base/rng.h"

#define LENET "model: {arch: lenet}\ndata: {format: digits}\n"

static const char *const seeds[] = {
    LENET "train: {epochs: 3, seed: 7}\noptimizer: {lr: 0.2, momentum: 0.9, nesterov: true}\n",
    "model: {arch: mlp, hidden: [64, 32], init: {name: normal, std: 1e-2}, dropout: 0.5}\n"
    "data: {format: digits}\n",
    "{\"model\": {\"arch\": \"lenet5\"}, \"data\": {\"format\": \"mnist\", \"path\": "
    "\"/d/\\u00e4\"}}",
    LENET "schedule: &s {name: step, every_epochs: 2}\ncluster:\n  deadlines:\n    step: 1.5\n",
};

/* Change, drop, insert or double some bytes of the text. */
static void mutate(struct rng_stream *rng, struct buf *text)
{
    static const char bits[] = "{}[]:,-?&*!|>'\"%@#~ \n\t0eE.\\xu\xc3\xa4\xff";
    size_t at = rng_next_below(rng, text->len), n = rng_next_below(rng, text->len - at) % 8 + 1;
    struct buf out = {0};

    n = n > text->len - at ? text->len - at : n;
    buf_append(&out, text->data, at);
    switch (rng_next_below(rng, 4)) {
    case 0:
        buf_append(&out, bits + rng_next_below(rng, sizeof bits), 1);
        at++;
        break;
    case 1:
        at += n;
        break;
    case 2:
        buf_append(&out, bits + rng_next_below(rng, sizeof bits), 1);
        break;
    default:
        buf_append(&out, text->data + at, n);
    }
    buf_append(&out, text->data + at, text->len - at);
    buf_fini(text);
    *text = out;
}

/* fuzz/job looks for what ASan finds, and does nothing else. */
#ifdef __SANITIZE_ADDRESS__
enum { N_ROUNDS = 2000 };
#else
enum { N_ROUNDS = 8000 };
#endif

/* Whatever the bytes are, they give a job or an error; a job is the same after it was written and
 * read. */
static void test_mutations(void **state)
{
    struct rng_stream rng;
    int n_good = 0;

    (void)state;
    for (uint64_t round = 0; round < N_ROUNDS; round++) {
        const char *seed = seeds[round % ARRAY_LEN(seeds)];
        struct buf text = {0};
        struct job *job = NULL;
        struct err err;

        rng_stream_init(&rng, 1, RNG_TEST, round);
        buf_append(&text, seed, strlen(seed));
        for (uint64_t n = rng_next_below(&rng, 4); n > 0 && text.len > 0; n--)
            mutate(&rng, &text);
        if (job_parse((const char *)text.data, text.len, "f", "/", &job, &err) == 0) {
            check_round_trip(job);
            n_good++;
        }
        job_free(job);
        buf_fini(&text);
    }
    assert_in_range(n_good, N_ROUNDS / 10, N_ROUNDS * 9 / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mutations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
