/* coll/fabric: the messages of a lane, over a fake of libfabric that loses the order of reports, is
 * busy, and lets others write; and what ranks say that lack a fabric. */
#include "../test.h"

#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../remove_tree.h"
#include "base/alloc.h"
#include "base/util.h"
#include "coll/fabric/fabric.h"
#include "coll/fabric/lane.h"
#include "coll/fabric/load.h"
#include "coll/tcp.h"
#include "ranks.h"

/* ---- the terms of two ranks ---- */

static struct lane_terms terms[2];
static uint8_t halves[2][SEAL_PUBLIC];

static void make_terms(int hides)
{
    struct err err;

    for (int r = 0; r < 2; r++) {
        terms[r] = (struct lane_terms){
            .rank = r, .size = 2, .hides = hides, .half = halves, .key = "of the formation"};
        assert_int_equal(seal_own_new(&terms[r].own, halves[r], &err), 0);
    }
}

static void free_terms(void)
{
    for (int r = 0; r < 2; r++)
        EVP_PKEY_free(terms[r].own);
}

/* ---- a fake of libfabric ---- */

enum { FAKE_MOST = 256 };

struct fabric_port {
    struct posted {
        void *at;
        size_t n;
        struct fabric_op *op;
    } posted[FAKE_MOST];
    struct letter {
        uint8_t *bytes;
        size_t n;
    } inbox[FAKE_MOST];
    struct fabric_done done[FAKE_MOST];
    int n_posted, n_inbox, n_done;
    int is_busy;               /* send says so, until it is 0 */
    int is_reversed;           /* reports come last first */
    int breaks;                /* messages cannot be sent */
    enum fabric_outcome comes; /* how messages come */
};

static struct fabric_port *ports[3];

static int fake_open(const char *provider, const char *ip, size_t n_bytes, struct fabric_port **out,
                     struct err *err)
{
    (void)ip, (void)n_bytes, (void)err;
    *out = ports[provider[0] - '0'] = xcalloc(1, sizeof **out);
    (*out)->breaks = provider[0] == '2';
    return 0;
}

static void fake_close(struct fabric_port *p)
{
    for (int i = 0; i < p->n_inbox; i++)
        free(p->inbox[i].bytes);
    free(p);
}

static int fake_memory(struct fabric_port *p, void *at, size_t n_bytes, void **handle,
                       struct err *err)
{
    (void)p, (void)n_bytes, (void)err;
    *handle = at;
    return 0;
}

static void fake_put(struct fabric_port *to, const void *data, size_t n)
{
    assert_true(to->n_inbox < FAKE_MOST);
    to->inbox[to->n_inbox] = (struct letter){xmalloc(n + 1), n};
    memcpy(to->inbox[to->n_inbox++].bytes, data, n);
}

static int fake_send(struct fabric_port *p, uint64_t to, struct fabric_bytes bytes,
                     struct fabric_op *op, struct err *err)
{
    (void)err;
    assert_true((uintptr_t)bytes.handle <= (uintptr_t)bytes.at); /* that of its memory */
    if (p->is_busy)
        return FABRIC_BUSY;
    if (!p->breaks)
        fake_put(ports[to], bytes.at, bytes.n_bytes);
    p->done[p->n_done++] =
        (struct fabric_done){.op = op, .outcome = p->breaks ? FABRIC_FAILED : FABRIC_DONE};
    return 0;
}

static int fake_receive(struct fabric_port *p, struct fabric_bytes bytes, struct fabric_op *op,
                        struct err *err)
{
    (void)err;
    assert_true(p->n_posted < FAKE_MOST);
    p->posted[p->n_posted++] = (struct posted){bytes.at, bytes.n_bytes, op};
    return 0;
}

static int fake_poll(struct fabric_port *p, struct fabric_done *done, int n, struct err *err)
{
    int count = 0;

    (void)err;
    while (p->n_inbox && p->n_posted) {
        const struct posted to = p->posted[0];
        const struct letter from = p->inbox[0];

        assert_true(from.n <= to.n);
        memcpy(to.at, from.bytes, from.n);
        free(from.bytes);
        memmove(p->posted, p->posted + 1, (size_t)--p->n_posted * sizeof *p->posted);
        memmove(p->inbox, p->inbox + 1, (size_t)--p->n_inbox * sizeof *p->inbox);
        p->done[p->n_done++] =
            (struct fabric_done){.op = to.op, .n_bytes = from.n, .outcome = p->comes};
    }
    while (count < n && p->n_done) {
        done[count++] = p->done[p->is_reversed ? p->n_done - 1 : 0];
        p->n_done--;
        if (!p->is_reversed)
            memmove(p->done, p->done + 1, (size_t)p->n_done * sizeof *p->done);
    }
    return count;
}

static int fake_add(struct fabric_port *p, const void *address, size_t len, uint64_t *to,
                    struct err *err)
{
    (void)p, (void)len, (void)err;
    *to = *(const uint8_t *)address;
    return 0;
}

static int fake_sleep_on(struct fabric_port *p, int *has_fd)
{
    (void)p;
    *has_fd = 0;
    return -1;
}

static const struct fabric_ops fake = {.open = fake_open,
                                       .close = fake_close,
                                       .add = fake_add,
                                       .memory = fake_memory,
                                       .send = fake_send,
                                       .receive = fake_receive,
                                       .poll = fake_poll,
                                       .sleep_on = fake_sleep_on};

/* ---- lanes ---- */

static struct lane *lanes[2];

static void begin_lanes(int hides)
{
    struct err err;

    make_terms(hides);
    for (int r = 0; r < 2; r++) {
        const uint8_t other = (uint8_t)(1 - r);

        terms[r].ops = &fake;
        assert_int_equal(lane_new(&terms[r], r ? "1" : "0", "", COLL_BULK, &lanes[r], &err), 0);
        assert_int_equal(lane_add(lanes[r], 1 - r, &other, 1, &err), 0);
        assert_int_equal(lane_begin(lanes[r], &err), 0);
    }
}

static void end_lanes(void)
{
    for (int r = 0; r < 2; r++)
        lane_free(lanes[r]);
    free_terms();
}

static void poll_both(void)
{
    struct err err;

    for (int i = 0; i < 4; i++)
        assert_true(lane_poll(lanes[i % 2], &err) >= 0);
}

static int64_t say(int from, const void *data, size_t n)
{
    struct err err;
    const int64_t done = lane_send(lanes[from], 1 - from, data, n, &err);

    assert_true(done >= 0);
    return done;
}

static int64_t hear(int self, void *to, size_t n)
{
    struct err err;
    const int64_t done = lane_recv(lanes[self], 1 - self, to, n, &err);

    assert_true(done >= 0);
    return done;
}

/* A rank may be a window ahead, and no more; each half window that is read lets it go on. */
static void test_window(void **state)
{
    uint32_t x = 0, y;

    (void)state;
    begin_lanes(0);
    for (uint32_t i = 0; i < MESH_WINDOW; i++)
        assert_int_equal(say(0, &i, sizeof i), sizeof i);
    poll_both();
    assert_int_equal(say(0, &x, sizeof x), 0);
    for (uint32_t i = 0; i < 3 * MESH_WINDOW; i++) {
        assert_int_equal(hear(1, &y, sizeof y), sizeof y);
        assert_int_equal(y, i);
        poll_both();
        if (i % (MESH_WINDOW / 2) == MESH_WINDOW / 2 - 1)
            for (uint32_t k = 0; k < MESH_WINDOW / 2; k++) {
                x = MESH_WINDOW + i - (MESH_WINDOW / 2 - 1) + k;
                assert_int_equal(say(0, &x, sizeof x), sizeof x);
            }
        poll_both();
    }
    assert_int_equal(lane_n_strangers(lanes[0]) + lane_n_strangers(lanes[1]), 0);
    end_lanes();
}

/* Long and odd pieces both ways, reports last first, and a port that is busy now and then. */
static void test_bytes(void **state)
{
    enum { TOTAL = 3 * LANE_PIECE + 12345 };
    static uint8_t sent[TOTAL], got[2][TOTAL];
    size_t n_out[2] = {0}, n_in[2] = {0};

    (void)state;
    for (size_t i = 0; i < TOTAL; i++)
        sent[i] = (uint8_t)(i * 31 + (i >> 8));
    begin_lanes(1);
    for (uint32_t i = 0; n_in[0] + n_in[1] < 2 * (size_t)TOTAL; i++) {
        const int r = (int)(i & 1);
        const size_t most = 1 + i * 7919 % (2 * LANE_PIECE);

        ports[r]->is_reversed = i % 3 == 0;
        ports[r]->is_busy = i % 5 == 0;
        if (n_out[r] < TOTAL)
            n_out[r] += (size_t)say(r, sent + n_out[r], min_size(most, TOTAL - n_out[r]));
        poll_both();
        n_in[r] += (size_t)hear(r, got[r] + n_in[r], min_size(most / 2 + 1, TOTAL - n_in[r]));
        assert_true(i < 100000);
    }
    for (int r = 0; r < 2; r++)
        assert_memory_equal(got[r], sent, TOTAL);
    assert_int_equal(lane_n_strangers(lanes[0]) + lane_n_strangers(lanes[1]), 0);
    end_lanes();
}

/* Others write to the port: nothing of it is heard, all is counted, and the link goes on. */
static void test_strangers(void **state)
{
    static const char said[] = "the right bytes";
    char heard[sizeof said] = "";
    uint8_t forged[200] = {0}, *first;
    size_t n;

    (void)state;
    begin_lanes(0);
    fake_put(ports[1], "x", 1);
    fake_put(ports[1], forged, sizeof forged);
    forged[1] = 77; /* of a rank that is not there */
    fake_put(ports[1], forged, sizeof forged);
    say(0, said, sizeof said);
    first = ports[1]->inbox[3].bytes;
    n = ports[1]->inbox[3].n;
    fake_put(ports[1], first, n); /* said again */
    memcpy(forged, first, n);
    forged[n - 1] ^= 1;
    fake_put(ports[1], forged, n);
    poll_both();
    assert_int_equal(lane_n_strangers(lanes[1]), 4);
    assert_int_equal(hear(1, heard, sizeof heard), sizeof said);
    assert_string_equal(heard, said);
    forged[n - 1] ^= 1;
    fake_put(ports[1], forged, n); /* and again, after it was read */
    poll_both();
    assert_int_equal(hear(1, heard, sizeof heard), 0);
    for (int i = 0; i < 20; i++) {
        say(0, said, sizeof said);
        poll_both();
        assert_int_equal(hear(1, heard, sizeof heard), sizeof said);
    }
    end_lanes();
}

/* A rank that the fabric cannot reach is told to whoever sends to it, once that is known. */
static void test_unreachable(void **state)
{
    struct err err;

    (void)state;
    begin_lanes(0);
    ports[0]->breaks = 1;
    say(0, "x", 1);
    assert_int_equal(lane_n_sending(lanes[0], 1), 1);
    poll_both();
    assert_int_equal(lane_n_sending(lanes[0], 1), 0);
    assert_int_equal(lane_send(lanes[0], 1, "x", 1, &err), ERR_PEER);
    assert_non_null(strstr(err.msg, "the fabric cannot reach it"));
    end_lanes();
}

/* Link this test with --wrap=fabric_load. */
static int is_faked;

int __real_fabric_load(const struct fabric_ops **out, struct err *err);
int __wrap_fabric_load(const struct fabric_ops **out, struct err *err);

int __wrap_fabric_load(const struct fabric_ops **out, struct err *err)
{
    *out = &fake;
    return is_faked ? 0 : __real_fabric_load(out, err);
}

/* The socket of the peer lives: whoever flushes, receives or sends is told nevertheless. */
static void test_unreachable_link(void **state)
{
    static const uint8_t key[PROOF_KEY] = "of the formation";
    struct endpoint_fabric e = {.len = {1, 1}};
    struct fabric *f;
    struct link *k;
    struct err err;
    int pair[2];
    char byte;

    (void)state;
    make_terms(0);
    memcpy(e.half, halves[1], sizeof e.half);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    is_faked = 1;
    assert_int_equal(fabric_new("2", "", 0, 2, &f, &err), 0);
    is_faked = 0;
    assert_int_equal(fabric_meet(f, 1, &e, &err), 0);
    assert_int_equal(fabric_begin(f, key, 0, &err), 0);
    k = link_new((struct link_parts){.fd = pair[0], .fabric = f, .rank = 1}, 100000);
    assert_int_equal(link_send(k, "x", 1, &err), 0);
    assert_int_equal(link_flush(k, &err), ERR_PEER);
    assert_int_equal(link_recv(k, &byte, 1, &err), ERR_PEER);
    assert_non_null(strstr(err.msg, "the fabric cannot reach it"));
    assert_int_equal(link_send(k, "x", 1, &err), ERR_PEER);
    link_free(k);
    close(pair[1]);
    fabric_free(f);
    free_terms();
}

/* A message that is too long is a stranger's; one that fails ends the lane. */
static void test_outcomes(void **state)
{
    struct err err;

    (void)state;
    begin_lanes(0);
    ports[1]->comes = FABRIC_TOO_LONG;
    say(0, "x", 1);
    poll_both();
    assert_int_equal(lane_n_strangers(lanes[1]), 1);
    ports[1]->comes = FABRIC_CANCELED;
    say(0, "x", 1);
    poll_both();
    assert_int_equal(lane_n_strangers(lanes[1]), 1);
    ports[1]->comes = FABRIC_FAILED;
    say(0, "x", 1);
    assert_int_equal(lane_poll(lanes[1], &err), ERR_DEVICE);
    end_lanes();
}

/* ---- which fabric ---- */

/* Link this test with --wrap=fabric_likely. */
static const char *likely;

const char *__real_fabric_likely(const char *root);
const char *__wrap_fabric_likely(const char *root);

const char *__wrap_fabric_likely(const char *root)
{
    (void)root;
    return likely;
}

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
    char root[] = "/tmp/test_fabric-XXXXXX";

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

/* Two ranks, by what they want: how they connect, and whether they are over the fabric then.  With
 * "auto" this machine seems to have a network of the provider `likely`. */
static const struct offer {
    const char *want[2], *likely;
    int rc[2], is_over;
    const char *says;
} offers[] = {
    {{"auto", "auto"}, "tcp;ofi_rxm", {0, 0}, 1, NULL},
    {{"auto", "auto"}, NULL, {0, 0}, 0, NULL},
    {{"auto", "auto"}, "no_such", {0, 0}, 0, NULL},
    {{"auto", "tcp"}, "tcp;ofi_rxm", {0, 0}, 0, NULL},
    {{"auto", "tcp;ofi_rxm"}, "tcp;ofi_rxm", {0, 0}, 1, NULL},
    {{"tcp;ofi_rxm", "tcp"},
     NULL,
     {ERR_PROTO, 0},
     0,
     "endpoint of rank 1: it offers the fabric \"\""},
    {{"tcp", "tcp;ofi_rxm"},
     NULL,
     {0, ERR_PROTO},
     0,
     "endpoint of rank 0: it offers the fabric \"\""},
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

        likely = offers[i].likely;
        for (int r = 0; r < 2; r++) {
            const struct coll_tcp_options o = {.rank = r, .size = 2, .fabric = offers[i].want[r]};

            j[r] = (struct joining){.offer = &offers[i], .blob = blob, .rank = r};
            assert_int_equal(coll_tcp_prepare(&o, &j[r].c, &err), 0);
            coll_tcp_endpoint(j[r].c, &blob[r]);
        }
        for (int r = 0; r < 2; r++)
            assert_int_equal(pthread_create(&j[r].thread, NULL, join_main, &j[r]), 0);
        for (int r = 0; r < 2; r++)
            pthread_join(j[r].thread, NULL);
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
        cmocka_unit_test(test_window),           cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_strangers),        cmocka_unit_test(test_unreachable),
        cmocka_unit_test(test_unreachable_link), cmocka_unit_test(test_outcomes),
        cmocka_unit_test(test_likely),           cmocka_unit_test(test_no_provider),
        cmocka_unit_test(test_offers),           cmocka_unit_test(test_goes_over),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
