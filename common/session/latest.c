/* Each kind of event sets its numbers.  A formation may go on from an older step; the counters then
 * stand still until the run is beyond the newest step again. */
#include "session/latest.h"

#include <math.h>

#include "base/util.h"

void latest_init(struct latest *l, const struct latest_options *o)
{
    *l = (struct latest){.o = *o,
                         .step = -1,
                         .epoch = -1,
                         .first_step = -1,
                         .loss = NAN,
                         .learning_rate = NAN,
                         .grad_norm = NAN,
                         .samples_per_second = NAN,
                         .validation_loss = NAN,
                         .validation_accuracy = NAN};
}

int64_t latest_total_steps(const struct latest *l)
{
    const int64_t all = l->o.n_epochs * l->steps_per_epoch;

    return l->o.max_steps && all ? min_i64(all, l->o.max_steps) : all;
}

double latest_eta_s(const struct latest *l, int64_t now_ns)
{
    const int64_t left = latest_total_steps(l) - l->step, made = l->step - l->first_step;

    if (l->is_done || left <= 0)
        return l->steps_per_epoch && l->step >= 0 ? 0 : NAN;
    if (l->first_step < 0 || made <= 0)
        return NAN;
    return 1e-9 * (double)(now_ns - l->first_ns) * (double)left / (double)made;
}

/* Count samples as whole batches until the epoch's end says how many there were. */
static void latest_count(struct latest *l)
{
    l->n_steps = max_i64(l->n_steps, l->step - l->first_step);
    l->n_samples =
        max_i64(l->n_samples, l->epoch_samples + (l->step - l->epoch_step) * l->o.global_batch);
}

static void latest_at_step(struct latest *l, int64_t step, int64_t now_ns)
{
    if (step != l->step)
        l->step_ns = now_ns;
    l->step = step;
    if (l->first_step >= 0)
        latest_count(l);
}

static void latest_form(struct latest *l, int64_t step, int64_t now_ns)
{
    l->step = max_i64(step, 0);
    l->step_ns = now_ns;
    if (l->first_step >= 0)
        return;
    l->first_step = l->epoch_step = l->step;
    l->first_ns = now_ns;
}

static void latest_epoch(struct latest *l, const struct session_epoch *e, int64_t now_ns)
{
    latest_at_step(l, e->step, now_ns);
    l->epoch = e->epoch;
    if (e->step > l->epoch_step) {
        l->n_samples = l->epoch_samples = max_i64(l->n_samples, l->epoch_samples + e->n_samples);
        l->epoch_step = e->step;
    }
    if (e->is_validated) {
        l->validation_loss = e->validation_loss;
        l->validation_accuracy = e->validation_accuracy;
    }
}

void latest_note(struct latest *l, const struct session_event *ev, int64_t now_ns)
{
    switch (ev->kind) {
    case EVENT_START:
        l->steps_per_epoch = ev->start.steps_per_epoch;
        break;
    case EVENT_FORM:
        latest_form(l, ev->step, now_ns);
        break;
    case EVENT_PROGRESS:
        l->epoch = ev->progress.epoch;
        l->loss = ev->progress.loss;
        l->samples_per_second = ev->progress.samples_per_second;
        latest_at_step(l, ev->progress.step, now_ns);
        break;
    case EVENT_ROW:
        l->learning_rate = ev->row.learning_rate;
        l->grad_norm = ev->row.grad_norm;
        break;
    case EVENT_EPOCH:
        latest_epoch(l, &ev->epoch, now_ns);
        break;
    case EVENT_LOST:
        l->n_lost++;
        break;
    case EVENT_RECOVERED:
        l->n_recovered++;
        break;
    case EVENT_ERROR:
        if (ev->phase != PHASE_CHECKPOINT) /* the job goes on without one that cannot be written */
            l->has_failed = 1;
        break;
    case EVENT_DONE:
        l->is_done = 1;
        l->step = max_i64(l->step, ev->step);
        break;
    default:
        break;
    }
}
