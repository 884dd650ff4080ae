/* mnist_sets - the sets of IDX files with other classes than MNIST's ten, known by the prefixes of
 * their files: the splits of EMNIST, and QMNIST; and the list of the sets that a folder has.
 *
 * Threads: any; the table is constant. */
#ifndef DATA_MNIST_SETS_H
#define DATA_MNIST_SETS_H

#include "base/buf.h"
#include "config/words.h"

#define SPLIT_LIST(X)             \
    X(SPLIT_NONE, "none")         \
    X(SPLIT_BYCLASS, "byclass")   \
    X(SPLIT_BYMERGE, "bymerge")   \
    X(SPLIT_BALANCED, "balanced") \
    X(SPLIT_LETTERS, "letters")   \
    X(SPLIT_DIGITS, "digits")     \
    X(SPLIT_MNIST, "mnist")       \
    X(SPLIT_QMNIST, "qmnist")

enum split { SPLIT_LIST(WORD_VALUE) };
extern const char *const split_names[]; /* NULL at the end */

struct mnist_set {
    const char *train, *test; /* prefixes of its files; NULL: those of the job */
    int n_classes;
    int first;                /* the label of class 0 */
    int is_transposed;        /* 1: the pictures' rows are MNIST's columns */
    const char *const *names; /* [n_classes] of the classes; NULL: their numbers */
};

/* SPLIT_NONE: MNIST itself. */
const struct mnist_set *mnist_set_of(enum split split);

/* The split with files of this prefix, which may begin with folders; SPLIT_NONE: it is of none. */
enum split mnist_split_of(const char *prefix);

/* The end of the prefix in the name of a file of images; NULL: it is no such file. */
const char *mnist_end_of_prefix(const char *name);

/* Append what to do in a folder that lacks the files that were asked for: choose one of the sets
 * that it has, or put files there. */
void mnist_advise(const char *folder, struct buf *out);

#endif
