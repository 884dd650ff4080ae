/* strategy - the list of all strategies.
 *
 * It is made from the words in strategy/meson.build. */
#include "strategy/strategy.h"

#include "base/util.h"

const struct option_group *const strategies[] = {
#define X(name) &strategy_##name.group,
    STRATEGY_LIST(X)
#undef X
        NULL};

static struct strategy_choice strategy_choice_of(const struct strategy_options *o)
{
    return o->kind->choose ? o->kind->choose(o->options) : (struct strategy_choice){.ops = o->kind};
}

const struct strategy_ops *strategy_choose(const struct strategy_options *o)
{
    return strategy_choice_of(o).ops;
}

struct strategy_shares strategy_shares(const struct strategy_options *o)
{
    return strategy_choice_of(o).shares;
}

int64_t strategy_means_from(const struct strategy_ops *ops, const void *options)
{
    ASSERT(ops->means_from && ops->means_from->type == OPT_INT);
    return *(const int64_t *)((const char *)options + ops->means_from->offset);
}
