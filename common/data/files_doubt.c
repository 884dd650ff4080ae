/* files_doubt - what the user is told of pictures that are read, but perhaps not as they are meant.
 */
#include "data/files_doubt.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "data/labels.h"

static void warn_of_others(const struct files *f, const struct dataset_request *request)
{
    if (f->n_other > 0)
        dataset_warn(
            request,
            "folder %s: pictures that are neither JPEG nor PNG are left out, %lld of them, "
            "such as %s; convert them to one of these, or remove them",
            f->folder, (long long)f->n_other, files_text(f, f->other));
}

static void tell_of_tars(const struct files *f, const struct dataset_request *request)
{
    if (f->n_again > 0)
        dataset_warn(
            request,
            "folder %s: %lld samples have the key of an earlier one of their shard, such as "
            "%s; each is a sample, as with WebDataset; remove the older ones if they were "
            "replaced (tar --append, --update)",
            f->folder, (long long)f->n_again, files_text(f, f->again));
    if (f->n_left_out > 0)
        log_info("folder %s: %lld members beside pictures and classes are left out, such as %s",
                 f->folder, (long long)f->n_left_out, files_text(f, f->left_out));
}

void files_tell(const struct files *f, const struct dataset_request *request)
{
    warn_of_others(f, request);
    tell_of_tars(f, request);
}

void files_doubt_one_class(const struct files *f, const struct dataset_request *request)
{
    if (f->n_classes == 1)
        dataset_warn(
            request,
            "folder %s: its %lld pictures are all of one class, %s, so there is nothing to "
            "learn; is data.path or data.train one level too high?",
            f->folder, (long long)f->n, f->is_tar ? "0" : files_text(f, f->place[0]));
}

int files_doubt_classes(const struct files *f, const struct dataset_request *request,
                        struct err *err)
{
    struct labels labels = {0};
    char *what;
    int rc = 0;

    if (!f->is_tar || request->targets_are_numbers)
        return 0;
    for (int64_t i = 0; i < f->n && rc == 0; i++)
        rc = labels_add(&labels, f->item[i].class_number, err);
    what = xasprintf("folder %s", f->folder);
    if (rc == 0)
        labels_doubt(&labels, what, request);
    free(what);
    labels_fini(&labels);
    return rc;
}
