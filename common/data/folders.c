/* folders - lists the files of class folders, FOLDER/CLASS/[FOLDER/...]NAME.jpg, and gives each
 * class its number.
 *
 * Files of a class are sorted by folder, then by name, in byte order: torchvision's order. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/files.h"
#include "tensor/sample.h"

/* A folder that is being listed: a class folder, or one somewhere in it. */
struct level {
    const struct level *outer; /* the folder that it is in; NULL: it is the class folder */
    char *path;
    const char *inside; /* its path within the class folder */
    dev_t dev;
    ino_t ino;
    struct buf folders; /* in it: names, each with a NUL at its end */
};

/* The length of the path of the folder within the class folder. */
static size_t folder_len(const char *name)
{
    const char *slash = strrchr(name, '/');

    return slash ? (size_t)(slash - name) : 0;
}

static int by_folder_and_name(const void *a, const void *b, void *names)
{
    const char *x = (const char *)names + ((const struct file_item *)a)->name,
               *y = (const char *)names + ((const struct file_item *)b)->name;
    const size_t n_x = folder_len(x), n_y = folder_len(y);
    const int order = memcmp(x, y, n_x < n_y ? n_x : n_y);

    if (order != 0)
        return order;
    return n_x == n_y ? strcmp(x + n_x, y + n_y) : n_x < n_y ? -1 : 1;
}

static char *folders_join(const char *folder, const char *name)
{
    return *folder ? xasprintf("%s/%s", folder, name) : xstrdup(name);
}

/* A symbolic link may lead to a folder that the link is in: then there would be no end. */
static int check_loop(struct level *l, DIR *d, struct err *err)
{
    struct stat st;

    if (fstat(dirfd(d), &st) < 0)
        return err_sys(err, errno, "folder %s", l->path);
    l->dev = st.st_dev;
    l->ino = st.st_ino;
    for (const struct level *o = l->outer; o; o = o->outer)
        if (o->dev == l->dev && o->ino == l->ino)
            return err_set(err, ERR_CORRUPT,
                           "folder %s is folder %s again, by a symbolic link; remove the link",
                           l->path, o->path);
    return 0;
}

/* Count a picture that is not read. */
static void take_other(struct files *f, const struct file_item *item, const char *inside,
                       const char *name)
{
    char *path;

    if (f->n_other++ > 0)
        return;
    path = xasprintf("%s%s%s%s%s", f->is_flat ? "" : files_text(f, f->place[item->place]),
                     f->is_flat ? "" : "/", inside, *inside ? "/" : "", name);
    f->other = files_keep_name(f, path, strlen(path));
    free(path);
}

/* A picture's name settles that it is a file where the system does not say at once what it is:
 * asking for each of millions of links takes long. */
static void take_entry(struct files *f, const struct file_item *item, struct level *l,
                       const struct dirent *e)
{
    struct file_item one = *item;
    char *name;

    if (e->d_type != DT_DIR && files_is_picture(e->d_name)) {
        name = folders_join(l->inside, e->d_name);
        one.name = files_keep_name(f, name, strlen(name));
        files_add(f, &one);
        free(name);
    } else if (e->d_name[0] != '.' && files_is_folder(l->path, e)) {
        buf_append(&l->folders, e->d_name, strlen(e->d_name) + 1);
    } else if (files_is_other_picture(e->d_name)) {
        take_other(f, item, l->inside, e->d_name);
    }
}

/* Add the pictures of the folder itself, and keep the names of the folders in it. */
static int list_level(struct files *f, const struct file_item *item, struct level *l,
                      struct err *err)
{
    DIR *d = opendir(l->path);
    struct dirent *e;
    int rc = d ? check_loop(l, d, err) : 0;

    while (d && rc == 0 && (errno = 0, e = readdir(d)))
        take_entry(f, item, l, e);
    if (rc == 0 && errno)
        rc = err_sys(err, errno, "%s %s", l->outer ? "folder" : "class folder", l->path);
    if (d)
        closedir(d);
    return rc;
}

/* The folder is closed before those in it are opened, so depth costs no descriptors. */
static int list_tree(struct files *f, const struct file_item *item, const struct level *outer,
                     const char *inside, struct err *err)
{
    char *class_path = f->is_flat
                           ? xstrdup(f->folder)
                           : xasprintf("%s/%s", f->folder, files_text(f, f->place[item->place]));
    struct level l = {.outer = outer,
                      .path = *inside ? folders_join(class_path, inside) : xstrdup(class_path),
                      .inside = inside};
    int rc = list_level(f, item, &l, err);

    free(class_path);
    for (size_t at = 0; rc == 0 && at < l.folders.len;) {
        const char *name = (const char *)l.folders.data + at;
        char *deeper = folders_join(inside, name);

        rc = list_tree(f, item, &l, deeper, err);
        at += strlen(name) + 1;
        free(deeper);
    }
    free(l.path);
    buf_fini(&l.folders);
    return rc;
}

static int list_class(struct files *f, int place, int class_number, struct err *err)
{
    const struct file_item item = {.n_bytes = -1, .class_number = class_number, .place = place};
    const int64_t first = f->n;
    int rc = list_tree(f, &item, NULL, "", err);

    if (rc == 0 && f->n == first)
        rc = err_set(err, ERR_CORRUPT,
                     "class folder %s/%s has no file that ends in .jpg, .jpeg or .png; put some "
                     "there, or remove it",
                     f->folder, files_text(f, f->place[place]));
    if (rc == 0)
        qsort_r(f->item + first, (size_t)(f->n - first), sizeof *f->item, by_folder_and_name,
                f->names.data);
    return rc;
}

int files_class_named(const struct files *train, const char *name)
{
    int low = 0, high = train->is_tar ? 0 : train->n_places;

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

int files_list_flat(struct files *f, struct err *err)
{
    const struct file_item item = {.n_bytes = -1, .class_number = SAMPLE_IGNORED};
    int rc = list_tree(f, &item, NULL, "", err);

    if (rc == 0 && f->n == 0)
        rc = err_set(err, ERR_CORRUPT, "it has no file that ends in .jpg, .jpeg or .png");
    if (rc == 0)
        qsort_r(f->item, (size_t)f->n, sizeof *f->item, by_folder_and_name, f->names.data);
    return rc;
}

int files_list_folders(struct files *f, const struct files *train, struct err *err)
{
    int rc = 0;

    f->n_classes = train ? train->n_classes : f->n_places;
    for (int i = 0; rc == 0 && i < f->n_places; i++) {
        const char *name = files_text(f, f->place[i]);
        const int class_number = train ? files_class_named(train, name) : i;

        rc = class_number < 0
                 ? err_set(err, ERR_CORRUPT,
                           "class folder %s is not among the training set's in %s; rename or "
                           "remove it; pictures without classes are for --predict",
                           name, train->folder)
                 : list_class(f, i, class_number, err);
    }
    return rc;
}
