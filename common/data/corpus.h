/* corpus - the texts of a data set as files: a file, a folder of them, or a list of both.
 *
 *     NAME.txt      one document
 *     NAME.jsonl    a mapping of JSON on each line, each of which is a document (data/documents.h)
 *
 * A folder is walked with the folders in it, through symbolic links, too, unless one leads to a
 * folder that it is in.  Names that begin with a dot are left out, and files that end otherwise are
 * left out and counted.  Files are sorted by their paths, in byte order.  A file that is named
 * itself may end otherwise: it is a text.
 *
 * Life:    corpus_list -> use -> corpus_fini (fine on zeroes).
 * Threads: any may read.
 * Errors:  ERR_IO (missing, unreadable), ERR_CORRUPT (an empty file, another kind of file, no file
 *          at all, a link that loops), ERR_ARG (a pipe or device). */
#ifndef DATA_CORPUS_H
#define DATA_CORPUS_H

#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"

struct corpus_file {
    char *path;
    size_t root; /* bytes of `path` that precede the part below the folder that was listed */
    int64_t n_bytes;
    int64_t mtime_ns;
    int is_lines; /* 1: .jsonl */
};

struct corpus {
    struct corpus_file *file; /* [n] */
    int64_t n;
    int64_t n_bytes;
    int64_t n_other; /* files that are left out */
    char *other;     /* the path of one of them; NULL: there is none */
};

/* List what `items` names, separated by commas, within the folder `root`; items NULL: `root`
 * itself, a file or a folder. */
int corpus_list(struct corpus *out, const char *root, const char *items, struct err *err);
void corpus_fini(struct corpus *c);

/* Add to the hash what tells this corpus from others: of each file its path below the folder that
 * was listed, its size, and when it changed. */
void corpus_print(const struct corpus *c, struct hasher *h);

#endif
