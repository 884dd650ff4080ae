/* tar_names - the members of an archive by their names, so that a hard link's target is found.
 *
 * A name that comes again stands for the later member, as it would after unpacking.  A "./" at its
 * beginning does not count.
 *
 * Life:    zeroes -> keep, find ... -> tar_names_fini (fine on zeroes).
 * Threads: one at a time.
 * Errors:  none; memory is bounded by the archive's headers. */
#ifndef DATA_TAR_NAMES_H
#define DATA_TAR_NAMES_H

#include "base/buf.h"
#include "data/tar.h"

struct tar_names {
    struct buf text; /* all names, each with a NUL at its end */
    struct tar_place *place;
    int64_t n;
    int64_t *slot; /* [n_slots] hashed by name: the number of a place + 1; 0: free */
    int64_t n_slots;
};

/* Keep where the content of the member is, by `name`. */
void tar_names_keep(struct tar_names *names, const char *name, const struct tar_member *m);

/* 1: there is a member of this name; m->kind, offset and n_bytes become its.  m NULL: only ask. */
int tar_names_find(const struct tar_names *names, const char *name, struct tar_member *m);
void tar_names_fini(struct tar_names *names);

#endif
