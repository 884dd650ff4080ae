/* driver_neighbours: the ranks of a machine follow one another.  The test plays all engines and
 * followers; a text names the machines of ranks or followers, a letter each. */
#include "rig.h"

#include "session/driver_impl.h"

enum { MOST = 8 };

/* A follower of the machine of that letter comes, and is ready.  "0" is the driver's machine. */
static void come(struct rig *r, int conn, int rank, char letter)
{
    char host[] = {'h', letter, 0}, id[] = "machine?";

    id[7] = letter;
    rig_connect(r, conn, "10.0.0.9");
    rig_say_hello(
        r, conn,
        &(struct rig_caller){.rank = rank, .host = host, .host_id = id, .pid = 100 + conn});
    assert_int_equal(r->sent[conn]->body_case, WIRE__CONTROL__BODY_WELCOME);
    rig_report(r, conn, rig_opened());
}

/* Gather rank 0 and the followers of these machines, with connections from 1 on; the last one asks
 * for the rank `last`. */
static void gather(struct rig *r, const struct driver_options *o, const char *machines, int last)
{
    const int n = (int)strlen(machines);

    assert_int_equal(o->n_ranks, n + 1);
    rig_driver(r, o);
    rig_report(r, 0, rig_opened());
    for (int i = 0; i < n; i++)
        come(r, i + 1, i == n - 1 ? last : -1, machines[i]);
    assert_int_equal(r->command->kind, CMD_PREPARE);
}

static void assert_machines(const struct rig *r, const char *want)
{
    char got[MOST + 1] = "";

    for (int k = 0; k < r->d->membership.n_ranks; k++)
        got[k] = r->d->seats[k].host[1];
    assert_string_equal(got, want);
}

static void before_training_they_are_put_in_order(void **state)
{
    static const struct {
        const char *come;
        int last;
        const char *ranks;
        int rank_of[MOST]; /* by connection */
    } cases[] = {
        {"b0ba", -1, "00bba", {0, 2, 1, 3, 4}}, {"abcabc", -1, "0aabbcc", {0, 1, 3, 5, 2, 4, 6}},
        {"aabb", -1, "0aabb", {0, 1, 2, 3, 4}}, {"abcd", -1, "0abcd", {0, 1, 2, 3, 4}},
        {"b0ba", 4, "0b0ba", {0, 1, 2, 3, 4}}, /* whoever asks for ranks knows an order */
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig r;
        const int n = (int)strlen(cases[i].ranks);
        struct driver_options o = rig_elastic(n);

        gather(&r, &o, cases[i].come, cases[i].last);
        assert_machines(&r, cases[i].ranks);
        for (int conn = 1; conn < n; conn++)
            rig_assert_prepare(&r, conn, cases[i].rank_of[conn], n);
        rig_go_on_to(&r, n, CMD_TRAIN);
        rig_free(&r);
    }
}

/* Ranks are lost, and spares that wait, or followers that come then, take their places. */
static void a_free_seat_goes_to_a_neighbour(void **state)
{
    static const struct {
        const char *ranks; /* without rank 0 */
        int lost[3];       /* their connections, 0 ends them */
        const char *come;
        int are_spares;
        const char *then;
    } cases[] = {
        {"aab", {2}, "ba", 1, "0aab"},        /* both fit, and the rank before counts more */
        {"aab", {3}, "ab", 1, "0aaa"},        /* as good */
        {"aabb", {3}, "cb", 1, "0aabb"},      /* the rank behind counts, too */
        {"aabb", {2, 4}, "ba", 1, "0aabb"},   /* each to its own */
        {"aabb", {3, 4}, "cdcd", 1, "0aacc"}, /* a machine is lost */
        {"abc", {2}, "de", 1, "0adc"},        /* no one's neighbour: the first */
        {"aabb", {2, 4}, "ba", 0, "0aabb"},   /* a seat between two is left to the other */
        {"aabb", {2, 3}, "ba", 0, "0aabb"},   {"aabb", {1, 3}, "ba", 0, "0aabb"},
        {"abcd", {2, 4}, "ef", 0, "0aecf"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig r;
        const int n = 1 + (int)strlen(cases[i].ranks);
        struct driver_options o = rig_elastic(n);

        o.cluster.spares = 4;
        gather(&r, &o, cases[i].ranks, -1);
        rig_go_on_to(&r, n, CMD_TRAIN);
        for (int s = 0; cases[i].are_spares && cases[i].come[s]; s++)
            come(&r, n + s, -1, cases[i].come[s]);
        for (int k = 0; k < 3 && cases[i].lost[k]; k++)
            rig_close(&r, cases[i].lost[k]);
        for (int s = 0; !cases[i].are_spares && cases[i].come[s]; s++)
            come(&r, n + s, -1, cases[i].come[s]);
        assert_int_equal(r.d->stage, STAGE_PREPARE);
        assert_machines(&r, cases[i].then);
        rig_free(&r);
    }
}

/* Those who join behind the last rank go on with its machine. */
static void joiners_go_on_with_the_last_machine(void **state)
{
    struct rig r;
    struct driver_options o = rig_elastic(3);
    (void)state;
    o.cluster.max_ranks = 6;
    gather(&r, &o, "ab", -1);
    rig_go_on_to(&r, 3, CMD_TRAIN);
    for (int s = 0; s < 3; s++)
        come(&r, 3 + s, -1, "cbc"[s]);
    rig_wait(&r, 10300);
    RIG_ALL(&r, CMD_TRAIN, 1, 0, 1, 2);
    assert_machines(&r, "0abbcc");
    rig_assert_prepare(&r, 4, 3, 6);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(before_training_they_are_put_in_order),
        cmocka_unit_test(a_free_seat_goes_to_a_neighbour),
        cmocka_unit_test(joiners_go_on_with_the_last_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
