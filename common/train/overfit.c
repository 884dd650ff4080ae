/* overfit - train.overfit: a few samples that are trained again and again, to find bugs.
 *
 * As with overfit_batches of PyTorch Lightning, the samples are the first ones, their order is that
 * of the files, and what the job draws for a training sample (data.augment, dropout) stays as it
 * is.  Unlike there, the same samples validate.  Validation draws nothing, so a network that
 * remembers its training samples and fails in validation computes something else there. */
#include <stdlib.h>

#include "base/alloc.h"
#include "train/trainer_impl.h"

/* Validate with the training samples, if the job validates at all. */
static int overfit_validation(struct trainer *t, struct err *err)
{
    struct dataset_request request = job_request(t->job, DATASET_TRAIN);

    if (!t->valid_set)
        return 0;
    dataset_close(t->valid_set);
    t->valid_set = NULL;
    request.n_workers = trainer_n_workers(t);
    if (dataset_open(&t->valid_set, &t->job->data, &request, err) < 0)
        return err_wrap(err, "training data, for validation (train.overfit)");
    t->valid_set->n_samples = t->job->train.overfit;
    return 0;
}

int trainer_overfit(struct trainer *t, struct err *err)
{
    const int64_t n = t->job->train.overfit, all = t->train_set->n_samples;
    char *text;

    if (n > all)
        return err_set(err, ERR_CONFIG,
                       "train.overfit is %lld, but there are %lld training samples; want at most "
                       "that, or 0 for all",
                       (long long)n, (long long)all);
    t->train_set->n_samples = n;
    if (t->rank == 0) {
        text = xasprintf("train.overfit: of %lld training samples only the first %lld are trained, "
                         "in the order of the files%s",
                         (long long)all, (long long)n,
                         t->valid_set ? ", and the same ones validate" : "");
        trainer_warn(t, text);
        free(text);
    }
    return overfit_validation(t, err);
}
