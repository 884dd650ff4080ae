/* wrong_cases - runs a few cases of the operator table on a backend with a fault.  test_runner.py
 * checks what the runner reports.  The argument chooses the fault:
 *
 *     wrong_cases values      results of three cases are wrong
 *     wrong_cases device      after the first wrong result the backend takes no more work
 *     wrong_cases memory      after the first wrong result its memory cannot be read
 *     wrong_cases abort       the second faulty kernel ends the process */
#include "../test.h"

#include "base/alloc.h"
#include "ref_backend.h"
#include "runner.h"

static const char *const names[] = {"bias", "relu", "avg", "gather_labels", NULL};
static const char *mode;
static struct backend *backend; /* global, so that a test that fails leaks nothing */
static struct backend_ops ops;  /* the reference's, with the faulty functions of this file */
static const struct backend_ops *right;
static int n_spoiled; /* runs of kernels that gave a wrong result */

struct spoiled { /* a kernel of the reference, whose result is then made wrong */
    struct kernel base;
    struct kernel *inner;
    float *out;
    int32_t *labels; /* of gather_labels */
    enum op op;
};

static int spoiled_bind(struct kernel *k, void *const *in, void *const *out, void *scratch,
                        struct err *err)
{
    struct spoiled *s = container_of(k, struct spoiled, base);

    s->out = out[0];
    s->labels = out[1];
    return s->inner->ops->bind(s->inner, in, out, scratch, err);
}

static int spoiled_run(struct kernel *k, struct err *err)
{
    struct spoiled *s = container_of(k, struct spoiled, base);
    const int rc = s->inner->ops->run(s->inner, err);

    if (s->op == OP_gather)
        s->labels[1] += 10;
    if (s->op != OP_bias && s->op != OP_pool2d)
        return rc;
    if (s->op == OP_pool2d && strcmp(mode, "abort") == 0)
        abort();
    s->out[1] += 10;
    n_spoiled++;
    return rc;
}

static void spoiled_free(struct kernel *k)
{
    struct spoiled *s = container_of(k, struct spoiled, base);

    s->inner->ops->free(s->inner);
    free(s);
}

static int make_kernel(struct backend *b, const struct graph *g, const struct node *n,
                       struct kernel **out, struct err *err)
{
    static const struct kernel_ops spoiled_ops = {spoiled_bind, spoiled_run, spoiled_free};
    struct spoiled *s;
    struct kernel *inner;

    if (right->make_kernel(b, g, n, &inner, err) < 0)
        return err->code;
    s = xmalloc(sizeof *s);
    *s = (struct spoiled){{&spoiled_ops, inner->scratch_bytes}, inner, NULL, NULL, (enum op)n->op};
    *out = &s->base;
    return 0;
}

static int sync_with(struct backend *b, struct err *err)
{
    (void)b;
    return n_spoiled && strcmp(mode, "device") == 0 ? err_set(err, ERR_DEVICE, "it is gone") : 0;
}

static int copy_out(struct backend *b, void *to, const void *from, size_t n_bytes, struct err *err)
{
    if (n_spoiled && strcmp(mode, "memory") == 0)
        return err_set(err, ERR_DEVICE, "its memory is gone");
    return right->copy_out(b, to, from, n_bytes, err);
}

static void table(void **state)
{
    const struct op_runner r = {.b = backend, .n_turns = 1, .only = names};

    (void)state;
    (void)op_runner_cases(&r, 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(table)};
    int rc;

    ASSERT(argc == 2);
    mode = argv[1];
    ASSERT(ref_open(REF_FUSE_NONE, &backend) == 0);
    right = backend->ops;
    ops = *right;
    ops.make_kernel = make_kernel;
    ops.sync = sync_with;
    ops.copy_out = copy_out;
    backend->ops = &ops;
    rc = cmocka_run_group_tests(tests, NULL, NULL);
    backend_close(backend);
    return rc;
}
