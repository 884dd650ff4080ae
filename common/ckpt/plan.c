/* plan - finds planned checkpoints.  Ranks that go back ask here, and so does a driver that
 * computes steps again, because both must come to the same checkpoint. */
#include "ckpt/plan.h"

#include "base/util.h"

/* A number of steps; 0: none is planned by epochs, or the first one is beyond all numbers. */
static int64_t plan_by_epochs(const struct ckpt_plan *p)
{
    int64_t steps;

    return __builtin_mul_overflow(p->every_epochs, p->steps_per_epoch, &steps) ? 0 : steps;
}

/* The step of the checkpoint that is due by its steps after `due` of them. */
static int64_t plan_written_at(const struct ckpt_plan *p, int64_t due)
{
    const int64_t by_epochs = plan_by_epochs(p);
    const int is_late =
        due > 0 && due % p->steps_per_epoch == 0 && !(by_epochs > 0 && due % by_epochs == 0);

    return due + is_late;
}

int64_t ckpt_plan_newest(const struct ckpt_plan *p, int64_t done)
{
    const int64_t by_epochs = plan_by_epochs(p);
    int64_t newest = 0;

    if (p->steps_per_epoch <= 0)
        return 0;
    if (p->every_steps > 0) {
        const int64_t due = done / p->every_steps * p->every_steps;

        newest = plan_written_at(p, due);
        if (newest > done)
            newest = plan_written_at(p, due - p->every_steps);
    }
    return by_epochs > 0 ? max_i64(newest, done / by_epochs * by_epochs) : newest;
}
