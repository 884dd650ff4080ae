/* state: the table of slots. memory, initial values, hashes and checkpoints follow each row's
 * declaration, in the host's memory and in a device's. */
#include "../test.h"

#include <stdlib.h>
#include <unistd.h>

#include "../remove_tree.h"
#include "base/alloc.h"
#include "base/util.h"
#include "card.h"
#include "state/snapshot.h"

/* One parameter is larger than what is read from a device at once; the last is frozen. */
enum { SMALL = 20, LARGE = 1500000, FROZEN = 7, MEAN = 5 };

static struct segment params[] = {
    {.name = "fc.bias", .shape = {1, {SMALL}}, .offset = 0, .length = SMALL},
    {.name = "fc.weight", .shape = {2, {3, LARGE / 3}}, .offset = 32, .length = LARGE},
    {.name = "in.weight",
     .shape = {1, {FROZEN}},
     .offset = 1500032,
     .length = FROZEN,
     .info = {.frozen = 1}},
};

static struct segment stats[] = {
    {.name = "bn.running_mean", .shape = {1, {MEAN}}, .length = MEAN},
    {.name = "bn.running_var", .shape = {1, {MEAN}}, .offset = 16, .length = MEAN, .init_state = 1},
};

static const struct segment *by_name[] = {&params[0], &params[1], &params[2]};

static const struct layout layout = {.param = params,
                                     .param_by_name = by_name,
                                     .n_params = 3,
                                     .n_trained = 1500032,
                                     .n_total = 1500048,
                                     .state = stats,
                                     .n_states = 2,
                                     .n_state_total = 32,
                                     .has_scaler = 1,
                                     .copy_dtype = DTYPE_F32};

/* Each of these rows lacks one property that a usual row has. */
static void init_to_seven(const struct job *job, const struct layout *l, int i, void *to)
{
    (void)job, (void)l, (void)i;
    assert_int_equal(*(char *)to, 0);
    *(double *)to = 7;
}

static const struct slot_def moment = {.name = "moment",
                                       .suffix = ".exp_avg",
                                       .scope = SLOT_PER_TRAINED,
                                       .dtype = DTYPE_F32,
                                       .file = SLOT_IN_OPTIMIZER,
                                       .is_hashed = 1,
                                       .is_broadcast = 1};

static const struct slot_def own = {.name = "own",
                                    .suffix = "own",
                                    .scope = SLOT_PER_JOB,
                                    .length = 3,
                                    .dtype = DTYPE_F64,
                                    .placement = SLOT_OWN,
                                    .file = SLOT_IN_OPTIMIZER,
                                    .is_hashed = 1,
                                    .is_broadcast = 1,
                                    .init = init_to_seven};

static const struct slot_def shard = {.name = "shard",
                                      .suffix = ".shard",
                                      .scope = SLOT_PER_TRAINED,
                                      .dtype = DTYPE_BF16,
                                      .placement = SLOT_SHARDED,
                                      .file = SLOT_IN_OPTIMIZER,
                                      .is_hashed = 1};

static const struct slot_def counter = {.name = "counter",
                                        .suffix = "counter",
                                        .scope = SLOT_PER_JOB,
                                        .length = 1,
                                        .dtype = DTYPE_F64,
                                        .init = init_to_seven};

static const struct slot_def *const more[] = {&moment, &own, &shard, &counter};

static const char *const hashed[] = {"fc.bias",         "fc.weight",        "in.weight",
                                     "bn.running_mean", "bn.running_var",   "loss_scaler",
                                     "fc.bias.exp_avg", "fc.weight.exp_avg"};

/* A state on the CPU or on a card. */
struct desk {
    struct card card;
    struct backend *b;
    struct state *s;
    int is_card;
};

static struct job *job_of(const char *text)
{
    struct job *job;
    struct err err;

    assert_int_equal(job_parse(text, strlen(text), "test", NULL, &job, &err), 0);
    return job;
}

static void desk_open(struct desk *d, int is_card)
{
    struct job *job = job_of("model: {arch: mlp}\ndata: {format: digits}\n");
    struct err err;

    *d = (struct desk){.is_card = is_card};
    if (is_card) {
        card_open(&d->card);
        d->b = &d->card.base;
    } else {
        assert_int_equal(backend_open_cpu(1, &d->b, &err), 0);
    }
    assert_int_equal(state_new(d->b, &layout, more, ARRAY_LEN(more), &d->s, &err), 0);
    assert_int_equal(state_init(d->s, job, &err), 0);
    job_free(job);
}

static void desk_close(struct desk *d)
{
    state_free(d->s);
    assert_int_equal(d->card.n_pieces, 0);
    if (!d->is_card)
        backend_close(d->b);
}

/* Element `at` of an F32 slot; the card's memory is this process', so tests may look. */
static float *number(const struct desk *d, const struct slot_def *slot, int64_t at)
{
    return (float *)state_data(d->s, slot) + at;
}

/* ---- memory and initial values ---- */

static size_t bytes_of(const struct desk *d, const struct slot_def *def)
{
    for (int k = 0; k < d->s->n_slots; k++)
        if (d->s->slot[k].def == def)
            return d->s->slot[k].n_bytes;
    return 0;
}

static void rows_are_as_large_as_their_scope(void **state)
{
    struct desk d;

    (void)state;
    desk_open(&d, 0);
    assert_int_equal(d.s->n_slots, 7);
    assert_int_equal(bytes_of(&d, &slot_parameters), 4 * layout.n_total);
    assert_int_equal(bytes_of(&d, &slot_statistics), 4 * layout.n_state_total);
    assert_int_equal(bytes_of(&d, &moment), 4 * layout.n_trained);
    assert_int_equal(bytes_of(&d, &shard), 2 * layout.n_trained);
    assert_int_equal(bytes_of(&d, &own), 24);
    assert_null(state_data(d.s, &(struct slot_def){.name = "moment"}));
    desk_close(&d);
}

static void rows_begin_as_declared(void **state)
{
    (void)state;
    for (int is_card = 0; is_card < 2; is_card++) {
        struct desk d;

        desk_open(&d, is_card);
        for (int i = 0; i < layout.n_state_total; i++)
            assert_true(*number(&d, &slot_statistics, i) == (i >= 16 && i < 16 + MEAN));
        for (int64_t i = SMALL; i < 32; i++) /* padding */
            assert_true(*number(&d, &slot_parameters, i) == 0);
        assert_true(*number(&d, &slot_scaler, 0) == 65536);
        assert_true(*number(&d, &moment, 40) == 0);
        assert_true(*(double *)state_data(d.s, &own) == 7);
        assert_true(*(double *)state_data(d.s, &counter) == 7);
        desk_close(&d);
    }
}

/* Parameters that are drawn by several threads have the values that one call gives. */
static void threads_draw_the_same_values(void **state)
{
    struct job *job = job_of("model: {arch: mlp, init: {name: normal, std: 0.5}}\n"
                             "data: {format: digits}\ntrain: {seed: 3}\n");
    float *want = xcalloc((size_t)layout.n_total, sizeof *want);
    struct err err;

    (void)state;
    for (int i = 0; i < layout.n_params; i++)
        layout_init_param(&layout, i, 3, (struct layout_init){INIT_RULE_NORMAL, 0.5}, 0,
                          params[i].length, want + params[i].offset);
    assert_true(want[32 + LARGE - 1] != 0 && want[32 + LARGE - 1] != want[32 + LARGE - 2]);
    for (int is_card = 0; is_card < 2; is_card++) {
        struct desk d;

        desk_open(&d, is_card);
        for (int n_threads = 0; n_threads <= 5; n_threads += 5) {
            for (int i = 0; i < layout.n_params; i++)
                memset(number(&d, &slot_parameters, params[i].offset), 0xff,
                       sizeof(float) * (size_t)params[i].length);
            d.s->n_threads = n_threads;
            assert_int_equal(state_init(d.s, job, &err), 0);
            assert_memory_equal(number(&d, &slot_parameters, 0), want,
                                sizeof *want * (size_t)layout.n_total);
        }
        desk_close(&d);
    }
    free(want);
    job_free(job);
}

/* The values that a rank needs beside a checkpoint, or beside another rank's state. */
static void unsaved_rows_begin_alone(void **state)
{
    struct job *job = job_of("model: {arch: mlp}\ndata: {format: digits}\n");
    struct desk d;
    struct err err;

    (void)state;
    desk_open(&d, 0);
    *number(&d, &slot_statistics, 0) = 3;
    *number(&d, &moment, 0) = 3;
    memset(state_data(d.s, &own), 1, 24);
    memset(state_data(d.s, &shard), 1, 2);
    memset(state_data(d.s, &counter), 1, 8);
    assert_int_equal(state_init_unsaved(d.s, job, &err), 0);
    assert_true(*number(&d, &slot_statistics, 0) == 3 && *number(&d, &moment, 0) == 3);
    assert_true(((double *)state_data(d.s, &own))[0] == 7);
    assert_true(((double *)state_data(d.s, &own))[2] == 0);
    assert_true(*(double *)state_data(d.s, &counter) == 7);
    assert_int_equal(*(char *)state_data(d.s, &shard), 0);
    desk_close(&d);
    job_free(job);
}

/* ---- hashes ---- */

static struct hash128 hash(const struct desk *d, struct tensor_hash **h)
{
    const int n = state_n_hashes(d->s);
    struct tensor_hash *own_h;
    struct hash128 all;
    struct err err;

    assert_int_equal(state_hash(d->s, &own_h, &all, &err), 0);
    if (h) {
        *h = own_h;
        return all;
    }
    for (int i = 0; i < n; i++)
        free(own_h[i].name);
    free(own_h);
    return all;
}

static void hashes_are_of_hashed_rows_by_name(void **state)
{
    struct tensor_hash *h;
    struct desk d;

    (void)state;
    desk_open(&d, 0);
    assert_int_equal(state_n_hashes(d.s), ARRAY_LEN(hashed));
    hash(&d, &h);
    for (size_t i = 0; i < ARRAY_LEN(hashed); i++) {
        assert_string_equal(h[i].name, hashed[i]);
        free(h[i].name);
    }
    assert_true(hash_equal(h[1].hash, hash_of(number(&d, &slot_parameters, 32), 4 * LARGE)));
    free(h);
    desk_close(&d);
}

static void every_hashed_number_counts_and_no_other(void **state)
{
    const struct {
        const struct slot_def *slot;
        int64_t at;
        int counts;
    } table[] = {
        {&slot_parameters, 0, 1},
        {&slot_parameters, 1500000 + 31, 1},
        {&slot_parameters, 1500032 + FROZEN - 1, 1},
        {&slot_parameters, SMALL, 0},
        {&slot_statistics, 16 + MEAN - 1, 1},
        {&slot_scaler, 1, 1},
        {&moment, 32, 1},
        {&moment, 1500031, 1},
        {&own, 0, 0},
        {&shard, 0, 0},
        {&counter, 0, 0},
    };

    (void)state;
    for (int is_card = 0; is_card < 2; is_card++) {
        struct hash128 before;
        struct desk d;

        desk_open(&d, is_card);
        before = hash(&d, NULL);
        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
            float *x = number(&d, table[i].slot, table[i].at), was = *x;

            *x = was + 1;
            if (hash_equal(hash(&d, NULL), before) == table[i].counts)
                fail_msg("%s, element %lld", table[i].slot->name, (long long)table[i].at);
            *x = was;
        }
        d.s->at.n_updates++;
        assert_false(hash_equal(hash(&d, NULL), before));
        desk_close(&d);
    }
}

/* A device's state passes through the host in pieces, the CPU's is hashed where it lies. */
static void hashing_takes_little_memory(void **state)
{
    struct tensor_hash *h;
    struct hash128 on_cpu;
    struct desk d;
    struct err err;

    (void)state;
    desk_open(&d, 0);
    alloc_fail_at(1);
    on_cpu = hash(&d, NULL);
    assert_int_equal(alloc_fail_at(0), 1); /* nothing was tried */
    desk_close(&d);

    desk_open(&d, 1);
    d.card.largest_copy = 0;
    d.card.n_through_host = 0;
    assert_true(hash_equal(hash(&d, NULL), on_cpu));
    assert_int_equal(d.card.largest_copy, 4 << 20);
    assert_int_equal(d.card.n_through_host, 2 + 1 + 1 + 2);
    alloc_fail_at(1);
    assert_int_equal(state_hash(d.s, &h, &on_cpu, &err), ERR_NOMEM);
    desk_close(&d);
}

/* ---- checkpoints ---- */

static void ignore(void *arg, const char *text) { (void)arg, (void)text; }

/* lends: the state stays as it is until its checkpoint is written. */
static void save(struct desk *d, const char *dir, int lends)
{
    const int is_copied = !lends || backend_queues(d->s->backend);
    struct snapshot *p;
    char *path;
    struct err err;

    assert_int_equal(snapshot_new(d->s, 0, &p, &err), 0);
    if (!is_copied)
        alloc_fail_at(1);
    assert_int_equal(lends ? snapshot_borrow(p, d->s, 2, &err) : snapshot_take(p, d->s, 2, &err),
                     0);
    if (!is_copied)
        assert_int_equal(alloc_fail_at(0), 1); /* nothing was tried */
    if (is_copied)
        *number(d, &moment, 1) = -1; /* later than the snapshot */
    assert_int_equal(snapshot_save(p, dir, 1, &(struct ckpt_told){0}, &path, &err), 0);
    snapshot_free(p);
    free(path);
}

static void assert_names(const struct st_file *f, const char *const *names, int n)
{
    assert_int_equal(st_count(f), n);
    for (int i = 0; i < n; i++)
        assert_non_null(st_find(f, names[i]));
}

static void check_files(const struct ckpt *c)
{
    static const char *const model[] = {"fc.bias",         "fc.weight",
                                        "in.weight",       "bn.running_var",
                                        "bn.running_mean", "bn.num_batches_tracked"};
    static const char *const optimizer[] = {"loss_scaler", "fc.bias.exp_avg", "fc.weight.exp_avg"};
    struct err err;
    int64_t count;

    assert_names(c->model, model, ARRAY_LEN(model));
    assert_names(c->optimizer, optimizer, ARRAY_LEN(optimizer));
    assert_int_equal(st_find(c->model, "fc.weight")->shape.dim[1], LARGE / 3);
    assert_int_equal(st_read(c->model, st_find(c->model, "bn.num_batches_tracked"), 0, &count,
                             sizeof count, &err),
                     0);
    assert_int_equal(count, 41);
}

static void a_checkpoint_holds_the_saved_rows(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const int is_card = i & 1, lends = i >> 1;
        char dir[] = "/tmp/dptrain-state-XXXXXX";
        struct hash128 before;
        struct ckpt *c;
        struct desk d;
        struct err err;

        assert_non_null(mkdtemp(dir));
        desk_open(&d, is_card);
        d.s->at = (struct ckpt_state){.step = 43, .steps_per_epoch = 5, .n_updates = 41};
        *number(&d, &moment, 1) = 2;
        *number(&d, &moment, 1500030) = 3;
        *number(&d, &slot_statistics, 17) = 4;
        before = hash(&d, NULL);
        save(&d, dir, lends);
        desk_close(&d);

        desk_open(&d, !is_card);
        assert_int_equal(ckpt_load_latest(dir, ignore, NULL, &c, &err), 0);
        check_files(c);
        assert_int_equal(state_load(d.s, c, &err), 0);
        assert_true(hash_equal(hash(&d, NULL), before));
        assert_int_equal(d.s->at.step, 43);
        assert_true(*(double *)state_data(d.s, &own) == 7);
        ckpt_close(c);
        desk_close(&d);
        assert_int_equal(remove_tree(dir), 0);
    }
}

/* Nothing is taken from a generation that does not fit. */
static void a_misfit_is_named_and_nothing_taken(void **state)
{
    static const struct slot_def longer = {.name = "longer",
                                           .suffix = ".exp_avg_sq",
                                           .scope = SLOT_PER_TRAINED,
                                           .dtype = DTYPE_F32,
                                           .file = SLOT_IN_OPTIMIZER};
    static const struct slot_def *const other[] = {&moment, &longer};
    char dir[] = "/tmp/dptrain-state-XXXXXX";
    struct state *s;
    struct ckpt *c;
    struct desk d;
    struct err err;

    (void)state;
    assert_non_null(mkdtemp(dir));
    desk_open(&d, 0);
    d.s->at = (struct ckpt_state){.step = 43, .steps_per_epoch = 5};
    *number(&d, &slot_parameters, 0) = 2;
    save(&d, dir, 0);
    assert_int_equal(ckpt_load_latest(dir, ignore, NULL, &c, &err), 0);
    assert_int_equal(state_new(d.b, &layout, other, 2, &s, &err), 0);
    assert_int_equal(state_load(s, c, &err), ERR_CONFIG);
    assert_non_null(
        strstr(err.msg, "optimizer.safetensors: no tensor \"fc.bias.exp_avg_sq\", which this"));
    assert_int_equal(s->at.step, 0);
    for (int64_t i = 0; i < layout.n_total; i++)
        assert_true(((float *)state_data(s, &slot_parameters))[i] == 0);
    state_free(s);
    ckpt_close(c);
    desk_close(&d);
    assert_int_equal(remove_tree(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_as_large_as_their_scope),
        cmocka_unit_test(rows_begin_as_declared),
        cmocka_unit_test(threads_draw_the_same_values),
        cmocka_unit_test(unsaved_rows_begin_alone),
        cmocka_unit_test(hashes_are_of_hashed_rows_by_name),
        cmocka_unit_test(every_hashed_number_counts_and_no_other),
        cmocka_unit_test(hashing_takes_little_memory),
        cmocka_unit_test(a_checkpoint_holds_the_saved_rows),
        cmocka_unit_test(a_misfit_is_named_and_nothing_taken),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
