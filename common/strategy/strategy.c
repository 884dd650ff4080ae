/* strategy - the list of all strategies.
 *
 * It is made from the words in strategy/meson.build. */
#include "strategy/strategy.h"

const struct option_group *const strategies[] = {
#define X(name) &strategy_##name.group,
    STRATEGY_LIST(X)
#undef X
        NULL};

const struct strategy_ops *strategy_choose(const struct strategy_options *o)
{
    return o->kind->choose ? o->kind->choose(o->options) : o->kind;
}

struct strategy_shares strategy_shares(const struct strategy_options *o)
{
    return o->kind->shares ? o->kind->shares(o->options) : (struct strategy_shares){0};
}
