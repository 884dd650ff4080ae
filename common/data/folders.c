/* folders - lists the files of class folders, FOLDER/CLASS/NAME.jpg, sorted by name within each
 * class, and gives each class its number. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "data/files.h"

static int by_name(const void *a, const void *b, void *names)
{
    const struct file_item *x = a, *y = b;
    const char *text = names;

    return strcmp(text + x->name, text + y->name);
}

static int list_class(struct files *f, int place, int class_number, struct err *err)
{
    char *path = xasprintf("%s/%s", f->folder, files_text(f, f->place[place]));
    const int64_t first = f->n;
    DIR *d = opendir(path);
    struct dirent *e;
    int rc = 0;

    if (!d)
        rc = err_sys(err, errno, "class folder %s", path);
    while (d && (errno = 0, e = readdir(d)))
        if (e->d_type != DT_DIR && files_is_picture(e->d_name))
            files_add(f,
                      &(struct file_item){.n_bytes = -1,
                                          .name = files_keep_name(f, e->d_name, strlen(e->d_name)),
                                          .class_number = class_number,
                                          .place = place});
    if (d && errno)
        rc = err_sys(err, errno, "class folder %s", path);
    if (rc == 0 && f->n == first)
        rc =
            err_set(err, ERR_CORRUPT,
                    "class folder %s has no file that ends in .jpg, .jpeg or .png; put some there, "
                    "or remove it",
                    path);
    if (d)
        closedir(d);
    free(path);
    if (rc == 0)
        qsort_r(f->item + first, (size_t)(f->n - first), sizeof *f->item, by_name, f->names.data);
    return rc;
}

/* The number of the class with this name in the training set; -1: there is none. */
static int class_named(const struct files *train, const char *name)
{
    int low = 0, high = train->n_places;

    while (low < high) {
        const int middle = (low + high) / 2,
                  order = strcmp(files_text(train, train->place[middle]), name);

        if (order == 0)
            return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

int files_list_folders(struct files *f, const struct files *train, struct err *err)
{
    int rc = 0;

    f->n_classes = train ? train->n_classes : f->n_places;
    for (int i = 0; rc == 0 && i < f->n_places; i++) {
        const char *name = files_text(f, f->place[i]);
        const int class_number = train ? class_named(train, name) : i;

        rc = class_number < 0
                 ? err_set(err, ERR_CORRUPT,
                           "class folder %s is not among the training set's in %s; rename or "
                           "remove it",
                           name, train->folder)
                 : list_class(f, i, class_number, err);
    }
    return rc;
}
