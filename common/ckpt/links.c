/* links - the names `latest` and `best` in a run's folder of checkpoints.
 *
 * Happy path: a link is made aside and renamed into its place.  Failure modes: a file system
 * without links gets a text file; a folder in the place is judged by what it holds; any other
 * failure leaves what was there, and is told. */
#include "ckpt/links.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "ckpt/ckpt_impl.h"
#include "ckpt/file.h"
#include "ckpt/owner.h"

static const char *const both[] = {"latest", "best"};

/* ---- what stands in a link's place ---- */

/* 1: a link, or the text file that stands for one, names a generation. */
static int read_name(const char *path, char name[GENERATION_NAME])
{
    char text[GENERATION_NAME + 2];
    ssize_t n = readlink(path, text, sizeof text - 1);
    int64_t step;

    if (n < 0) {
        const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

        n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
        if (fd >= 0)
            close(fd);
    }
    if (n <= 0)
        return 0;
    text[n] = '\0';
    text[strcspn(text, "\r\n")] = '\0';
    snprintf(name, GENERATION_NAME, "%.31s", text);
    return generation_step(name, &step);
}

static int links_is_folder(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

enum verdict {
    NO_FOLDER, /* nothing is in the way */
    SECOND,    /* a generation is whole and has the same files, byte for byte: it can go */
    LOST,      /* whole, and there is no generation of this step: it becomes that */
    WHOLE,     /* whole, and the generation of this step is damaged: it takes its place */
    FOREIGN,   /* no checkpoint, another one of the same step, or with more files: it stays */
};

/* 1: whole; 0: damaged; -1: that cannot be told now, as for lack of memory. */
static int links_is_whole(const char *folder)
{
    struct ckpt *c = NULL;
    struct err err;
    const int rc = ckpt_load_folder(folder, &c, &err);

    ckpt_close(c);
    return rc == 0 ? 1 : rc == ERR_CORRUPT ? 0 : -1;
}

/* A link may lead into the very folder that is to go. */
static int is_file(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static int have_same_bytes(const char *a, const char *b)
{
    enum { PIECE = 1 << 18 };
    char *of_a = xmalloc(PIECE), *of_b = xmalloc(PIECE);
    int fd_a = -1, fd_b = -1;
    int64_t n_a = 0, n_b = 0;
    struct err ignored;
    int same = is_file(a) && is_file(b) && file_open(a, &fd_a, &n_a, &ignored) == 0 &&
               file_open(b, &fd_b, &n_b, &ignored) == 0 && n_a == n_b;

    for (int64_t at = 0; same && at < n_a; at += PIECE) {
        const size_t n = (size_t)min_i64(n_a - at, PIECE);

        same = file_read_at(fd_a, a, of_a, n, at, &ignored) == 0 &&
               file_read_at(fd_b, b, of_b, n, at, &ignored) == 0 && !memcmp(of_a, of_b, n);
    }
    if (fd_a >= 0)
        close(fd_a);
    if (fd_b >= 0)
        close(fd_b);
    free(of_a);
    free(of_b);
    return same;
}

/* 1: each entry of the folder is a file that the generation has, too. */
static int is_copy(const char *folder, const char *generation)
{
    DIR *d = opendir(folder);
    struct dirent *entry;
    int same = d != NULL;

    while (same && (entry = readdir(d))) {
        char *a = xasprintf("%s/%s", folder, entry->d_name);
        char *b = xasprintf("%s/%s", generation, entry->d_name);

        same = !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") || have_same_bytes(a, b);
        free(a);
        free(b);
    }
    if (d)
        closedir(d);
    return same;
}

/* 1: the step is newer than all generations, or among the best that the newest one lists.  A
 * generation that has become old, or was never this run's, is not missed. */
static int is_missed(const char *folder, int64_t step)
{
    struct generation *g = NULL;
    int64_t best[CKPT_MOST_BEST];
    struct err ignored;
    int n, n_best = 0, missed, is_read = 0;

    if (generations_list(folder, &g, &n, &ignored) < 0)
        return 0;
    missed = n == 0 || g[0].step < step;
    for (int i = 0; i < n && !missed && !is_read; i++) {
        char *path = xasprintf("%s/%s", folder, g[i].name);

        is_read = ckpt_read_best(path, best, &n_best, &ignored) == 0;
        free(path);
    }
    for (int i = 0; is_read && i < n_best; i++)
        missed |= best[i] == step;
    free(g);
    return missed;
}

/* path: a folder with the state.json of this step.  FOREIGN: *why is the rest of a sentence. */
static enum verdict judge_checkpoint(const char *folder, const char *path, const char *generation,
                                     int64_t step, const char **why)
{
    const int is_there = access(generation, F_OK) == 0 || errno != ENOENT;
    const int whole = is_there ? links_is_whole(generation) : 0;

    if (whole < 0) {
        *why = "cannot be compared with that checkpoint now";
        return FOREIGN;
    }
    if (whole) {
        *why = "is not that checkpoint byte for byte";
        return links_is_folder(generation) && is_copy(path, generation) ? SECOND : FOREIGN;
    }
    *why = "has other files than a checkpoint";
    if (!ckpt_is_alone(path))
        return FOREIGN;
    *why = "is damaged";
    if (links_is_whole(path) != 1)
        return FOREIGN;
    if (is_there)
        return WHOLE;
    *why = "is neither newer than the checkpoints beside it nor the best of them";
    return is_missed(folder, step) ? LOST : FOREIGN;
}

/* name: the generation that the folder is, where it is one.  FOREIGN: *err says why. */
static enum verdict links_judge(const char *folder, const char *which, char name[GENERATION_NAME],
                                struct err *err)
{
    char *path = xasprintf("%s/%s", folder, which), *generation;
    enum verdict v = FOREIGN;
    struct ckpt_hashes of;
    struct ckpt_state s;
    const char *why;

    if (!links_is_folder(path)) {
        v = NO_FOLDER;
    } else if (ckpt_read_state(path, &s, &of, err) < 0) {
        err_wrap(err, "%s is a folder and no checkpoint, so no link can be made there; rename it",
                 path);
    } else {
        generation_name(s.step, name);
        generation = xasprintf("%s/%s", folder, name);
        v = judge_checkpoint(folder, path, generation, s.step, &why);
        if (v == FOREIGN)
            err_set(err, ERR_IO,
                    "%s is a folder that says it is %s, and %s, so it stays and no link can be "
                    "made there; rename it",
                    path, name, why);
        free(generation);
    }
    free(path);
    return v;
}

/* Do as the verdict says.  0: the place is free. */
static int links_settle_place(const char *folder, const char *which, const char *name,
                              enum verdict v, struct err *err)
{
    char *path = xasprintf("%s/%s", folder, which), *to = xasprintf("%s/%s", folder, name);
    int rc = 0;

    if (v == SECOND)
        rc = file_remove_folder(path, err);
    if (v == WHOLE)
        rc = generations_set_aside(folder, to, "damaged", name, err);
    if (rc == 0 && v != SECOND && rename(path, to) < 0)
        rc = err_sys(err, errno, "%s: cannot rename to %s", path, to);
    free(to);
    free(path);
    return rc;
}

/* A folder is left alone during a run.  The next resume settles it. */
static int check_room(const char *link, struct err *err)
{
    if (!links_is_folder(link))
        return 0;
    err_set(err, ERR_IO, "%s is a folder, so no link can be made there; rename it", link);
    return CKPT_UNLINKED;
}

/* ---- pointing ---- */

static int write_name(const char *path, const char *name, struct err *err)
{
    char *text = xasprintf("%s\n", name);
    int fd, rc = file_create(path, &fd, err);

    if (rc == 0) {
        rc = file_put(fd, path, text, strlen(text), err);
        if (rc == 0)
            rc = file_finish(fd, path, err);
        else
            close(fd);
    }
    free(text);
    return rc;
}

/* 1: the file system has no links, as far as this failure of symlink says.  Systems differ in what
 * they say (EPERM, ENOSYS, EOPNOTSUPP, EROFS ...), and these are failures of the disk. */
static int is_without_links(int errnum)
{
    return errnum != EIO && errnum != ENOSPC && errnum != EDQUOT && errnum != ENOMEM;
}

static int links_put(const char *aside, const char *link, const char *name, struct err *err)
{
    const int made = symlink(name, aside) == 0;
    int rc = 0;

    if (!made && is_without_links(errno))
        rc = write_name(aside, name, err);
    else if (!made)
        rc = err_sys(err, errno, "%s: cannot point it to %s", link, name);
    if (rc == 0 && rename(aside, link) < 0)
        rc = err_sys(err, errno, "%s: cannot point it to %s", link, name);
    if (rc == 0)
        return 0;
    (void)unlink(aside);
    return CKPT_UNLINKED;
}

int links_point(const char *which, const char *run_dir, const char *folder, const char *name,
                struct err *err)
{
    char *link = xasprintf("%s/%s", folder, which);
    char *aside = xasprintf("%s/%s.%s.tmp", folder, which, owner_own_id());
    int rc = owner_check(run_dir, err);

    if (rc == 0)
        rc = check_room(link, err);
    if (rc == 0) {
        (void)unlink(aside);
        rc = links_put(aside, link, name, err);
    }
    if (rc == 0)
        rc = file_sync_folder(folder, err);
    free(link);
    free(aside);
    return rc;
}

void links_unpoint(const char *folder, const char *name)
{
    struct err ignored;
    int n = 0;

    for (size_t i = 0; i < ARRAY_LEN(both); i++) {
        char *link = xasprintf("%s/%s", folder, both[i]), to[GENERATION_NAME];

        if (read_name(link, to) && !strcmp(to, name))
            n += unlink(link) == 0;
        free(link);
    }
    if (n) /* what it names must not go before it */
        (void)file_sync_folder(folder, &ignored);
}

char *ckpt_named_by(const char *path)
{
    const char *slash = strrchr(path, '/');
    char name[GENERATION_NAME];

    if (links_is_folder(path) || !read_name(path, name))
        return NULL;
    return slash ? xasprintf("%.*s/%s", (int)(slash - path), path, name) : xstrdup(name);
}

/* ---- at the start ---- */

/* is_done: what the verdict says was done; else a driver that goes on with the run would do it. */
static char *tell_verdict(const char *folder, const char *which, const char *name, enum verdict v,
                          int is_done)
{
    const char *is = v == SECOND ? "is a second copy of"
                     : v == LOST ? "is all that is left of"
                     : is_done   ? "took the place of"
                                 : "would take the place of";
    const char *so = v == SECOND ? is_done ? "and was removed" : "and would be removed"
                     : v == LOST ? is_done ? "and became it" : "and would become it"
                                 : "which is damaged";

    return xasprintf("%s/%s is a folder, as a copy of a run without its links has it; it %s %s, %s",
                     folder, which, is, name, so);
}

int links_settle(const char *folder, void (*warn)(void *arg, const char *text), void *arg)
{
    int n = 0;

    for (size_t i = 0; i < ARRAY_LEN(both); i++) {
        char name[GENERATION_NAME], *text;
        struct err err;
        const enum verdict v = links_judge(folder, both[i], name, &err);

        if (v == NO_FOLDER || v == FOREIGN) /* ckpt_check_links tells of it */
            continue;
        if (links_settle_place(folder, both[i], name, v, &err) < 0) {
            warn(arg, err.msg);
            continue;
        }
        text = tell_verdict(folder, both[i], name, v, 1);
        warn(arg, text);
        free(text);
        n++;
    }
    return n;
}

void links_add_copies(const char *folder, struct generation **g, int *n)
{
    for (size_t i = 0; i < ARRAY_LEN(both); i++) {
        char *path = xasprintf("%s/%s", folder, both[i]);
        struct ckpt_hashes of;
        struct ckpt_state s;
        struct err ignored;

        if (links_is_folder(path) && ckpt_read_state(path, &s, &of, &ignored) == 0) {
            int at = 0;

            while (at < *n && (*g)[at].step >= s.step)
                at++;
            *g = xrealloc(*g, sizeof **g * (size_t)(*n + 1));
            memmove(*g + at + 1, *g + at, sizeof **g * (size_t)(*n - at));
            (*g)[at].step = s.step;
            snprintf((*g)[at].name, sizeof(*g)->name, "%s", both[i]);
            ++*n;
        }
        free(path);
    }
}

/* 1: files can be made in `folder`, and links cannot. */
static int has_no_links(const char *folder)
{
    char *aside = xasprintf("%s/link.%s.tmp", folder, owner_own_id());
    const int has = symlink("nothing", aside) == 0, errnum = errno;
    struct err ignored;
    int lacks = 0;

    if (!has && is_without_links(errnum))
        lacks = write_name(aside, "nothing", &ignored) == 0;
    (void)unlink(aside);
    free(aside);
    return lacks;
}

/* The run's folder of checkpoints, where ckpt_clear removes what a crash leaves, or the nearest
 * folder above that is there. */
static char *nearest_folder(const char *run_dir)
{
    char *path = generations_folder(run_dir), *slash;

    while (access(path, F_OK) != 0 && (slash = strrchr(path, '/')))
        *(slash == path ? slash + 1 : slash) = '\0';
    if (access(path, F_OK) == 0)
        return path;
    free(path);
    return xstrdup(".");
}

void ckpt_check_disk(const char *run_dir, void (*warn)(void *arg, const char *text), void *arg)
{
    char *near = nearest_folder(run_dir);

    if (has_no_links(near)) {
        char *text =
            xasprintf("the file system of %s has no symbolic links: checkpoints/latest and best "
                      "are text files with the name of a checkpoint there",
                      run_dir);
        warn(arg, text);
        free(text);
    }
    free(near);
}

void ckpt_check_links(const char *run_dir, void (*warn)(void *arg, const char *text), void *arg)
{
    char *folder = generations_folder(run_dir), *text;

    ckpt_check_disk(run_dir, warn, arg);
    for (size_t i = 0; i < ARRAY_LEN(both); i++) {
        char name[GENERATION_NAME];
        struct err err;
        const enum verdict v = links_judge(folder, both[i], name, &err);

        text = v == FOREIGN     ? xstrdup(err.msg)
               : v != NO_FOLDER ? tell_verdict(folder, both[i], name, v, 0)
                                : NULL;
        if (text)
            warn(arg, text);
        free(text);
    }
    free(folder);
}
