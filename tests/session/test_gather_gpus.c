/* driver_gather: on which GPU, or part of one, each follower computes.  The test plays the
 * followers. */
#include "gather_answer.h"

/* A Hello from a host with two GPUs, which rank 0 is on, too. */
static void hello_with_gpus(struct rig *r, int conn, const char *wanted)
{
    Wire__Gpu g[2] = {WIRE__GPU__INIT, WIRE__GPU__INIT}, *gpus[] = {&g[0], &g[1]};
    char a[] = "GPU-a", b[] = "GPU-b", name[] = "H200";
    g[0].uuid = a;
    g[1].uuid = b;
    g[1].index = 3; /* the GPUs between these two cannot be used */
    g[0].name = g[1].name = name;
    rig_connect(r, conn, "10.0.0.9");
    rig_say_hello(r, conn,
                  &(struct rig_caller){
                      .rank = -1, .device = wanted, .backend = "cuda", .gpus = gpus, .n_gpus = 2});
}

static void gpus_are_given_once(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(4);
    (void)state;
    o.device = "cuda:0";
    o.gpu_uuid = "GPU-a";
    rig_driver(&r, &o);
    hello_with_gpus(&r, 1, "auto");
    assert_string_equal(r.sent[1]->welcome->device, "cuda:3"); /* cuda:0 is the driver's */
    assert_logged(&r, "on cuda:3; 2 of 4 here");
    hello_with_gpus(&r, 2, "cuda:3");
    assert_refused(&r, 2, WIRE__REASON__REASON_DEVICE,
                   "cuda:3 of h (H200, GPU-b) is used by rank 1 already; none of its 2 is free");
    hello_with_gpus(&r, 3, "auto");
    assert_refused(&r, 3, WIRE__REASON__REASON_DEVICE, "other ranks use all of them");
    hello_with_gpus(&r, 4, "cuda:0");
    assert_refused(&r, 4, WIRE__REASON__REASON_DEVICE, "is used by rank 0 already");
    rig_close(&r, 1); /* its place and its GPU are free again */
    hello_with_gpus(&r, 5, "cuda:0");
    assert_refused(&r, 5, WIRE__REASON__REASON_DEVICE,
                   "cuda:0 of h (H200, GPU-a) is used by rank 0 already; free there: cuda:3 (H200, "
                   "GPU-b)");
    hello_with_gpus(&r, 6, "cuda:1");
    assert_refused(&r, 6, WIRE__REASON__REASON_DEVICE,
                   "there is no cuda:1 that could be used on h; free there: cuda:3");
    hello_with_gpus(&r, 7, "cpu");
    assert_refused(&r, 7, WIRE__REASON__REASON_DEVICE, "runs on cuda:0, as its driver does");
    hello_with_gpus(&r, 8, "cuda");
    assert_welcome(&r, 8, 1);
    assert_string_equal(r.sent[8]->welcome->device, "cuda:3");
    rig_free(&r);
}

/* The lowest free place is given, also after some places became free. */
static void free_places_are_found(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(5);
    (void)state;
    rig_driver(&r, &o);
    for (int conn = 1; conn < 5; conn++) {
        rig_hello(&r, conn, -1);
        assert_welcome(&r, conn, conn);
    }
    assert_logged(&r, "on cpu; 5 of 5 here");
    rig_close(&r, 3);
    rig_close(&r, 1);
    rig_hello(&r, 5, -1);
    assert_welcome(&r, 5, 1);
    assert_logged(&r, "on cpu; 4 of 5 here");
    rig_hello(&r, 6, -1);
    assert_welcome(&r, 6, 3);
    rig_hello(&r, 7, -1);
    assert_refused(&r, 7, WIRE__REASON__REASON_FULL, "all its 5 ranks");
    rig_free(&r);
}

/* A Hello from host "h" (or another) with one slice of a GPU. */
static void hello_with_slice(struct rig *r, int conn, const char *host, const char *slice,
                             const char *place, const char *wanted)
{
    Wire__Gpu g = WIRE__GPU__INIT, *gpus[] = {&g};
    char uuid[16], bus[16], name[] = "H200 MIG 1g";
    snprintf(uuid, sizeof uuid, "%s", slice);
    snprintf(bus, sizeof bus, "%s", place);
    g.uuid = uuid;
    g.bus = bus;
    g.name = name;
    rig_connect(r, conn, "10.0.0.9");
    rig_say_hello(r, conn,
                  &(struct rig_caller){.rank = -1,
                                       .host = host,
                                       .host_id = "boot",
                                       .device = wanted,
                                       .backend = "cuda",
                                       .gpus = gpus,
                                       .n_gpus = 1});
}

/* --test-shared-gpu: a free GPU is given first, then the first ones again. */
static void gpus_are_shared_for_tests(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(4);
    (void)state;
    o.device = "cuda:0";
    o.gpu_uuid = "GPU-a";
    o.shares_gpus = 1;
    rig_driver(&r, &o);
    hello_with_gpus(&r, 1, "auto");
    hello_with_gpus(&r, 2, "cuda:3");
    hello_with_gpus(&r, 3, "auto");
    assert_string_equal(r.sent[1]->welcome->device, "cuda:3");
    assert_string_equal(r.sent[2]->welcome->device, "cuda:3"); /* which it asked for */
    assert_string_equal(r.sent[3]->welcome->device, "cuda:0");
    rig_close(&r, 1); /* of two on one GPU */
    hello_with_gpus(&r, 4, "cuda:3");
    assert_welcome(&r, 4, 1);
    rig_close(&r, 2);
    hello_with_slice(&r, 5, "h", "MIG-a", "65", "cuda");
    assert_welcome(&r, 5, 2);
    rig_close(&r, 3);
    hello_with_slice(&r, 6, "h", "MIG-b", "65", "cuda");
    assert_welcome(&r, 6, 3);
    /* The rank that held the entry of the GPU's place goes before another that uses it. */
    rig_close(&r, 5);
    rig_close(&r, 6);
    rig_free(&r);
}

/* NCCL knows a GPU by its host and its place there, whatever slices of it there are. */
static void slices_of_one_gpu_are_refused(void **state)
{
    static const char in_use[] =
        "cuda:0 of h (H200 MIG 1g, MIG-b) is a slice of the GPU (PCI 65) of which rank 1 uses "
        "MIG-a, and NCCL takes one rank a GPU; there is no other";
    struct rig r;
    struct driver_options o = rig_options(4);
    (void)state;
    o.device = "cuda:0";
    o.gpu_uuid = "GPU-0";
    o.gpu_bus = "65"; /* of another host */
    o.cluster.heartbeat_timeout_ms = 100000;
    rig_driver(&r, &o);
    hello_with_slice(&r, 1, "h", "MIG-a", "65", "auto");
    assert_welcome(&r, 1, 1);
    hello_with_slice(&r, 2, "h", "MIG-b", "65", "auto");
    assert_refused(&r, 2, WIRE__REASON__REASON_DEVICE, in_use);
    hello_with_slice(&r, 3, "h", "MIG-b", "65", "cuda:0");
    assert_refused(&r, 3, WIRE__REASON__REASON_DEVICE, in_use);
    hello_with_slice(&r, 4, "h", "MIG-a", "65", "auto"); /* the same slice */
    assert_refused(&r, 4, WIRE__REASON__REASON_DEVICE,
                   "h has 1 GPU, and other ranks use all of them");
    /* Accepted: a slice on another host (for NCCL a container may be one); of another GPU; and, at
     * the end, of a GPU whose place is not told. */
    hello_with_slice(&r, 5, "other", "MIG-c", "65", "cuda");
    assert_welcome(&r, 5, 2);
    hello_with_slice(&r, 6, "h", "MIG-d", "66", "cuda");
    assert_welcome(&r, 6, 3);
    rig_close(&r, 1); /* its place, its slice and the rest of its GPU are free again */
    hello_with_slice(&r, 7, "h", "MIG-b", "65", "auto");
    assert_welcome(&r, 7, 1);
    rig_close(&r, 7);
    hello_with_slice(&r, 8, "h", "MIG-e", "", "auto");
    assert_welcome(&r, 8, 1);
    rig_free(&r);
}

/* The driver's own GPU is one of those of its host. */
static void slices_of_the_drivers_gpu_are_refused(void **state)
{
    struct rig r;
    struct driver_options o = rig_options(2);
    (void)state;
    o.host = "h";
    o.host_id = "boot";
    o.device = "cuda:0";
    o.gpu_uuid = "MIG-a";
    o.gpu_bus = "65";
    rig_driver(&r, &o);
    hello_with_slice(&r, 1, "h", "MIG-b", "65", "cuda");
    assert_refused(&r, 1, WIRE__REASON__REASON_DEVICE, "of which rank 0 uses MIG-a, and NCCL");
    hello_with_slice(&r, 2, "h", "MIG-b", "66", "cuda");
    assert_welcome(&r, 2, 1);
    rig_free(&r);
}

/* The follower knows why it has no GPU.  The refusal repeats the reason, and names the remedy. */
static void who_has_no_gpu_says_why(void **state)
{
    static const struct {
        const char *no_gpu, *text;
    } rows[] = {
        {"there is no NVIDIA driver (libcuda.so.1)",
         "this job runs on cuda:0, and the follower on h has no GPU that it can use: there is no "
         "NVIDIA driver (libcuda.so.1); mend that there, or start dpdriver with --device cpu"},
        {NULL, "has no GPU that it can use; mend that there, or start"},
    };
    struct rig r;
    struct driver_options o = rig_options(2);
    (void)state;
    o.device = "cuda:0";
    o.gpu_uuid = "GPU-0";
    rig_driver(&r, &o);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int conn = 1 + (int)i;
        rig_connect(&r, conn, "10.0.0.9");
        rig_say_hello(&r, conn, &(struct rig_caller){.rank = -1, .no_gpu = rows[i].no_gpu});
        assert_refused(&r, conn, WIRE__REASON__REASON_DEVICE, rows[i].text);
    }
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_are_given_once),
        cmocka_unit_test(gpus_are_shared_for_tests),
        cmocka_unit_test(slices_of_one_gpu_are_refused),
        cmocka_unit_test(slices_of_the_drivers_gpu_are_refused),
        cmocka_unit_test(who_has_no_gpu_says_why),
        cmocka_unit_test(free_places_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
