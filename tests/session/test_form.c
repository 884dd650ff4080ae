/* driver_form: the contents of Prepare and Form, and which rank gets what.
 * The test plays engines and followers. */
#include "rig.h"

#include "base/alloc.h"

static void addresses_reach_all(void **state)
{
    static const struct {
        const char *peer1, *peer2, *advertise;
        const char *want0, *want1, *want2;
    } cases[] = {
        {"127.0.0.1", "127.0.0.1", NULL, "10.0.0.100", "10.0.0.100", "10.0.0.100"},
        {"127.0.0.1", "10.0.0.2", NULL, "10.0.0.100", "10.0.0.100", "10.0.0.2"},
        {"::ffff:10.0.0.1", "::1", NULL, "10.0.0.100", "10.0.0.1", "10.0.0.100"},
        {"127.0.0.1", "10.0.0.2", "192.168.0.1", "192.168.0.1", "192.168.0.1", "10.0.0.2"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig r;
        struct driver_options o = rig_options(3);
        o.advertise = cases[i].advertise;
        rig_driver(&r, &o);
        rig_connect(&r, 1, cases[i].peer1);
        rig_connect(&r, 2, cases[i].peer2);
        for (int k = 1; k < 3; k++)
            rig_say_hello(&r, k, &(struct rig_caller){.rank = k, .host = "machine0"});
        for (int k = 0; k < 3; k++)
            rig_report(&r, k, rig_opened());
        assert_string_equal(r.command->prepare.address, cases[i].want0);
        assert_string_equal(r.sent[1]->prepare->address, cases[i].want1);
        assert_string_equal(r.sent[2]->prepare->address, cases[i].want2);
        for (int k = 1; k < 3; k++) { /* all on one machine */
            assert_int_equal(r.sent[k]->prepare->local, k);
            assert_int_equal(r.sent[k]->prepare->n_local, 3);
            assert_int_equal(r.sent[k]->prepare->n_container, 3);
        }
        rig_free(&r);
    }
}

/* Ranks of one machine may be in containers, which have spaces of pids, and CPU quotas, of their
 * own.
 */
static void containers_are_counted(void **state)
{
    static const int64_t space[] = {5, 9, 5};
    struct rig r;
    struct driver_options o = rig_options(3);
    (void)state;
    o.pid_space = space[0];
    rig_driver(&r, &o);
    for (int k = 1; k < 3; k++) {
        rig_connect(&r, k, "127.0.0.1");
        rig_say_hello(&r, k,
                      &(struct rig_caller){.rank = k, .host = "machine0", .pid_space = space[k]});
    }
    for (int k = 0; k < 3; k++)
        rig_report(&r, k, rig_opened());
    assert_int_equal(r.command->prepare.n_container, 2);
    assert_int_equal(r.sent[1]->prepare->n_container, 1);
    assert_int_equal(r.sent[2]->prepare->n_container, 2);
    assert_int_equal(r.sent[1]->prepare->n_local, 3);
    assert_int_equal(r.command->prepare.local + r.sent[1]->prepare->local +
                         r.sent[2]->prepare->local,
                     0 + 1 + 2);
    rig_free(&r);
}

/* The driver's address on the loopback is the one by which the first local rank found it. */
static void one_local_address_is_taken(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(3);
    (void)state;
    rig_driver(&r, &o);
    driver_connected(r.d, r.now, 1, "127.0.0.1", "127.0.0.1", "127.0.0.1:4000");
    driver_connected(r.d, r.now, 2, "127.0.0.1", "127.0.0.2", "127.0.0.1:4001");
    for (int k = 1; k < 3; k++)
        rig_say_hello(&r, k, &(struct rig_caller){.rank = k, .host = "machine0"});
    for (int k = 0; k < 3; k++)
        rig_report(&r, k, rig_opened());
    assert_string_equal(r.command->prepare.address, "127.0.0.1");
    assert_string_equal(r.sent[2]->prepare->address, "127.0.0.1");
    rig_free(&r);
}

static struct report *prepared_by(const char *library)
{
    struct report *r = report_new(REPORT_PREPARED, 1);
    r->prepared.library = library ? xstrdup(library) : NULL;
    return r;
}

/* Rank 0's ids go to all ranks, and no endpoints. */
static void ids_reach_all(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(3);
    struct report *own = prepared_by("nccl 2.28.9");
    const Wire__Form *f;
    char id[MSG_ID];
    (void)state;
    memset(id, 7, sizeof(id));
    own->prepared.ids = blob_of(id, sizeof(id));
    rig_driver(&r, &o);
    rig_gather(&r, 3);
    rig_report(&r, 0, own);
    rig_report(&r, 1, prepared_by("nccl 2.28.9"));
    rig_report(&r, 2, prepared_by("nccl 2.28.9"));
    assert_int_equal(r.command->kind, CMD_FORM);
    assert_int_equal(r.command->form.n_endpoints, 0);
    assert_int_equal(r.command->form.ids.len, MSG_ID);
    assert_memory_equal(r.command->form.ids.data, id, MSG_ID);
    f = r.sent[2]->form;
    assert_int_equal(r.sent[2]->body_case, WIRE__CONTROL__BODY_FORM);
    assert_int_equal(f->n_endpoints, 0);
    assert_int_equal(f->ids.len, MSG_ID);
    assert_memory_equal(f->ids.data, id, MSG_ID);
    rig_free(&r);
}

/* Two versions of NCCL would hang or crash: they are refused before any rank connects. */
static void libraries_must_be_equal(void **state)
{
    static const struct {
        const char *own, *other, *text;
    } cases[] = {
        {"nccl 2.28.9", "nccl 2.27.3", "rank 1 (h1) communicates by nccl 2.27.3, rank 0 by nccl"},
        {"nccl 2.28.9", NULL, "by something else, rank 0 by nccl 2.28.9: install the same"},
        {NULL, "tcp", "rank 1 (h1) communicates by tcp, rank 0 by something else"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig r;
        struct driver_options o = rig_options(2);
        rig_driver(&r, &o);
        rig_gather(&r, 2);
        rig_report(&r, 0, prepared_by(cases[i].own));
        rig_report(&r, 1, prepared_by(cases[i].other));
        assert_int_equal(r.sent[1]->body_case, WIRE__CONTROL__BODY_ABORT);
        assert_has(r.sent[1]->abort->text, cases[i].text);
        assert_false(r.sent[1]->abort->recover);
        rig_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_reach_all),     cmocka_unit_test(ids_reach_all),
        cmocka_unit_test(libraries_must_be_equal), cmocka_unit_test(one_local_address_is_taken),
        cmocka_unit_test(containers_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
