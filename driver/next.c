/* Finds the limit that ended a run, and a larger value for it.
 *
 * A run that was resumed with fewer epochs may have done more than its job asks for now. */
#include "driver/next.h"

#include "base/util.h"

enum { MOST_EPOCHS = 1000000 }; /* train.epochs takes no more */

struct next next_limits(const struct job_train *t, int64_t step, int64_t steps_per_epoch)
{
    int64_t spe = steps_per_epoch, done = spe ? step / spe : t->epochs;
    struct next n = {0, 0};

    if (t->max_steps && step >= t->max_steps) {
        n.max_steps = 2 * step;
        if (spe && n.max_steps > t->epochs * spe)
            n.epochs = min_i64((n.max_steps + spe - 1) / spe, MOST_EPOCHS);
        return n;
    }
    n.epochs = min_i64(2 * max_i64(t->epochs, done), MOST_EPOCHS);
    if (t->max_steps && t->max_steps < n.epochs * spe)
        n.max_steps = n.epochs * spe;
    return n;
}
