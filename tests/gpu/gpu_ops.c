/* gpu_ops - the operator table on a real GPU: every case against the double-precision reference.
 *
 *     gpu_ops [F32|BF16|F16 [CASE...]]      default F32, and all cases; 77: no GPU */
#include "../test.h"

#include "gpu.h"
#include "runner.h"
#include "tensor/dtype.h"

static struct case_types types; /* zero: F32 */
static int is_half;             /* the libraries may round in between */
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(table)};
    const int dtype = argc > 1 ? dtype_from_name(argv[1]) : DTYPE_F32;
    int rc;

    if (dtype != DTYPE_F32 && dtype != DTYPE_BF16 && dtype != DTYPE_F16) {
        fprintf(stderr, "gpu_ops: \"%s\": want F32, BF16 or F16\n", argv[1]);
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
