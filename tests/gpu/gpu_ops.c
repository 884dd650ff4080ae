/* gpu_ops - the operator table on a real GPU: every case against the double-precision reference.
 *
 *     gpu_ops [F32|BF16|F16 [CASE...]]      default F32, and all cases; 77: no GPU
 *     gpu_ops STRAY                         one of our kernels writes outside of any memory and
 *                                           fails: compute-sanitizer must report that */
#include "../test.h"

#include "gpu.h"
#include "runner.h"
#include "tensor/dtype.h"

static struct case_types types; /* zero: F32 */
static int is_half;             /* the libraries may round intermediate results */
static const char *const *only; /* NULL: all cases */

static void table(void **state)
{
    struct op_runner r = {.n_turns = 3, .types = types, .only = only, .rounds_twice = is_half};
    struct err err;
    int n;

    (void)state;
    if (gpu_open(&r.b, &err) < 0)
        fail_msg("%s", err.msg);
    n = op_runner_cases(&r, 0);
    printf("%d nodes checked\n", n);
    assert_true(n > (only ? 0 : 80));
    backend_close(r.b);
}

static const struct op_case *case_named(const char *name)
{
    const struct op_case *c;

    for (int i = 0; (c = op_case_at(i)); i++)
        if (strcmp(c->name, name) == 0)
            break;
    return c;
}

/* Returns <0, the expected failure, if the stray write was noticed. */
static int run_stray(struct backend *b, struct err *err)
{
    int din[NODE_MAX_IN];
    struct graph *g = case_build(case_named("relu"), types, din);
    const struct node *n = &g->node[g->n_forward - 1];
    void *in[NODE_MAX_IN] = {NULL}, *out[NODE_MAX_OUT] = {(void *)(uintptr_t)256};
    struct kernel *k = NULL;
    int rc = backend_alloc(b, case_bytes(g, n->in[0]), "a test", &in[0], err);

    if (rc == 0)
        rc = backend_make_kernel(b, g, n, &k, err);
    if (rc == 0)
        rc = k->ops->bind(k, in, out, NULL, err);
    if (rc == 0)
        rc = k->ops->run(k, err);
    if (rc == 0)
        rc = backend_sync(b, err);
    if (k)
        k->ops->free(k);
    graph_free(g);
    return rc;
}

static int stray(void)
{
    struct backend *b;
    struct err err;
    int rc = gpu_find();

    if (rc)
        return rc;
    rc = gpu_open(&b, &err);
    if (rc == 0)
        rc = run_stray(b, &err);
    printf("%s\n", rc < 0 ? err.msg : "a kernel wrote at address 256, and nobody minded");
    return 1;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(table)};
    const int dtype = argc > 1 ? dtype_from_name(argv[1]) : DTYPE_F32;
    int rc;

    if (argc == 2 && strcmp(argv[1], "STRAY") == 0)
        return stray();
    if (dtype != DTYPE_F32 && dtype != DTYPE_BF16 && dtype != DTYPE_F16) {
        fprintf(stderr, "gpu_ops: \"%s\": want F32, BF16, F16 or STRAY\n", argv[1]);
        return 2;
    }
    is_half = dtype != DTYPE_F32;
    if (is_half)
        types = (struct case_types){(enum dtype)dtype, DTYPE_F32};
    if (argc > 2)
        only = (const char *const *)argv + 2;
    rc = gpu_find();
    return rc ? rc : cmocka_run_group_tests(tests, NULL, NULL);
}
