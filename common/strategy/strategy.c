/* strategy - the list of all strategies.
 *
 * It is made from the words in strategy/meson.build. */
#include "strategy/strategy.h"

const struct option_group *const strategies[] = {
#define X(name) &strategy_##name.group,
    STRATEGY_LIST(X)
#undef X
        NULL};
