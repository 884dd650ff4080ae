/* sums - finds the combined gradients that a rank's update reads.  In steps after which the ranks
 * compare what they hold (train/inspect.h) it hashes them, and the control vector.
 *
 * Where state is divided a rank has the sums of its own shard and, for its buddy's sake, of the
 * shard of the rank before it.  Both come from the same collective, so they have to be equal. */
#include "step/step_impl.h"
#include "strategy/cut.h"

struct step_sums step_find_sums(const struct stepper *t, int bucket, int h)
{
    const struct layout *l = t->layout;
    const struct shards *s = t->state->shards;
    struct step_sums out = {.x = t->buffers->bucket[bucket], .span = {0, cut_bucket(l, bucket)}};
    int owner;

    if (!s)
        return out;
    owner = shard_owner(&s->now, h);
    out.span = cut_span(l, bucket, s->now.size, owner);
    if (s->divides_gradients)
        out.x = (char *)s->now.sums[h] + cut_sums_at(l, bucket, s->now.size, owner);
    else
        out.x += dtype_size(l->grad_dtype) * (size_t)out.span.at;
    return out;
}

void step_hash_sums(struct stepper *t)
{
    const struct shards *s = t->state->shards;
    const int64_t step = t->queued->step;

    t->summed_of = 0;
    if (backend_queues(t->backend) || !t->hooks.compares(t->hooks.arg, step))
        return;
    t->summed_of = step + 1;
    t->summed_control = hash_of(t->buffers->control, sizeof(float) * CONTROL_LEN);
    for (int h = 0; h < (s ? s->now.n_held : 1); h++) {
        t->summed[h] = (struct hash128){0, 0};
        for (int b = 0; b < t->layout->n_buckets; b++) {
            const struct step_sums sums = step_find_sums(t, b, h);

            hash_chain(&t->summed[h], sums.x,
                       dtype_size(t->layout->bucket[b].dtype) * (size_t)sums.span.n);
        }
    }
}
