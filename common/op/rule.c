/* rule - the operators of the optimizers that are rules (op/rule.h).  They differ in their formula,
 * which stands in optim/NAME.h; op/update.c has their operands.  SGD alone has a check of its own.
 */
#include "op/rule.h"

#include "op/infer.h"

/* SGD with momentum needs its slot, which other settings do not have. */
static int want_slots(const struct node *n, struct err *err)
{
    const double momentum = n->attr.number[SGD_ATTR_MOMENTUM];

    if (n->op != OP_sgd || momentum == 0 || op_has(n, SGD_MOMENTUM))
        return 0;
    return op_fail(n, err, "momentum %g needs a momentum buffer", momentum);
}

static int rule_infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                      struct err *err)
{
    const int rc = want_slots(n, err);

    return rc < 0 ? rc : op_update_infer(g, n, out, err);
}

#define X(rule)                             \
    const struct op_def op_##rule = {       \
        .infer = rule_infer,                \
        OP_SIGNATURE(rule),                 \
        .wide_in = 1u << UPDATE_GRAD,       \
        .typed_in = 1u << UPDATE_COPY,      \
        .typed_out = 1u << UPDATE_NEW_COPY, \
    };
RULE_LIST(X)
#undef X
