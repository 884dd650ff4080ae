/* optimizer - the list of optimizers, made from the words in optim/meson.build, and the call of the
 * chosen entry. */
#include "optim/optimizer.h"

const struct option_group *const optimizers[] = {
#define X(name) &optimizer_##name.group,
    OPTIMIZER_LIST(X)
#undef X
        NULL};

int optimizer_slots(const struct optimizer_options *o,
                    const struct slot_def *out[OPTIMIZER_MAX_SLOTS])
{
    return o->kind->slots(o->options, out);
}
