/* tape: a recording is launched for its own key alone.  The backend here records nothing, but
 * counts. */
#include "../test.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "session/ring.h"
#include "step/tape.h"

struct recording {
    int number;
};

struct counter {
    struct backend base; /* first */
    int n_recordings, n_launches, launched;
};

static int record_begin(struct backend *b, struct err *err)
{
    (void)b, (void)err;
    return 0;
}

static int record_end(struct backend *b, struct recording **out, struct err *err)
{
    struct counter *c = (struct counter *)b;

    (void)err;
    *out = xcalloc(1, sizeof **out);
    (*out)->number = c->n_recordings++;
    return 0;
}

static int launch(struct backend *b, struct recording *r, struct err *err)
{
    struct counter *c = (struct counter *)b;

    (void)err;
    c->n_launches++;
    c->launched = r->number;
    return 0;
}

static void recording_free(struct backend *b, struct recording *r)
{
    (void)b;
    free(r);
}

static const struct backend_ops counting = {.name = "counter",
                                            .record_begin = record_begin,
                                            .record_end = record_end,
                                            .launch = launch,
                                            .recording_free = recording_free};

static void nowhere(void *arg, enum phase phase, int64_t bucket)
{
    (void)arg, (void)phase, (void)bucket;
}

static int never(void *arg, int bucket)
{
    (void)arg, (void)bucket;
    return 0;
}

static void work(struct tapes *t, struct tape_key key, int is_launched)
{
    struct err err;
    const int rc = tapes_begin(t, key, &err);

    assert_int_equal(rc, is_launched ? TAPE_RECORDED : TAPE_QUEUE);
    assert_int_equal(is_launched ? tapes_repeat(t, &err) : tapes_end(t, 0, &err), 0);
}

/* The first time the work is queued, the second time it is recorded, and then it is launched. */
static void learn(struct tapes *t, struct tape_key key)
{
    work(t, key, 0);
    work(t, key, 0);
    work(t, key, 1);
}

/* Two keys that differ by one number have two recordings.  With three ranks and a smaller batch at
 * the end of an epoch only n_global differs: the first and the last rank have as much as ever, and
 * the middle one has less. */
static void test_each_key_has_its_recording(void **state)
{
    const struct tape_key base = {.training = 1, .n_global = 8, .most = 3, .least = 2};
    struct tape_key key[9];
    struct exchange_options o = {.ring = ring_new(),
                                 .n_buckets = 1,
                                 .is_device = 1,
                                 .hooks = {.at = nowhere, .is_left_out = never}};
    struct counter c = {.base = {&counting}};
    struct exchange *x = exchange_new(&o);
    struct tapes *t = tapes_new(&c.base, x, 1);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(key); i++)
        key[i] = base;
    key[0].training = 0;
    key[1].n_global = 7;
    key[2].most = 4;
    key[3].least = 1;
    key[4].micro = 1;
    key[5].first = 1;
    key[6].last = 1;
    key[7].is_watched = 1;
    key[8].variant = 1;
    learn(t, base);
    for (size_t i = 0; i < ARRAY_LEN(key); i++) {
        learn(t, key[i]);
        assert_int_equal(c.launched, i + 1);
        work(t, base, 1);
        assert_int_equal(c.launched, 0);
    }
    assert_int_equal(c.n_recordings, 1 + ARRAY_LEN(key));
    assert_int_equal(tapes_launches(t), c.n_launches);
    tapes_free(t);
    exchange_free(x);
    ring_free(o.ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_key_has_its_recording)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
