/* foreign - files of other kinds, known by their first bytes: archives, compressed files, tables,
 * tensors, text.  A format of bare numbers has no magic of its own and would take any of them.
 *
 * Threads: pure. */
#ifndef DATA_FOREIGN_H
#define DATA_FOREIGN_H

#include <stddef.h>
#include <stdint.h>

struct foreign {
    const char *what;   /* "a zip archive (.npz, torch.save()'s .pt)" */
    const char *remedy; /* for a user who wants bare numbers of it */
    int is_text;        /* 1: a text has no other form */
};

/* The kind of a whole file [n]; NULL: it is of none of the kinds that are known. */
const struct foreign *foreign_find(const uint8_t *bytes, size_t n);

/* 1: the file is the index of Megatron's data (.idx), which begins with "MMIDIDX". */
int foreign_is_megatron(const uint8_t *bytes, size_t n);

#endif
