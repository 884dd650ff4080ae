/* token_cache - makes token files, each by one process.
 *
 * The happy path: the file is there.  Else PATH.part is created and locked, looked at once more,
 * filled, and renamed.  A process that waited for the lock holds that of a file which has another
 * name by then, and begins again. */
#include "data/token_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "data/token_maker.h"

enum { TOKEN_CACHE_VERSION = 2 }; /* of how tokens follow from texts */

/* ---- what the tokens follow from ---- */

static int token_cache_hash_tokenizer(const char *path, struct hash128 *out, struct err *err)
{
    struct mapped m;

    if (access(path, R_OK) < 0)
        return err_sys(err, errno, "file %s (of data.tokenizer)", path);
    if (mapped_open(&m, path, err) < 0)
        return err->code;
    *out = hash_of(m.bytes, m.n_bytes);
    mapped_close(&m);
    return 0;
}

static struct hash128 token_cache_key(const struct token_maker_job *m)
{
    struct hasher *const h = hasher_new();
    struct hash128 key;

    hasher_add_i64(h, TOKEN_CACHE_VERSION);
    hasher_add(h, &m->hash, sizeof m->hash);
    token_marks_print(m->marks, h);
    hasher_add_i64(h, m->form);
    if (m->of_pairs)
        hasher_add(h, "pairs", 5);
    corpus_print(m->corpus, h);
    key = hasher_end(h);
    hasher_free(h);
    return key;
}

/* ---- files ---- */

/* Lock `path`, which is created.  *fd: its descriptor, which holds the lock until it is closed.
 * Failing, errno says why. */
static int token_cache_lock(const char *path, int *fd)
{
    struct stat mine, there;
    int waits = 0;

    for (;;) {
        *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (*fd < 0)
            return -1;
        while (flock(*fd, waits ? LOCK_EX : LOCK_EX | LOCK_NB) < 0) {
            if (errno != EWOULDBLOCK && errno != EINTR) {
                close(*fd);
                return -1;
            }
            if (errno == EWOULDBLOCK)
                log_info("data.tokenizer: another process makes %s; waiting for it", path);
            waits = waits || errno == EWOULDBLOCK;
        }
        if (fstat(*fd, &mine) == 0 && stat(path, &there) == 0 && mine.st_dev == there.st_dev &&
            mine.st_ino == there.st_ino)
            return 0;
        close(*fd); /* its maker has renamed it, or removed it */
    }
}

/* Fill the locked file `part`, and give it its name. */
static int token_cache_fill(const struct token_maker_job *m, int fd, const char *part,
                            const char *path, struct err *err)
{
    int rc = 0;

    if (ftruncate(fd, 0) < 0)
        rc = err_sys(err, errno, "file %s", part);
    if (rc == 0)
        rc = token_maker_run(m, fd, part, err);
    if (rc == 0 && rename(part, path) < 0)
        rc = err_sys(err, errno, "cannot rename %s to %s", part, path);
    if (rc < 0)
        unlink(part);
    return rc;
}

/* This process has the lock of `part`. */
static int token_cache_make_locked(struct token_file *out, const struct token_maker_job *m, int fd,
                                   const char *part, const char *path, struct err *err)
{
    int rc = token_file_open(out, path, m->key, err);

    if (rc != TOKEN_FILE_NONE) { /* another process was here meanwhile */
        unlink(part);
        return rc;
    }
    rc = token_cache_fill(m, fd, part, path, err);
    if (rc == 0)
        rc = token_file_open(out, path, m->key, err);
    if (rc == TOKEN_FILE_NONE)
        rc = err_set(err, ERR_IO, "file %s is not there, or not whole, right after it was made",
                     path);
    return rc;
}

/* Make the file `path`, or wait until another process has made it.  TOKEN_FILE_NONE: nothing can be
 * created there, and *why is the number of the system's error. */
static int token_cache_make(struct token_file *out, const struct token_maker_job *m,
                            const char *path, int *why, struct err *err)
{
    char *part = xasprintf("%s.part", path);
    int fd, rc = TOKEN_FILE_NONE;

    if (token_cache_lock(part, &fd) == 0) {
        rc = token_cache_make_locked(out, m, fd, part, path, err);
        close(fd);
    } else {
        *why = errno;
    }
    free(part);
    return rc;
}

/* ---- places ---- */

enum { TOKEN_CACHE_MOST_PLACES = 2 };

/* The user's folder for such files; NULL: there is none.  For free().  A folder that cannot be made
 * is told when nothing can be created in it. */
static char *token_cache_home(void)
{
    const char *const cache = getenv("XDG_CACHE_HOME"), *const home = getenv("HOME");
    char *above = cache && *cache == '/' ? xstrdup(cache)
                  : home && *home == '/' ? xasprintf("%s/.cache", home)
                                         : NULL;
    char *path = above ? xasprintf("%s/dptrain", above) : NULL;

    if (above)
        (void)mkdir(above, 0700);
    if (path)
        (void)mkdir(path, 0700);
    free(above);
    return path;
}

static int token_cache_places(const struct token_cache *what, char *place[TOKEN_CACHE_MOST_PLACES])
{
    int n = 0;

    place[n++] = xstrdup(what->cache ? what->cache : what->beside);
    if (!what->cache && (place[n] = token_cache_home()))
        n++;
    return n;
}

/* Look in all places first: the user who made a file may write where this one may only read. */
static int token_cache_find(struct token_file *out, const struct token_maker_job *m, char **place,
                            int n, struct err *err)
{
    char name[HASH_TEXT_LEN];
    int rc = TOKEN_FILE_NONE, why = 0;

    hash_to_text(m->key, name);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; rc == TOKEN_FILE_NONE && i < n; i++) {
            char *path = xasprintf("%s/.dptrain-%s.tokens", place[i], name);

            rc = pass == 0 ? token_file_open(out, path, m->key, err)
                           : token_cache_make(out, m, path, &why, err);
            free(path);
        }
    if (rc != TOKEN_FILE_NONE)
        return rc;
    return err_sys(err, why,
                   "the tokens of the texts cannot be kept in %s%s%s; want a folder that can be "
                   "written, data.cache",
                   place[0], n > 1 ? ", nor in " : "", n > 1 ? place[1] : "");
}

int token_cache_open(struct token_file *out, const struct token_cache *what, struct err *err)
{
    char *place[TOKEN_CACHE_MOST_PLACES];
    struct token_marks marks;
    struct token_maker_job m = {.corpus = what->corpus,
                                .tokenizer = what->tokenizer,
                                .marks = &marks,
                                .form = what->form,
                                .of_pairs = what->of_pairs};
    int n, rc;

    if (token_cache_hash_tokenizer(what->tokenizer, &m.hash, err) < 0 ||
        token_marks_read(&marks, what->tokenizer, what->end_token, err) < 0)
        return err->code;
    m.key = token_cache_key(&m);
    n = token_cache_places(what, place);
    rc = token_cache_find(out, &m, place, n, err);
    for (int i = 0; i < n; i++)
        free(place[i]);
    token_marks_fini(&marks);
    return rc;
}
