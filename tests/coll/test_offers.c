/* coll/offers: which fabric a rank offers, and whether the ranks then connect over it. */
#include "../test.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "../remove_tree.h"
#include "base/log.h"
#include "base/util.h"
#include "coll/fabric/fabric.h"
#include "coll/fabric/load.h"
#include "coll/fabric/rail.h"
#include "coll/tcp.h"
#include "ranks.h"

/* Link this test with --wrap=fabric_likely, --wrap=fabric_free and --wrap=log_at. */
static const char *likely;

const char *__real_fabric_likely(const char *root);
const char *__wrap_fabric_likely(const char *root);

const char *__wrap_fabric_likely(const char *root)
{
    (void)root;
    return likely;
}

static atomic_int n_freed;

void __real_fabric_free(struct fabric *f);
void __wrap_fabric_free(struct fabric *f);

void __wrap_fabric_free(struct fabric *f)
{
    n_freed += f != NULL;
    __real_fabric_free(f);
}

static pthread_mutex_t logged_lock = PTHREAD_MUTEX_INITIALIZER;
static char logged[1000]; /* all lines since it was emptied */

void __wrap_log_at(enum log_level level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

void __wrap_log_at(enum log_level level, const char *fmt, ...)
{
    va_list args;

    (void)level;
    va_start(args, fmt);
    pthread_mutex_lock(&logged_lock);
    vsnprintf(logged + strlen(logged), sizeof logged - strlen(logged), fmt, args);
    pthread_mutex_unlock(&logged_lock);
    va_end(args);
}

/* ---- which network ---- */

static void put_device(const char *root, const char *folder)
{
    char path[256];

    for (const char *at = folder; (at = strchr(at + 1, '/'));) {
        snprintf(path, sizeof path, "%s%.*s", root, (int)(at - folder), folder);
        (void)mkdir(path, 0700);
    }
    snprintf(path, sizeof path, "%s%s", root, folder);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void test_likely(void **state)
{
    char root[] = "/tmp/test_offers-XXXXXX";

    (void)state;
    assert_non_null(mkdtemp(root));
    assert_null(__real_fabric_likely(root));
    put_device(root, "/sys/class/infiniband/mlx5_0");
    assert_string_equal(__real_fabric_likely(root), "verbs;ofi_rxm");
    put_device(root, "/sys/bus/pci/drivers/efa/0000:00:06.0");
    assert_string_equal(__real_fabric_likely(root), "efa");
    put_device(root, "/sys/class/cxi/cxi0");
    assert_string_equal(__real_fabric_likely(root), "cxi");
    remove_tree(root);
}

/* Messages of tcp;ofi_rxm go as one, but not where another provider would get larger buffers, and
 * a user's own limit stays. */
static void test_limit(void **state)
{
    static const char *const names[] = {"FI_OFI_RXM_EAGER_LIMIT", "FI_OFI_RXM_BUFFER_SIZE"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char root[] = "/tmp/test_offers-XXXXXX";

        assert_non_null(mkdtemp(root));
        unsetenv(names[i]);
        fabric_set_limit(root);
        assert_non_null(getenv(names[i]));
        assert_true(atoi(getenv(names[i])) >= RAIL_PIECE + SEAL_HEAD + SEAL_MARK);
        setenv(names[i], "20000", 1);
        fabric_set_limit(root);
        assert_string_equal(getenv(names[i]), "20000");
        unsetenv(names[i]);
        put_device(root, "/sys/class/infiniband/mlx5_0");
        likely = "verbs;ofi_rxm"; /* where the compiler has not put fabric_likely into its caller */
        fabric_set_limit(root);
        assert_null(getenv(names[i]));
        likely = NULL;
        remove_tree(root);
    }
}

static void test_no_provider(void **state)
{
    const struct coll_tcp_options o = {.rank = 1, .size = 2, .fabric = "no_such"};
    struct coll *c;
    struct err err;

    (void)state;
    assert_int_equal(coll_tcp_prepare(&o, &c, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "cluster.fabric: no_such"));
    if (ranks_have_fabric())
        assert_non_null(strstr(err.msg, "fi_info -t FI_EP_RDM"));
}

/* ---- what ranks offer each other ---- */

/* Two ranks, by what they want: how they connect, and whether they are over the fabric then.  With
 * "auto" the machine of a rank seems to have a network of the provider `likely`.  A fabric on which
 * they disagree is closed at once: n_freed of them are. */
static const struct offer {
    const char *want[2], *likely[2];
    int rc[2], is_over, n_freed;
    const char *says, *logs;
} offers[] = {
    {{"auto", "auto"}, {"tcp;ofi_rxm", "tcp;ofi_rxm"}, {0, 0}, 1, 0, NULL, ""},
    {{"auto", "auto"}, {NULL, NULL}, {0, 0}, 0, 0, NULL, ""},
    {{"auto", "auto"}, {"no_such", "no_such"}, {0, 0}, 0, 0, NULL, "by TCP, not by no_such: "},
    {{"auto", "auto"},
     {"tcp;ofi_rxm", "shm"},
     {0, 0},
     0,
     2,
     NULL,
     "by TCP, not by tcp;ofi_rxm: rank 1 offers shm"},
    {{"auto", "tcp"},
     {"tcp;ofi_rxm", NULL},
     {0, 0},
     0,
     1,
     NULL,
     "by TCP, not by tcp;ofi_rxm: rank 1 offers no fabric"},
    {{"auto", "tcp;ofi_rxm"}, {"tcp;ofi_rxm", NULL}, {0, 0}, 1, 0, NULL, ""},
    {{"tcp;ofi_rxm", "tcp"},
     {NULL, NULL},
     {ERR_PROTO, 0},
     0,
     0,
     "endpoint of rank 1: it offers the fabric \"\"",
     ""},
    {{"tcp", "tcp;ofi_rxm"},
     {NULL, NULL},
     {0, ERR_PROTO},
     0,
     0,
     "endpoint of rank 0: it offers the fabric \"\"",
     ""},
};

struct joining {
    const struct offer *offer;
    struct coll *c;
    const struct buf *blob; /* [2] */
    int rank, rc;
    struct err err;
    pthread_t thread;
};

static void *join_main(void *arg)
{
    struct joining *j = arg;

    j->rc = coll_tcp_connect(j->c, (const void *[]){j->blob[0].data, j->blob[1].data},
                             (size_t[]){j->blob[0].len, j->blob[1].len},
                             j->offer->says ? 100 : 100000, &j->err);
    return NULL;
}

static void check_joined(const struct joining *j)
{
    const struct offer *o = j->offer;

    if (!o->says && j->rc < 0)
        fail_msg("%s", j->err.msg);
    if (!o->says)
        assert_int_equal(coll_tcp_fabric(j->c) != NULL, o->is_over);
    if (!o->rc[j->rank])
        return;
    assert_int_equal(j->rc, o->rc[j->rank]);
    if (!strstr(j->err.msg, o->says))
        fail_msg("%s", j->err.msg);
}

static void test_offers(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(offers) && ranks_have_fabric(); i++) {
        struct buf blob[2] = {{0}};
        struct joining j[2];
        struct err err;

        *logged = 0;
        for (int r = 0; r < 2; r++) {
            const struct coll_tcp_options o = {.rank = r, .size = 2, .fabric = offers[i].want[r]};

            likely = offers[i].likely[r];
            j[r] = (struct joining){.offer = &offers[i], .blob = blob, .rank = r};
            assert_int_equal(coll_tcp_prepare(&o, &j[r].c, &err), 0);
            coll_tcp_endpoint(j[r].c, &blob[r]);
        }
        n_freed = 0; /* one that cannot be opened is freed before */
        for (int r = 0; r < 2; r++)
            assert_int_equal(pthread_create(&j[r].thread, NULL, join_main, &j[r]), 0);
        for (int r = 0; r < 2; r++)
            pthread_join(j[r].thread, NULL);
        assert_int_equal(n_freed, offers[i].n_freed);
        if (!strstr(logged, offers[i].logs))
            fail_msg("\"%s\", want \"%s\"", logged, offers[i].logs);
        for (int r = 0; r < 2; r++) {
            check_joined(&j[r]);
            coll_free(j[r].c);
            buf_fini(&blob[r]);
        }
    }
}

/* The ranks of these transports are over the fabric, and the others are not. */
static int is_over_fabric(struct coll *c, const void *arg, struct verdict *v)
{
    const char *want = *(const char *const *)arg, *is = coll_tcp_fabric(c);

    if (want ? !is || strcmp(is, want) != 0 : is != NULL)
        return unexpected(v, "over %s, want %s", is ? is : "TCP", want ? want : "TCP");
    return 0;
}

static void test_goes_over(void **state)
{
    static const char *const none = NULL, *const rxm = "tcp;ofi_rxm", *const shm = "shm";

    (void)state;
    assert_int_equal(run_ranks(OVER_TCP_THREADS, 3, 0, is_over_fabric, &none), 0);
    assert_int_equal(run_ranks(OVER_FABRIC_THREADS, 3, 0, is_over_fabric, &rxm), 0);
    assert_int_equal(run_ranks(OVER_FABRIC_SHM_FORK, 3, 0, is_over_fabric, &shm), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_likely),      cmocka_unit_test(test_limit),
        cmocka_unit_test(test_no_provider), cmocka_unit_test(test_offers),
        cmocka_unit_test(test_goes_over),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
