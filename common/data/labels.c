/* labels - a mark for each class, and what is told of labels that look like something else:
 * numbers, or a mark of places without a class, such as the 255 of segmentation sets. */
#include "data/labels.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

int labels_add(struct labels *l, int64_t label, struct err *err)
{
    if (label >= l->n_room) {
        const int64_t n = max_i64(2 * l->n_room, label + 64);

        if (try_realloc((void **)&l->seen, (size_t)n, "the classes of the labels", err) < 0)
            return err->code;
        memset(l->seen + l->n_room, 0, (size_t)(n - l->n_room));
        l->n_room = n;
    }
    l->n_seen += !l->seen[label];
    l->seen[label] = 1;
    l->largest = max_i64(l->largest, label);
    return 0;
}

void labels_fini(struct labels *l)
{
    free(l->seen);
    *l = (struct labels){0};
}

void labels_doubt(const struct labels *l, const char *where, const struct dataset_request *request)
{
    const int64_t n = l->largest + 1, n_missing = n - l->n_seen;
    int64_t missing = 0;

    if (l->n_seen == 0)
        return;
    if (request->targets_are_numbers) {
        dataset_warn(
            request,
            "%s: its whole numbers are taken as %lld classes, with an output of the network for "
            "each; store them as float32 if they are numbers, which model.loss then compares",
            where, (long long)n);
        return;
    }
    if (n_missing == 0)
        return;
    while (l->seen[missing])
        missing++;
    if (missing > 0 && !l->seen[n - 2])
        dataset_warn(request,
                     "%s: %lld of %lld classes have no sample, such as %lld; if the label %lld "
                     "marks places without a class, set train.ignore_index: %lld",
                     where, (long long)n_missing, (long long)n, (long long)(n - 2),
                     (long long)l->largest, (long long)l->largest);
    else
        dataset_warn(
            request,
            "%s: %lld of %lld classes %s no sample%s %lld; number the labels from 0 on without "
            "gaps, or store them as float32 if they are numbers (model.loss mse or l1)",
            where, (long long)n_missing, (long long)n, n_missing > 1 ? "have" : "has",
            n_missing > 1 ? ", such as" : ":", (long long)missing);
}
