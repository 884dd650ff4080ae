/* strategy - the table of all strategies, and the search in it by name.
 *
 * The table is made of the words in meson.build. */
#include "strategy/strategy.h"

#include <string.h>

#include "base/util.h"
#include "strategy_list.h"

#define DECLARE(word) extern const struct strategy_ops strategy_##word;
STRATEGY_LIST(DECLARE)

#define ENTRY(word) &strategy_##word,
static const struct strategy_ops *const strategies[] = {STRATEGY_LIST(ENTRY)};

const struct strategy_ops *strategy_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(strategies); i++)
        if (!strcmp(strategies[i]->name, name))
            return strategies[i];
    return NULL;
}
