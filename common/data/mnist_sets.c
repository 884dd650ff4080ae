/* mnist_sets - the table of the sets, with the classes in the order of torchvision's EMNIST; and
 * the search for prefixes in a folder, of which only the names are looked at. */
#include "data/mnist_sets.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "base/util.h"

const char *const split_names[] = {SPLIT_LIST(WORD_NAME) NULL};

/* byclass; its end is the alphabet of `letters`, which has both cases of a letter in one class. */
static const char *const all[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "A", "B", "C",
                                  "D", "E", "F", "G", "H", "I", "J", "K", "L", "M", "N", "O", "P",
                                  "Q", "R", "S", "T", "U", "V", "W", "X", "Y", "Z", "a", "b", "c",
                                  "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p",
                                  "q", "r", "s", "t", "u", "v", "w", "x", "y", "z"};
enum { N_ALL = ARRAY_LEN(all), N_LETTERS = 26 };

/* bymerge and balanced: a small letter that looks like its capital is in that one's class. */
static const char *const merged[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "A", "B",
                                     "C", "D", "E", "F", "G", "H", "I", "J", "K", "L", "M", "N",
                                     "O", "P", "Q", "R", "S", "T", "U", "V", "W", "X", "Y", "Z",
                                     "a", "b", "d", "e", "f", "g", "h", "n", "q", "r", "t"};

#define EMNIST(split) "emnist-" split "-train", "emnist-" split "-test"

static const struct mnist_set sets[] = {
    [SPLIT_NONE] = {NULL, NULL, 10, 0, 0, NULL},
    [SPLIT_BYCLASS] = {EMNIST("byclass"), N_ALL, 0, 1, all},
    [SPLIT_BYMERGE] = {EMNIST("bymerge"), ARRAY_LEN(merged), 0, 1, merged},
    [SPLIT_BALANCED] = {EMNIST("balanced"), ARRAY_LEN(merged), 0, 1, merged},
    [SPLIT_LETTERS] = {EMNIST("letters"), N_LETTERS, 1, 1, all + N_ALL - N_LETTERS},
    [SPLIT_DIGITS] = {EMNIST("digits"), 10, 0, 1, NULL},
    [SPLIT_MNIST] = {EMNIST("mnist"), 10, 0, 1, NULL},
    [SPLIT_QMNIST] = {"qmnist-train", "qmnist-test", 10, 0, 0, NULL},
};

const struct mnist_set *mnist_set_of(enum split split) { return &sets[split]; }

enum split mnist_split_of(const char *prefix)
{
    const char *slash = strrchr(prefix, '/'), *name = slash ? slash + 1 : prefix;

    for (size_t i = SPLIT_NONE + 1; i < ARRAY_LEN(sets); i++) {
        const size_t n = strlen(sets[i].test) - strlen("test"); /* up to its last '-' */

        if (!strncmp(name, sets[i].test, n))
            return (enum split)i;
    }
    return SPLIT_NONE;
}

/* ---- the sets of a folder ---- */

enum { MOST_TOLD = 16, MOST_PREFIX = 80 };

/* The first prefixes in byte order, each with what keeps its files from being read. */
struct found {
    char *name[MOST_TOLD + 1];
    int n, n_more;
};

static int mnist_sets_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Takes name. */
static void mnist_sets_add(struct found *f, char *name)
{
    for (int i = 0; i < f->n; i++)
        if (!strcmp(f->name[i], name)) {
            free(name);
            return;
        }
    f->name[f->n++] = name;
    qsort(f->name, (size_t)f->n, sizeof *f->name, mnist_sets_compare);
    if (f->n > MOST_TOLD) {
        free(f->name[--f->n]);
        f->n_more++;
    }
}

const char *mnist_end_of_prefix(const char *name)
{
    const char *end = strstr(name, "-images-idx3-ubyte");

    return end ? end : strstr(name, "-images.idx3-ubyte");
}

static void mnist_sets_visit(struct found *f, const char *name)
{
    const char *end = mnist_end_of_prefix(name);
    const char *dot = end ? strchr(end + strlen("-images-idx3-ubyte"), '.') : NULL;

    if (!end || end - name > MOST_PREFIX)
        return;
    mnist_sets_add(f, xasprintf("%.*s%s", (int)(end - name), name,
                                dot && !strcmp(dot, ".xz")    ? " (unpack it with unxz)"
                                : dot && !strcmp(dot, ".zip") ? " (unpack it with unzip)"
                                                              : ""));
}

static void find_sets(const char *folder, struct found *f)
{
    DIR *d = opendir(folder);

    for (const struct dirent *e; d && (e = readdir(d));)
        mnist_sets_visit(f, e->d_name);
    if (d)
        closedir(d);
}

/* Append the words of the splits whose bits are set: "balanced or letters". */
static void list_splits(unsigned splits, struct buf *out)
{
    for (size_t i = 0; i < ARRAY_LEN(sets); i++)
        if (splits >> i & 1) {
            const unsigned later = splits >> (i + 1);

            buf_printf(out, "%s%s", split_names[i],
                       !later                ? ""
                       : later & (later - 1) ? ", "
                                             : " or ");
        }
}

void mnist_advise(const char *folder, struct buf *out)
{
    struct found f = {0};
    unsigned splits = 0;

    find_sets(folder, &f);
    for (int i = 0; i < f.n; i++) {
        splits |= 1u << mnist_split_of(f.name[i]);
        text_clean(f.name[i]);
        buf_printf(out, "%s%s", i ? ", " : "the folder has ", f.name[i]);
        free(f.name[i]);
    }
    splits &= ~(1u << SPLIT_NONE);
    if (!f.n) {
        buf_printf(out, "put one there, or set data.path, data.train or data.validation");
        return;
    }
    buf_printf(out, "%s; set ", f.n_more ? " and others" : "");
    if (splits) {
        buf_printf(out, "data.split to ");
        list_splits(splits, out);
        buf_printf(out, ", or ");
    }
    buf_printf(out, "data.train or data.validation to one of these prefixes, or data.path");
}
