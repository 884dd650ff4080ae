/* engine: its work is canceled from outside, at a moment that the test chooses; what a request to
 * regroup does; and what it says if a part of its preparation fails, links and a device's
 * collectives among them. */
#include "../test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../remove_tree.h"
#include "backend/plugin.h"
#include "base/alloc.h"
#include "base/mailbox.h"
#include "base/util.h"
#include "coll/device.h"
#include "coll/impl.h"
#include "coll/tcp.h"
#include "train/engine.h"

static const char job[] = "model: {arch: mlp, hidden: [8]}\n"
                          "data: {format: digits, samples: 64, validation_samples: 8}\n"
                          "train: {global_batch: 16}\n";

struct rig {
    struct mailbox reports;
    struct engine *engine;
    int rank; /* that it is prepared as */
};

static void free_report(struct mail *m) { report_free(container_of(m, struct report, mail)); }

static void begin_with(struct rig *r, const struct engine_options *o)
{
    struct err err;

    r->rank = 0;
    mailbox_init(&r->reports, NULL, NULL);
    if (engine_new(o, &r->reports, &r->engine, &err) < 0)
        fail_msg("%s", err.msg);
}

static void begin_in(struct rig *r, const char *run_dir)
{
    begin_with(r, &(struct engine_options){.device = "cpu", .n_threads = 1, .run_dir = run_dir});
}

static void begin(struct rig *r) { begin_in(r, NULL); }

static void end(struct rig *r)
{
    engine_free(r->engine);
    mailbox_fini(&r->reports, free_report);
}

static struct report *next(struct rig *r)
{
    return container_of(mailbox_wait(&r->reports), struct report, mail);
}

static struct report *expect(struct rig *r, enum report_kind kind, int64_t generation)
{
    struct report *p = next(r);

    while (p->kind == REPORT_STEP && kind != REPORT_STEP) {
        report_free(p);
        p = next(r);
    }
    if (p->kind == REPORT_FAULT && kind != REPORT_FAULT)
        fail_msg("%s", p->fault.err.msg);
    assert_int_equal(p->kind, kind);
    assert_int_equal(p->generation, generation);
    return p;
}

static void open_as(struct rig *r, int n_ranks, const char *resume)
{
    struct cmd *c = cmd_new(CMD_OPEN, 0);

    c->open.n_ranks = n_ranks;
    c->open.job = blob_of(job, strlen(job));
    c->open.resume = resume ? xstrdup(resume) : NULL;
    engine_post(r->engine, c);
    report_free(expect(r, REPORT_OPENED, 0));
}

static void open_it(struct rig *r, int n_ranks) { open_as(r, n_ranks, NULL); }

static void post_prepare_at(struct rig *r, int64_t generation, int n_ranks, const char *address,
                            const char *inject)
{
    struct cmd *c = cmd_new(CMD_PREPARE, generation);

    c->prepare.rank = r->rank;
    c->prepare.n_ranks = c->prepare.n_local = n_ranks;
    c->prepare.address = xstrdup(address);
    c->prepare.inject = inject ? xstrdup(inject) : NULL;
    engine_post(r->engine, c);
}

static void post_prepare(struct rig *r, int64_t generation, int n_ranks, const char *inject)
{
    post_prepare_at(r, generation, n_ranks, "127.0.0.1", inject);
}

static void post_form(struct rig *r, int64_t generation, const struct report *prepared)
{
    struct cmd *c = cmd_new(CMD_FORM, generation);
    const struct blob *own = &prepared->prepared.endpoint;

    c->form.n_endpoints = 1;
    c->form.endpoint = xcalloc(1, sizeof *c->form.endpoint);
    c->form.endpoint[0] = blob_of(own->data, own->len);
    engine_post(r->engine, c);
}

static void post_train(struct rig *r, int64_t generation)
{
    struct cmd *c = cmd_new(CMD_TRAIN, generation);

    c->train.epoch = 1;
    engine_post(r->engine, c);
}

static void expect_canceled(struct rig *r, int64_t generation)
{
    struct report *p = expect(r, REPORT_FAULT, generation);

    assert_int_equal(p->fault.err.code, ERR_CANCELED);
    assert_true(p->fault.is_consequence);
    report_free(p);
}

/* One rank, which holds this step, forms by itself and trains an epoch of 4 steps to its end. */
static void train_alone(struct rig *r, int64_t generation, int64_t step)
{
    struct report *p;
    struct progress at;

    post_prepare(r, generation, 1, NULL);
    p = expect(r, REPORT_PREPARED, generation);
    assert_int_equal(p->prepared.step, step);
    post_form(r, generation, p);
    report_free(p);
    report_free(expect(r, REPORT_FORMED, generation));
    for (int again = 0; again < 2;
         again++) { /* an epoch whose last step is held is reported once more */
        post_train(r, generation);
        p = expect(r, REPORT_EPOCH, generation);
        assert_int_equal(p->epoch.step, 4);
        assert_int_equal(p->epoch.n_samples, 64);
        report_free(p);
    }
    engine_progress(r->engine, &at); /* the steps of all generations, and their time */
    assert_int_equal(at.n_steps, 4);
    assert_true(at.busy_ns > 0 && at.busy_ns <= at.wall_ns);
}

/* The abort comes while the ranks' links are made.  The generation is not formed, even by a command
 * that is posted later; the next generation is formed. */
static void test_canceled_while_it_prepares(void **state)
{
    struct rig r;
    struct report *p;

    (void)state;
    begin(&r);
    open_it(&r, 2);
    post_prepare(&r, 1, 2, "delay:rank0@prepare:1ms");
    report_free(expect(&r, REPORT_INJECT, 1)); /* the engine waits */
    engine_abort(r.engine);
    p = expect(&r, REPORT_PREPARED, 1);
    post_form(&r, 1, p);
    report_free(p);
    expect_canceled(&r, 1);
    train_alone(&r, 2, 0);
    end(&r);
}

/* While a rank waits for another one, the engine says for which; an abort ends that. */
static void test_unlinked(void **state)
{
    const struct coll_tcp_options o = {.rank = 1, .size = 2, .bind = "127.0.0.1"};
    struct cmd *c = cmd_new(CMD_FORM, 1);
    struct coll *other;
    struct buf endpoint = {0};
    struct progress at = {0};
    struct report *p;
    struct err err;
    struct rig r;

    (void)state;
    begin(&r);
    open_it(&r, 2);
    post_prepare(&r, 1, 2, NULL);
    p = expect(&r, REPORT_PREPARED, 1);
    if (coll_tcp_prepare(&o, &other, &err) < 0) /* it listens, and never connects */
        fail_msg("%s", err.msg);
    coll_tcp_endpoint(other, &endpoint);
    c->form.n_endpoints = 2;
    c->form.endpoint = xcalloc(2, sizeof *c->form.endpoint);
    c->form.endpoint[0] = blob_of(p->prepared.endpoint.data, p->prepared.endpoint.len);
    c->form.endpoint[1] = blob_of(endpoint.data, endpoint.len);
    engine_post(r.engine, c);
    while (at.unlinked == 0)
        engine_progress(r.engine, &at);
    assert_int_equal(at.unlinked, 1 + 1);
    engine_abort(r.engine);
    expect_canceled(&r, 1);
    report_free(p);
    buf_fini(&endpoint);
    coll_free(other);
    train_alone(&r, 2, 0);
    end(&r);
}

/* Faults that come with the command to open are due before the job is open. */
static void test_fault_while_it_opens(void **state)
{
    struct cmd *c = cmd_new(CMD_OPEN, 0);
    struct rig r;

    (void)state;
    begin(&r);
    c->open.n_ranks = 1;
    c->open.job = blob_of(job, strlen(job));
    c->open.inject = xstrdup("delay:rank0@ready:1ms");
    engine_post(r.engine, c);
    report_free(expect(&r, REPORT_INJECT, 0));
    engine_injected(r.engine);
    report_free(expect(&r, REPORT_OPENED, 0));
    train_alone(&r, 1, 0);
    end(&r);
}

static void form_alone(struct rig *r, int64_t generation, const char *inject)
{
    struct report *p;

    post_prepare(r, generation, 1, inject);
    p = expect(r, REPORT_PREPARED, generation);
    post_form(r, generation, p);
    report_free(p);
    report_free(expect(r, REPORT_FORMED, generation));
}

static void expect_end(struct rig *r, int64_t generation, int64_t step, enum epoch_end end)
{
    struct report *p = expect(r, REPORT_EPOCH, generation);

    assert_int_equal(p->epoch.step, step);
    assert_int_equal(p->epoch.end, end);
    report_free(p);
}

/* A regroup that is requested in an epoch's last step comes after that epoch, which is whole.  The
 * request ends with the next formation. */
static void test_regroup(void **state)
{
    static const struct {
        const char *delay; /* the request comes in this step */
        int64_t step;
        enum epoch_end end;
    } cases[] = {{"delay:rank0@step1:1ms", 2, EPOCH_REGROUP},
                 {"delay:rank0@step3:1ms", 4, EPOCH_WHOLE}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig r;

        begin(&r);
        open_it(&r, 1);
        form_alone(&r, 1, cases[i].delay);
        post_train(&r, 1);
        report_free(expect(&r, REPORT_INJECT, 1));
        engine_request(r.engine, ENGINE_REQUEST_REGROUP);
        engine_injected(r.engine);
        expect_end(&r, 1, cases[i].step, cases[i].end);
        form_alone(&r, 2, NULL);
        post_train(&r, 2);
        expect_end(&r, 2, 4, EPOCH_WHOLE);
        end(&r);
    }
}

/* The abort comes in the midst of a step.  The step held is then the last one that was applied. */
static void test_canceled_in_training(void **state)
{
    struct rig r;
    struct report *p;

    (void)state;
    begin(&r);
    open_it(&r, 1);
    post_prepare(&r, 1, 1, "delay:rank0@step2:1ms");
    p = expect(&r, REPORT_PREPARED, 1);
    post_form(&r, 1, p);
    report_free(p);
    report_free(expect(&r, REPORT_FORMED, 1));
    post_train(&r, 1);
    report_free(expect(&r, REPORT_INJECT, 1)); /* in step 2 */
    engine_abort(r.engine);
    p = expect(&r, REPORT_FAULT, 1);
    assert_int_equal(p->fault.err.code, ERR_CANCELED);
    assert_int_equal(p->fault.step, 2);
    report_free(p);
    train_alone(&r, 2, 2);
    end(&r);
}

static void stop(struct rig *r, int saves)
{
    struct cmd *c = cmd_new(CMD_STOP, 1);

    c->stop.saves = saves;
    engine_post(r->engine, c);
}

/* The job fails in the midst of a step: the last applied one goes to disk if it should, and if no
 * checkpoint has it. */
static void test_stop_saves(void **state)
{
    char dir[] = "/tmp/dptrain-engine-XXXXXX";
    struct report *p;
    struct rig r;

    (void)state;
    assert_non_null(mkdtemp(dir));
    for (int saves = 0; saves < 2; saves++) {
        begin_in(&r, dir);
        open_it(&r, 1);
        form_alone(&r, 1, "delay:rank0@step2:1ms");
        post_train(&r, 1);
        report_free(expect(&r, REPORT_INJECT, 1));
        engine_abort(r.engine);
        stop(&r, saves);
        expect_canceled(&r, 1);
        if (saves) {
            p = expect(&r, REPORT_CHECKPOINT, 1);
            assert_int_equal(p->checkpoint.step, 2);
            assert_true(p->checkpoint.is_unasked);
            assert_non_null(strstr(p->checkpoint.path, "/checkpoints/step-00000002"));
            report_free(p);
        }
        report_free(expect(&r, REPORT_STOPPED, 1));
        end(&r);
    }
    begin_in(&r, dir); /* goes on from that step, and makes none */
    open_as(&r, 1, dir);
    form_alone(&r, 1, NULL);
    stop(&r, 1);
    report_free(expect(&r, REPORT_STOPPED, 1));
    end(&r);
    assert_int_equal(remove_tree(dir), 0);
}

static void expect_no_prepare(struct rig *r, int64_t generation, const char *why)
{
    struct report *p = expect(r, REPORT_FAULT, generation);

    assert_int_equal(p->fault.phase, PHASE_PREPARE);
    assert_false(p->fault.is_consequence);
    if (!strstr(p->fault.err.msg, why))
        fail_msg("the reason is '%s', want '%s' in it", p->fault.err.msg, why);
    report_free(p);
}

/* A rank that cannot listen at the address is not prepared.  It takes part in the next formation.
 */
static void test_no_links(void **state)
{
    struct rig r;

    (void)state;
    begin(&r);
    open_it(&r, 2);
    post_prepare_at(&r, 1, 2, "203.0.113.1", NULL); /* an address for documentation, nobody's */
    expect_no_prepare(&r, 1, "203.0.113.1");
    train_alone(&r, 2, 0);
    end(&r);
}

/* A plugin whose device is the CPU, and whose collectives fail at one of three calls. */
static enum trouble { IN_LIBRARY, IN_IDS, IN_COLL, N_TROUBLES } trouble;
static const char *const trouble_text[] = {"no such library", "no ids", "no communicator"};
static int n_opened, n_ids; /* how often each was asked for */

static int device_fails(enum trouble at, struct err *err)
{
    assert_true(at <= trouble); /* nothing is asked of a device after it has failed */
    return at == trouble ? err_set(err, ERR_DEVICE, "%s", trouble_text[at]) : 0;
}

static int device_open(int device, struct backend **out, struct err *err)
{
    assert_int_equal(device, 3);
    n_opened++;
    return backend_open_cpu(1, out, err);
}

static int device_library(int *version, struct err *err)
{
    *version = 22809;
    return device_fails(IN_LIBRARY, err);
}

static int device_make_id(uint8_t id[COLL_ID_BYTES], struct err *err)
{
    n_ids++;
    memset(id, 1, COLL_ID_BYTES);
    return device_fails(IN_IDS, err);
}

static int device_make(struct backend *b, const struct coll_device_options *o, struct coll **out,
                       struct err *err)
{
    (void)b;
    (void)out;
    assert_int_equal(o->size, 2);
    return device_fails(IN_COLL, err);
}

static int device_alloc(struct backend *b, size_t n_bytes, const char *what, void **out,
                        struct err *err)
{
    int rc = backend_alloc(b, n_bytes, what, out, err);

    return rc < 0 ? rc : backend_zero(b, *out, n_bytes, err);
}

static void test_no_device_coll(void **state)
{
    static const struct coll_device_ops ops = {.version = COLL_DEVICE_VERSION,
                                               .layout = (uint32_t)COLL_DEVICE_LAYOUT,
                                               .name = "fake",
                                               .library = device_library,
                                               .make_id = device_make_id,
                                               .make = device_make,
                                               .alloc = device_alloc,
                                               .free = backend_free};
    static const struct plugin plugin = {.open = device_open, .coll = &ops};
    const struct engine_options o = {.device = "cuda:3", .plugin = &plugin, .n_threads = 1};

    (void)state;
    for (trouble = IN_LIBRARY; trouble < N_TROUBLES; trouble++)
        for (int rank = trouble == IN_COLL; rank >= 0; rank--) {
            struct rig r;

            n_opened = n_ids = 0;
            begin_with(&r, &o);
            open_it(&r, 2);
            r.rank = rank;
            post_prepare(&r, 1, 2, NULL);
            expect_no_prepare(&r, 1, trouble_text[trouble]);
            assert_int_equal(n_opened, 1);
            assert_int_equal(n_ids, trouble >= IN_IDS && rank == 0); /* rank 0 makes them for all */
            r.rank = 0;
            train_alone(&r, 2, 0); /* a single rank has no use for collectives of devices */
            end(&r);
        }
}

/* Where no thread can be started, the engine is not made, and says why. */
static void test_no_thread(void **state)
{
    const struct engine_options o = {.device = "cpu", .n_threads = 1};
    struct engine *engine = NULL;
    pthread_attr_t was, huge;
    struct mailbox reports;
    struct err err;

    (void)state;
    mailbox_init(&reports, NULL, NULL);
    assert_int_equal(pthread_getattr_default_np(&was), 0);
    assert_int_equal(pthread_attr_init(&huge), 0);
    assert_int_equal(pthread_attr_setstacksize(&huge, (size_t)1 << 50), 0);
    assert_int_equal(pthread_setattr_default_np(&huge), 0);
    assert_true(engine_new(&o, &reports, &engine, &err) < 0);
    assert_int_equal(pthread_setattr_default_np(&was), 0);
    assert_null(engine);
    assert_non_null(strstr(err.msg, "starting the engine's thread"));
    pthread_attr_destroy(&was);
    pthread_attr_destroy(&huge);
    mailbox_fini(&reports, free_report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_canceled_while_it_prepares),
        cmocka_unit_test(test_unlinked),
        cmocka_unit_test(test_fault_while_it_opens),
        cmocka_unit_test(test_canceled_in_training),
        cmocka_unit_test(test_regroup),
        cmocka_unit_test(test_stop_saves),
        cmocka_unit_test(test_no_links),
        cmocka_unit_test(test_no_device_coll),
        cmocka_unit_test(test_no_thread),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
