/* files - labelled pictures as files: a folder of class folders, or tar files.
 *
 *     FOLDER/CLASS/NAME.jpg      torchvision's ImageFolder: classes are numbered by their names, in
 *                                byte order; files that end otherwise than .jpg, .jpeg or .png are
 *                                left out (pictures of other kinds are counted), and so are folders
 *                                whose names begin with a dot
 *     FOLDER/CLASS/.../NAME.jpg  the same class: folders in class folders are walked, through
 *                                symbolic links, too, unless one leads to a folder that it is in
 *     NAME.jpg, FOLDER/.../NAME.jpg  for predictions: without classes (files_open_any)
 *     FOLDER/NAME.tar            WebDataset: of each sample a member KEY.jpg (.jpeg, .png) and a
 *                                member KEY.cls, the class as text, one after the other, or hard
 *                                links to earlier members; other members, such as KEY.seg.png, are
 *                                left out and counted
 *
 * Opening lists all files, sorted by class, then folder, then name, and of tar files all members;
 * no picture is read.
 *
 * Life:    files_open -> use -> files_close (fine on zeroes).
 * Threads: any may read.
 * Errors:  ERR_IO (missing, unreadable), ERR_CORRUPT (an empty class, a link that loops, a broken
 *          or compressed tar file, a sample without picture or class, or with two). */
#ifndef DATA_FILES_H
#define DATA_FILES_H

#include "base/buf.h"
#include "base/hash.h"

struct file_item {
    int64_t offset, n_bytes; /* in the tar file; n_bytes -1: the whole file */
    size_t name; /* of the file, by its path in the class folder, or of the sample in its tar file;
                    in files.names */
    int32_t class_number;
    int32_t place; /* of its class folder or tar file, in files.place */
};

struct files {
    char *folder;
    int is_tar;
    int is_flat; /* 1: files_open_any found pictures without classes; items have names alone */
    int may_lack_labels;
    struct buf names; /* all names, each with a NUL at its end */
    size_t *place;    /* [n_places] in names: class folders, or tar files */
    int n_places;
    struct file_item *item; /* [n] */
    int64_t n;
    int n_classes;
    int64_t n_other; /* files in class folders that are pictures of kinds that are not read */
    size_t other;    /* the path of one of them within `folder`, in names */
    /* Of tar files: members that are left out, and samples whose key came before in their tar file.
     */
    int64_t n_left_out, n_again;
    size_t left_out, again; /* the name of one of them, in names */
};

/* List FOLDER.  `train` NULL: it says which classes there are; else they are those of the files
 * that `train` lists, and others are refused. */
int files_open(struct files *out, const char *folder, const struct files *train, struct err *err);
void files_close(struct files *f);

/* List the class folders or tar files alone, without what is in them: there are no items, and only
 * class folders tell how many classes there are. */
int files_open_places(struct files *out, const char *folder, struct err *err);

/* The same, where pictures without classes are fine, too: `path` is a picture; or a folder whose
 * pictures do not all lie in folders that are named as classes of `train`, which is then walked; or
 * one of tar files with samples that have no KEY.cls.  Such a sample's class is SAMPLE_IGNORED. */
int files_open_any(struct files *out, const char *path, const struct files *train, struct err *err);

/* The name of item i within the folder, "CLASS/NAME.jpg", "NAME.tar/KEY"; for free(). */
char *files_inside(const struct files *f, int64_t i);

/* The name of item i, for messages, whole: "FOLDER/CLASS/NAME.jpg", "FOLDER/NAME.tar: KEY"; for
 * free(). */
char *files_name(const struct files *f, int64_t i);

/* Read item i: *bytes is for free(). */
int files_read(const struct files *f, int64_t i, void **bytes, size_t *n_bytes, struct err *err);

/* Add to the hash what tells these pictures from others: of each its name and class, and of each
 * file its size and when it changed.  Asks the system for each file, at some 2 us. */
int files_print(const struct files *f, struct hasher *h, struct err *err);

/* ---- for files.c, folders.c and tars.c ---- */

size_t files_keep_name(struct files *f, const char *name, size_t len);
void files_add(struct files *f, const struct file_item *item);
static inline const char *files_text(const struct files *f, size_t name)
{
    return (const char *)f->names.data + name;
}
int files_is_picture(const char *name);       /* by its ending */
int files_is_other_picture(const char *name); /* of a kind that is not read */

struct dirent;
int files_is_folder(const char *folder, const struct dirent *e); /* or a link to one */

/* The number of the class with this name in the training set; -1: there is none, or it has tar
 * files.
 */
int files_class_named(const struct files *train, const char *name);

/* Fill item[], by the places. */
int files_list_folders(struct files *f, const struct files *train, struct err *err);
/* The folders and pictures in f->folder, in order, without classes. */
int files_list_flat(struct files *f, struct err *err);
int files_list_tars(struct files *f, const struct files *train, struct err *err);

#endif
