/* remove_tree - removes a folder of a test with all that is in it, without a shell: a bundle's
 * tests also run where there is none. */
#ifndef TESTS_REMOVE_TREE_H
#define TESTS_REMOVE_TREE_H

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

/* 0, also if there is nothing at `path`; else -1 with errno.  Links are removed, not followed. */
static inline int remove_tree(const char *path)
{
    struct stat st;

    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : -1;
    return nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
