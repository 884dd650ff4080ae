/* lower_batch - samples stay apart.
 *
 * A rank has a part of the batch, and validation has other batches than training.  So nothing but a
 * batch norm in training may let one sample's result depend on another sample.  Operators that
 * combine the elements of a dimension refuse it if it has the batch in it.  A reduction over
 * everything is a loss that the network computes: its result is mixed, and so is what is computed
 * from it, up to an output.  A mixed value that meets samples again is refused, and so is a value
 * with the batch in two dimensions. */
#include "import/lower_impl.h"

void lower_refuse_batch(struct lower *l, const struct lowered *x, unsigned dims, const char *does)
{
    for (int d = 0; d < x->n && !lower_failed(l); d++)
        if ((dims >> d & 1) && x->dim[d].is_batch)
            lower_fail(l, ERR_UNSUPPORTED,
                       "it %s dimension %d, the batch: samples would depend on each other", does,
                       d);
}

void lower_batch_check(struct lower *l, struct lowered *x)
{
    int n = 0;

    for (int d = 0; d < x->n; d++)
        n += x->dim[d].is_batch;
    x->is_mixed |= l->reads_mixed;
    if (n > 1)
        lower_fail(l, ERR_UNSUPPORTED,
                   "its result has the batch in %d dimensions: samples would depend on each other",
                   n);
    else if (n > 0 && x->is_mixed)
        lower_fail(l, ERR_UNSUPPORTED,
                   "it joins samples with a number that was computed from all of them: samples "
                   "would depend on each other");
}
